package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/timeoutcenter/toc/internal/mysqlsession"
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

// limits are those of the pools: callers share transactions and reads, so these wait for no lock, and the store waits
// apart for locked rows; see lockWait.
func limits(timeout time.Duration) mysqlsession.Limits {
	return mysqlsession.Limits{Statement: statementTime(timeout)}
}

// session makes connections that know their server.
type session struct {
	driver.Connector // of mysqlsession
	server           *server
}

func (s *session) Connect(ctx context.Context) (driver.Conn, error) {
	turn := s.server.turn.Load()
	conn, err := s.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	c := &mysqlConn{Conn: conn.(*mysqlsession.Conn), server: s.server, turn: turn, born: time.Now()}
	c.until = c.born.Add(maxAge - rand.N(maxAge/3))
	c.server.isMariaDB.Store(c.IsMariaDB)
	return c, nil
}

// mysqlConn is a connection with what is known of it.
type mysqlConn struct {
	*mysqlsession.Conn
	server *server
	turn   int64
	born   time.Time
	until  time.Time // when it is too old
}

func (c *mysqlConn) isStale() bool {
	return c.turn != c.server.turn.Load() || time.Now().After(c.until)
}

// IsValid is called when the pool takes the connection back.
func (c *mysqlConn) IsValid() bool { return !c.isStale() && c.Conn.IsValid() }

// ResetSession is called when the pool hands out the connection again.
func (c *mysqlConn) ResetSession(ctx context.Context) error {
	if c.isStale() {
		return driver.ErrBadConn
	}
	return c.Conn.ResetSession(ctx)
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
	if err := conn.QueryRowContext(ctx, "SELECT "+askReadOnly).Scan(&readOnly); err != nil {
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
	// The numbers of connections belong to one server, and start again when it restarts.
	const ask = "SELECT " + mysqlsession.HostText + ", (SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID=? AND DB<=>DATABASE())"
	for {
		var host sql.NullString
		var there int
		if err := conn.QueryRowContext(ctx, ask, lost.ID).Scan(&host, &there); err != nil || host.String != lost.Host {
			return false
		}
		if there == 0 {
			return true
		}
		if kill {
			if _, err := conn.ExecContext(ctx, "KILL "+lost.ID); err != nil && mysqlCode(err) != noSuchThread {
				return false
			}
		}
		if wait.For(ctx, 10*time.Millisecond) != nil {
			return false
		}
	}
}
