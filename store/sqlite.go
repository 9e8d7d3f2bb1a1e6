package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	gormsqlite "gorm.io/driver/sqlite"
	"gorm.io/gorm"
	"modernc.org/sqlite"
	sqlitelib "modernc.org/sqlite/lib"

	"github.com/timeoutcenter/toc/sharding"
)

// sqliteBackend keeps each database in a file of its own. SQLite has one writer
// a file, so each file has one connection that writes and a few that read; the
// write-ahead log lets them work at the same time. Commits are durable
// (synchronous=FULL).
type sqliteBackend struct {
	dir     string
	writers []*sql.DB
	readers []*sql.DB
	gorms   []*gorm.DB
}

// SQLiteFile is the path of database number i.
func SQLiteFile(dir string, i int) string { return filepath.Join(dir, fmt.Sprintf("toc_%d.db", i)) }

func openSQLite(cfg Config) (backend, error) {
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("store.sqlite.dir: %w", err)
	}
	// GORM asks a connection for SQLite's version. It must not be one to a file:
	// a file that is unfit now is its own database's affair.
	nowhere, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return nil, err
	}
	defer nowhere.Close()
	b := &sqliteBackend{dir: cfg.Dir}
	for i := range cfg.Layout.Databases {
		writer, err := sql.Open("sqlite", SQLiteDSN(cfg.Dir, i, false))
		if err != nil {
			return nil, errors.Join(err, b.close())
		}
		writer.SetMaxOpenConns(1)
		b.writers = append(b.writers, writer)
		reader, err := sql.Open("sqlite", SQLiteDSN(cfg.Dir, i, true))
		if err != nil {
			return nil, errors.Join(err, b.close())
		}
		reader.SetMaxOpenConns(4)
		reader.SetMaxIdleConns(4)
		b.readers = append(b.readers, reader)
		g, err := gorm.Open(&gormsqlite.Dialector{Conn: nowhere}, gormConfig())
		if err != nil {
			return nil, errors.Join(err, b.close())
		}
		g.ConnPool, g.Statement.ConnPool = reader, reader
		b.gorms = append(b.gorms, g)
	}
	return b, nil
}

// SQLiteDSN opens database number i for writing, or for queries only.
func SQLiteDSN(dir string, i int, queryOnly bool) string {
	q := url.Values{}
	for _, p := range []string{"busy_timeout(10000)", "journal_mode(WAL)", "synchronous(FULL)", "cache_size(-8000)"} {
		q.Add("_pragma", p)
	}
	if queryOnly {
		q.Add("_pragma", "query_only(1)")
	} else {
		q.Set("_txlock", "immediate")
	}
	return "file:" + (&url.URL{Path: SQLiteFile(dir, i)}).EscapedPath() + "?" + q.Encode()
}

func (b *sqliteBackend) ping(ctx context.Context, database int) error {
	return b.readers[database].PingContext(ctx)
}

func (b *sqliteBackend) reader(database int) *gorm.DB { return b.gorms[database] }

func (b *sqliteBackend) transact(ctx context.Context, database int, statements []statement) ([]int64, error) {
	tx, err := b.writers[database].BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	affected := make([]int64, 0, len(statements))
	for _, s := range statements {
		res, err := tx.ExecContext(ctx, s.sql, s.args...)
		if err != nil {
			return nil, errors.Join(err, tx.Rollback())
		}
		n, err := res.RowsAffected()
		if err != nil {
			return nil, errors.Join(err, tx.Rollback())
		}
		affected = append(affected, n)
	}
	return affected, tx.Commit()
}

// server: each file is its own.
func (b *sqliteBackend) server(database int) int { return database }

func (b *sqliteBackend) qualified(_, table int) string { return sharding.TableName(table) }

func (b *sqliteBackend) orKeep() string { return " ON CONFLICT DO NOTHING" }

// hint names an index of its table; index names are unique in a database here.
// The primary key is the row id, which SQLite calls not indexed. Without the hint
// it would take status = 0 for rarer than a job_id, and read all pending rows.
func (b *sqliteBackend) hint(index string, table int) string {
	if index == indexPrimary {
		return " NOT INDEXED"
	}
	return " INDEXED BY " + index + strings.TrimPrefix(sharding.TableName(table), "timeout_task")
}

func (b *sqliteBackend) member(query string) string { return "SELECT * FROM (" + query + ")" }

func (b *sqliteBackend) counted(_ int, value string) string { return value }

func (b *sqliteBackend) deleteFrom(table int) string {
	return "DELETE FROM " + sharding.TableName(table) + " AS t" + b.hint(indexPrimary, table)
}

// id keeps a uint64 as its two's complement: SQLite's integers are signed.
func (b *sqliteBackend) id(v uint64) any { return int64(v) }

func (b *sqliteBackend) at(t time.Time) any { return t.UTC().Format(timeFormat) }

func sqliteCode(err error) int {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return e.Code()
	}
	return 0
}

func (b *sqliteBackend) isDuplicate(err error) bool {
	switch sqliteCode(err) {
	case sqlitelib.SQLITE_CONSTRAINT_UNIQUE, sqlitelib.SQLITE_CONSTRAINT_PRIMARYKEY, sqlitelib.SQLITE_CONSTRAINT_ROWID:
		return true
	}
	return false
}

func (b *sqliteBackend) isConflict(err error) bool {
	switch sqliteCode(err) & 0xff {
	case sqlitelib.SQLITE_BUSY, sqlitelib.SQLITE_LOCKED:
		return true
	}
	return false
}

func (b *sqliteBackend) isRefused(err error) bool { return sqliteCode(err) != 0 }

func (b *sqliteBackend) isData(err error) bool {
	switch sqliteCode(err) & 0xff {
	case sqlitelib.SQLITE_CONSTRAINT, sqlitelib.SQLITE_MISMATCH, sqlitelib.SQLITE_TOOBIG:
		return !b.isDuplicate(err)
	}
	return false
}

func (b *sqliteBackend) close() error {
	var errs []error
	for _, p := range append(b.readers, b.writers...) {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}

// sqliteLock is an flock on a file beside the database; the kernel frees it
// when the process ends, however it ends. The file says who holds it.
type sqliteLock struct{ file *os.File }

func (b *sqliteBackend) lock(_ context.Context, database int, holder string) (Lock, error) {
	path := filepath.Join(b.dir, fmt.Sprintf("toc_%d.lock", database))
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		who, _ := os.ReadFile(path)
		_ = f.Close()
		return nil, &OccupiedError{Database: SQLiteFile(b.dir, database), Holder: cmp.Or(strings.TrimSpace(string(who)), "another process")}
	}
	if err == nil {
		if err = f.Truncate(0); err == nil {
			_, err = f.WriteAt([]byte(holder+"\n"), 0)
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &sqliteLock{file: f}, nil
}

func (l *sqliteLock) Check(context.Context) error { return nil }

func (l *sqliteLock) Release() error { return l.file.Close() }
