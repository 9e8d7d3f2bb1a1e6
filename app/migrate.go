package app

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"

	"github.com/go-sql-driver/mysql"

	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/migrations"
	"github.com/timeoutcenter/toc/store"
)

// Databases opens a handle on each database of a configuration, for migrations
// and plain SQL. queryOnly opens them for reading. The caller closes them.
func Databases(cfg configs.Config, queryOnly bool) ([]migrations.Database, error) {
	cfg = cfg.WithDefaults()
	var list []migrations.Database
	for i := range cfg.Store.Databases {
		db, name, err := openDatabase(cfg, i, queryOnly)
		if err != nil {
			return nil, errors.Join(err, CloseDatabases(list))
		}
		list = append(list, migrations.Database{Index: i, DB: db, Name: name})
	}
	return list, nil
}

func openDatabase(cfg configs.Config, i int, queryOnly bool) (*sql.DB, string, error) {
	if cfg.Store.Driver == configs.DriverSQLite {
		db, err := sql.Open("sqlite", store.SQLiteDSN(cfg.Store.SQLite.Dir, i, queryOnly))
		return db, store.SQLiteFile(cfg.Store.SQLite.Dir, i), err
	}
	dsn, err := store.MySQLDSN(StoreConfig(cfg), i)
	if err != nil {
		return nil, "", err
	}
	connector, err := mysql.NewConnector(dsn)
	if err != nil {
		return nil, "", err
	}
	return sql.OpenDB(connector), dsn.DBName, nil
}

// CloseDatabases closes the handles of Databases.
func CloseDatabases(list []migrations.Database) error {
	var errs []error
	for _, d := range list {
		errs = append(errs, d.DB.Close())
	}
	return errors.Join(errs...)
}

// Migrate creates the databases and tables of a configuration, or brings them
// up to this program's schema. It may be repeated, and run twice at once.
// progress, when not nil, is told how many of all tables are there.
func Migrate(ctx context.Context, cfg configs.Config, logger *slog.Logger, progress func(done, total int)) error {
	cfg = cfg.WithDefaults()
	if cfg.Store.Driver == configs.DriverMySQL {
		for i := range cfg.Store.Databases {
			dsn, err := store.MySQLDSN(StoreConfig(cfg), i)
			if err != nil {
				return err
			}
			if err := migrations.CreateDatabase(ctx, dsn.FormatDSN()); err != nil {
				return fmt.Errorf("create database %s: %w", dsn.DBName, err)
			}
		}
	}
	list, err := Databases(cfg, false)
	if err != nil {
		return err
	}
	err = migrations.Up(ctx, migrations.Config{
		Dialect: migrations.Dialect(cfg.Store.Driver), Layout: Layout(cfg), Databases: list,
		Progress: progress, Logger: logger,
	})
	return errors.Join(err, CloseDatabases(list))
}

// prepare makes sure that a database has this program's schema and layout. The
// embedded store is migrated on the way; MySQL waits for `toc migrate`.
func (a *App) prepare(ctx context.Context, database int) error {
	db, name, err := openDatabase(a.cfg, database, false)
	if err != nil {
		return err
	}
	defer db.Close()
	d := migrations.Database{Index: database, DB: db, Name: name}
	if err := db.PingContext(ctx); err != nil {
		return &store.DatabaseError{Database: database, Op: "connect", Err: err}
	}
	dialect := migrations.Dialect(a.cfg.Store.Driver)
	err = migrations.Verify(ctx, dialect, a.layout, d)
	var missing *migrations.NotMigratedError
	if a.cfg.Store.Driver != configs.DriverSQLite || !errors.As(err, &missing) {
		return err
	}
	if err := migrations.Up(ctx, migrations.Config{
		Dialect: dialect, Layout: a.layout, Databases: []migrations.Database{d}, Logger: a.room("migrations"),
	}); err != nil {
		return err
	}
	return migrations.Verify(ctx, dialect, a.layout, d)
}
