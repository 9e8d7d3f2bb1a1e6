package sqltable

import (
	"database/sql"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/migrations"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/store"
)

func TestMain(m *testing.M) { testrig.Main(m) }

var layout = sharding.Layout{Databases: 2, TablesPerDatabase: 4, Partitions: 8}

// rig holds the same rows twice: spread over shards, and in one plain SQLite table
// named timeout_task. What the shards answer must be what the one table answers.
type rig struct {
	Store
	whole *sql.DB
}

// onBoth runs a test with the shards in SQLite and in MySQL or MariaDB.
func onBoth(t *testing.T, test func(t *testing.T, newRig func(testing.TB, [][]any) rig)) {
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, sqliteRig)
	})
	t.Run("mysql", func(t *testing.T) {
		t.Parallel()
		test(t, mysqlRig)
	})
}

func sqliteRig(t testing.TB, rows [][]any) rig {
	dir := t.TempDir()
	cfg := migrations.Config{Dialect: migrations.SQLite, Layout: layout}
	r := rig{Store: Store{Layout: layout}}
	for i := range layout.Databases {
		db, err := sql.Open("sqlite", store.SQLiteDSN(dir, i, false))
		require.NoError(t, err)
		t.Cleanup(func() { db.Close() })
		cfg.Databases = append(cfg.Databases, migrations.Database{Index: i, DB: db, File: store.SQLiteFile(dir, i)})
		reader, err := sql.Open("sqlite", store.SQLiteDSN(dir, i, true))
		require.NoError(t, err)
		t.Cleanup(func() { reader.Close() })
		r.Databases = append(r.Databases, reader)
	}
	r.fill(t, cfg, rows)
	return r
}

func mysqlRig(t testing.TB, rows [][]any) rig {
	cfg := migrations.Config{Dialect: migrations.MySQL, Layout: layout}
	r := rig{Store: Store{Layout: layout, MySQL: true}}
	server := testrig.MySQL(t)
	for i := range layout.Databases {
		dsn, err := store.MySQLDSN(store.Config{DSN: server.DSN()}, i)
		require.NoError(t, err)
		require.NoError(t, migrations.CreateDatabase(t.Context(), dsn))
		connector, err := mysql.NewConnector(dsn)
		require.NoError(t, err)
		db := sql.OpenDB(connector)
		t.Cleanup(func() { db.Close() })
		cfg.Databases = append(cfg.Databases, migrations.Database{Index: i, DB: db})
		r.Databases = append(r.Databases, db)
	}
	r.fill(t, cfg, rows)
	return r
}

// as opens a database of MySQL as another user.
func (r rig) as(t testing.TB, user, database string) *sql.DB {
	dsn, err := mysql.ParseDSN(fmt.Sprintf(testrig.MySQL(t).DSN(), 0))
	require.NoError(t, err)
	dsn.User, dsn.Passwd, dsn.DBName, dsn.ParseTime = user, "secret", database, true
	connector, err := mysql.NewConnector(dsn)
	require.NoError(t, err)
	db := sql.OpenDB(connector)
	t.Cleanup(func() { db.Close() })
	return db
}

// taskColumns are those of the rows in these tests.
const taskColumns = "job_id, gmt_create, gmt_modified, biz_id, biz_type, status, action_time, attribute, attempts, dedup_key, due_time, timeout_ms"

