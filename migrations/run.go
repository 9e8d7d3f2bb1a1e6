package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/pressly/goose/v3"

	"github.com/timeoutcenter/toc/internal/wait"
)

// versionTable is where goose keeps which steps a database has.
const versionTable = "toc_schema_version"

// run migrates one database.
type run struct {
	Config
	database Database
	progress *progress
	migrated bool // a step was missing
}

// errOvertaken says that another process ran the step between goose's look and
// our transaction. It happens in SQLite only, which has no lock to wait for
// before that.
var errOvertaken = errors.New("another process ran this step")

// Against another process on the same SQLite file: how long to wait for it in
// all, and between two attempts.
const (
	busyPatience = 30 * time.Second
	busyPause    = 50 * time.Millisecond
)

func (r *run) do(ctx context.Context) error {
	if r.Dialect == MySQL {
		unlock, err := lock(ctx, r.database, r.Logger)
		if err != nil {
			return err
		}
		defer unlock()
		if err := dropEmptyVersionTable(ctx, r.database.DB); err != nil {
			return err
		}
	}
	err := patiently(ctx, func() error {
		// The database may have changed while we waited.
		_, err := r.check(ctx, r.database)
		if err == nil {
			err = r.attempt(ctx)
		}
		return err
	})
	if err != nil {
		return err
	}
	r.progress.reach(r.database.Index, len(steps)-1, r.progress.tables)
	return nil
}

// patiently repeats f while another process has the same SQLite file.
func patiently(ctx context.Context, f func() error) error {
	for began := time.Now(); ; {
		err := f()
		if !errors.Is(err, errOvertaken) && !isBusy(err) || time.Since(began) > busyPatience {
			return err
		}
		if err := wait.For(ctx, busyPause); err != nil {
			return err
		}
	}
}

// attempt runs the steps that are missing.
func (r *run) attempt(ctx context.Context) error {
	provider, err := r.provider(ctx)
	if err != nil {
		return err
	}
	results, err := provider.Up(ctx)
	r.migrated = r.migrated || len(results) > 0
	if partial := (*goose.PartialError)(nil); errors.As(err, &partial) {
		return partial.Err
	}
	if err == nil {
		err = r.replaceLost(ctx)
	}
	return err
}

func (r *run) provider(ctx context.Context) (*goose.Provider, error) {
	v, err := r.vars(ctx)
	if err != nil {
		return nil, err
	}
	var migrations []*goose.Migration
	for i, s := range steps {
		migrations = append(migrations, goose.NewGoMigration(s.number, &goose.GoFunc{RunTx: r.body(i, v)}, nil))
	}
	dialect := goose.DialectMySQL
	if r.Dialect == SQLite {
		dialect = goose.DialectSQLite3
	}
	return goose.NewProvider(dialect, r.database.DB, nil,
		goose.WithTableName(versionTable),
		goose.WithGoMigrations(migrations...),
		goose.WithDisableGlobalRegistry(true),
		goose.WithSlog(r.Logger),
	)
}

func (r *run) vars(ctx context.Context) (v vars, err error) {
	var collation string
	if r.Dialect == MySQL {
		collation, err = binaryCollation(ctx, r.database.DB)
	}
	return newVars(r.Layout, r.database.Index, collation), err
}

// body is the function that goose runs for a step. In SQLite it is one transaction; MySQL commits at every CREATE and
// ALTER TABLE, so there each statement can be repeated.
func (r *run) body(index int, v vars) func(context.Context, *sql.Tx) error {
	s := steps[index]
	return func(ctx context.Context, tx *sql.Tx) error {
		if r.Dialect == SQLite {
			if err := reserve(ctx, tx, s); err != nil {
				return err
			}
		}
		return s.run(ctx, r.Dialect, tx, v, func(tables int) { r.progress.reach(r.database.Index, index, tables) })
	}
}

// run makes a step. done receives how many tables it has been through.
func (s step) run(ctx context.Context, dialect Dialect, on executor, v vars, done func(tables int)) error {
	once, perTable, err := s.scripts(dialect)
	if err != nil {
		return err
	}
	if err := execute(ctx, on, once, v); err != nil {
		return err
	}
	for table := range v.Tables {
		if err := execute(ctx, on, perTable, v.forTable(table)); err != nil {
			return err
		}
		done(table + 1)
	}
	return nil
}

// executor runs a statement, or records it.
type executor interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

func execute(ctx context.Context, tx executor, script *script, v vars) error {
	statements, err := script.statements(v)
	if err != nil {
		return err
	}
	for _, statement := range statements {
		if _, err := tx.ExecContext(ctx, statement); err != nil && !isDoneAlready(statement, err) {
			return fmt.Errorf("%s: %w", script.Name(), err)
		}
	}
	return nil
}

// isDoneAlready reports whether MySQL refused an ALTER TABLE because a run that was stopped has done it.
func isDoneAlready(statement string, err error) bool {
	var refused *mysql.MySQLError
	const duplicateColumn, duplicateKey, cantDrop = 1060, 1061, 1091
	return strings.HasPrefix(statement, "ALTER TABLE ") && errors.As(err, &refused) &&
		slices.Contains([]uint16{duplicateColumn, duplicateKey, cantDrop}, refused.Number)
}

// reserve takes SQLite's write lock before anything is read in the transaction
// (BEGIN IMMEDIATE, with any setting of the handle), and then looks again whether
// the step is still to be done.
func reserve(ctx context.Context, tx *sql.Tx, s step) error {
	if _, err := tx.ExecContext(ctx, "UPDATE "+versionTable+" SET is_applied = is_applied WHERE 0"); err != nil {
		return fmt.Errorf("take the write lock: %w", err)
	}
	var there bool
	err := tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM "+versionTable+" WHERE version_id = ? AND is_applied)", s.number).Scan(&there)
	if err != nil {
		return fmt.Errorf("look for step %d: %w", s.number, err)
	}
	if there {
		return errOvertaken
	}
	return nil
}

// isBusy reports whether err is SQLITE_BUSY or SQLITE_LOCKED, in any of their variants.
func isBusy(err error) bool {
	var coded interface{ Code() int }
	return errors.As(err, &coded) && (coded.Code()&0xff == 5 || coded.Code()&0xff == 6)
}
