package migrations_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/migrations"
	"github.com/timeoutcenter/toc/sharding"
)

func TestMain(m *testing.M) {
	testrig.SideBySide(8)
	testrig.Main(m)
}

// small is a layout whose numbers all differ.
var small = sharding.Layout{Databases: 4, TablesPerDatabase: 8, Partitions: 16}

// place is where one test's databases are.
type place struct {
	dialect migrations.Dialect
	dsn     string // with %d
}

func sqlitePlace(t testing.TB) place {
	return place{migrations.SQLite, "file:" + filepath.Join(testrig.MemoryDir(t), "toc_%d.db") + "?_pragma=journal_mode(wal)"}
}

func mysqlPlace(t testing.TB) place {
	return place{migrations.MySQL, testrig.MySQL(t).DSN() + "?parseTime=true&time_zone=%%27%%2B00%%3A00%%27"}
}

// onEach runs a test on every dialect.
func onEach(t *testing.T, test func(t *testing.T, p place)) {
	t.Parallel()
	for _, start := range []func(testing.TB) place{sqlitePlace, mysqlPlace} {
		p := start(t)
		t.Run(string(p.dialect), func(t *testing.T) {
			t.Parallel()
			test(t, p)
		})
	}
}

// config is what a process that was just started would migrate with: handles
// of its own, the databases created.
func (p place) config(t testing.TB, layout sharding.Layout) migrations.Config {
	cfg := migrations.Config{Dialect: p.dialect, Layout: layout}
	for i := range layout.Databases {
		cfg.Databases = append(cfg.Databases, p.database(t, i))
	}
	return cfg
}

func (p place) database(t testing.TB, index int) migrations.Database {
	dsn := fmt.Sprintf(p.dsn, index)
	if p.dialect == migrations.MySQL {
		require.NoError(t, migrations.CreateDatabase(t.Context(), parse(t, dsn)))
	}
	return migrations.Database{Index: index, DB: open(t, p.dialect, dsn), Name: fmt.Sprintf("toc_%d", index)}
}

func parse(t testing.TB, dsn string) *mysql.Config {
	cfg, err := mysql.ParseDSN(dsn)
	require.NoError(t, err)
	return cfg
}

func open(t testing.TB, dialect migrations.Dialect, dsn string) *sql.DB {
	db, err := sql.Open(string(dialect), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// migrated is a place whose databases are ready.
func (p place) migrated(t testing.TB, layout sharding.Layout) migrations.Config {
	cfg := p.config(t, layout)
	require.NoError(t, migrations.Up(t.Context(), cfg))
	return cfg
}

// contents is all that a database says about its schema, to compare before and after.
func contents(t testing.TB, dialect migrations.Dialect, db *sql.DB) []string {
	names := texts(t, db, tableNames(dialect))
	for _, name := range names {
		if name == "toc_meta" {
			names = append(names, texts(t, db, "SELECT CONCAT(name, '=', value) FROM toc_meta ORDER BY name")...)
		}
		if name == "toc_schema_version" {
			names = append(names, texts(t, db, "SELECT CONCAT('version ', version_id) FROM toc_schema_version ORDER BY id")...)
		}
	}
	return names
}

func tableNames(dialect migrations.Dialect) string {
	if dialect == migrations.SQLite {
		return "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%' ORDER BY name"
	}
	return "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() ORDER BY table_name"
}

// texts reads a query's one column.
func texts(t testing.TB, db *sql.DB, query string) []string {
	rows, err := db.QueryContext(t.Context(), query)
	require.NoError(t, err, query)
	defer rows.Close()
	var all []string
	for rows.Next() {
		var one string
		require.NoError(t, rows.Scan(&one))
		all = append(all, one)
	}
	require.NoError(t, rows.Err())
	return all
}

// exec is a statement that must work.
func exec(t testing.TB, db *sql.DB, query string, args ...any) {
	_, err := db.ExecContext(t.Context(), query, args...)
	require.NoError(t, err, query)
}

// onLog is a logger that calls f when a message is logged.
func onLog(message string, f func()) *slog.Logger { return slog.New(logHook{message, f}) }

type logHook struct {
	message string
	f       func()
}

func (h logHook) Enabled(context.Context, slog.Level) bool { return true }
func (h logHook) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h logHook) WithGroup(string) slog.Handler            { return h }

func (h logHook) Handle(_ context.Context, r slog.Record) error {
	if r.Message == h.message {
		h.f()
	}
	return nil
}
