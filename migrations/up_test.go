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
				"version 1", "version 2", "version 3", "version 4", "version 5", "version 6", "version 7", "version 8",
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

func TestDownLeavesNothing(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		cfg := p.migrated(t, small)
		require.NoError(t, migrations.Down(t.Context(), cfg))
		for _, d := range cfg.Databases {
			require.Empty(t, contents(t, p.dialect, d.DB))
		}
		require.NoError(t, migrations.Down(t.Context(), cfg), "nothing to drop is fine")
		require.NoError(t, migrations.Up(t.Context(), cfg), "and up again")
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
			require.Equal(t, []string{"0", "1", "2", "3", "4", "5", "6", "7", "8"}, texts(t, d.DB, "SELECT version_id FROM toc_schema_version ORDER BY id"),
				"each step was run once")
		}
	})
}

// TestStoppedHalfWayGoesOn stops while tables are made, and while columns are added to them, which MySQL cannot repeat.
func TestStoppedHalfWayGoesOn(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		for _, at := range []int{small.Shards() / 4, small.Shards() / 2, small.Shards() * 7 / 8} {
			cfg := p.config(t, small)
			ctx, stop := context.WithCancel(t.Context())
			cfg.Progress = func(done, _ int) {
				if done == at {
					stop()
				}
			}
			err := migrations.Up(ctx, cfg)
			require.ErrorIs(t, err, context.Canceled)
			var failed *migrations.DatabaseError
			require.ErrorAs(t, err, &failed)
			require.Equal(t, small.TablesPerDatabase, failed.Total)

			require.NoError(t, migrations.Up(t.Context(), p.config(t, small)))
			for _, d := range cfg.Databases {
				require.NoError(t, migrations.Verify(t.Context(), p.dialect, small, d))
			}
			require.NoError(t, migrations.Down(t.Context(), p.config(t, small)))
		}
	})
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

// TestFromVersion7: an older store gets the column errors, also where that stopped half way, and its rows stay.
func TestFromVersion7(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		cfg := p.migrated(t, small)
		for _, d := range cfg.Databases { // as it was
			for table := range small.TablesPerDatabase {
				if p.dialect == migrations.SQLite || table != 3 { // MySQL had come so far, and had not said so yet
					exec(t, d.DB, "ALTER TABLE "+sharding.TableName(table)+" DROP COLUMN errors")
				}
			}
			exec(t, d.DB, "DELETE FROM toc_schema_version WHERE version_id = 8")
		}
		db := cfg.Databases[testDatabase].DB
		exec(t, db, fmt.Sprintf("INSERT INTO %s (job_id, biz_id, biz_type, action_time, attempts, last_error) VALUES (%d, %d, 1, '2030-01-02 03:04:05', 2, 'boom')",
			testTable, testJob(t, 0), testBiz))
		var old *migrations.NotMigratedError
		require.ErrorAs(t, migrations.Verify(t.Context(), p.dialect, small, cfg.Databases[0]), &old)

		require.NoError(t, migrations.Up(t.Context(), p.config(t, small)))
		for _, d := range cfg.Databases {
			require.NoError(t, migrations.Verify(t.Context(), p.dialect, small, d))
			for table := range small.TablesPerDatabase {
				require.Empty(t, texts(t, d.DB, "SELECT errors FROM "+sharding.TableName(table)+" WHERE errors IS NOT NULL"))
			}
		}
		require.Equal(t, []string{"2 boom none"}, texts(t, db, "SELECT CONCAT(attempts, ' ', last_error, ' ', COALESCE(errors, 'none')) FROM "+testTable))
	})
}
