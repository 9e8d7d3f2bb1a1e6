package virtual

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"modernc.org/sqlite"
	sqlitelib "modernc.org/sqlite/lib"

	"github.com/timeoutcenter/toc/internal/wait"
	"github.com/timeoutcenter/toc/store"
)

// database is a server of a database: its file, and its faults.
type database struct {
	number int
	dir    string
	host   string // in the network

	mu     sync.Mutex
	slow   time.Duration
	full   bool
	down   bool
	locker *sql.DB // has locked it; nil: nobody
	locked *sql.Conn
}

func (d *database) slowness() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.slow
}

func (d *database) isDown() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.down
}

func (d *database) isFull() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.full
}

// lock begins a transaction that writes, as soon as no hand has one.
func (d *database) lock() error {
	for {
		if err := d.tryLock(); !isBusy(err) {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (d *database) tryLock() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.locker != nil {
		return nil
	}
	db, err := sql.Open("sqlite", store.SQLiteDSN(d.dir, d.number, false))
	if err != nil {
		return err
	}
	conn, err := db.Conn(context.Background())
	if err == nil {
		_, err = conn.ExecContext(context.Background(), "PRAGMA busy_timeout(0); BEGIN IMMEDIATE") // SQLite would wait in real time
	}
	if err != nil {
		return errors.Join(err, db.Close())
	}
	d.locker, d.locked = db, conn
	return nil
}

func (d *database) unlock() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.locker == nil {
		return
	}
	_, _ = d.locked.ExecContext(context.Background(), "ROLLBACK")
	_ = d.locked.Close()
	_ = d.locker.Close()
	d.locker = nil
}

// errFull is the error of SQLite on a full disk.
var errFull = sync.OnceValue(func() error {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	for _, text := range []string{"PRAGMA max_page_count=2", "CREATE TABLE t (b BLOB)", "INSERT INTO t VALUES (zeroblob(100000))"} {
		if _, err = db.Exec(text); err != nil {
			break
		}
	}
	return err
})

// connector is the way of one node to one database.
type connector struct {
	driver.Connector
	node     *Node
	database *database
}

// noContext is how long a call waits that has no context, like the read timeout of a driver over a network.
const noContext = 30 * time.Second

// call makes a call of the driver: it reaches the database, is done in no time, and is answered. If the answer fails to come, it
// is done all the same.
func (c *connector) call(ctx context.Context, f func() error) (answered bool, err error) {
	if err := c.pass(ctx); err != nil {
		return false, err
	}
	if err := c.node.do(f); err != nil {
		return true, err
	}
	if err := c.pass(ctx); err != nil {
		return false, err
	}
	return true, nil
}

// pass is the way to the database, or back.
func (c *connector) pass(ctx context.Context) error {
	if c.database.isDown() {
		return fmt.Errorf("database %d: %w", c.database.number, unix.ECONNREFUSED)
	}
	if d := c.database.slowness() / 2; d > 0 {
		if err := wait.For(ctx, d); err != nil {
			return err
		}
	}
	return c.node.host.Pass(ctx, c.database.host)
}

// do does something that a crash must not cut in two, and that is not done after one.
func (n *Node) do(f func() error) error {
	n.files.RLock()
	defer n.files.RUnlock()
	if n.isCrashed() {
		return ErrCrashed
	}
	return f()
}

func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	made := &conn{connector: c}
	answered, err := c.call(ctx, func() error {
		own, err := c.Connector.Connect(ctx)
		if err != nil {
			return err
		}
		made.own = own.(sqliteConn)
		made.busy, err = takeBusyTimeout(ctx, made.own)
		return err
	})
	if err != nil {
		if made.own != nil {
			_ = made.own.Close()
		}
		if !answered && ctx.Err() == nil {
			err = fmt.Errorf("connect: %w", err)
		}
		return nil, err
	}
	c.node.connsMu.Lock()
	defer c.node.connsMu.Unlock()
	c.node.conns[made] = true
	return made, nil
}

// takeBusyTimeout makes SQLite answer at once that a file is locked: it would wait in real time. It returns how long SQLite
// was to wait.
func takeBusyTimeout(ctx context.Context, own sqliteConn) (time.Duration, error) {
	rows, err := own.QueryContext(ctx, "PRAGMA busy_timeout", nil)
	if err != nil {
		return 0, err
	}
	value := make([]driver.Value, 1)
	err = errors.Join(rows.Next(value), rows.Close())
	if err != nil {
		return 0, err
	}
	_, err = own.ExecContext(ctx, "PRAGMA busy_timeout(0)", nil)
	ms, _ := value[0].(int64)
	return time.Duration(ms) * time.Millisecond, err
}

// sqliteConn is a connection of the driver.
type sqliteConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

// conn is a connection of a node to a database. database/sql makes one call at a time.
type conn struct {
	*connector
	own  sqliteConn
	busy time.Duration // how long a call waits for a locked file

	mu     sync.Mutex
	isInTx bool
	isBad  bool // a call got no answer
}

// call is connector.call, which also waits for a locked file.
func (c *conn) call(ctx context.Context, f func() error) error {
	return c.waitForLock(ctx, func() (bool, error) { return c.connector.call(ctx, f) })
}

// waitForLock repeats a call while the file is locked. A connection without an answer is of no more use.
func (c *conn) waitForLock(ctx context.Context, call func() (answered bool, err error)) error {
	pauses := wait.Backoff{First: time.Millisecond, Most: 50 * time.Millisecond}
	for began := time.Now(); ; {
		answered, err := call()
		if !answered {
			c.setBad()
			return err
		}
		if !isBusy(err) || time.Since(began) >= c.busy || pauses.Wait(ctx) != nil {
			return err
		}
	}
}

