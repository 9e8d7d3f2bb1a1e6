package sqltable

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"modernc.org/sqlite/vtab"

	"github.com/timeoutcenter/toc/sharding"
)

var noon = time.Date(2025, 3, 1, 12, 0, 0, 5e6, time.UTC)

// pendingRows are a pending task for each biz_id.
func pendingRows(bizIDs ...uint64) [][]any {
	var rows [][]any
	for i, id := range bizIDs {
		rows = append(rows, taskRow(i, id, 1, 0, noon, fmt.Sprint("of ", id), 0, nil, nil, nil))
	}
	return rows
}

func TestCellsKeepTheirDigits(t *testing.T) {
	onBoth(t, func(t *testing.T, newRig func(testing.TB, [][]any) rig) {
		r := newRig(t, [][]any{taskRow(0, math.MaxUint64, 1<<63, 2, noon, "a\x00b\n<i>", 3, nil, nil, 1500)})
		require.Equal(t, &Result{
			Columns: []string{"biz_id", "biz_type", "action_time", "attribute", "dedup_key", "timeout_ms", "AVG(attempts)", "biz_id = 18446744073709551615"},
			Rows:    [][]any{{uint64(math.MaxUint64), uint64(1 << 63), "2025-03-01 12:00:00.005", "a\x00b\n<i>", nil, int64(1500), 3.0, int64(1)}},
			ids:     []bool{true, true, false, false, false, false, false, false},
		}, r.ask(t, `SELECT biz_id, biz_type, action_time, attribute, dedup_key, timeout_ms, AVG(attempts), biz_id = 18446744073709551615
			FROM timeout_task`))
	})
}

// TestIDsOfAllSizesAreCompared: the order is that of the numbers, not of the bits or digits.
func TestIDsOfAllSizesAreCompared(t *testing.T) {
	onBoth(t, func(t *testing.T, newRig func(testing.TB, [][]any) rig) {
		r := newRig(t, pendingRows(0, 7, 1<<63-1, 1<<63, 9_999_999_999_999_999_999, 10_000_000_000_000_000_000, math.MaxUint64))
		for where, want := range map[string]string{
			"biz_id >= 0": "0 7 9223372036854775807 9223372036854775808 9999999999999999999 10000000000000000000 18446744073709551615",
			"biz_id > 9223372036854775807 AND biz_id <= 10000000000000000000":  "9223372036854775808 9999999999999999999 10000000000000000000",
			"biz_id BETWEEN 1 AND 9223372036854775808":                         "7 9223372036854775807 9223372036854775808",
			"biz_id IN (7, 18446744073709551615, 5)":                           "7 18446744073709551615",
			"biz_id <> 18446744073709551615 AND 9223372036854775808 <= biz_id": "9223372036854775808 9999999999999999999 10000000000000000000",
			"biz_id = (SELECT MAX(biz_id) FROM timeout_task)":                  "18446744073709551615",
			"biz_id = 3": "",
		} {
			var got []string
			for _, row := range r.ask(t, "SELECT biz_id FROM timeout_task WHERE "+where+" ORDER BY biz_id").Rows {
				got = append(got, fmt.Sprint(row[0]))
			}
			require.Equal(t, want, strings.Join(got, " "), where)
		}
	})
}

// dropAllBut leaves one table of the store.
func (r rig) dropAllBut(t *testing.T, shard int) {
	for i := range layout.Shards() {
		if i != shard {
			r.drop(t, i)
		}
	}
}

func (r rig) drop(t *testing.T, shard int) {
	db := r.Databases[layout.Database(shard)]
	if r.MySQL {
		_, err := db.Exec("DROP TABLE " + sharding.TableName(layout.Table(shard)))
		require.NoError(t, err)
		return
	}
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.ExecContext(t.Context(), "PRAGMA query_only = 0; DROP TABLE "+sharding.TableName(layout.Table(shard))+"; PRAGMA query_only = 1")
	require.NoError(t, err)
}

// TestAnIDAsksItsShardAlone, and an id that no shard has asks none.
func TestAnIDAsksItsShardAlone(t *testing.T) {
	onBoth(t, func(t *testing.T, newRig func(testing.TB, [][]any) rig) {
		rows := pendingRows(math.MaxUint64)
		r := newRig(t, rows)
		r.dropAllBut(t, layout.Shard(math.MaxUint64))
		for _, where := range []string{
			"biz_id = 18446744073709551615", "biz_id IN (18446744073709551615)", "biz_id = 18446744073709551615 OR job_id = 8387584",
			fmt.Sprintf("job_id = %d", rows[0][0]), fmt.Sprintf("job_id IN (%d, 18446744073709551615, 8387584)", rows[0][0]),
		} {
			require.Len(t, r.ask(t, "SELECT * FROM timeout_task WHERE "+where).Rows, 1, where)
		}
		require.Empty(t, r.ask(t, fmt.Sprintf("SELECT * FROM timeout_task WHERE biz_id = 1 AND job_id = %d", rows[0][0])).Rows)
	})
}

