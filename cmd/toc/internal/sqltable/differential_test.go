package sqltable

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// ordered queries have one right order of rows.
var ordered = []string{
	"SELECT * FROM timeout_task ORDER BY job_id",
	"SELECT * FROM timeout_task ORDER BY job_id DESC LIMIT 5;",
	"SELECT job_id FROM timeout_task ORDER BY job_id LIMIT 7 OFFSET 11",
	"SELECT job_id FROM timeout_task ORDER BY job_id LIMIT 11, 7",
	"SELECT job_id FROM timeout_task ORDER BY job_id LIMIT 5 OFFSET 100000",
	"SELECT job_id FROM timeout_task ORDER BY job_id LIMIT -1 OFFSET 3",
	"SELECT job_id FROM timeout_task WHERE status = 4 ORDER BY action_time, job_id LIMIT 1 + 2 OFFSET 2",
	"SELECT job_id FROM timeout_task WHERE status IN (0, 4) ORDER BY action_time DESC, job_id LIMIT 9",
	"SELECT job_id FROM timeout_task WHERE status = 0 AND attempts % 2 = 1 ORDER BY action_time, job_id LIMIT 9",
	"SELECT job_id FROM timeout_task WHERE status = 0 AND attribute LIKE 'A%' ORDER BY action_time, job_id LIMIT 9",
	"SELECT job_id FROM timeout_task ORDER BY due_time, timeout_ms DESC, job_id LIMIT 30",
	"SELECT job_id FROM timeout_task ORDER BY due_time NULLS LAST, job_id LIMIT 30",
	"SELECT job_id FROM timeout_task ORDER BY attribute COLLATE NOCASE, job_id LIMIT 30",
	"SELECT job_id FROM timeout_task ORDER BY biz_id DESC, biz_type, job_id LIMIT 30",
	"SELECT job_id j, status AS `s t` FROM timeout_task t WHERE t.status <> 0 ORDER BY `s t`, j DESC",
	"SELECT job_id FROM timeout_task WHERE attribute = 'it''s' OR attribute = \"a\" ORDER BY job_id -- no 'more'",
	"SELECT job_id FROM timeout_task WHERE attribute = 'a' COLLATE NOCASE ORDER BY job_id",
	"SELECT job_id FROM timeout_task WHERE attribute = 'a' COLLATE RTRIM ORDER BY job_id LIMIT 3",
	"SELECT job_id FROM timeout_task WHERE action_time = '2025-03-02 12:00:00.000  ' COLLATE RTRIM ORDER BY job_id",
	"SELECT job_id FROM timeout_task WHERE attribute = 10 OR attribute IN ('9', char(60,98,62,0,38,10)) ORDER BY job_id",
	"SELECT job_id FROM timeout_task WHERE attribute = char(60,98,62,0,38,10) ORDER BY job_id",
	"SELECT job_id FROM timeout_task WHERE attribute < 'b' AND attribute >= 'A' ORDER BY job_id",
	"SELECT job_id FROM timeout_task WHERE attribute = CAST(x'61ff' AS TEXT) ORDER BY job_id",
	"SELECT job_id /* , biz_id */ FROM timeout_task /* ; */ WHERE dedup_key IS NULL -- really\n ORDER BY job_id",
	"SELECT job_id FROM timeout_task WHERE dedup_key = NULL OR due_time < NULL ORDER BY job_id",
	"SELECT job_id FROM timeout_task WHERE status = '4' OR attempts = 1.0 OR attempts > 2.5 ORDER BY job_id",
	"SELECT job_id FROM timeout_task WHERE biz_id = '77' OR biz_id = 18446744073709551615 ORDER BY job_id",
	"SELECT job_id FROM timeout_task WHERE biz_id IN (1, 2, 9223372036854775808, 12345) AND status = 0 ORDER BY job_id",
	"SELECT job_id FROM timeout_task WHERE biz_id > -1 AND biz_id <= 10000000000000000000 ORDER BY job_id",
	"SELECT job_id FROM timeout_task WHERE biz_id = -1 OR biz_id = x'ff' OR biz_type BETWEEN 3 AND 9223372036854775807 ORDER BY 1",
	"SELECT job_id FROM timeout_task WHERE job_id > (SELECT MIN(job_id) FROM timeout_task) ORDER BY job_id LIMIT 4",
	"SELECT job_id FROM timeout_task WHERE job_id = (SELECT MAX(job_id) FROM timeout_task) OR job_id IN (5, 18446744073709551615)",
	"SELECT job_id FROM timeout_task WHERE rowid > 3 AND biz_id = 1 AND biz_id = 2 ORDER BY job_id",
	"SELECT status, COUNT(*), MIN(biz_id), MAX(biz_id), COUNT(DISTINCT attribute) FROM timeout_task GROUP BY status ORDER BY status",
	"SELECT biz_id, COUNT(*) FROM timeout_task GROUP BY biz_id HAVING COUNT(*) > 3 AND MIN(biz_id) > 2 ORDER BY biz_id DESC",
	"SELECT COUNT(*), SUM(status), AVG(attempts), MIN(action_time), MAX(attribute) FROM timeout_task WHERE status = 99",
	"SELECT DISTINCT biz_type FROM timeout_task ORDER BY biz_type DESC LIMIT 4",
	"SELECT date(action_time) AS day, status, COUNT(*) FROM timeout_task GROUP BY day, status ORDER BY day, status",
	"SELECT a.job_id, b.job_id FROM timeout_task a JOIN timeout_task b ON a.biz_id = b.biz_id AND a.job_id < b.job_id WHERE a.status = 4 ORDER BY 1, 2",
	"SELECT a.job_id, (SELECT COUNT(*) FROM timeout_task b WHERE b.attribute = a.dedup_key OR b.status = a.attribute) FROM timeout_task a ORDER BY 1",
	"SELECT job_id, row_number() OVER (PARTITION BY status ORDER BY action_time, job_id) AS n FROM timeout_task ORDER BY status, n LIMIT 20",
	"WITH dead AS (SELECT * FROM timeout_task WHERE status = 4 ORDER BY action_time, job_id LIMIT 5) SELECT COUNT(*), MAX(job_id) FROM dead",
	"SELECT job_id FROM timeout_task WHERE status = 4 UNION ALL SELECT job_id FROM timeout_task WHERE status = 0 ORDER BY 1 LIMIT 8",
	"SELECT * FROM (SELECT job_id FROM timeout_task WHERE status = 2 ORDER BY job_id LIMIT 2) UNION SELECT 5 ORDER BY 1",
	"SELECT * FROM timeout_task_counts ORDER BY biz_type, status",
	"SELECT status, SUM(tasks), MIN(oldest) FROM timeout_task_counts WHERE status = 0 OR status = 4 GROUP BY status ORDER BY status",
	"SELECT tasks FROM timeout_task_counts WHERE biz_type = 18446744073709551615 AND status IN (0, 3) ORDER BY status",
	"SELECT SUM(tasks) FROM timeout_task_counts WHERE tasks > 1 AND oldest < '2025-03-02'",
	"SELECT biz_type, tasks FROM timeout_task_counts WHERE status = 0 ORDER BY oldest, biz_type LIMIT 3",
}

