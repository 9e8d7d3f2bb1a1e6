package sqladmin

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestTimesAndDecimalsKeepTheirDigits: the driver's types do not show.
func TestTimesAndDecimalsKeepTheirDigits(t *testing.T) {
	rows := []taskRow{
		{jobID: 1, actionTime: time.Date(2025, 3, 1, 12, 0, 0, 0, time.UTC), status: 2},
		{jobID: 2, actionTime: time.Date(2025, 3, 1, 12, 0, 0, 5e6, time.UTC), status: 3},
	}
	onBoth(t, func(t *testing.T, open func(testing.TB, []taskRow) rig) {
		r := open(t, rows)
		got := r.ask(t, "SELECT action_time FROM timeout_task ORDER BY action_time DESC")
		require.Equal(t, [][]any{{"2025-03-01 12:00:00.005"}, {"2025-03-01 12:00:00.000"}}, got.Rows)
		got = r.ask(t, "SELECT COUNT(*), SUM(status), MAX(action_time), MIN(dedup_key) FROM timeout_task")
		require.Equal(t, [][]any{{int64(2), int64(5), "2025-03-01 12:00:00.005", nil}}, got.Rows)
		got = r.ask(t, "SELECT AVG(status), SUM(status * 0.25) FROM timeout_task")
		if r.dialect == MySQL {
			require.Equal(t, [][]any{{json.Number("2.5000"), json.Number("1.25")}}, got.Rows)
		} else {
			require.Equal(t, [][]any{{2.5, 1.25}}, got.Rows)
		}
	})
}

// TestSumsBeyond64BitsStayExact, where one table would overflow or round.
func TestSumsBeyond64BitsStayExact(t *testing.T) {
	var rows []taskRow
	for i := range 5 {
		rows = append(rows, taskRow{jobID: math.MaxInt64 - uint64(i), bizID: math.MaxUint64})
	}
	onBoth(t, func(t *testing.T, open func(testing.TB, []taskRow) rig) {
		r := open(t, rows)
		require.Equal(t, [][]any{{json.Number("46116860184273879025"), json.Number("92233720368547758075")}},
			r.ask(t, "SELECT SUM(job_id), SUM(biz_id) FROM timeout_task").Rows)
		require.Equal(t, [][]any{{uint64(math.MaxUint64 - 2)}},
			r.ask(t, "SELECT SUM(job_id) FROM timeout_task WHERE job_id >= 9223372036854775806").Rows)
	})
}

// TestShortLimitAsksFewTables: rows that are there need not be looked for further.
func TestShortLimitAsksFewTables(t *testing.T) {
	const tables = 200
	asked := map[int]bool{}
	cfg := Config{Dialect: SQLite, Tables: tables, Parallel: 1, TableName: func(table int) string {
		asked[table] = true
		return shardName(table)
	}}
	for d := range 2 {
		db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "toc.db"))
		require.NoError(t, err)
		t.Cleanup(func() { db.Close() })
		script := "BEGIN;"
		for table := range tables {
			script += fmt.Sprintf("CREATE TABLE %s (job_id INTEGER); INSERT INTO %[1]s VALUES (%d);", shardName(table), d*tables+table)
		}
		_, err = db.Exec(script + "COMMIT;")
		require.NoError(t, err)
		cfg.Sources = append(cfg.Sources, Source{DB: db, Database: d})
	}
	run := func(query string) *Result {
		clear(asked)
		q, err := Parse(query)
		require.NoError(t, err)
		result, err := q.Run(t.Context(), cfg)
		require.NoError(t, err)
		return result
	}
	require.Len(t, run("SELECT job_id FROM timeout_task LIMIT 10").Rows, 10)
	require.Len(t, asked, 64)
	require.Empty(t, run("SELECT job_id FROM timeout_task LIMIT 0").Rows)
	require.Len(t, asked, 64)
	require.Len(t, run("SELECT job_id FROM timeout_task LIMIT 65").Rows, 65)
	require.Len(t, asked, 128)
	require.Equal(t, [][]any{{uint64(399)}, {uint64(398)}}, run("SELECT job_id FROM timeout_task ORDER BY job_id DESC LIMIT 2").Rows)
	require.Len(t, asked, tables)
	require.Equal(t, [][]any{{int64(400)}}, run("SELECT COUNT(*) FROM timeout_task").Rows)
}

