package store_test

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/mysqlsession"
	"github.com/timeoutcenter/toc/migrations"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// byHand opens a database for plain SQL, and makes it first where it must be made.
func byHand(t testing.TB, cfg store.Config, database int) *sql.DB {
	t.Helper()
	var db *sql.DB
	if cfg.Driver == store.SQLite {
		var err error
		db, err = sql.Open("sqlite", store.SQLiteDSN(cfg.Dir, database, false))
		require.NoError(t, err)
	} else {
		dsn, err := store.MySQLDSN(cfg, database)
		require.NoError(t, err)
		require.NoError(t, migrations.CreateDatabase(t.Context(), dsn))
		db, err = mysqlsession.Open(dsn, migrations.SessionLimits)
		require.NoError(t, err)
	}
	t.Cleanup(func() { _ = db.Close() }) // it fails if the server has hung up first
	return db
}

// hand runs an admin's statement on the table of a shard; %s stands for the table.
func (f *fixture) hand(t testing.TB, shard int, statement string, args ...any) (changed int64) {
	t.Helper()
	res, err := f.hands[f.layout.Database(shard)].ExecContext(t.Context(),
		fmt.Sprintf(statement, sharding.TableName(f.layout.Table(shard))), args...)
	require.NoError(t, err)
	changed, err = res.RowsAffected()
	require.NoError(t, err)
	return changed
}

// setStatus moves rows by hand.
func (f *fixture) setStatus(t testing.TB, to task.Status, tasks ...task.Task) {
	t.Helper()
	for _, one := range tasks {
		if one.Status == to {
			continue // MySQL counts only rows that change
		}
		shard, _ := f.layout.ShardOf(one.JobID)
		require.EqualValues(t, 1, f.hand(t, shard, "UPDATE %s SET status=? WHERE job_id=?", int(to), f.id(one.JobID)))
	}
}

// everything reads all rows of all tables by plain SQL, past the store.
func (f *fixture) everything(t testing.TB) map[uint64]task.Task {
	t.Helper()
	all := make(map[uint64]task.Task)
	for shard := range f.layout.Shards() {
		rows, err := f.hands[f.layout.Database(shard)].QueryContext(t.Context(),
			`SELECT job_id, biz_id, biz_type, status, action_time, attribute, attempts, last_error, COALESCE(dedup_key, ''),
			gmt_create, gmt_modified, due_time, COALESCE(timeout_ms, 0), COALESCE(trace, ''), COALESCE(biz_key, '') FROM `+sharding.TableName(f.layout.Table(shard)))
		require.NoError(t, err)
		for rows.Next() {
			var one task.Task
			var job, biz, typ string
			var due, created, modified, promised any
			var timeout int64
			require.NoError(t, rows.Scan(&job, &biz, &typ, &one.Status, &due, &one.Attribute, &one.Attempts, &one.LastError,
				&one.DedupKey, &created, &modified, &promised, &timeout, &one.Trace, &one.BizKey))
			if promised != nil {
				one.DueTime = moment(t, promised)
			}
			one.Timeout = time.Duration(timeout) * time.Millisecond
			one.JobID, one.BizID, one.BizType = unsigned(t, job), unsigned(t, biz), unsigned(t, typ)
			one.ActionTime, one.Created, one.Modified = moment(t, due), moment(t, created), moment(t, modified)
			require.NotContains(t, all, one.JobID, "job_id in two tables")
			all[one.JobID] = one
		}
		require.NoError(t, rows.Err())
		require.NoError(t, rows.Close())
	}
	return all
}

// unsigned reads an id: SQLite keeps the two's complement.
func unsigned(t testing.TB, text string) uint64 {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return uint64(n)
	}
	n, err := strconv.ParseUint(text, 10, 64)
	require.NoError(t, err)
	return n
}

const sqliteTime = "2006-01-02 15:04:05.000"

func moment(t testing.TB, v any) time.Time {
	if at, ok := v.(time.Time); ok {
		return at
	}
	at, err := time.Parse(sqliteTime, v.(string))
	require.NoError(t, err)
	return at
}

// id and at are parameters of statements by hand.
func (f *fixture) id(v uint64) any {
	if f.cfg.Driver == store.SQLite {
		return int64(v)
	}
	return v
}

func (f *fixture) at(t time.Time) any {
	if f.cfg.Driver == store.SQLite {
		return t.UTC().Format(sqliteTime)
	}
	return t
}

// block keeps all writers out of a database until release.
func (f *fixture) block(t testing.TB, database int) (release func()) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	conn, err := f.hands[database].Conn(ctx)
	require.NoError(t, err)
	begin, end := "BEGIN IMMEDIATE", "ROLLBACK"
	if f.cfg.Driver == store.MySQL {
		begin, end = "LOCK TABLES", "UNLOCK TABLES"
		for table := range f.layout.TablesPerDatabase {
			begin += " " + sharding.TableName(table) + " WRITE,"
		}
		begin = begin[:len(begin)-1]
	}
	_, err = conn.ExecContext(ctx, begin)
	require.NoError(t, err)
	return func() {
		_, err := conn.ExecContext(ctx, end)
		require.NoError(t, err)
		require.NoError(t, conn.Close())
	}
}
