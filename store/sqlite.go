package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"gorm.io/gorm"
	"modernc.org/sqlite"
	sqlitelib "modernc.org/sqlite/lib"

	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/task"
)

// sqliteBackend keeps each database in its own file. SQLite allows one writer per file, so each file has one
// connection that writes and a few that read; with the write-ahead log they work at the same time. Commits are
// durable (synchronous=FULL).
type sqliteBackend struct {
	serverClocks
	dir     string
	writers []*sql.DB
	readers []*sql.DB
	held    dirLock

	holders []*sql.DB // for the holder's row only, of files that are shared; else nil
}

// SQLiteFile is the path of database number i.
func SQLiteFile(dir string, i int) string { return filepath.Join(dir, fmt.Sprintf("toc_%d.db", i)) }

func openSQLite(cfg Config) (backend, error) {
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("store.sqlite.dir: %w", err)
	}
	if err := makePrivate(cfg.Dir, cfg.Layout.Databases); err != nil {
		return nil, fmt.Errorf("store.sqlite.dir: %w", err)
	}
	b := &sqliteBackend{dir: cfg.Dir, serverClocks: make(serverClocks, cfg.Layout.Databases),
		held: dirLock{hold: cfg.Outside.Hold, files: make([]atomic.Pointer[heldFiles], cfg.Layout.Databases)}}
	for i := range cfg.Layout.Databases {
		writer, err := openSQLiteFile(cfg, i, sqliteDSN(cfg.Dir, i, false, lockWait)+onlyExisting)
		if err != nil {
			return nil, errors.Join(err, b.close())
		}
		writer.SetMaxOpenConns(1)
		b.writers = append(b.writers, writer)
		if cfg.Outside.Shared {
			holders, err := openSQLiteFile(cfg, i, sqliteDSN(cfg.Dir, i, false, time.Second)+onlyExisting)
			if err != nil {
				return nil, errors.Join(err, b.close())
			}
			holders.SetMaxOpenConns(1)
			b.holders = append(b.holders, holders)
		}
		reader, err := openSQLiteFile(cfg, i, SQLiteDSN(cfg.Dir, i, true))
		if err != nil {
			return nil, errors.Join(err, b.close())
		}
		reader.SetMaxOpenConns(4)
		reader.SetMaxIdleConns(4)
		b.readers = append(b.readers, reader)
	}
	return b, nil
}

// OpenSQLite opens database number i for writing, and creates its file if necessary; or for queries only.
func OpenSQLite(cfg Config, i int, queryOnly bool) (*sql.DB, error) {
	return openSQLiteFile(cfg, i, SQLiteDSN(cfg.Dir, i, queryOnly))
}

func openSQLiteFile(cfg Config, i int, dsn string) (*sql.DB, error) {
	connector, err := sqlite.NewConnector(dsn)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(preparing{cfg.Outside.Connector(i, connector)}), nil
}

// makePrivate removes other users' rights from a directory and the files in it: an attribute may be
// confidential. Files of other owners stay as they are, and so does what a symbolic link names: somebody else may have made it while
// the directory was open to all, and it may name any file of the machine.
func makePrivate(dir string, databases int) error {
	if err := restrict(dir, 0o700); err != nil {
		return err
	}
	for i := range databases {
		for _, suffix := range []string{"", "-wal", "-shm"} {
			path := SQLiteFile(dir, i) + suffix
			if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
				continue
			}
			if err := restrict(path, 0o600); err != nil {
				return err
			}
		}
	}
	return nil
}

func restrict(path string, mode os.FileMode) error {
	if err := os.Chmod(path, mode); !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return nil
}

// onlyExisting ends a DSN whose file must exist: a store that has lost a file must not continue with an empty
// one.
const onlyExisting = "&mode=rw"

// SQLiteDSN opens database number i for writing, and creates its file if necessary; or for queries only.
func SQLiteDSN(dir string, i int, queryOnly bool) string {
	return sqliteDSN(dir, i, queryOnly, 10*time.Second)
}

// sqliteDSN waits up to wait for a file that another process has locked.
func sqliteDSN(dir string, i int, queryOnly bool, wait time.Duration) string {
	q := url.Values{}
	for _, p := range []string{fmt.Sprintf("busy_timeout(%d)", wait.Milliseconds()), "journal_mode(WAL)", "synchronous(FULL)", "cache_size(-8000)"} {
		q.Add("_pragma", p)
	}
	if queryOnly {
		q.Add("_pragma", "query_only(1)")
	} else {
		q.Set("_txlock", "immediate")
	}
	dsn := "file:" + (&url.URL{Path: SQLiteFile(dir, i)}).EscapedPath() + "?" + q.Encode()
	if queryOnly {
		return dsn + onlyExisting
	}
	return dsn
}

func (b *sqliteBackend) ping(ctx context.Context, database int) (took time.Duration, err error) {
	if err := b.checkIntact(database); err != nil {
		return 0, err
	}
	began := time.Now()
	err = b.readers[database].PingContext(ctx)
	return time.Since(began), err
}

func (b *sqliteBackend) reader(database int) gorm.ConnPool { return b.readers[database] }

