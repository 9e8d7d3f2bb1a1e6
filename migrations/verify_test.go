package migrations_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/migrations"
	"github.com/timeoutcenter/toc/sharding"
)

func TestVerifyBeforeMigrating(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		d := p.database(t, 0)
		err := migrations.Verify(t.Context(), p.dialect, small, d)
		var fresh *migrations.NotMigratedError
		require.ErrorAs(t, err, &fresh)
		require.EqualError(t, err, "toc_0 has no tables yet: run `toc migrate` with the same --config")
		require.Empty(t, contents(t, p.dialect, d.DB), "Verify changes nothing")
	})
}

func TestVerifyWithoutTheDatabase(t *testing.T) {
	p := mysqlPlace(t)
	d := migrations.Database{Index: 3, DB: open(t, p.dialect, fmt.Sprintf(p.dsn, 3))}
	err := migrations.Verify(t.Context(), p.dialect, small, d)
	require.EqualError(t, err, "database 3 has no tables yet: run `toc migrate` with the same --config")
}

func TestAStoreOfAnEarlierBuildIsRefused(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		cfg := p.migrated(t, small)
		d := cfg.Databases[0]
		for _, version := range []int{1, 8} { // stopped half way, and whole
			exec(t, d.DB, fmt.Sprintf("UPDATE toc_schema_version SET version_id = %d WHERE version_id > 0", version))
			before := contents(t, p.dialect, d.DB)
			want := fmt.Sprintf("toc_0 was made by a build before the first release (schema version %d), whose stores cannot be migrated: "+
				"use that build, or give this program an empty store: another store.sqlite.dir, or another database name in store.mysql.dsn", version)
			require.EqualError(t, migrations.Verify(t.Context(), p.dialect, small, d), want)
			require.EqualError(t, migrations.Up(t.Context(), cfg), want)
			require.Equal(t, before, contents(t, p.dialect, d.DB))
		}
	})
}

func TestNewerSchema(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		cfg := p.migrated(t, small)
		d := cfg.Databases[1]
		exec(t, d.DB, "INSERT INTO toc_schema_version (version_id, is_applied) VALUES (10, 1)")
		const want = "toc_1 has schema version 10, but this program knows versions up to 9 only: use the newer program that made it"
		require.EqualError(t, migrations.Verify(t.Context(), p.dialect, small, d), want)

		var newer *migrations.NewerSchemaError
		err := migrations.Up(t.Context(), cfg)
		require.ErrorAs(t, err, &newer)
		require.EqualError(t, err, want)
	})
}

func TestAnotherLayoutIsRefused(t *testing.T) {
	cases := map[string]struct {
		layout  sharding.Layout
		message string
	}{
		"more tables": {
			sharding.Layout{Databases: 4, TablesPerDatabase: 16, Partitions: 16},
			"store.tables_per_database is 16, but toc_0 was made with 8: tasks would be looked for in the wrong place; set store.tables_per_database back to 8",
		},
		"more databases": {
			sharding.Layout{Databases: 8, TablesPerDatabase: 8, Partitions: 16},
			"store.databases is 8, but toc_0 was made with 4: tasks would be looked for in the wrong place; set store.databases back to 4",
		},
		"fewer databases": {
			sharding.Layout{Databases: 2, TablesPerDatabase: 8, Partitions: 16},
			"store.databases is 2, but toc_0 was made with 4: tasks would be looked for in the wrong place; set store.databases back to 4",
		},
	}
	onEach(t, func(t *testing.T, p place) {
		p.migrated(t, small)
		for name, c := range cases {
			t.Run(name, func(t *testing.T) {
				cfg := p.config(t, c.layout)
				before := make([][]string, len(cfg.Databases))
				for i, d := range cfg.Databases {
					before[i] = contents(t, p.dialect, d.DB)
				}
				require.EqualError(t, migrations.Verify(t.Context(), p.dialect, c.layout, cfg.Databases[0]), c.message)
				err := migrations.Up(t.Context(), cfg)
				var other *migrations.LayoutError
				require.ErrorAs(t, err, &other)
				require.ErrorContains(t, err, c.message)
				for i, d := range cfg.Databases {
					require.Equal(t, before[i], contents(t, p.dialect, d.DB), "nothing was changed, in new databases neither")
				}
			})
		}
	})
}

func TestSwappedDatabasesAreRefused(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		cfg := p.migrated(t, small)
		cfg.Databases[1].DB, cfg.Databases[2].DB = cfg.Databases[2].DB, cfg.Databases[1].DB
		const want = "toc_1 stands in the place of database number 1, but it was made as number 2: put the databases back in their order (store.mysql.dsns)"
		require.EqualError(t, migrations.Verify(t.Context(), p.dialect, small, cfg.Databases[1]), want)
		require.ErrorContains(t, migrations.Up(t.Context(), cfg), want)
		require.NoError(t, migrations.Verify(t.Context(), p.dialect, small, cfg.Databases[0]))
	})
}

func TestLostDescriptionIsRefused(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		cfg := p.migrated(t, small)
		exec(t, cfg.Databases[0].DB, "DELETE FROM toc_meta WHERE name = 'databases'")
		exec(t, cfg.Databases[1].DB, "DROP TABLE toc_meta")
		require.EqualError(t, migrations.Verify(t.Context(), p.dialect, small, cfg.Databases[0]),
			"toc_0 does not say any more with which databases it was made: toc_meta has lost that row, put it back")
		var other *migrations.LayoutError
		require.ErrorAs(t, migrations.Verify(t.Context(), p.dialect, small, cfg.Databases[1]), &other)
		require.ErrorAs(t, migrations.Up(t.Context(), cfg), &other)
	})
}

// Users may add indexes and columns of their own: the start and a migration leave them alone.
func TestOwnIndexesAndColumns(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		cfg := p.migrated(t, small)
		d := cfg.Databases[0]
		exec(t, d.DB, "ALTER TABLE "+sharding.TableName(0)+" ADD COLUMN shop int NULL")
		exec(t, d.DB, "CREATE INDEX idx_shop ON "+sharding.TableName(0)+" (shop, action_time)")
		before := contents(t, p.dialect, d.DB)
		require.NoError(t, migrations.Verify(t.Context(), p.dialect, small, d))
		require.NoError(t, migrations.Up(t.Context(), cfg))
		require.Equal(t, before, contents(t, p.dialect, d.DB))
	})
}
