package app_test

import (
	"context"
	"database/sql"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// An admin's UPDATE of the row of a task that runs has no COMMIT. Before, no task of its database started as long as the transaction was
// open, /readyz said that all was well, and every cancel there took 15 s.
func TestAForgottenCommitHoldsUpItsOwnTask(t *testing.T) {
	t.Parallel()
	cfg := fewTables(t)
	cfg.Store.Driver = configs.DriverMySQL
	cfg.Store.MySQL.DSN = testrig.MySQL(t).DSN()
	require.NoError(t, app.Migrate(t.Context(), cfg, nil, nil))
	fired := newLedger()
	began, end := make(chan task.Task, 1), make(chan struct{})
	p := processor.Func(func(ctx context.Context, one task.Task) error {
		if one.Attribute == "slow" {
			began <- one
			<-end
		}
		return fired.Process(ctx, one)
	})
	c := run(t, cfg, app.WithProcessor("ledger", p))
	submit := func(bizID uint64, in time.Duration, attribute string) task.Task {
		s, err := c.Tasks().Submit(t.Context(), api.Submit{BizType: "order_close", BizID: bizID, Delay: in, Now: true, Attribute: attribute})
		require.NoError(t, err)
		row, err := s.Task.Task(1)
		require.NoError(t, err)
		return row
	}
	held := submit(0, 0, "slow")
	<-began
	dsn, err := store.MySQLDSN(app.StoreConfig(cfg), 0)
	require.NoError(t, err)
	db, err := sql.Open("mysql", dsn.FormatDSN())
	require.NoError(t, err)
	defer db.Close()
	admin, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = admin.ExecContext(t.Context(), "UPDATE "+sharding.TableName(0)+" SET last_error = 'looking into it' WHERE job_id = ?", held.JobID)
	require.NoError(t, err)
	close(end)

	due, far := map[uint64]time.Time{}, submit(2, time.Hour, "")
	for i := range uint64(60) {
		one := submit(i, time.Duration(i)*20*time.Millisecond, "")
		due[one.JobID] = one.ActionTime
	}
	require.NoError(t, c.Tasks().Cancel(t.Context(), far.JobID), "of another row")
	fired.awaitAll(t, due)
	row := func(id uint64) task.Task {
		one, err := c.Tasks().Get(t.Context(), id)
		require.NoError(t, err)
		got, err := one.Task(1)
		require.NoError(t, err)
		return got
	}
	for id := range due {
		await.That(t, func() bool { return row(id).Status == task.Processed }, "task %d is processed", id)
	}
	require.Equal(t, task.Pending, row(held.JobID).Status)
	waits := regexp.MustCompile(`^its run has ended, and its outcome waits for .*: another transaction has locked the row$`)
	await.That(t, func() bool {
		why, err := c.Tasks().Why(t.Context(), held.JobID)
		return err == nil && why.Where == "running" && waits.MatchString(why.Because[0])
	}, "the lock is named")

	require.NoError(t, admin.Rollback())
	await.That(t, func() bool { return row(held.JobID).Status == task.Processed }, "it is processed without the lock")
	require.NoError(t, c.stop())
	_, twice := fired.lateness(t, due)
	require.Zero(t, twice)
}

// A table that is locked, gone or refuses what is written holds up its own tasks only, and is reported. Before, with a
// type of mode redis beside the scanned one, a locked table kept its whole partition from being scanned; one that was gone
// or refused outcomes stopped all tasks of its database; and /readyz said that all was well.
func TestATableHoldsUpItselfOnly(t *testing.T) {
	t.Parallel()
	table := sharding.TableName(1)
	for name, fault := range map[string]struct {
		breaks, mends []string
		reason        string
		lost          bool // what was written there before is gone while it lasts
	}{
		"locked":  {[]string{"LOCK TABLES " + table + " WRITE"}, []string{"UNLOCK TABLES"}, "database_unread", true},
		"gone":    {[]string{"RENAME TABLE " + table + " TO elsewhere"}, []string{"RENAME TABLE elsewhere TO " + table}, "database_unread", true},
		"refuses": {[]string{"CREATE TRIGGER no BEFORE UPDATE ON " + table + " FOR EACH ROW SIGNAL SQLSTATE '45000'"}, []string{"DROP TRIGGER no"}, "outcomes", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := fewTables(t)
			cfg.Store.Driver = configs.DriverMySQL
			cfg.Store.Databases, cfg.Store.TablesPerDatabase, cfg.Cluster.Partitions = 1, 4, 1
			cfg.Store.MySQL.DSN = testrig.MySQL(t).DSN()
			timed := cfg.BizTypes[0]
			timed.ID, timed.Name, timed.Mode = 2, "timed", configs.ModeRedis
			cfg.BizTypes = append(cfg.BizTypes, timed)
			require.NoError(t, app.Migrate(t.Context(), cfg, nil, nil))
			fired := newLedger()
			c := run(t, cfg, app.WithProcessor("ledger", fired))
			layout := app.Layout(cfg)
			_, err := c.Pause(t.Context(), "order_close", client.Pause{}) // until the fault is there
			require.NoError(t, err)
			others, its := map[uint64]time.Time{}, map[uint64]time.Time{}
			for i := range uint64(40) {
				s, err := c.Tasks().Submit(t.Context(), api.Submit{BizType: "order_close", BizID: i, Now: true})
				require.NoError(t, err)
				if layout.Shard(i) == 1 {
					its[uint64(s.Task.JobID)] = s.Task.ActionTime.Time()
				} else {
					others[uint64(s.Task.JobID)] = s.Task.ActionTime.Time()
				}
			}
			dsn, err := store.MySQLDSN(app.StoreConfig(cfg), 0)
			require.NoError(t, err)
			db, err := sql.Open("mysql", dsn.FormatDSN())
			require.NoError(t, err)
			defer db.Close()
			hand, err := db.Conn(t.Context()) // a lock belongs to its connection
			require.NoError(t, err)
			defer hand.Close()
			do := func(list []string) {
				for _, statement := range list {
					_, err := hand.ExecContext(t.Context(), statement)
					require.NoError(t, err)
				}
			}

			do(fault.breaks)
			_, err = c.Resume(t.Context(), "order_close")
			require.NoError(t, err)
			fired.awaitAll(t, others)
			told := `toc_degraded{database="0",reason="` + fault.reason + `"}`
			await.That(t, func() bool { _, there := metric(t, c, told); return there }, "%s", told)
			if fault.lost {
				for id := range its {
					require.Empty(t, fired.runs(id))
				}
			}
			do(fault.mends)
			fired.awaitAll(t, its)
			await.That(t, func() bool { _, there := metric(t, c, told); return !there }, "%s is gone", told)
			for id := range its {
				await.That(t, func() bool {
					one, err := c.Tasks().Get(t.Context(), id)
					return err == nil && one.Status == task.Processed.String()
				}, "task %d is processed", id)
			}
			require.NoError(t, c.stop())
			_, twice := fired.lateness(t, its)
			require.Zero(t, twice)
		})
	}
}
