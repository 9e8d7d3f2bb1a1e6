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
	maxAge      = 5 * time.Minute // of a connection, less up to a third; a name may mean another server by then
	pingAge     = 5 * time.Second // of a connection that pings: it finds out soon where new connections lead
	refusalsOld = time.Second     // a younger connection that is told "read-only" leads where all new ones do
)

// statementTime is how long the server works on one text of ours.
func statementTime(patience time.Duration) time.Duration { return patience * 2 / 3 }

// server is what connecting found out about the server of a database.
type server struct {
	isMariaDB atomic.Bool
	// turn counts how often the server was found to be read-only: connections of an
	// earlier turn are not used any more, new ones may lead to the new primary.
	turn     atomic.Int64
	readOnly atomic.Bool // as the last ping or refusal told
}

// leave gives up all connections there are.
func (s *server) dropConnections() {
	s.readOnly.Store(true)
	s.turn.Add(1)
}

// session makes connections as the store wants them.
//
// They are READ COMMITTED: the statements name their rows, so nothing needs the gap
// locks (and deadlocks) of the default level.
type session struct {
	driver.Connector
	server   *server
	patience time.Duration
}

func (s *session) Connect(ctx context.Context) (driver.Conn, error) {
	turn := s.server.turn.Load()
	conn, err := s.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	c := &mysqlConn{fullConn: conn.(fullConn), server: s.server, turn: turn, born: time.Now()}
	c.until = c.born.Add(maxAge - rand.N(maxAge/3))
	if err := c.begin(ctx, s.patience); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return c, nil
}

// mysqlConn is a connection and what is known of it.
type mysqlConn struct {
	fullConn
	server *server
	turn   int64
	born   time.Time
	until  time.Time // when it is too old
	id     string    // the server's number for it
	host   string    // the server that it leads to
}

// fullConn is what a connection of the driver can do and the pool asks for.
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

// hostText tells servers apart, on MySQL and MariaDB.
const hostText = "CONCAT_WS('/',@@hostname,@@port,@@server_id)"

func (c *mysqlConn) begin(ctx context.Context, patience time.Duration) error {
	limit := statementTime(patience)
	// A lock is waited for as short as the server knows to, which is a second on MySQL: many share a transaction and a
	// read, and the store waits for those apart that met a lock; see lockWait. MySQL limits the time of SELECTs only.
	// /*M! is for MariaDB alone.
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

// IsValid is asked when the pool takes the connection back.
func (c *mysqlConn) IsValid() bool { return !c.isStale() && c.fullConn.IsValid() }

// ResetSession is asked when the pool gives the connection out once more.
func (c *mysqlConn) ResetSession(ctx context.Context) error {
	if c.isStale() {
		return driver.ErrBadConn
	}
	return c.fullConn.ResetSession(ctx)
}

// ErrReadOnly is a Ping's error of a server that answers, and takes no writes.
var ErrReadOnly = errors.New("the server is read-only")

// ping tells whether new connections lead to a server that takes writes. A demoted
// primary answers, and so it counts as down, also where our user may write to it.
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
		s.turn.Add(1) // what was connected between the last refusal and now
	}
	return took, nil
}

const noSuchThread = 1094 // number of an error

// end sees to it that the server stops working on what a connection was sent, and
// tells whether it has. A server does not look whether its client is still there
// while it waits for a lock. kill: it is told to stop; else it is only watched.
func (b *mysqlBackend) end(database int, lost *mysqlConn, kill bool) (over bool) {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout(b.timeout))
	defer cancel()
	conn, err := b.pings[database].Conn(ctx)
	if err != nil {
		return false
	}
	defer conn.Close()
	// The numbers of connections are a server's own, and it begins anew when it restarts.
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
