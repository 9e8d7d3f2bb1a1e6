package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/go-sql-driver/mysql"

	"github.com/timeoutcenter/toc/sharding"
)

// versionTable is where goose keeps which steps a database has.
const versionTable = "toc_schema_version"

// run migrates one database.
type run struct {
	Config
	database Database
	progress *progress
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

func (r *run) do(ctx context.Context, dir direction) error {
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
	began, applied := time.Now(), 0
	err := patiently(ctx, func() error {
		// What was true before we waited need not be true now.
		_, err := r.check(ctx, r.database)
		if err == nil {
			applied, err = r.attempt(ctx, dir)
		}
		return err
	})
	if err != nil {
		return err
	}
	r.progress.reach(r.database.Index, r.progress.steps, r.Layout.TablesPerDatabase)
	if applied > 0 {
		r.Logger.Info("database migrated", "database", r.database.String(), "steps", applied, "took", time.Since(began))
	}
	return nil
}

// patiently repeats f while another process has the same SQLite file.
func patiently(ctx context.Context, f func() error) error {
	for began := time.Now(); ; {
		err := f()
		if !errors.Is(err, errOvertaken) && !isBusy(err) || time.Since(began) > busyPatience {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(busyPause):
		}
	}
}

// attempt runs the steps that are missing (up) or there (down).
func (r *run) attempt(ctx context.Context, dir direction) (applied int, err error) {
	provider, err := r.provider(ctx)
	if err != nil {
		return 0, err
	}
	var results []*goose.MigrationResult
	if dir == up {
		results, err = provider.Up(ctx)
	} else {
		results, err = provider.DownTo(ctx, 0)
	}
	if partial := (*goose.PartialError)(nil); errors.As(err, &partial) {
		return len(partial.Applied), partial.Err
	}
	switch {
	case err != nil:
	case dir == up:
		err = r.replaceLost(ctx)
	default:
		_, err = r.database.DB.ExecContext(ctx, "DROP TABLE IF EXISTS "+versionTable)
	}
	return len(results), err
}

func (r *run) provider(ctx context.Context) (*goose.Provider, error) {
	v, err := r.vars(ctx)
	if err != nil {
		return nil, err
	}
	var migrations []*goose.Migration
	for _, s := range steps {
		upTx, err := r.body(s, up, v)
		if err != nil {
			return nil, err
		}
		downTx, err := r.body(s, down, v)
		if err != nil {
			return nil, err
		}
		migrations = append(migrations, goose.NewGoMigration(s.number, &goose.GoFunc{RunTx: upTx}, &goose.GoFunc{RunTx: downTx}))
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

// body is what goose runs for a step. In SQLite it is one transaction; MySQL
// commits at every CREATE TABLE, so there each statement can be repeated.
func (r *run) body(s step, dir direction, v vars) (func(context.Context, *sql.Tx) error, error) {
	script, err := s.script(r.Dialect, dir)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, tx *sql.Tx) error {
		if r.Dialect == SQLite {
			if err := reserve(ctx, tx, s, dir); err != nil {
				return err
			}
		}
		if !script.perTable {
			return execute(ctx, tx, script, v)
		}
		done, err := r.tablesDone(ctx, tx, s, dir)
		if err != nil {
			return err
		}
		for table := range r.Layout.TablesPerDatabase {
			if v := v.forTable(table); !done[v.Table] {
				err := execute(ctx, tx, script, v)
				if r.Dialect == MySQL && s.adds != "" && isMadeAlready(err) {
					err = nil // by the run before, on its way still when it was stopped
				}
				if err != nil {
					return err
				}
			}
			r.progress.reach(r.database.Index, s.ofTable(), table+1)
		}
		return nil
	}, nil
}

// tablesDone names the tables on which a step that was stopped half way has been done already, where it cannot be
// repeated: an ALTER TABLE on MySQL, which commits each of them.
func (r *run) tablesDone(ctx context.Context, tx *sql.Tx, s step, dir direction) (map[string]bool, error) {
	if s.adds == "" || r.Dialect != MySQL {
		return nil, nil
	}
	rows, err := tx.QueryContext(ctx,
		"SELECT table_name FROM information_schema.columns WHERE table_schema = DATABASE() AND column_name = ?", s.adds)
	if err != nil {
		return nil, fmt.Errorf("look for column %s: %w", s.adds, err)
	}
	defer rows.Close()
	done := make(map[string]bool)
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		done[name] = true
	}
	if dir == down {
		for table := range r.Layout.TablesPerDatabase {
			name := sharding.TableName(table)
			done[name] = !done[name]
		}
	}
	return done, rows.Err()
}

// isMadeAlready tells that a column was there (up) or gone (down) before.
func isMadeAlready(err error) bool {
	var refused *mysql.MySQLError
	const duplicateColumn, cantDropColumn = 1060, 1091
	return errors.As(err, &refused) && (refused.Number == duplicateColumn || refused.Number == cantDropColumn)
}

func execute(ctx context.Context, tx *sql.Tx, script script, v vars) error {
	statements, err := script.statements(v)
	if err != nil {
		return err
	}
	for _, statement := range statements {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", script.template.Name(), err)
		}
	}
	return nil
}

// reserve takes SQLite's write lock before anything is read in the transaction
// (BEGIN IMMEDIATE, whatever the handle's own setting is), and then looks again
// whether the step is still to be done.
func reserve(ctx context.Context, tx *sql.Tx, s step, dir direction) error {
	if _, err := tx.ExecContext(ctx, "UPDATE "+versionTable+" SET is_applied = is_applied WHERE 0"); err != nil {
		return fmt.Errorf("take the write lock: %w", err)
	}
	var there bool
	err := tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM "+versionTable+" WHERE version_id = ? AND is_applied)", s.number).Scan(&there)
	if err != nil {
		return fmt.Errorf("look for step %d: %w", s.number, err)
	}
	if there == (dir == up) {
		return errOvertaken
	}
	return nil
}

// isBusy tells SQLITE_BUSY and SQLITE_LOCKED, in all their variants.
func isBusy(err error) bool {
	var coded interface{ Code() int }
	return errors.As(err, &coded) && (coded.Code()&0xff == 5 || coded.Code()&0xff == 6)
}
