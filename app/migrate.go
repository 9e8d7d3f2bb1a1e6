package app

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/timeoutcenter/toc/cluster"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/mysqlsession"
	"github.com/timeoutcenter/toc/migrations"
	"github.com/timeoutcenter/toc/store"
)

// Databases opens a handle on each database of a configuration, for migrations and plain SQL. queryOnly opens
// them for reading. The caller closes them.
func Databases(cfg configs.Config, queryOnly bool) ([]migrations.Database, error) {
	return databases(StoreConfig(cfg.WithDefaults()), queryOnly)
}

func databases(cfg store.Config, queryOnly bool) ([]migrations.Database, error) {
	var list []migrations.Database
	for i := range cfg.Layout.Databases {
		d, err := openDatabase(cfg, i, queryOnly)
		if err != nil {
			return nil, errors.Join(err, CloseDatabases(list))
		}
		list = append(list, d)
	}
	return list, nil
}

func openDatabase(cfg store.Config, i int, queryOnly bool) (d migrations.Database, err error) {
	d.Index = i
	if cfg.Driver == store.SQLite {
		d.Name = store.SQLiteFile(cfg.Dir, i)
		d.File = d.Name
		d.DB, err = store.OpenSQLite(cfg, i, queryOnly)
		return d, err
	}
	dsn, err := store.MySQLDSN(cfg, i)
	if err != nil {
		return d, err
	}
	connector, err := mysqlsession.NewConnector(dsn, migrations.SessionLimits)
	if err != nil {
		return d, err
	}
	d.Name, d.DB = dsn.DBName, sql.OpenDB(cfg.Outside.Connector(i, cfg.TLS.ExplainMySQLConnects(connector, dsn.Addr)))
	return d, nil
}

// CloseDatabases closes the handles of Databases.
func CloseDatabases(list []migrations.Database) error {
	var errs []error
	for _, d := range list {
		errs = append(errs, d.DB.Close())
	}
	return errors.Join(errs...)
}

// MigrateOption is an option of Migrate.
type MigrateOption func(*migrations.Config)

// MakeLostAnew creates lost databases of a store in use again, empty.
func MakeLostAnew() MigrateOption { return func(c *migrations.Config) { c.New = true } }

// Repartition puts cluster.partitions in force for a store that used another number. It is refused while a
// process uses the store.
func Repartition() MigrateOption { return func(c *migrations.Config) { c.Repartition = true } }

// Migrate creates the databases and tables of a configuration, or brings them up to this program's schema. It
// may be repeated, and run twice at once. progress, if not nil, is called with the number of existing tables
// and of all.
func Migrate(ctx context.Context, cfg configs.Config, logger *slog.Logger, progress func(done, total int), options ...MigrateOption) error {
	cfg = cfg.WithDefaults()
	return nameRight(migrate(ctx, cfg, StoreConfig(cfg), logger, progress, options...))
}

// nameRight adds to the error of a user without the right to create databases or tables where the tables come from.
func nameRight(err error) error {
	refused, is := errors.AsType[*mysql.MySQLError](err)
	const noDatabase, noTable = 1044, 1142
	if !is || refused.Number != noDatabase && refused.Number != noTable {
		return err
	}
	return fmt.Errorf("%w\nThis user may not create it. Of a new store an administrator makes the tables: `toc migrate --print` with the same --config writes "+
		"the SQL. If the store has been in use, restore the database", err)
}

func migrate(ctx context.Context, cfg configs.Config, at store.Config, logger *slog.Logger, progress func(done, total int),
	options ...MigrateOption) error {
	if cfg.Store.Driver == configs.DriverMySQL {
		// Before anything is made. If a server does not answer, the next statement says so.
		_, err := ServerAdvice(ctx, cfg)
		if wrong, ok := errors.AsType[*WrongServersError](err); ok {
			return wrong
		}
		for i := range cfg.Store.Databases {
			dsn, err := store.MySQLDSN(StoreConfig(cfg), i)
			if err != nil {
				return err
			}
			if err := migrations.CreateDatabase(ctx, dsn); err != nil {
				return StoreConfig(cfg).TLS.ExplainMySQL(dsn.Addr, err)
			}
		}
	}
	list, err := databases(at, false)
	if err != nil {
		return err
	}
	id, err := readIDFile(cfg)
	if err != nil {
		return errors.Join(err, CloseDatabases(list))
	}
	m := migrations.Config{
		Dialect: migrations.Dialect(cfg.Store.Driver), Layout: Layout(cfg), Databases: list,
		StoreID: id, Progress: progress, Logger: logger,
	}
	for _, o := range options {
		o(&m)
	}
	if m.Repartition {
		err = withExclusiveStore(ctx, cfg, func() error { return migrations.Up(ctx, m) })
	} else {
		err = migrations.Up(ctx, m)
	}
	if err == nil {
		id, err = migrations.StoreID(ctx, m.Dialect, list[0])
	}
	if err == nil {
		err = writeIDFile(cfg, id)
	}
	return errors.Join(err, CloseDatabases(list))
}

