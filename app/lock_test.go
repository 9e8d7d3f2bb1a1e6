package app_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// An admin's UPDATE of the row of a task that runs has no COMMIT. Before, no task of its database started as long as the transaction was
// open, /readyz said that all was well, and every cancel there took 15 s.
func TestAForgottenCommitHoldsUpItsOwnTask(t *testing.T) {
	t.Parallel()
	cfg := embedded(t)
	cfg.Store.Driver = configs.DriverMySQL
	cfg.Store.Databases, cfg.Store.TablesPerDatabase, cfg.Cluster.Partitions = 2, 4, 0
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
		s, err := c.Desk().Submit(t.Context(), intake.Submit{BizType: "order_close", BizID: bizID, When: intake.In(in), Attribute: attribute})
		require.NoError(t, err)
		return s.Task
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
	for i := range uint64(200) {
		one := submit(i, time.Duration(i)*20*time.Millisecond, "")
		due[one.JobID] = one.ActionTime
	}
	start := time.Now()
	require.NoError(t, c.Desk().Cancel(t.Context(), far.JobID), "of another row")
	require.Less(t, time.Since(start), 10*time.Second)
	fired.awaitAll(t, due, 60*time.Second)
	row := func(id uint64) task.Task {
		one, err := c.Desk().Get(t.Context(), id)
		require.NoError(t, err)
		return one
	}
	for id := range due {
		require.Eventually(t, func() bool { return row(id).Status == task.Processed }, 60*time.Second, 10*time.Millisecond)
	}
	require.Equal(t, task.Pending, row(held.JobID).Status)

	require.NoError(t, admin.Rollback())
	require.Eventually(t, func() bool { return row(held.JobID).Status == task.Processed }, 60*time.Second, 10*time.Millisecond)
	require.NoError(t, c.stop())
	_, twice := fired.lateness(t, due)
	require.Zero(t, twice)
}
