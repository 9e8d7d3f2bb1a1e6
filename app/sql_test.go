package app_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/task"
)

type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// eachTable shows every task table of a store to f.
func eachTable(t testing.TB, cfg configs.Config, f func(db querier, table string)) {
	t.Helper()
	list, err := app.Databases(cfg, false)
	require.NoError(t, err)
	defer func() { require.NoError(t, app.CloseDatabases(list)) }()
	for _, d := range list {
		for i := range cfg.Store.TablesPerDatabase {
			f(d.DB, sharding.TableName(i))
		}
	}
}

// admin does what a person with a SQL shell does: she computes database and
// table of a biz_id in her head and types.
type admin struct {
	t   *testing.T
	cfg configs.Config
}

func (a admin) exec(bizID uint64, query string, args ...any) {
	a.t.Helper()
	list, err := app.Databases(a.cfg, false)
	require.NoError(a.t, err)
	defer func() { require.NoError(a.t, app.CloseDatabases(list)) }()
	d, tables := uint64(a.cfg.Store.Databases), uint64(a.cfg.Store.TablesPerDatabase)
	table := fmt.Sprintf("timeout_task_%04d", bizID/d%tables)
	res, err := list[bizID%d].DB.ExecContext(a.t.Context(), fmt.Sprintf(query, table), args...)
	require.NoError(a.t, err)
	n, err := res.RowsAffected()
	require.NoError(a.t, err)
	require.EqualValues(a.t, 1, n)
}

// jobID is the expression of the docs: time, shard, worker 1023.
func (a admin) jobID(bizID uint64) uint64 {
	d, tables := uint64(a.cfg.Store.Databases), uint64(a.cfg.Store.TablesPerDatabase)
	shard := bizID%d*tables + bizID/d%tables
	return uint64(time.Now().UnixMilli()-1735689600000)<<23 | shard<<10 | 1023
}

