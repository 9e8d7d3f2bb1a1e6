// Package migrations makes the databases of a store: numbered SQL, rendered per
// database, table and dialect, and run by goose.
//
// The caller passes open databases and the layout. The package makes the tables, an
// index for each hot statement, and in each database a description of the layout
// (toc_meta). It does not read tasks, and the caller chooses the settings of the
// connections.
//
//	mysql/ sqlite/   the SQL: for each number a file per database and one per task table
//	steps.go         the list of numbers, and how they are rendered
//	run.go           one database: lock, check, goose
//	lost.go          task tables that somebody dropped
//	meta.go          what a database says it is; Verify
//	identity.go      the store's id, by which a lost database is noticed
//	mysql.go         what only MySQL has: databases to create, a lock, collations
package migrations

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/timeoutcenter/toc/sharding"
)

// Dialect is the SQL that a database speaks.
type Dialect string

// The dialects. MySQL stands for MySQL 8 and MariaDB 10.6 or later.
const (
	MySQL  Dialect = "mysql"
	SQLite Dialect = "sqlite"
)

// Names of the indexes of every task table, for statements that name theirs:
// statistics stand still on purpose (mysql/00009_baseline.table.sql), so nothing is left to the
// optimizer. SQLite's names are per database; see SQLiteIndex.
const (
	IndexPrimary = "PRIMARY"                      // job_id; not a name in SQLite
	IndexDue     = "idx_status_action_time"       // status, action_time
	IndexBiz     = "uk_biz_id_biz_type_dedup_key" // biz_id, biz_type, dedup_key; unique
)

// SQLiteIndex is the name of an index of a database's table in SQLite.
func SQLiteIndex(index string, table int) string { return fmt.Sprintf("%s_%04d", index, table) }

// Database is one of the store's databases.
type Database struct {
	// Index is the database's number in the layout.
	Index int
	// DB is its handle. MySQL's must have parseTime on and room for two
	// connections: one holds the lock that keeps a second run out.
	DB *sql.DB
	// Name stands in messages. Defaults to "database <Index>".
	Name string
	// File is the path of a SQLite database, so that a look at one that is not there
	// does not make it. May be empty.
	File string
}

func (d Database) String() string {
	if d.Name != "" {
		return d.Name
	}
	return fmt.Sprintf("database %d", d.Index)
}

// Config says what to migrate.
type Config struct {
	Dialect   Dialect
	Layout    sharding.Layout
	Databases []Database

	// StoreID is the store's id if it is known from elsewhere. May be empty.
	StoreID string
	// New makes empty databases in place of the ones that a store in use has lost.
	New bool
	// Repartition puts the layout's number of partitions in force, also if the store
	// worked with another one. Nothing else may work on the store meanwhile.
	Repartition bool

	// Progress receives, after each table, the number of tables that are there and of
	// all. It is called from several goroutines, one call at a time, and must not
	// block. May be nil.
	Progress func(done, total int)
	// Logger gets one line if a database was changed. Defaults to none.
	Logger *slog.Logger
}

// parallel is how many databases are worked on at once. A server creates
// tables one after the other inside; more would only hold connections.
const parallel = 8

// Up brings all databases to this program's schema. It may be repeated, also
// after a failure, and two processes may do it at once. It makes empty task tables in
// place of lost ones. When all databases of the store are ready, they get the store's id.
//
// A database that was made with another layout, by a newer program, by a build before the first release or for another
// store, or that was lost from a store in use (LayoutError, NewerSchemaError, EarlierBuildError,
// StrangerError, EmptyError) stops everything before anything is changed. Any other
// failure is one database's own: the rest go on, and the answer joins a DatabaseError
// for each that failed.
func Up(ctx context.Context, cfg Config) error {
	if err := cfg.validate(); err != nil {
		return err
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	var (
		progress = newProgress(cfg)
		failed   = make([]error, len(cfg.Databases))
		schemas  = make([]schema, len(cfg.Databases))
	)
	var id string
	for look := range 2 {
		cfg.each(func(i int, d Database) {
			failed[i] = patiently(ctx, func() (err error) {
				schemas[i], err = cfg.check(ctx, d)
				return err
			})
		})
		if err := errors.Join(failed...); IsRefusal(err) {
			return err
		}
		var err error
		// Another process may have made the tables of a database after the look at it and before the look at one that has
		// the id, which is written last. So an empty one is looked at again.
		if id, err = cfg.judge(schemas, failed); err == nil {
			break
		}
		if look > 0 || !errors.As(err, new(*EmptyError)) {
			return err
		}
	}
	var migrated atomic.Int32
	began := time.Now()
	cfg.each(func(i int, d Database) {
		if failed[i] != nil {
			return
		}
		r := &run{Config: cfg, database: d, progress: progress}
		if failed[i] = r.do(ctx); failed[i] == nil && r.migrated {
			migrated.Add(1)
		}
	})
	if n := int(migrated.Load()); n > 0 {
		cfg.Logger.Info("databases migrated", "databases", n, "tables", n*cfg.Layout.TablesPerDatabase,
			"schema_version", newest(), "took", time.Since(began).Round(time.Millisecond))
	}
	for i, err := range failed {
		if err != nil {
			done, total := progress.of(cfg.Databases[i].Index)
			if cfg.Dialect == SQLite {
				done = 0 // a step is one transaction there
			}
			failed[i] = &DatabaseError{Database: cfg.Databases[i].String(), Done: done, Total: total, Err: err}
		}
	}
	if err := errors.Join(failed...); err != nil {
		return err
	}
	return patiently(ctx, func() error { return cfg.identify(ctx, id) })
}

// each calls f for every database, several at once, and waits for all.
func (cfg Config) each(f func(i int, d Database)) {
	var g errgroup.Group
	g.SetLimit(parallel)
	for i, d := range cfg.Databases {
		g.Go(func() error {
			f(i, d)
			return nil
		})
	}
	_ = g.Wait() // f keeps its own error
}

func (cfg Config) validate() error {
	if err := cfg.Layout.Validate(); err != nil {
		return err
	}
	if cfg.Dialect != MySQL && cfg.Dialect != SQLite {
		return fmt.Errorf("dialect %q is neither %s nor %s", cfg.Dialect, MySQL, SQLite)
	}
	for _, d := range cfg.Databases {
		if d.Index < 0 || d.Index >= cfg.Layout.Databases {
			return fmt.Errorf("%s has number %d, but there are only %d databases", d, d.Index, cfg.Layout.Databases)
		}
		if cfg.Dialect == MySQL && d.DB.Stats().MaxOpenConnections == 1 {
			return fmt.Errorf("%s: a migration needs two connections, its handle allows one", d)
		}
	}
	return nil
}
