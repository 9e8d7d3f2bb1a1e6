package main

import (
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/task"
)

// storeOf makes a store with a task for each biz_id, inserted by plain SQL, and
// gives its configuration file.
func storeOf(t *testing.T, bizIDs ...uint64) string {
	path := small(t, "")
	ok(t, "migrate", "--config", path)
	cfg, err := configs.Load(path, nil)
	require.NoError(t, err)
	list, err := app.Databases(cfg, false)
	require.NoError(t, err)
	for i, bizID := range bizIDs {
		p := placeOf(t, path, bizID)
		due := time.Date(2026, 1, 2, 15, 4, 5+i, 67_000_000, time.UTC).Format("2006-01-02 15:04:05.000")
		_, err := list[p.Database].DB.Exec("INSERT INTO "+p.Table+" (job_id, biz_id, biz_type, action_time, status) VALUES (?, ?, ?, ?, ?)",
			p.JobID, int64(bizID), 1, due, []task.Status{task.Pending, task.Dead}[i%2])
		require.NoError(t, err)
	}
	require.NoError(t, app.CloseDatabases(list))
	return path
}

func TestSQL(t *testing.T) {
	path := storeOf(t, 1, 2, 3, 4, 5, 1<<64-1)
	sql := func(query string, flags ...string) string {
		return ok(t, append([]string{"sql", "--config", path, query}, flags...)...)
	}
	const rows = "SELECT biz_id, status, action_time FROM timeout_task ORDER BY action_time"
	golden(t, "sql/rows", sql(rows))
	golden(t, "sql/csv", sql(rows, "--csv"))
	golden(t, "sql/json", sql(rows, "--json"))
	golden(t, "sql/aggregate", sql("SELECT COUNT(*), MIN(biz_id), MAX(biz_id), SUM(status) FROM timeout_task"))
	golden(t, "sql/group", sql("SELECT status, COUNT(*) AS n FROM timeout_task GROUP BY status ORDER BY status"))
	golden(t, "sql/none", sql("SELECT biz_id FROM timeout_task WHERE status = 3"))
}

// TestSQLOnlySelects: all that is wrong with the text is wrong usage.
func TestSQLOnlySelects(t *testing.T) {
	path := storeOf(t, 1, 2)
	for query, says := range map[string]string{
		"DELETE FROM timeout_task": "not a SELECT",
		"":                         "the query is empty",
		"SELECT biz_id FROM timeout_task; DELETE FROM timeout_task": "a second statement",
		"SELECT nosuch FROM timeout_task":                           "no such column: nosuch",
		"SELECT * FORM timeout_task":                                `near "FORM": syntax error`,
	} {
		r := toc("sql", "--config", path, query)
		require.Equal(t, 2, r.code, query)
		require.Empty(t, r.out)
		require.Contains(t, r.err, says)
	}
	require.Equal(t, "COUNT(*)\n2\n", ok(t, "sql", "--csv", "--config", path, "SELECT COUNT(*) FROM timeout_task"))
}

func TestSQLStopsAtItsLimits(t *testing.T) {
	path := storeOf(t, 1, 2, 3)
	const query = "SELECT biz_id FROM timeout_task ORDER BY biz_id"
	r := toc("sql", "--csv", "--limit", "2", "--config", path, query)
	require.Equal(t, 1, r.code)
	require.Equal(t, "biz_id\n1\n2\n", r.out)
	require.Equal(t, "toc: there are more than 2 rows; narrow the query down, or print more, like --limit 20\n", r.err)
	require.Equal(t, "biz_id\n1\n2\n3\n", ok(t, "sql", "--csv", "--limit", "3", "--config", path, query))

	r = toc("sql", "--timeout", "1ns", "--config", path, query)
	require.Equal(t, 1, r.code)
	require.Empty(t, r.out)
	require.Equal(t, "toc: the query took longer than 1ns; narrow it down, or allow more, like --timeout 10ns\n", r.err)
}

func TestSQLWithoutAStoreSaysHowToMakeOne(t *testing.T) {
	r := toc("sql", "--config", small(t, ""), "SELECT COUNT(*) FROM timeout_task")
	require.Equal(t, 1, r.code)
	require.Regexp(t, regexp.MustCompile(`there is no store in /.*; start toc serve or toc migrate first`), r.err)
}