// TestManyRowsAreCutWhileTheyArrive drives the merge past its slack.
func TestManyRowsAreCutWhileTheyArrive(t *testing.T) {
	q, err := Parse("SELECT job_id FROM timeout_task ORDER BY job_id DESC LIMIT 3 OFFSET 1")
	require.NoError(t, err)
	p, err := q.plan(MySQL)
	require.NoError(t, err)
	m := p.merger(2).(*rowMerger)
	for i := range 20_000 {
		require.NoError(t, m.add(i%2, []any{int64(i * 7919 % 20_000), int64(i * 7919 % 20_000)}))
	}
	require.Less(t, len(m.bySource[0]), 5000)
	require.Equal(t, [][]any{{int64(19_998)}, {int64(19_997)}, {int64(19_996)}}, m.rows())
}

// TestNothingIsWritten: even a function of the user's own that writes.
func TestNothingIsWritten(t *testing.T) {
	r := newMySQLRig(t, randomRows(1, 20))
	for _, src := range r.shards.Sources {
		_, err := src.DB.Exec("CREATE FUNCTION wipe() RETURNS int MODIFIES SQL DATA BEGIN DELETE FROM timeout_task_0000; RETURN 1; END")
		require.NoError(t, err)
	}
	q, err := Parse("SELECT wipe() FROM timeout_task")
	require.NoError(t, err)
	_, err = q.Run(t.Context(), r.shards)
	require.ErrorContains(t, err, "READ ONLY")
	require.Equal(t, [][]any{{int64(20)}}, r.ask(t, "SELECT COUNT(*) FROM timeout_task").Rows)
}

// TestSessionsAreNotReused: Run changes the sessions that it takes from a pool.
func TestSessionsAreNotReused(t *testing.T) {
	onBoth(t, func(t *testing.T, open func(testing.TB, []taskRow) rig) {
		r := open(t, nil)
		r.ask(t, "SELECT COUNT(*) FROM timeout_task")
		for _, src := range r.shards.Sources {
			require.Zero(t, src.DB.Stats().OpenConnections)
		}
	})
}

func TestTypesWithAnotherOrderAreRefused(t *testing.T) {
	r := newMySQLRig(t, randomRows(1, 5))
	for _, query := range []string{
		"SELECT job_id FROM timeout_task ORDER BY TIMEDIFF(gmt_modified, action_time)",
		"SELECT MAX(TIME(action_time)) FROM timeout_task",
		"SELECT TIME(action_time) AS clock, COUNT(*) FROM timeout_task GROUP BY clock ORDER BY clock",
	} {
		q, err := Parse(query)
		require.NoError(t, err)
		_, err = q.Run(t.Context(), r.shards)
		var bad *SyntaxError
		require.ErrorAs(t, err, &bad, query)
		require.Contains(t, bad.Error(), "type TIME cannot be sorted", query)
	}
	require.Len(t, r.ask(t, "SELECT TIME(action_time), COUNT(*) FROM timeout_task GROUP BY 1").Columns, 2)
}

func TestErrorsNameTheDatabase(t *testing.T) {
	onBoth(t, func(t *testing.T, open func(testing.TB, []taskRow) rig) {
		r := open(t, nil)
		q, err := Parse("SELECT no_such_column FROM timeout_task")
		require.NoError(t, err)
		_, err = q.Run(t.Context(), r.shards)
		require.ErrorContains(t, err, "query database ")
		require.ErrorContains(t, err, "no_such_column")

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = q.Run(ctx, r.shards)
		require.ErrorIs(t, err, context.Canceled)
	})
}

func TestConfigMustBeWhole(t *testing.T) {
	whole := Config{Dialect: SQLite, Sources: []Source{{}}, Tables: 1, TableName: shardName}
	q, err := Parse("SELECT 1 FROM timeout_task")
	require.NoError(t, err)
	for field, spoil := range map[string]func(*Config){
		"Dialect":   func(c *Config) { c.Dialect = 0 },
		"Sources":   func(c *Config) { c.Sources = nil },
		"Tables":    func(c *Config) { c.Tables = 0 },
		"TableName": func(c *Config) { c.TableName = nil },
		"Parallel":  func(c *Config) { c.Parallel = -1 },
	} {
		cfg := whole
		spoil(&cfg)
		_, err := q.Run(t.Context(), cfg)
		require.ErrorContains(t, err, field)
	}
}
