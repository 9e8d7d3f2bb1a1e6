// Package store keeps the tasks: the only truth of the timeout center.
//
// Tasks, moves and queries come in. They go out as few, batched SQL statements over the shards (8 databases ×
// 1024 tables) and come back as rows. GORM reads one task, a list, and the tables beside the task tables. MySQL,
// MariaDB and SQLite are behind one small interface, so everything above it exists once.
//
// Each database is a separate failure domain: it may have its own host, and an error names the database
// (DatabaseError), so that the others continue. Its condition is the one answer to whether it can be used (condition.go).
// Every change of a status is one compare-and-set (move.go). One batch writer makes inserts and moves (writer.go).
//
// The package does not decide when a task runs, or which node runs it.
package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"gorm.io/gorm"

	"github.com/timeoutcenter/toc/internal/outside"
	"github.com/timeoutcenter/toc/internal/tlsclient"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/task"
)

// Driver names a kind of database.
type Driver string

// The drivers.
const (
	MySQL  Driver = "mysql"  // MySQL 8, MariaDB ≥ 10.6
	SQLite Driver = "sqlite" // without cgo, one file a database
)

// Config says where the databases are.
type Config struct {
	Driver Driver
	Layout sharding.Layout

	// MySQL: DSN holds one %d, the number of the database. DSNs, if given, holds one DSN a database instead, so
	// each may have its own host.
	DSN          string
	DSNs         []string
	MaxOpenConns int // per database. Defaults to 16
	// TLS makes the connections of MySQL. Nil means plain text, or what the DSN says.
	TLS *tlsclient.Client

	// SQLite: the directory of the files toc_0.db, toc_1.db …
	Dir string

	// Outside has Connect, Shared and Hold. If nodes share the files of SQLite, each database is held by its row, as on MySQL.
	Outside outside.Outside

	// Timeout bounds one transaction or query. Defaults to 15 s.
	Timeout time.Duration

	// IDs makes new job_ids. A store without it refuses inserts.
	IDs *sharding.IDs
	// Now is the wall clock. Defaults to time.Now.
	Now func() time.Time
}

// withDefaults fills unset fields.
func (c Config) withDefaults() Config {
	c.MaxOpenConns = cmp.Or(c.MaxOpenConns, 16)
	c.Timeout = cmp.Or(c.Timeout, 15*time.Second)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Outside.Hold == nil {
		c.Outside.Hold = flock
	}
	return c
}

// Store is the task store. It is safe for concurrent use.
type Store struct {
	*databases
	queries
	operations
	records
	retention

	inserts *writer[*insert]
	moves   *writer[*moveRequest]
}

// databases sends statements to each database, and records whether it can be used.
type databases struct {
	cfg     Config
	layout  sharding.Layout
	backend backend
	dbs     []*database

	opened   time.Time // by the wall clock
	openedAt time.Time // by the monotonic one
}

// The other methods of a Store, by what they are about.
type (
	// queries read tasks.
	queries struct {
		*databases
		nextDueTexts sync.Map // statements of NextDue, by their first shard
	}
	// operations change many tasks, at a rate.
	operations struct{ *databases }
	// records are the rows beside the tasks: the audit, what is paused, and what runs.
	records struct{ *databases }
	// retention deletes finished tasks.
	retention struct{ *databases }
)

// database is one database of the layout.
type database struct {
	index      int
	read       *gorm.DB      // queries
	unobserved gorm.ConnPool // queries that do not show whether the database can be used
	stamp      atomic.Int64  // last stamp, in Unix milliseconds

	condition condition
}

// Open makes the handles of all databases. It connects to none of them: a database that is down now recovers by
// itself.
func Open(cfg Config) (*Store, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Layout.Validate(); err != nil {
		return nil, err
	}
	s := &databases{cfg: cfg, layout: cfg.Layout, opened: cfg.Now(), openedAt: time.Now()}
	var err error
	switch cfg.Driver {
	case MySQL:
		s.backend, err = openMySQL(cfg)
	case SQLite:
		s.backend, err = openSQLite(cfg)
	default:
		err = fmt.Errorf("store.driver: %q is neither mysql nor sqlite", cfg.Driver)
	}
	if err != nil {
		return nil, err
	}
	for i := range cfg.Layout.Databases {
		db := &database{index: i, unobserved: s.backend.reader(i)}
		if db.read, err = openGORM(&observedPool{ConnPool: db.unobserved, store: s, database: i}); err != nil {
			return nil, errors.Join(err, s.backend.close())
		}
		s.dbs = append(s.dbs, db)
	}
	return &Store{
		databases: s, queries: queries{databases: s}, operations: operations{s}, records: records{s}, retention: retention{s},
		inserts: newWriter(s, "insert", kind[*insert](inserts{s})), moves: newWriter(s, "update", kind[*moveRequest](moves{s})),
	}, nil
}

// Layout returns the layout of the store.
func (s *databases) Layout() sharding.Layout { return s.layout }

// Close flushes the accepted inserts and closes all connections. No call may be under way.
func (s *Store) Close() error {
	s.inserts.wait()
	s.moves.wait()
	return s.backend.close()
}

// bound gives a database call its time limit.
func (s *databases) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	return withTimeout(ctx, s.cfg.Timeout)
}

// eachDatabase runs f for every database at once, waits for all, and returns their errors.
func (s *databases) eachDatabase(op string, f func(database int) error) error {
	errs := make([]error, len(s.dbs))
	var wg sync.WaitGroup
	for i := range s.dbs {
		wg.Go(func() { errs[i] = s.wrap(i, op, f(i)) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// DatabaseError says which operation failed on which database. It is a task.ErrUnavailable: the caller may try
// again.
type DatabaseError struct {
	Database int
	Op       string
	Err      error

	locked bool
}

func (e *DatabaseError) Error() string {
	return fmt.Sprintf("%s in database %d: %v", e.Op, e.Database, e.Err)
}

func (e *DatabaseError) Unwrap() error { return e.Err }

// Where names the failing database only: the text of its error is not for every HTTP client.
func (e *DatabaseError) Where() string { return fmt.Sprintf("database %d", e.Database) }

// Is makes every DatabaseError a task.ErrUnavailable, and a task.ErrLocked if its only cause is the lock of
// another transaction.
func (e *DatabaseError) Is(target error) bool {
	return target == task.ErrUnavailable || e.locked && target == task.ErrLocked
}

func (s *databases) wrap(database int, op string, err error) error {
	if _, wrapped := errors.AsType[*DatabaseError](err); err == nil || wrapped {
		return err
	}
	return &DatabaseError{Database: database, Op: op, Err: err, locked: s.isLocked(err)}
}
