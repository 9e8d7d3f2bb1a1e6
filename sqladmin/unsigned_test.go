package sqladmin

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// wideRows have ids over the whole range of a uint64.
func wideRows() []taskRow {
	ids := []uint64{0, 1, 7, 1<<63 - 1, 1 << 63, 1<<63 + 1, math.MaxUint64 - 1, math.MaxUint64, 42, 1 << 62, math.MaxUint64}
	var rows []taskRow
	for i, id := range ids {
		rows = append(rows, taskRow{
			jobID: uint64(i + 1), bizID: id, bizType: ids[len(ids)-1-i], status: i % 2 * 2,
			actionTime: time.Date(2025, 1, i+1, 0, 0, 0, 0, time.UTC),
		})
	}
	return rows
}

// TestIdsAreUnsignedInSQLite holds SQLite's shards, which store ids as signed
// integers, against MySQL, which does not.
func TestIdsAreUnsignedInSQLite(t *testing.T) {
	sqlite, mysql := newSQLiteRig(t, wideRows()), newMySQLRig(t, wideRows())
	const top = "18446744073709551615"
	const half = "9223372036854775808"
	for _, query := range []string{
		"SELECT biz_id, biz_type FROM timeout_task ORDER BY job_id",
		"SELECT t.biz_id b, job_id FROM timeout_task t ORDER BY b DESC, job_id",
		"SELECT job_id, biz_id FROM timeout_task ORDER BY biz_id DESC, job_id LIMIT 3",
		"SELECT job_id, biz_id FROM timeout_task ORDER BY timeout_task.biz_id, job_id LIMIT 9",
		"SELECT DISTINCT biz_id FROM timeout_task ORDER BY biz_id DESC LIMIT 4",
		"SELECT MIN(biz_id), MAX(biz_id), SUM(biz_id), COUNT(biz_id), MIN(DISTINCT biz_type) FROM timeout_task",
		"SELECT MIN(biz_id), MAX(biz_id), SUM(biz_id), AVG(biz_id) FROM timeout_task WHERE status = 99",
		"SELECT status, MIN(biz_id), MAX(biz_id), SUM(biz_type) FROM timeout_task GROUP BY status ORDER BY 2",
		"SELECT biz_id, COUNT(*) FROM timeout_task GROUP BY biz_id ORDER BY biz_id DESC LIMIT 3",
		"SELECT COUNT(*), status FROM timeout_task GROUP BY biz_id, status ORDER BY biz_id, status",
		"SELECT job_id FROM timeout_task WHERE biz_id = " + top + " ORDER BY job_id",
		"SELECT job_id FROM timeout_task WHERE biz_id <> " + top + " ORDER BY job_id",
		"SELECT job_id FROM timeout_task WHERE biz_id IN (7, " + half + ", " + top + ") ORDER BY job_id",
		"SELECT job_id FROM timeout_task WHERE biz_id > 100 ORDER BY job_id",
		"SELECT job_id FROM timeout_task WHERE biz_id >= " + half + " AND status = 0 ORDER BY job_id",
		"SELECT job_id FROM timeout_task t WHERE (t.biz_id < " + half + ") OR NOT t.biz_type<=" + half + " ORDER BY job_id",
		"SELECT job_id FROM timeout_task WHERE 100 < biz_id AND " + top + " > biz_id ORDER BY job_id",
		"SELECT job_id FROM timeout_task WHERE biz_id BETWEEN 8 AND " + half + " ORDER BY job_id",
		"SELECT job_id FROM timeout_task WHERE biz_id NOT BETWEEN 8 AND " + half + " AND status = 0 ORDER BY job_id",
		"SELECT SUM(CASE WHEN biz_id > 100 THEN 1 ELSE 0 END) FROM timeout_task",
		"SELECT biz_id > 100 AS wide, COUNT(*) FROM timeout_task GROUP BY biz_id > 100 ORDER BY wide",
	} {
		want := mysql.askWhole(t, query)
		require.NotEmpty(t, want, query)
		require.Equal(t, want, lines(sqlite.ask(t, query)), query)
		require.Equal(t, want, lines(mysql.ask(t, query)), query)
	}
	for _, row := range sqlite.ask(t, "SELECT * FROM timeout_task WHERE biz_id = "+top).Rows {
		require.Equal(t, uint64(math.MaxUint64), row[3])
	}
	sum := 19*math.Pow(2, 62) + 46 // of the ids, next to nothing lost in the last digits
	require.Equal(t, [][]any{{sum / 11}}, sqlite.ask(t, "SELECT AVG(biz_id) FROM timeout_task").Rows)
}

// TestWideLiteralsThatSQLiteCannotCalculateWithAreRefused: a signed answer would
// be wrong.
func TestWideLiteralsThatSQLiteCannotCalculateWithAreRefused(t *testing.T) {
	const wide = "9223372036854775808"
	for _, expr := range []string{"biz_id + " + wide, wide + " - biz_id", "biz_id + 1 > " + wide, "-" + wide,
		"biz_id BETWEEN status AND " + wide} {
		q, err := Parse(fmt.Sprintf("SELECT %s FROM timeout_task", expr))
		require.NoError(t, err, expr)
		_, err = q.plan(SQLite)
		var bad *SyntaxError
		require.ErrorAs(t, err, &bad, expr)
		require.Contains(t, bad.Error(), "9223372036854775807", expr)
		_, err = q.plan(MySQL)
		require.NoError(t, err, expr)
	}
}