// isBusy reports whether another transaction has the file.
func isBusy(err error) bool {
	var refused *sqlite.Error
	return errors.As(err, &refused) && refused.Code()&0xff == sqlitelib.SQLITE_BUSY
}

// inTime does something within a transaction. A transaction is one message to the server and one answer, as the store has it on
// MySQL: so it takes no time between its begin and its commit, and no other one has to wait for it.
func (c *conn) inTime(f func() error) error {
	return c.node.do(func() error { return c.unlessFull(f) })
}

func (c *conn) unlessFull(f func() error) error {
	if c.database.isFull() {
		return errFull()
	}
	return f()
}

func (c *conn) exec(ctx context.Context, own func() (driver.Result, error)) (r driver.Result, err error) {
	exec := func() error { r, err = own(); return err }
	if c.inTx() {
		err = c.inTime(exec)
	} else {
		err = c.call(ctx, func() error { return c.unlessFull(exec) })
	}
	if err == nil {
		if n, err := r.RowsAffected(); err == nil && n > 0 {
			c.node.world.rest.stir(follows)
		}
	}
	return r, err
}

func (c *conn) query(ctx context.Context, own func() (driver.Rows, error)) (rows driver.Rows, err error) {
	ask := func() error { rows, err = own(); return err }
	if c.inTx() {
		err = c.node.do(ask)
	} else {
		err = c.call(ctx, ask)
	}
	if err != nil && rows != nil {
		_ = rows.Close()
		rows = nil
	}
	return rows, err
}

func (c *conn) Ping(ctx context.Context) error {
	return c.call(ctx, func() error { return c.own.Ping(ctx) })
}

// BeginTx sends the transaction: what follows is done at once.
func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	t := &tx{conn: c}
	err := c.waitForLock(ctx, func() (bool, error) {
		if err := c.pass(ctx); err != nil {
			return false, err
		}
		return true, c.node.do(func() (err error) {
			if t.own, err = c.own.BeginTx(ctx, opts); err == nil {
				c.setInTx(true)
			}
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return t, nil
}

func (c *conn) setInTx(is bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isInTx = is
}

func (c *conn) inTx() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.isInTx
}

func (c *conn) setBad() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isBad = true
}

// abandon is what a server does when its client has died. The node's files are locked.
func (c *conn) abandon() {
	if c.inTx() {
		_, _ = c.own.ExecContext(context.Background(), "ROLLBACK", nil)
		c.setInTx(false)
	}
}

func (c *conn) Begin() (driver.Tx, error) { return c.BeginTx(context.Background(), driver.TxOptions{}) }

func (c *conn) Prepare(query string) (driver.Stmt, error) {
	return c.PrepareContext(context.Background(), query)
}

// PrepareContext asks no server: the time is that of the statement's calls.
func (c *conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	s := &stmt{conn: c}
	err := c.node.do(func() error {
		own, err := c.own.PrepareContext(ctx, query)
		if err == nil {
			s.own = own.(sqliteStmt)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (c *conn) ResetSession(ctx context.Context) error {
	if !c.IsValid() {
		return driver.ErrBadConn
	}
	return c.own.ResetSession(ctx)
}

func (c *conn) IsValid() bool {
	c.mu.Lock()
	bad := c.isBad
	c.mu.Unlock()
	return !bad && !c.node.isCrashed() && c.own.IsValid()
}

func (c *conn) Close() error {
	c.node.connsMu.Lock()
	delete(c.node.conns, c)
	c.node.connsMu.Unlock()
	return c.own.Close()
}

// sqliteStmt is a prepared statement of the driver.
type sqliteStmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

// stmt is a prepared statement of a connection.
type stmt struct {
	conn *conn
	own  sqliteStmt
}

var _ sqliteStmt = (*stmt)(nil)

func (s *stmt) Close() error  { return s.own.Close() }
func (s *stmt) NumInput() int { return s.own.NumInput() }

func (s *stmt) Exec([]driver.Value) (driver.Result, error) { return nil, errNoContext }
func (s *stmt) Query([]driver.Value) (driver.Rows, error)  { return nil, errNoContext }

// errNoContext is of the calls that package database/sql does not make.
var errNoContext = errors.New("virtual: a call without a context")

func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.conn.exec(ctx, func() (driver.Result, error) { return s.own.ExecContext(context.Background(), args) })
}

func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.conn.query(ctx, func() (driver.Rows, error) { return s.own.QueryContext(context.Background(), args) })
}

// tx is a transaction.
type tx struct {
	conn *conn
	own  driver.Tx
}

// Commit waits for the answer to the transaction. Without one it may have been made.
func (t *tx) Commit() error {
	ctx, cancel := context.WithTimeout(context.Background(), noContext)
	defer cancel()
	err := t.conn.inTime(func() error {
		err := t.own.Commit()
		if err == nil {
			t.conn.setInTx(false)
		}
		return err
	})
	if err != nil { // as the server does it
		return errors.Join(err, t.Rollback())
	}
	if err := t.conn.pass(ctx); err != nil {
		t.conn.setBad()
		return err
	}
	return nil
}

// Rollback is not waited for: a server also rolls back what it loses the connection of.
func (t *tx) Rollback() error {
	return t.conn.node.do(func() error {
		if !t.conn.inTx() {
			return nil
		}
		t.conn.setInTx(false)
		return t.own.Rollback()
	})
}