func sqlTime(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000") }

// Everything that an admin does by plain SQL is honoured within a tick.
func TestSQLByHandIsHonoured(t *testing.T) {
	t.Parallel()
	cfg := onMySQL(t, fewTables(t))
	cfg.Scan.Lookahead = 5 * time.Second
	fired := newLedger()
	c := run(t, cfg, app.WithProcessor("ledger", fired))
	a := admin{t, cfg}
	const insert = "INSERT INTO %s (job_id, biz_id, biz_type, action_time) VALUES (?, ?, 1, ?)"
	now := time.Now()

	// Inserts: one that is due long since, one due soon.
	overdue, soon := a.jobID(1001), a.jobID(1002)
	a.exec(1001, insert, overdue, 1001, sqlTime(now.Add(-time.Hour)))
	soonAt := now.Add(3 * time.Second).Truncate(time.Millisecond)
	a.exec(1002, insert, soon, 1002, sqlTime(soonAt))

	// Submitted ones, changed by hand: one is cancelled while it waits in
	// memory, one is moved to much earlier, one is moved to later.
	submit := func(bizID uint64, in time.Duration) task.Task {
		s, err := c.Tasks().Submit(t.Context(), api.Submit{BizType: "order_close", BizID: bizID, Delay: in, Now: true})
		require.NoError(t, err)
		row, err := s.Task.Task(1)
		require.NoError(t, err)
		return row
	}
	cancelled := submit(1003, 4*time.Second) // within the lookahead: in memory already
	a.exec(1003, "UPDATE %s SET status = 3 WHERE job_id = ? AND status = 0", cancelled.JobID)
	earlier := submit(1004, time.Hour)
	a.exec(1004, "UPDATE %s SET action_time = ? WHERE job_id = ?", sqlTime(time.Now()), earlier.JobID)
	later := submit(1005, 4*time.Second)
	a.exec(1005, "UPDATE %s SET action_time = ? WHERE job_id = ?", sqlTime(now.Add(time.Hour)), later.JobID)
	edited := submit(1007, 4500*time.Millisecond) // the last one to fire
	a.exec(1007, "UPDATE %s SET attribute = 'by hand' WHERE job_id = ?", edited.JobID)

	// A dead one is redriven.
	dead := a.jobID(1006)
	a.exec(1006, "INSERT INTO %s (job_id, biz_id, biz_type, action_time, status, attempts) VALUES (?, 1006, 1, ?, 4, 17)",
		dead, sqlTime(now.Add(-time.Hour)))
	a.exec(1006, "UPDATE %s SET status = 0 WHERE job_id = ? AND status = 4", dead)

	fired.await(t, 5, await.Patience)
	require.Len(t, fired.runs(overdue), 1)
	require.Len(t, fired.runs(earlier.JobID), 1)
	require.Len(t, fired.runs(dead), 1)
	require.Len(t, fired.runs(edited.JobID), 1)
	require.Len(t, fired.runs(soon), 1)
	require.False(t, fired.runs(soon)[0].Before(soonAt), "never early")
	require.Empty(t, fired.runs(cancelled.JobID), "a cancelled task fired")
	require.Empty(t, fired.runs(later.JobID), "a task that was moved away fired")

	require.NoError(t, c.stop())
	get := func(bizID, jobID uint64) (status, attempts int) {
		list, err := app.Databases(cfg, true)
		require.NoError(t, err)
		defer func() { require.NoError(t, app.CloseDatabases(list)) }()
		d, tables := uint64(cfg.Store.Databases), uint64(cfg.Store.TablesPerDatabase)
		require.NoError(t, list[bizID%d].DB.QueryRow(fmt.Sprintf("SELECT status, attempts FROM timeout_task_%04d WHERE job_id = %d",
			bizID/d%tables, jobID)).Scan(&status, &attempts))
		return
	}
	for biz, id := range map[uint64]uint64{1001: overdue, 1002: soon, 1004: earlier.JobID, 1006: dead, 1007: edited.JobID} {
		status, _ := get(biz, id)
		require.EqualValues(t, task.Processed, status, "biz_id %d", biz)
	}
	status, _ := get(1003, cancelled.JobID)
	require.EqualValues(t, task.Cancelled, status)
	status, _ = get(1005, later.JobID)
	require.EqualValues(t, task.Pending, status)
}

// A task that is inserted and cancelled in the transactions of its order shares their fate.
func TestATaskIsStoredInTheTransactionOfItsOrder(t *testing.T) {
	t.Parallel()
	cfg := onMySQL(t, fewTables(t))
	fired := newLedger()
	c := run(t, cfg, app.WithProcessor("ledger", fired))
	a := admin{t, cfg}
	list, err := app.Databases(cfg, false)
	require.NoError(t, err)
	defer func() { require.NoError(t, app.CloseDatabases(list)) }()
	db := list[0].DB
	_, err = db.ExecContext(t.Context(), "CREATE TABLE orders (id bigint PRIMARY KEY, state varchar(9))")
	require.NoError(t, err)
	within := func(end func(*sql.Tx) error, statements ...string) {
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		for _, statement := range statements {
			_, err = tx.ExecContext(t.Context(), statement)
			require.NoError(t, err)
		}
		require.NoError(t, end(tx))
	}
	d, tables := uint64(cfg.Store.Databases), uint64(cfg.Store.TablesPerDatabase)
	place := func(order uint64, due time.Time) (jobID uint64, statements []string) {
		jobID = a.jobID(order)
		return jobID, []string{
			fmt.Sprintf("INSERT INTO orders (id, state) VALUES (%d, 'open')", order),
			fmt.Sprintf("INSERT INTO timeout_task_%04d (job_id, biz_id, biz_type, action_time) VALUES (%d, %d, 1, '%s')",
				order/d%tables, jobID, order, sqlTime(due)),
		}
	}
	now := time.Now()
	lost, statements := place(d, now)
	within((*sql.Tx).Rollback, statements...)
	paid, statements := place(2*d, now.Add(time.Hour))
	within((*sql.Tx).Commit, statements...)
	within((*sql.Tx).Commit, fmt.Sprintf("UPDATE orders SET state = 'paid' WHERE id = %d", 2*d),
		fmt.Sprintf("UPDATE timeout_task_%04d SET status = 3 WHERE job_id = %d AND status = 0", 2%tables, paid))
	unpaid, statements := place(3*d, now)
	within((*sql.Tx).Commit, statements...)

	fired.await(t, 1, await.Patience)
	require.Len(t, fired.runs(unpaid), 1)
	_, err = c.Tasks().Get(t.Context(), lost)
	require.ErrorIs(t, err, task.ErrNotFound)
	got, err := c.Tasks().Get(t.Context(), paid)
	require.NoError(t, err)
	require.Equal(t, "cancelled", got.Status)
	var orders int
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM orders").Scan(&orders))
	require.Equal(t, 2, orders)
}

// The expressions of docs/sql.md make job_ids of the shard that they name, and of no process's worker number.
func TestJobIDExpressionsOfTheDocs(t *testing.T) {
	docs, err := os.ReadFile("../docs/sql.md")
	require.NoError(t, err)
	expressions := map[string]string{
		configs.DriverSQLite: "((CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) - 1735689600000) << 23) | (2053 << 10) | 1023",
		configs.DriverMySQL:  "(CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS UNSIGNED) - 1735689600000) << 23 | 2053 << 10 | 1023",
	}
	onBoth(t, func(t *testing.T, cfg configs.Config) {
		c := run(t, cfg, app.WithProcessor("ledger", newLedger())) // makes the databases
		require.NoError(t, c.stop())
		expression := expressions[cfg.Store.Driver]
		require.Contains(t, string(docs), expression)
		list, err := app.Databases(cfg, true)
		require.NoError(t, err)
		defer func() { require.NoError(t, app.CloseDatabases(list)) }()
		var id uint64
		require.NoError(t, list[0].DB.QueryRowContext(t.Context(), "SELECT "+expression).Scan(&id))
		require.EqualValues(t, 2053, id>>10&8191)
		require.EqualValues(t, sharding.HandWorker, id&1023)
		require.WithinDuration(t, time.Now(), sharding.Epoch.Add(time.Duration(id>>23)*time.Millisecond), time.Minute)
	})
}
