package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/timeoutcenter/toc/internal/mysqlsession"
	"github.com/timeoutcenter/toc/internal/wait"
)

// The holder of a MySQL database is a row of toc_meta that the holder keeps changing. A lock of the server
// would not do: it would end with its connection, while its holder still relies on it, or outlive a host that
// died silently.
//
// A new process watches the row by its own clock. If the row changes, the holder lives. If it stands still for
// a Lease and a second, the new process takes it over by a compare-and-set: a later change by the old holder
// has no effect, and so proves nothing. The last change that proved something was sent before the watch began,
// hence its Lease is over.

const (
	holderTimeout = 1500 * time.Millisecond // of one statement; leaves time for a second in a Lease
	takeOverAfter = Lease + time.Second     // how long a silent holder is watched
	watchEvery    = 200 * time.Millisecond
)

// holderPool opens a database for its holder's row only: its statements wait for no others, neither here nor on
// the server.
func holderPool(cfg Config, database int, dsn *mysql.Config) (*sql.DB, error) {
	dsn = dsn.Clone()
	dsn.Timeout, dsn.ReadTimeout, dsn.WriteTimeout = holderTimeout, 2*holderTimeout, 2*holderTimeout
	connector, err := mysqlsession.NewConnector(dsn, mysqlsession.Limits{Statement: holderTimeout, LockWait: time.Second})
	if err != nil {
		return nil, err
	}
	pool := sql.OpenDB(cfg.Connector(database, cfg.TLS.ExplainMySQLConnects(connector, dsn.Addr)))
	pool.SetMaxOpenConns(2)
	pool.SetMaxIdleConns(1)
	pool.SetConnMaxLifetime(maxAge)
	return pool, nil
}

// readHolder reads the server's clock, the number of rows that the previous statement changed, and the holder's
// row.
const readHolder = "SELECT CONCAT(UTC_TIMESTAMP(3),' ',ROW_COUNT(),' ',COALESCE((SELECT value FROM toc_meta WHERE name='" + holderRow + "'),''))"

// askHolder runs an optional first statement. It reports whether that changed the holder's row, and returns the
// row as it is then; "" if there is none.
func (b *mysqlBackend) askHolder(ctx context.Context, database int, first string, args ...any) (row string, changed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, holderTimeout)
	defer cancel()
	conn, err := b.holders[database].Conn(ctx)
	if err != nil {
		return "", false, err
	}
	defer conn.Close()
	if first != "" {
		first += ";"
	}
	reading := ServerClock{Sent: time.Now()}
	var text string
	err = conn.Raw(func(raw any) error {
		text, err = queryText(ctx, raw.(driver.QueryerContext), first+readHolder, joinArgs([]statement{{args: args}}))
		if err != nil {
			return errors.Join(driver.ErrBadConn, err) // the next connection may reach another server
		}
		return nil
	})
	if err != nil {
		return "", false, err
	}
	reading.Received = time.Now()
	parts := strings.SplitN(text, " ", 4) // date, time, rows, the row
	if len(parts) < 4 {
		return "", false, fmt.Errorf("the server answered %q", text)
	}
	if reading.Server, err = time.Parse("2006-01-02 15:04:05.000", parts[0]+" "+parts[1]); err != nil {
		return "", false, err
	}
	b.clocks[database].Store(&reading)
	return parts[3], first != "" && parts[2] == "1", nil
}

// swapHolder changes the holder's row if it is still the given one, and returns the row as it is then.
func (b *mysqlBackend) swapHolder(ctx context.Context, database int, seen string, next claim) (row string, changed bool, err error) {
	if seen == "" {
		return b.askHolder(ctx, database, "INSERT IGNORE INTO toc_meta (name, value) VALUES (?, ?)", holderRow, next.text())
	}
	return b.askHolder(ctx, database, "UPDATE toc_meta SET value=? WHERE name=? AND value=?", next.text(), holderRow, seen)
}

func (b *mysqlBackend) clock(database int) (ServerClock, bool) {
	reading := b.clocks[database].Load()
	if reading == nil {
		return ServerClock{}, false
	}
	return *reading, true
}

// lock takes the row as soon as no other holder has it.
func (b *mysqlBackend) lock(ctx context.Context, database int, holder Holder) (Lock, error) {
	seen, _, err := b.askHolder(ctx, database, "")
	if err != nil {
		return nil, err
	}
	for watched := time.Now(); ; {
		before := parseClaim(seen)
		free := seen == "" || before.isReleased() || before.is(holder)
		if !free && time.Since(watched) < takeOverAfter {
			if err := wait.For(ctx, watchEvery); err != nil {
				return nil, err
			}
			now, _, err := b.askHolder(ctx, database, "")
			if err != nil {
				return nil, err
			}
			if after := parseClaim(now); now != seen && now != "" && !after.isReleased() && !after.is(holder) {
				return nil, b.occupied(database, after.Holder)
			}
			seen = now
			continue
		}
		next := claim{Holder: holder, beat: before.beat + 1, state: stateHeld}
		now, taken, err := b.swapHolder(ctx, database, seen, next)
		if err != nil {
			return nil, b.nameHolderBlocked(ctx, database, err)
		}
		if taken {
			return &mysqlLock{backend: b, database: database, claim: next, unclean: !free || before.state == stateUnsettled}, nil
		}
		// Another process was faster: another node of ours, or one of another holder.
		after := parseClaim(now)
		if !after.is(holder) && now != "" && !after.isReleased() {
			return nil, b.occupied(database, after.Holder)
		}
		seen = now
	}
}

func (b *mysqlBackend) occupied(database int, holder Holder) error {
	return &OccupiedError{Database: "database " + b.names[database], Holder: holder.String()}
}

// mysqlLock is the hold on a database.
type mysqlLock struct {
	backend  *mysqlBackend
	database int
	claim    claim // the last known row
	unclean  bool
}

func (l *mysqlLock) TakenUncleanly() bool { return l.unclean }

func (l *mysqlLock) Check(ctx context.Context) error { return l.write(ctx, stateHeld) }

// write makes the next beat. If the answer to a beat was lost, the beat may have been made: then the row
// differs from the known one, and is changed once more. To find it changed proves nothing for a single process,
// but for a cluster it proves that another node lives.
func (l *mysqlLock) write(ctx context.Context, state string) error {
	for {
		next := l.claim
		next.beat++
		next.state = state
		row, changed, err := l.backend.swapHolder(ctx, l.database, l.claim.text(), next)
		if err != nil {
			return l.backend.nameHolderBlocked(ctx, l.database, err)
		}
		now := parseClaim(row)
		if row == "" || !now.is(l.claim.Holder) || now.isReleased() && state == stateHeld {
			return fmt.Errorf("%w: database %s is held by %s", ErrLockLost, l.backend.names[l.database], now.Holder)
		}
		l.claim = now
		if changed || now.Kind == HolderCluster || now.isReleased() {
			return nil
		}
	}
}

func (l *mysqlLock) Release(settled bool) error {
	if l.claim.Kind == HolderCluster {
		return nil
	}
	return l.write(context.Background(), releasedAs(settled))
}
