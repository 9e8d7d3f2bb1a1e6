package migrations_test

import (
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/migrations"
	"github.com/timeoutcenter/toc/sharding"
)

// ids reads the store id of each database.
func ids(t testing.TB, cfg migrations.Config) (list []string) {
	for _, d := range cfg.Databases {
		id, err := migrations.StoreID(t.Context(), cfg.Dialect, d)
		require.NoError(t, err)
		list = append(list, id)
	}
	return list
}

func TestAllDatabasesGetOneID(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		a, b := p.config(t, small), p.config(t, small)
		require.Equal(t, []string{"", "", "", ""}, ids(t, a))
		var wg sync.WaitGroup
		for _, cfg := range []migrations.Config{a, b} {
			wg.Go(func() {
				if err := migrations.Up(t.Context(), cfg); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		first := ids(t, a)
		require.Regexp(t, "^[0-9a-f]{16}$", first[0])
		for _, id := range first {
			require.Equal(t, first[0], id)
		}
		require.NoError(t, migrations.Up(t.Context(), b))
		require.Equal(t, first, ids(t, b))
		require.Contains(t, contents(t, p.dialect, a.Databases[3].DB), "partitions=16")
		require.NotEqual(t, first[0], ids(t, p.another(t).migrated(t, small))[0])
	})
}

// another is a place of its own of the same kind.
func (p place) another(t testing.TB) place {
	if p.dialect == migrations.SQLite {
		return sqlitePlace(t)
	}
	return place{p.dialect, strings.Replace(p.dsn, "%d", "other_%d", 1)}
}

// Nothing has an id before everything is ready: so a first migration that was stopped
// can go on, and a database that lost everything later cannot be taken for a new one.
func TestALostDatabaseIsNotMadeAnewUnasked(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		cfg := p.config(t, small)
		some := cfg
		some.Databases = cfg.Databases[:3]
		require.NoError(t, migrations.Up(t.Context(), some))
		require.Equal(t, []string{"", "", "", ""}, ids(t, cfg))
		require.NoError(t, migrations.Up(t.Context(), cfg))
		id := ids(t, cfg)[0]

		lost := cfg.Databases[2]
		for _, table := range texts(t, lost.DB, tableNames(p.dialect)) {
			exec(t, lost.DB, "DROP TABLE "+table)
		}
		var empty *migrations.EmptyError
		err := migrations.Up(t.Context(), cfg)
		require.ErrorAs(t, err, &empty)
		require.EqualError(t, err, "toc_2 is not there, or empty, but the store "+id+" has been in use: "+
			"restore it. If it is lost, stop everything and run `toc migrate --new` with the same --config, which makes it anew, empty")
		require.Empty(t, contents(t, p.dialect, lost.DB))

		cfg.New = true
		require.NoError(t, migrations.Up(t.Context(), cfg))
		require.Equal(t, []string{id, id, id, id}, ids(t, cfg))
		require.NoError(t, migrations.Verify(t.Context(), p.dialect, small, lost))
	})
}

// All files of a store may be gone: then its id is known from elsewhere. To look at a
// file that is gone does not make it.
func TestAStoreWhoseFilesAreGone(t *testing.T) {
	p := sqlitePlace(t)
	cfg := p.config(t, small)
	for i := range cfg.Databases {
		cfg.Databases[i].File = strings.TrimSuffix(strings.TrimPrefix(strings.Replace(p.dsn, "%d", string(rune('0'+i)), 1), "file:"), "?_pragma=journal_mode(wal)")
	}
	cfg.StoreID = "0123456789abcdef"
	var empty *migrations.EmptyError
	require.ErrorAs(t, migrations.Up(t.Context(), cfg), &empty)
	require.NoFileExists(t, cfg.Databases[0].File)
	cfg.New = true
	require.NoError(t, migrations.Up(t.Context(), cfg))
	require.Equal(t, cfg.StoreID, ids(t, cfg)[1])
	_, err := os.Stat(cfg.Databases[0].File)
	require.NoError(t, err)
}

func TestAnotherStoresDatabaseIsRefused(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		cfg, other := p.migrated(t, small), p.another(t).migrated(t, small)
		cfg.Databases[1].DB = other.Databases[1].DB
		var stranger *migrations.StrangerError
		require.ErrorAs(t, migrations.Up(t.Context(), cfg), &stranger)
		require.Equal(t, migrations.StrangerError{Database: "toc_1", Have: ids(t, other)[0], Want: ids(t, cfg)[0]}, *stranger)
	})
}

// The number of partitions is the store's: the Redis slots have it in their names, and
// two nodes that differ own other tables by the same number. Before, a changed one was
// not noticed, and tasks ran twice.
func TestAnotherNumberOfPartitionsIsRefused(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		p.migrated(t, small)
		changed := sharding.Layout{Databases: 4, TablesPerDatabase: 8, Partitions: 4}
		cfg := p.config(t, changed)
		const want = "cluster.partitions is 4, but the store of toc_0 works with 16: set cluster.partitions back to 16, " +
			"or stop everything and run `toc migrate --repartition` with the same --config"
		require.EqualError(t, migrations.Verify(t.Context(), p.dialect, changed, cfg.Databases[0]), want)
		require.ErrorContains(t, migrations.Up(t.Context(), cfg), want)

		cfg.Repartition = true
		require.NoError(t, migrations.Up(t.Context(), cfg))
		for _, d := range cfg.Databases {
			require.NoError(t, migrations.Verify(t.Context(), p.dialect, changed, d))
		}
		require.ErrorContains(t, migrations.Verify(t.Context(), p.dialect, small, cfg.Databases[3]), "cluster.partitions is 16")
	})
}
