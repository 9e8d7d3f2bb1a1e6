package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/timeoutcenter/toc/internal/wait"
)

const (
	maxAge      = 5 * time.Minute // of a connection, less up to a third; later the name may mean another server
	idleTime    = 5 * time.Minute // without a statement, until a connection is closed
	pingAge     = 5 * time.Second // of a connection that pings, so that it soon notices where new connections lead
	refusalsOld = time.Second     // a younger connection that gets "read-only" leads where all new ones do
)

// statementTime is how long the server may work on one text.
func statementTime(timeout time.Duration) time.Duration { return timeout * 2 / 3 }

// server is what connections have found out about the server of a database.
type server struct {
	isMariaDB atomic.Bool
	// turn counts how often the server was found to be read-only. Connections of an earlier turn are not used
	// any more: new ones may lead to the new primary.
	turn     atomic.Int64
	readOnly atomic.Bool // according to the last ping or refusal
}

// dropConnections makes all existing connections stale.
func (s *server) dropConnections() {
	s.readOnly.Store(true)
	s.turn.Add(1)
}

// session makes connections with the settings of the store. They are READ COMMITTED: the statements name their
// rows, so they do not need the gap locks (and deadlocks) of the default level.
type session struct {
	driver.Connector
	server  *server
	timeout time.Duration
}

func (s *session) Connect(ctx context.Context) (driver.Conn, error) {
	turn := s.server.turn.Load()
	conn, err := s.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	c := &mysqlConn{fullConn: conn.(fullConn), server: s.server, turn: turn, born: time.Now()}
	c.until = c.born.Add(maxAge - rand.N(maxAge/3))
	if err := c.begin(ctx, s.timeout); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return c, nil
}

// mysqlConn is a connection with what is known of it.
type mysqlConn struct {
	fullConn
	server *server
	turn   int64
	born   time.Time
	until  time.Time // when it is too old
	id     string    // the server's number for it
	host   string    // the server it is connected to
}

// fullConn has all methods of the driver's connection that the pool uses.
type fullConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
	driver.NamedValueChecker
}

// hostText identifies a server, on MySQL and MariaDB.
const hostText = "CONCAT_WS('/',@@hostname,@@port,@@server_id)"

func (c *mysqlConn) begin(ctx context.Context, timeout time.Duration) error {
	limit := statementTime(timeout)
	// Wait as short as the server allows for a lock, which is a second on MySQL: callers share transactions and
	// reads, and the store waits apart for locked rows; see lockWait. MySQL limits the time of SELECTs only.
	// /*M! is for MariaDB only.
	text := "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;SET innodb_lock_wait_timeout=1,lock_wait_timeout=1" +
		fmt.Sprintf("/*M!,innodb_lock_wait_timeout=0,lock_wait_timeout=0,max_statement_time=%.3f*/;", limit.Seconds()) +
		"SELECT CONCAT_WS(' ',CONNECTION_ID()," + hostText + ",VERSION())"
	facts, err := queryText(ctx, c, text, nil)
	if err != nil {
		return err
	}
	words := strings.SplitN(facts, " ", 3)
	if len(words) != 3 {
		return fmt.Errorf("the server says %q of itself", facts)
	}
	c.id, c.host = words[0], words[1]
	isMariaDB := strings.Contains(strings.ToLower(words[2]), "mariadb")
	c.server.isMariaDB.Store(isMariaDB)
	if !isMariaDB {
		_, err = c.ExecContext(ctx, fmt.Sprintf("SET max_execution_time=%d", limit.Milliseconds()), nil)
	}
	return err
}

func (c *mysqlConn) isStale() bool {
	return c.turn != c.server.turn.Load() || time.Now().After(c.until)
}

// IsValid is called when the pool takes the connection back.
func (c *mysqlConn) IsValid() bool { return !c.isStale() && c.fullConn.IsValid() }

// ResetSession is called when the pool hands out the connection again.
func (c *mysqlConn) ResetSession(ctx context.Context) error {
	if c.isStale() {
		return driver.ErrBadConn
	}
	return c.fullConn.ResetSession(ctx)
}

// ErrReadOnly is the error of a Ping if the server answers and accepts no writes.
var ErrReadOnly = errors.New("the server is read-only")

// ping checks that new connections lead to a server that accepts writes. A demoted primary answers, so it
// counts as down, even if our user may write to it.
func (b *mysqlBackend) ping(ctx context.Context, database int) (took time.Duration, err error) {
	conn, err := b.pings[database].Conn(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	began := time.Now()
	var readOnly bool
	if err := conn.QueryRowContext(ctx, "SELECT @@global.read_only OR @@global.innodb_read_only").Scan(&readOnly); err != nil {
		return 0, err
	}
	took = time.Since(began)
	s := b.servers[database]
	if readOnly {
		s.dropConnections()
		return took, ErrReadOnly
	}
	if s.readOnly.Swap(false) {
		s.turn.Add(1) // drops the connections made between the last refusal and now
	}
	return took, nil
}

const noSuchThread = 1094 // number of an error

// end makes sure that the server stops working on the text of a lost connection, and reports whether it has.
// While a server waits for a lock it does not notice that its client is gone. kill: end kills the statement;
// else it only watches.
func (b *mysqlBackend) end(database int, lost *mysqlConn, kill bool) (over bool) {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout(b.timeout))
	defer cancel()
	conn, err := b.pings[database].Conn(ctx)
	if err != nil {
		return false
	}
	defer conn.Close()
	// The numbers of connections belong to one server, and start anew when it restarts.
	const ask = "SELECT " + hostText + ", (SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID=? AND DB<=>DATABASE())"
	for {
		var host sql.NullString
		var there int
		if err := conn.QueryRowContext(ctx, ask, lost.id).Scan(&host, &there); err != nil || host.String != lost.host {
			return false
		}
		if there == 0 {
			return true
		}
		if kill {
			if _, err := conn.ExecContext(ctx, "KILL "+lost.id); err != nil && mysqlCode(err) != noSuchThread {
				return false
			}
		}
		if wait.For(ctx, 10*time.Millisecond) != nil {
			return false
		}
	}
}
