package migrations_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/migrations"
	"github.com/timeoutcenter/toc/sharding"
)

func TestUpMakesAllTablesAndMayBeRepeated(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		cfg := p.config(t, small)
		var seen []int
		cfg.Progress = func(done, total int) {
			require.Equal(t, small.Shards(), total)
			seen = append(seen, done)
		}
		require.NoError(t, migrations.Up(t.Context(), cfg))
		require.Len(t, seen, small.Shards(), "one report per table")
		require.IsIncreasing(t, seen)
		require.Equal(t, small.Shards(), seen[len(seen)-1])

		first := make([][]string, small.Databases)
		for i, d := range cfg.Databases {
			require.NoError(t, migrations.Verify(t.Context(), p.dialect, small, d))
			first[i] = contents(t, p.dialect, d.DB)
			require.Subset(t, first[i], []string{
				"timeout_task_0000", "timeout_task_0007", "toc_control", "toc_running", "toc_audit", "toc_operation",
				"version 9",
				"databases=4", "tables_per_database=8", "layout_version=1", fmt.Sprintf("database=%d", i)})
			require.NotContains(t, first[i], "timeout_task_0008")
		}

		seen = nil
		require.NoError(t, migrations.Up(t.Context(), cfg))
		require.Equal(t, small.Shards(), seen[len(seen)-1], "a repeated run ends at 100 %, too")
		for i, d := range cfg.Databases {
			require.Equal(t, first[i], contents(t, p.dialect, d.DB))
		}
	})
}

func TestTwoProcessesAtOnce(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		a, b := p.config(t, small), p.config(t, small)
		var wg sync.WaitGroup
		var failed [2]error
		wg.Go(func() { failed[0] = migrations.Up(t.Context(), a) })
		wg.Go(func() { failed[1] = migrations.Up(t.Context(), b) })
		wg.Wait()
		require.NoError(t, failed[0])
		require.NoError(t, failed[1])
		for _, d := range a.Databases {
			require.NoError(t, migrations.Verify(t.Context(), p.dialect, small, d))
			require.Equal(t, []string{"0", "9"}, texts(t, d.DB, "SELECT version_id FROM toc_schema_version ORDER BY id"),
				"each step was run once")
		}
	})
}

func TestStoppedHalfWayGoesOn(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		cfg := p.config(t, small)
		stopAfter(t, cfg, small.Shards()/2)
		require.NoError(t, migrations.Up(t.Context(), p.config(t, small)))
		for _, d := range cfg.Databases {
			require.NoError(t, migrations.Verify(t.Context(), p.dialect, small, d))
		}
	})
}

// stopAfter migrates until so many tables are done.
func stopAfter(t testing.TB, cfg migrations.Config, tables int) {
	ctx, stop := context.WithCancel(t.Context())
	cfg.Progress = func(done, _ int) {
		if done >= tables {
			stop()
		}
	}
	err := migrations.Up(ctx, cfg)
	require.ErrorIs(t, err, context.Canceled)
	var failed *migrations.DatabaseError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, small.TablesPerDatabase, failed.Total)
}

func TestOneDatabaseDownDoesNotStopTheOthers(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		cfg := p.config(t, small)
		dead := "file:/nowhere/at/all.db"
		if p.dialect == migrations.MySQL {
			dead = fmt.Sprintf(p.dsn, 99) // never created
		}
		cfg.Databases[2].DB = open(t, p.dialect, dead)

		err := migrations.Up(t.Context(), cfg)
		var failed *migrations.DatabaseError
		require.ErrorAs(t, err, &failed)
		require.Equal(t, "toc_2", failed.Database)
		require.ErrorContains(t, err, "migrate toc_2 (0 of 8 tables done)")
		for _, i := range []int{0, 1, 3} {
			require.NoError(t, migrations.Verify(t.Context(), p.dialect, small, cfg.Databases[i]))
		}
	})
}

func TestLostTablesAreNoticedAndMadeAnew(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		cfg := p.migrated(t, small)
		d := cfg.Databases[1]
		whole := contents(t, p.dialect, d.DB)
		exec(t, d.DB, "DROP TABLE timeout_task_0003")
		exec(t, d.DB, "DROP TABLE timeout_task_0005")

		err := migrations.Verify(t.Context(), p.dialect, small, d)
		var incomplete *migrations.NotMigratedError
		require.ErrorAs(t, err, &incomplete)
		require.ErrorContains(t, err, "toc_1 has lost 2 of its task tables, the first is timeout_task_0003")

		require.NoError(t, migrations.Up(t.Context(), cfg))
		require.NoError(t, migrations.Verify(t.Context(), p.dialect, small, d))
		require.Equal(t, whole, contents(t, p.dialect, d.DB))
	})
}

func TestConfigIsChecked(t *testing.T) {
	cfg := sqlitePlace(t).config(t, small)
	cfg.Dialect = "oracle"
	require.ErrorContains(t, migrations.Up(t.Context(), cfg), `"oracle" is neither mysql nor sqlite`)

	cfg = sqlitePlace(t).config(t, small)
	cfg.Databases[0].Index = 4
	require.ErrorContains(t, migrations.Up(t.Context(), cfg), "toc_0 has number 4, but there are only 4 databases")

	cfg = sqlitePlace(t).config(t, small)
	cfg.Layout = sharding.Layout{Databases: 3, TablesPerDatabase: 8, Partitions: 8}
	require.ErrorContains(t, migrations.Up(t.Context(), cfg), "store.databases: 3 is not a power of two")
}

// TestALaterStep adds a step, as a later version will: a store of the baseline gets it, also where that was stopped half
// way, and its rows stay. A new store gets both.
func TestALaterStep(t *testing.T) {
	p := map[migrations.Dialect]place{migrations.SQLite: sqlitePlace(t), migrations.MySQL: mysqlPlace(t)}
	for dialect, p := range p {
		t.Run(string(dialect), func(t *testing.T) {
			cfg := p.migrated(t, small)
			db := cfg.Databases[testDatabase].DB
			exec(t, db, fmt.Sprintf("INSERT INTO %s (job_id, biz_id, biz_type, action_time) VALUES (%d, %d, 1, '2030-01-02 03:04:05')",
				testTable, testJob(t, 0), testBiz))

			migrations.AddStep(t, "ALTER TABLE {{.Table}} ADD COLUMN later text NULL;\n")
			var old *migrations.NotMigratedError
			require.ErrorAs(t, migrations.Verify(t.Context(), p.dialect, small, cfg.Databases[0]), &old)
			require.EqualError(t, old, "toc_0 has schema version 9, this program needs 10: run `toc migrate` with the same --config")

			stopAfter(t, p.config(t, small), small.Shards()*3/4)
			for _, cfg := range []migrations.Config{p.config(t, small), p.another(t).config(t, small)} {
				require.NoError(t, migrations.Up(t.Context(), cfg))
				for _, d := range cfg.Databases {
					require.NoError(t, migrations.Verify(t.Context(), p.dialect, small, d))
					for table := range small.TablesPerDatabase {
						require.Empty(t, texts(t, d.DB, "SELECT later FROM "+sharding.TableName(table)+" WHERE later IS NOT NULL"))
					}
				}
			}
			require.Equal(t, []string{fmt.Sprint(testJob(t, 0))}, texts(t, db, "SELECT job_id FROM "+testTable))
		})
	}
}