func (b *sqliteBackend) transact(ctx context.Context, database int, statements []statement) ([]int64, error) {
	tx, err := b.writers[database].BeginTx(ctx, nil)
	if err != nil {
		return nil, b.refused(database, err)
	}
	affected := make([]int64, 0, len(statements))
	for _, s := range statements {
		res, err := tx.ExecContext(ctx, s.sql, s.args...)
		if err != nil {
			return nil, b.refused(database, errors.Join(err, tx.Rollback()))
		}
		n, err := res.RowsAffected()
		if err != nil {
			return nil, errors.Join(err, tx.Rollback())
		}
		affected = append(affected, n)
	}
	if err := b.checkIntact(database); err != nil { // a write into a deleted file is lost, or reappears with the file
		return nil, errors.Join(err, tx.Rollback())
	}
	if err := tx.Commit(); err != nil {
		return nil, err
	}
	return affected, b.checkIntact(database) // if the file was deleted meanwhile, the outcome is unknown
}

// refused is the error of a transaction that was rolled back: nothing was changed if the file must not be written.
func (b *sqliteBackend) refused(database int, err error) error {
	if b.reopenIfReadOnly(database, err) {
		return fmt.Errorf("%w: %w", task.ErrNotBegun, err)
	}
	return err
}

// reopenIfReadOnly makes the next change of a database open its file again if err says that it must not be written. SQLite
// opens such a file for reading, and the connection stays so when the file's rights are mended.
func (b *sqliteBackend) reopenIfReadOnly(database int, err error) bool {
	if sqliteCode(err)&0xff != sqlitelib.SQLITE_READONLY {
		return false
	}
	b.writers[database].SetMaxIdleConns(-1) // closes the idle one
	b.writers[database].SetMaxIdleConns(1)
	return true
}

func (b *sqliteBackend) waitsForLocks(int) bool { return true }

// server: each file is its own.
func (b *sqliteBackend) server(database int) int { return database }

func (b *sqliteBackend) qualified(_, table int) string { return sharding.TableName(table) }

// writesBlocked: a SQLite file is locked as a whole, and its error says so.
func (b *sqliteBackend) writesBlocked(context.Context, int) bool { return false }

func (b *sqliteBackend) ignoreDuplicates() string { return " ON CONFLICT DO NOTHING" }

// hint names an index of its table; index names are unique in a database here. The primary key is the row id,
// which SQLite calls not indexed. Without the hint SQLite would assume that status = 0 is rarer than a job_id,
// and read all pending rows.
func (b *sqliteBackend) hint(index string, table int) string {
	if index == indexPrimary {
		return " NOT INDEXED"
	}
	return " INDEXED BY " + index + strings.TrimPrefix(sharding.TableName(table), "timeout_task")
}

func (b *sqliteBackend) unionMember(query string) string { return "SELECT * FROM (" + query + ")" }

func (b *sqliteBackend) countingExpr(_ int, value string) string { return value }

func (b *sqliteBackend) deleteFrom(table int) string {
	return "DELETE FROM " + sharding.TableName(table) + " AS t" + b.hint(indexPrimary, table)
}

// idArg converts a uint64 to its two's complement: SQLite's integers are signed.
func (b *sqliteBackend) idArg(v uint64) any { return int64(v) }

func (b *sqliteBackend) timeArg(t time.Time) any { return t.UTC().Format(timeFormat) }

func (b *sqliteBackend) appendTo(column string, keep int) string {
	return "substr(COALESCE(" + column + ",'')||?,-" + strconv.Itoa(keep) + ")"
}

func (b *sqliteBackend) nullSafe() string { return " IS " }

// isAt compares times as text. A row written by hand may have fewer or more digits than three, and more are
// rounded up when they are read. So t matches all texts above the millisecond before, with any number of zeros,
// and not above t's own.
func (b *sqliteBackend) isAt(column string, t time.Time) (string, any) {
	const zeros = "000000000"
	before, until := b.timeArg(t.Add(-time.Millisecond)).(string)+zeros, b.timeArg(t).(string)+zeros
	return column + ">? AND " + column + "<=?", pair{before, until}
}

func sqliteCode(err error) int {
	if e, is := errors.AsType[*sqlite.Error](err); is {
		return e.Code()
	}
	return 0
}

// refusal: the lock is on the whole file, and busy_timeout has passed.
func (b *sqliteBackend) refusal(err error) refusal {
	code := sqliteCode(err)
	switch code {
	case 0:
		return 0
	case sqlitelib.SQLITE_CONSTRAINT_UNIQUE, sqlitelib.SQLITE_CONSTRAINT_PRIMARYKEY, sqlitelib.SQLITE_CONSTRAINT_ROWID:
		return refusedDuplicate
	case sqlitelib.SQLITE_ERROR:
		return refusedTable
	}
	switch code & 0xff {
	case sqlitelib.SQLITE_FULL, sqlitelib.SQLITE_IOERR:
		return refusedFull
	case sqlitelib.SQLITE_CONSTRAINT, sqlitelib.SQLITE_MISMATCH, sqlitelib.SQLITE_TOOBIG:
		return refusedData
	}
	return otherRefusal
}

func (b *sqliteBackend) close() error {
	var errs []error
	for _, p := range slices.Concat(b.readers, b.writers, b.holders) {
		errs = append(errs, p.Close())
	}
	return errors.Join(append(errs, b.unlockDir())...)
}