// TablesAdvice returns the commands to run if a MySQL store has no tables yet, one per line. It is empty on
// SQLite, whose tables `toc serve` makes. It is an error if a database does not answer, does not fit the
// configuration, or lacks tables that others have.
func TablesAdvice(ctx context.Context, cfg configs.Config) (advice []string, err error) {
	cfg = cfg.WithDefaults()
	if cfg.Store.Driver != configs.DriverMySQL {
		return nil, nil
	}
	list, err := Databases(cfg, true)
	if err != nil {
		return nil, err
	}
	empty, incomplete := 0, error(nil)
	var silent []error
	for _, d := range list {
		failed := migrations.Verify(ctx, migrations.MySQL, Layout(cfg), d)
		if failed == nil {
			if id, unread := migrations.StoreID(ctx, migrations.MySQL, d); id == "" {
				failed = cmp.Or[error](unread, &migrations.NotMigratedError{Database: d.String(), NoID: true, Have: 1})
			}
		}
		if missing, ok := errors.AsType[*migrations.NotMigratedError](failed); ok {
			incomplete = errors.Join(incomplete, missing)
			if missing.Have == 0 {
				empty++
			}
		} else if failed != nil {
			silent = append(silent, failed)
		}
	}
	err = onePerCause(silent)
	switch {
	case empty == len(list):
		advice = []string{"the tables are not there yet: run `toc migrate` with the same --config"}
	case incomplete != nil: // `toc migrate` goes on with what was interrupted, and refuses a store that has lost tables
		err = errors.Join(err, incomplete)
	}
	return advice, errors.Join(err, CloseDatabases(list))
}

// onePerCause joins errors of databases. Several may have one cause, for example a server that is away: of these it takes the
// first, with their number.
func onePerCause(list []error) (err error) {
	var causes []string
	count := make(map[string]int)
	for _, e := range list {
		cause := cmp.Or(errors.Unwrap(e), e).Error()
		causes = append(causes, cause)
		count[cause]++
	}
	for i, e := range list {
		switch n := count[causes[i]]; {
		case slices.Index(causes, causes[i]) < i: // it is said
		case n > 1:
			err = errors.Join(err, fmt.Errorf("%w (%d databases)", e, n))
		default:
			err = errors.Join(err, e)
		}
	}
	return err
}

// PrintMigration writes the SQL of Migrate for a MySQL store that does not exist yet, for the administrator who
// may create its tables.
func PrintMigration(ctx context.Context, cfg configs.Config, w io.Writer) error {
	cfg = cfg.WithDefaults()
	if cfg.Store.Driver != configs.DriverMySQL {
		return errors.New("store.driver is sqlite: toc serve makes its tables itself")
	}
	var dsns []*mysql.Config
	for i := range cfg.Store.Databases {
		dsn, err := store.MySQLDSN(StoreConfig(cfg), i)
		if err != nil {
			return err
		}
		dsns = append(dsns, dsn)
	}
	err := migrations.Script(ctx, w, Layout(cfg), dsns)
	return StoreConfig(cfg).TLS.ExplainMySQL("the server", err)
}

// migrating is the cluster.Host of a migration, which makes databases ready itself.
type migrating struct{}

func (migrating) Prepare(context.Context, int) error { return nil }
func (migrating) BeginWaiting()                      {}

// withExclusiveStore calls f while no other process can use the store.
func withExclusiveStore(ctx context.Context, cfg configs.Config, f func() error) error {
	s, err := store.Open(StoreConfig(cfg))
	if err != nil {
		return err
	}
	node := cluster.NewSingle(cluster.SingleConfig{
		Node: "toc migrate", Layout: Layout(cfg), Locker: s, Logger: slog.New(slog.DiscardHandler), Host: migrating{},
	})
	if err = node.Acquire(ctx); err == nil {
		held, stop := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- node.Run(held) }()
		err = f()
		stop()
		err = errors.Join(err, <-done)
		node.Release()
	}
	return errors.Join(err, s.Close())
}

// StoreID is the random id of this center's store, 16 hexadecimal digits; "" until its first database was found
// fit for use.
func (a *App) StoreID() string {
	id, _ := a.storeID.Load().(string)
	return id
}

// connectTimeout bounds a connect: the other databases wait for a silent one meanwhile.
const connectTimeout = 8 * time.Second

func ping(ctx context.Context, db *sql.DB) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	return db.PingContext(ctx)
}

// idFile is a file beside the databases of an embedded store with the store's id. So the center notices when
// all databases are missing.
func idFile(cfg configs.Config) string { return filepath.Join(cfg.Store.SQLite.Dir, "toc.id") }

// readIDFile returns the id in the file; "" if there is none, or the store needs none.
func readIDFile(cfg configs.Config) (string, error) {
	if cfg.Store.Driver != configs.DriverSQLite {
		return "", nil
	}
	text, err := os.ReadFile(idFile(cfg))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return strings.TrimSpace(string(text)), err
}

func writeIDFile(cfg configs.Config, id string) error {
	if cfg.Store.Driver != configs.DriverSQLite {
		return nil
	}
	return os.WriteFile(idFile(cfg), []byte(id+"\n"), 0o600)
}