// times are compared as text, whatever the servers make of them.
var times = []string{
	"'2025-03-02'", "'2025-03-02 12:00'", "'2025-03-02 12:00:00'", "'2025-03-02 12:00:00.000'", "'2025-03-02 06:00:00.250000'", "'2025-03-02 12:00:00.2'",
	"'2025-03-02T12:00:00'", "'2025-3-2'", "'2025-02-31'", "'2025'", "''", "'zz'", "20250302", "datetime('2025-03-02')", "x'32'", "1e9",
}

// differ compares the shards with the one table.
func differ(t *testing.T, r rig, query string, inOrder bool) {
	t.Helper()
	got, want := r.ask(t, query), r.askWhole(t, query)
	if !inOrder {
		for _, result := range []*Result{got, want} {
			slices.SortFunc(result.Rows, func(a, b []any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		}
	}
	require.Equal(t, want, got, query)
}

// TestShardsAnswerAsOneTable is the promise of the package.
func TestShardsAnswerAsOneTable(t *testing.T) {
	onBoth(t, func(t *testing.T, newRig func(testing.TB, [][]any) rig) {
		for _, n := range []int{0, 3, 400} {
			r := newRig(t, randomRows(uint64(n), n))
			for _, query := range ordered {
				differ(t, r, query, true)
			}
			for _, query := range []string{"SELECT * FROM timeout_task", "SELECT DISTINCT attribute FROM timeout_task", "SELECT 1 FROM timeout_task"} {
				differ(t, r, query, false)
			}
			if n < 400 {
				continue // few rows say nothing of times
			}
			for _, operator := range []string{"=", "<", "<=", ">", ">="} {
				for _, at := range times {
					differ(t, r, "SELECT job_id, action_time FROM timeout_task WHERE action_time "+operator+at+" ORDER BY job_id LIMIT 50", true)
				}
			}
		}
	})
}

// TestRandomQueriesAnswerAsOneTable puts queries together by chance.
func TestRandomQueriesAnswerAsOneTable(t *testing.T) {
	onBoth(t, func(t *testing.T, newRig func(testing.TB, [][]any) rig) {
		r := newRig(t, randomRows(5, 250))
		random := rand.New(rand.NewPCG(11, 12))
		for range 300 {
			differ(t, r, randomQuery(random), true)
		}
	})
}

// randomQuery is a query with one right order of rows.
func randomQuery(random *rand.Rand) string {
	some := func(from []string, least int) []string {
		from = slices.Clone(from)
		random.Shuffle(len(from), func(i, j int) { from[i], from[j] = from[j], from[i] })
		return from[:least+random.IntN(len(from)-least+1)]
	}
	list := func(parts []string) string { return strings.Join(parts, ", ") }
	direct := func(parts []string) string {
		for i := range parts {
			parts[i] += []string{"", " ASC", " DESC"}[random.IntN(3)]
		}
		return list(parts)
	}
	values := []string{"biz_id", "biz_type", "status", "action_time", "attribute", "attempts", "dedup_key", "due_time", "timeout_ms",
		"status % 3", "LOWER(attribute)", "COALESCE(dedup_key, 'none')", "CASE WHEN biz_id > 100 THEN 'wide' ELSE 'few' END"}
	folds := []string{"COUNT(*)", "COUNT(DISTINCT dedup_key)", "SUM(attempts)", "MIN(action_time)", "MAX(attribute)", "AVG(status)", "MAX(biz_id)"}
	var where string
	if random.IntN(4) > 0 {
		conditions := []string{"status = 0", "attempts < 2", "dedup_key IS NOT NULL", "attribute > 'A'", "biz_id BETWEEN 2 AND 9",
			"NOT (biz_type = 1)", "action_time < '2025-03-03'", "5 > biz_id", "biz_id IN (1, 77, 18446744073709551615)",
			"timeout_ms >= 1000", "due_time <= '2025-03-02 11:00:00.250'", "biz_type >= 9223372036854775808", "biz_type < 10000000000000000000"}
		where = " WHERE " + strings.Join(some(conditions, 2)[:1+random.IntN(2)], []string{" AND ", " OR "}[random.IntN(2)])
	}
	var limit string
	if random.IntN(2) == 0 {
		limit = fmt.Sprintf(" LIMIT %d OFFSET %d", random.IntN(30), random.IntN(10))
	}
	switch random.IntN(4) {
	case 0:
		return "SELECT " + list(some(values, 1)) + ", job_id FROM timeout_task" + where +
			" ORDER BY " + direct(append(some(values[:9], 0), "job_id")) + limit
	case 1:
		chosen := some(values, 1)
		return "SELECT DISTINCT " + list(chosen) + " FROM timeout_task" + where + " ORDER BY " + direct(chosen) + limit
	case 2:
		return "SELECT " + list(some(folds, 1)) + " FROM timeout_task" + where + limit
	default:
		by := some(values, 1)
		query := "SELECT " + list(append(some(folds, 1), by...)) + " FROM timeout_task" + where + " GROUP BY " + list(by)
		return query + " ORDER BY " + direct(slices.Clone(by)) + limit
	}
}