// TestAShortLimitAsksFewTables: the rest of the store may be out of reach.
func TestAShortLimitAsksFewTables(t *testing.T) {
	onBoth(t, func(t *testing.T, newRig func(testing.TB, [][]any) rig) {
		r := newRig(t, pendingRows(0, 0, 0, 0)) // the first table of the first database
		r.dropAllBut(t, 0)
		require.Len(t, r.ask(t, "SELECT * FROM timeout_task LIMIT 3").Rows, 3)
		require.Len(t, r.ask(t, "SELECT * FROM timeout_task WHERE attribute LIKE 'of%' LIMIT 3").Rows, 3)
		_, err := r.Run(t.Context(), "SELECT * FROM timeout_task LIMIT 5", 10)
		require.ErrorContains(t, err, "query database 0: ")
	})
}

func TestABrokenTableIsNamed(t *testing.T) {
	onBoth(t, func(t *testing.T, newRig func(testing.TB, [][]any) rig) {
		r := newRig(t, pendingRows(1, 2, 3, 4, 5))
		r.drop(t, layout.TablesPerDatabase+2)
		for _, query := range []string{"SELECT COUNT(*) FROM timeout_task", "SELECT * FROM timeout_task_counts"} {
			_, err := r.Run(t.Context(), query, 10)
			require.ErrorContains(t, err, "query database 1: ", query)
			require.ErrorContains(t, err, "timeout_task_0002", query)
		}
	})
}

func TestADatabaseThatIsAwayIsNamed(t *testing.T) {
	r := sqliteRig(t, nil)
	away, err := sql.Open("mysql", "nobody@tcp(127.0.0.1:1)/toc_1")
	require.NoError(t, err)
	defer away.Close()
	r.Databases[1] = away
	_, err = r.Run(t.Context(), "SELECT COUNT(*) FROM timeout_task", 10)
	require.ErrorContains(t, err, "query database 1: ")
	require.ErrorContains(t, err, "127.0.0.1:1")
}

func TestRowsBeyondTheLimitAreTold(t *testing.T) {
	r := sqliteRig(t, pendingRows(1, 2, 3))
	for limit, more := range map[int]bool{2: true, 3: false, 4: false} {
		result, err := r.Run(t.Context(), "SELECT * FROM timeout_task", limit)
		require.NoError(t, err)
		require.Len(t, result.Rows, min(limit, 3))
		require.Equal(t, more, result.More)
	}
}

// TestTimeEndsAQuery while rows are read, and while SQLite calculates without any.
func TestTimeEndsAQuery(t *testing.T) {
	r := sqliteRig(t, randomRows(9, 400))
	late := fmt.Errorf("too late")
	for _, query := range []string{
		"SELECT COUNT(*) FROM timeout_task a, timeout_task b, timeout_task c, timeout_task d",
		"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300000) SELECT i FROM n WHERE i = 1 OR i = 300000",
	} {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, late)
		_, err := r.Run(ctx, query, 10)
		cancel()
		require.ErrorIs(t, err, late, query)
	}
}

// TestAStoppedDatabaseIsNoEnd: what it has not sent yet is missing.
func TestAStoppedDatabaseIsNoEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	tasks := &table{module: &module{&shards{Store: sqliteRig(t, pendingRows(1)).Store, ctx: ctx, fail: func(error) {}}, &tasks}}
	require.NoError(t, tasks.BestIndex(&vtab.IndexInfo{}))
	c, err := tasks.Open()
	require.NoError(t, err)
	require.ErrorIs(t, c.Filter(0, "", nil), context.Canceled)
	require.NoError(t, c.Close())
}

// TestErrorsWhileAQueryRuns are SQLite's own.
func TestErrorsWhileAQueryRuns(t *testing.T) {
	r := sqliteRig(t, pendingRows(1, 2))
	_, err := r.Run(t.Context(), "SELECT SUM(9223372036854775807) FROM timeout_task", 10)
	require.EqualError(t, err, "integer overflow")
}

// TestAReaderSuffices: a user of MySQL who may do nothing but SELECT.
func TestAReaderSuffices(t *testing.T) {
	r := mysqlRig(t, pendingRows(1, 2, 3))
	for i, db := range r.Databases {
		var name, reader string
		require.NoError(t, db.QueryRow("SELECT DATABASE()").Scan(&name))
		reader = fmt.Sprintf("'r%x'", time.Now().UnixNano())
		for _, statement := range []string{"CREATE USER " + reader + " IDENTIFIED BY 'secret'", "GRANT SELECT ON `" + name + "`.* TO " + reader} {
			_, err := db.Exec(statement)
			require.NoError(t, err)
		}
		t.Cleanup(func() { _, _ = db.Exec("DROP USER " + reader) })
		r.Databases[i] = r.as(t, strings.Trim(reader, "'"), name)
	}
	require.Len(t, r.ask(t, "SELECT * FROM timeout_task").Rows, 3)
	require.Equal(t, [][]any{{int64(1), int64(0), int64(3), "2025-03-01 12:00:00.005", "2025-03-01 12:00:00.005"}},
		r.ask(t, "SELECT * FROM timeout_task_counts").Rows)
}
