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
	pool := sql.OpenDB(cfg.Outside.Connector(database, cfg.TLS.ExplainMySQLConnects(connector, dsn.Addr)))
	pool.SetMaxOpenConns(2)
	pool.SetMaxIdleConns(1)
	pool.SetConnMaxLifetime(maxAge)
	return pool, nil
}

// askReadOnly asks whether the server accepts no writes. Our user may have the right to write all the same: a replica would then have a
// row that its primary lacks, and stop copying.
const askReadOnly = "@@global.read_only OR @@global.innodb_read_only"

const (
	// noteReadOnly comes before a change of the holder's row, which is made only if the server accepts writes.
	noteReadOnly = "SET @toc_read_only=" + askReadOnly + ";"
	ifWritable   = "@toc_read_only=0"
	// readHolder reads the server's clock, the number of rows that the change has changed, whether there was none because the server is
	// read-only, and the holder's row.
	readHolder = "SELECT CONCAT(UTC_TIMESTAMP(3),' ',ROW_COUNT(),' ',COALESCE(@toc_read_only,0),' '," +
		"COALESCE((SELECT value FROM toc_meta WHERE name='" + holderRow + "'),''))"
)

// askHolder makes an optional change. It reports whether that changed the holder's row, and returns the
// row as it is then; "" if there is none.
func (b *mysqlBackend) askHolder(ctx context.Context, database int, change string, args ...any) (row string, changed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, holderTimeout)
	defer cancel()
	conn, err := b.holders[database].Conn(ctx)
	if err != nil {
		return "", false, err
	}
	defer conn.Close()
	if change != "" {
		change = noteReadOnly + change + ";"
	}
	reading := ServerClock{Sent: time.Now()}
	var parts []string // date, time, rows, read-only, the row
	err = conn.Raw(func(raw any) error {
		text, err := queryText(ctx, raw.(driver.QueryerContext), change+readHolder, joinArgs([]statement{{args: args}}))
		if parts = strings.SplitN(text, " ", 5); err == nil && len(parts) < 5 {
			err = fmt.Errorf("the server answered %q", text)
		} else if err == nil && change != "" && parts[3] == "1" {
			err = ErrReadOnly
		}
		if err != nil {
			return errors.Join(driver.ErrBadConn, err) // the next connection may reach another server
		}
		return nil
	})
	if err != nil {
		return "", false, err
	}
	reading.Received = time.Now()
	if reading.Server, err = time.Parse("2006-01-02 15:04:05.000", parts[0]+" "+parts[1]); err != nil {
		return "", false, err
	}
	b.serverClocks[database].Store(&reading)
	return parts[4], change != "" && parts[2] == "1", nil
}

// swapHolder changes the holder's row if it is still the given one, and returns the row as it is then.
func (b *mysqlBackend) swapHolder(ctx context.Context, database int, seen string, next claim) (row string, changed bool, err error) {
	if seen == "" {
		return b.askHolder(ctx, database, "INSERT IGNORE INTO toc_meta (name, value) SELECT ?, ? FROM DUAL WHERE "+ifWritable, holderRow, next.text())
	}
	return b.askHolder(ctx, database, "UPDATE toc_meta SET value=? WHERE name=? AND value=? AND "+ifWritable, next.text(), holderRow, seen)
}

func (b *mysqlBackend) readHolder(ctx context.Context, database int) (row string, err error) {
	row, _, err = b.askHolder(ctx, database, "")
	return row, err
}

func (b *mysqlBackend) lock(ctx context.Context, database int, holder Holder) (Lock, error) {
	return lockRow(ctx, b, database, "database "+b.names[database], holder)
}