// fill makes the tables. A row's values are those of taskColumns, numbers as uint64 or int.
func (r *rig) fill(t testing.TB, cfg migrations.Config, rows [][]any) {
	t.Helper()
	require.NoError(t, migrations.Up(t.Context(), cfg))
	whole, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "whole.db"))
	require.NoError(t, err)
	t.Cleanup(func() { whole.Close() })
	r.whole = whole
	_, err = whole.Exec(strings.Replace(tasks.declaration(), "TABLE t ", "TABLE timeout_task ", 1) + `;
		CREATE VIEW timeout_task_counts AS SELECT biz_type, status, COUNT(*) AS tasks, MIN(action_time) AS oldest,
			MAX(action_time) AS newest FROM timeout_task GROUP BY biz_type, status`)
	require.NoError(t, err)
	insert := " (" + taskColumns + ", last_error) VALUES (" + strings.Repeat("?, ", 12) + "'')"
	var transactions []*sql.Tx
	for _, d := range cfg.Databases {
		tx, err := d.DB.Begin()
		require.NoError(t, err)
		transactions = append(transactions, tx)
	}
	tx, err := whole.Begin()
	require.NoError(t, err)
	for _, row := range rows {
		var stored, plain []any
		for _, v := range row {
			id, isID := v.(uint64)
			switch {
			case !isID:
				stored, plain = append(stored, v), append(plain, v)
			case r.MySQL:
				stored, plain = append(stored, id), append(plain, unsignedValue(id))
			default:
				stored, plain = append(stored, int64(id)), append(plain, unsignedValue(id))
			}
		}
		shard := layout.Shard(row[3].(uint64))
		_, err := transactions[layout.Database(shard)].Exec("INSERT INTO "+sharding.TableName(layout.Table(shard))+insert, stored...)
		require.NoError(t, err)
		_, err = tx.Exec("INSERT INTO timeout_task"+insert, plain...)
		require.NoError(t, err)
	}
	for _, tx := range append(transactions, tx) {
		require.NoError(t, tx.Commit())
	}
}

// taskRow is a row with the n-th job_id of its shard.
func taskRow(n int, bizID, bizType uint64, status int, at time.Time, attribute string, attempts int, dedupKey, dueTime, timeoutMS any) []any {
	id, err := sharding.JobID(sharding.Epoch.Add(time.Duration(n)*time.Millisecond), layout.Shard(bizID), 7)
	if err != nil {
		panic(err)
	}
	const made = "2025-03-01 10:00:00.125"
	return []any{id, made, made, bizID, bizType, status, at.Format(timeLayout), attribute, attempts, dedupKey, dueTime, timeoutMS}
}

// randomRows have few different values, and ids on both sides of 2^63.
func randomRows(seed uint64, n int) [][]any {
	random := rand.New(rand.NewPCG(seed, 7))
	ids := []uint64{1, 2, 3, 4, 5, 6, 77, 1<<63 - 1, 1 << 63, 10_000_000_000_000_000_000, math.MaxUint64 - 1, math.MaxUint64}
	attributes := []string{"", "a", "A", "a ", "b", "it's", `"q"`, "zwölf", "<b>\x00&\n", "日本", "a\\b", "10", "9"}
	statuses := []int{0, 0, 0, 2, 3, 4}
	var rows [][]any
	for i := range n {
		at := time.Date(2025, 3, random.IntN(4)+1, random.IntN(3)*6, 0, 0, random.IntN(3)*250_000_000, time.UTC)
		var dedupKey, dueTime, timeoutMS any
		if random.IntN(3) > 0 {
			dedupKey = fmt.Sprintf("key%d", i)
		}
		if random.IntN(3) == 0 {
			dueTime, timeoutMS = at.Add(-time.Hour).Format(timeLayout), random.IntN(3)*1000
		}
		rows = append(rows, taskRow(i, ids[random.IntN(len(ids))], ids[random.IntN(len(ids))], statuses[random.IntN(len(statuses))], at,
			attributes[random.IntN(len(attributes))], random.IntN(4), dedupKey, dueTime, timeoutMS))
	}
	return rows
}

// ask runs a query on the shards.
func (r rig) ask(t testing.TB, query string) *Result {
	t.Helper()
	require.NoError(t, Check(query), query)
	result, err := r.Run(t.Context(), query, 1_000_000)
	require.NoError(t, err, query)
	return result
}

// askWhole runs a query on the one table.
func (r rig) askWhole(t testing.TB, query string) *Result {
	t.Helper()
	q, err := parse(query)
	require.NoError(t, err)
	rows, err := r.whole.Query(q.sql)
	require.NoError(t, err, query)
	defer rows.Close()
	result, err := newResult(rows, 1_000_000)
	require.NoError(t, err, query)
	return result
}
