package migrations_test

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"

	_ "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/migrations"
	"github.com/timeoutcenter/toc/sharding"
)

func TestMain(m *testing.M) { testrig.Main(m) }

// small is a layout whose masks all differ.
var small = sharding.Layout{Databases: 4, TablesPerDatabase: 8, Partitions: 8}

// dialects are the databases that every test here speaks to. open makes new
// handles; called twice with one place it is as if two processes came.
var dialects = map[migrations.Dialect]func(testing.TB) place{
	migrations.SQLite: func(t testing.TB) place { return sqlitePlace{t.TempDir()} },
	migrations.MySQL:  func(t testing.TB) place { return mysqlPlace{testrig.MySQL(t).DSN()} },
}

type place interface {
	// config is what a process that was just started would migrate with.
	config(testing.TB, sharding.Layout) migrations.Config
}

type sqlitePlace struct{ dir string }

func (p sqlitePlace) config(t testing.TB, layout sharding.Layout) migrations.Config {
	return open(t, migrations.SQLite, layout, func(i int) string {
		return "file:" + filepath.Join(p.dir, fmt.Sprintf("toc_%d.db", i)) + "?_pragma=journal_mode(wal)"
	})
}

type mysqlPlace struct{ dsn string }

func (p mysqlPlace) config(t testing.TB, layout sharding.Layout) migrations.Config {
	return open(t, migrations.MySQL, layout, func(i int) string {
		dsn := fmt.Sprintf(p.dsn, i) + "?parseTime=true&time_zone=%27%2B00%3A00%27"
		require.NoError(t, migrations.CreateDatabase(t.Context(), dsn))
		return dsn
	})
}

func open(t testing.TB, dialect migrations.Dialect, layout sharding.Layout, dsn func(database int) string) migrations.Config {
	cfg := migrations.Config{Dialect: dialect, Layout: layout}
	for i := range layout.Databases {
		db, err := sql.Open(string(dialect), dsn(i))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		cfg.Databases = append(cfg.Databases, migrations.Database{Index: i, DB: db, Name: fmt.Sprintf("toc_%d", i)})
	}
	return cfg
}

// onEach runs a test on every dialect.
func onEach(t *testing.T, test func(t *testing.T, p place)) {
	for dialect, start := range dialects {
		t.Run(string(dialect), func(t *testing.T) {
			t.Parallel()
			test(t, start(t))
		})
	}
}
