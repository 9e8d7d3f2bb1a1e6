package store_test

import (
	"database/sql"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/migrations"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/store"
)

// columnsAreTheMigrations': GORM's model, the hand-written select list and the
// tables name the same columns in the same order; the list has not errors.
func columnsAreTheMigrations(t *testing.T, p place) {
	f := p.open(t, small)
	for shard := range f.layout.Shards() {
		rows, err := f.hands[f.layout.Database(shard)].QueryContext(t.Context(), "SELECT * FROM "+sharding.TableName(f.layout.Table(shard)))
		require.NoError(t, err)
		columns, err := rows.Columns()
		require.NoError(t, err)
		require.NoError(t, rows.Close())
		require.Equal(t, columns, store.ModelColumns(t, f.Store))
		require.Equal(t, columns, append(strings.Split(store.Columns, ","), "errors"))
	}
}

// indexesAreThere: a statement that names an index which is not there fails.
func indexesAreThere(t *testing.T, p place) {
	f := p.open(t, small)
	for table := range f.layout.TablesPerDatabase {
		want := []string{migrations.IndexPrimary, migrations.IndexDue, migrations.IndexBiz}
		if f.cfg.Driver == store.SQLite {
			want = []string{migrations.SQLiteIndex(migrations.IndexDue, table), migrations.SQLiteIndex(migrations.IndexBiz, table)}
		}
		for _, name := range want {
			require.Contains(t, f.indexes(t, table), name)
			require.Contains(t, store.Hint(f.Store, strings.TrimSuffix(name, "_"+sharding.TableName(table)[len("timeout_task_"):]), table), name)
		}
	}
}

// indexes gives the names of a table's indexes in database 0.
func (f *fixture) indexes(t testing.TB, table int) (names []string) {
	t.Helper()
	query := "SELECT index_name FROM information_schema.statistics WHERE table_schema=DATABASE() AND table_name=?"
	if f.cfg.Driver == store.SQLite {
		query = "SELECT name FROM pragma_index_list(?)"
	}
	rows, err := f.hands[0].QueryContext(t.Context(), query, sharding.TableName(table))
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var name sql.NullString
		require.NoError(t, rows.Scan(&name))
		names = append(names, name.String)
	}
	require.NoError(t, rows.Err())
	slices.Sort(names)
	return slices.Compact(names)
}
