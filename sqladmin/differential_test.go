package sqladmin

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
	"SELECT job_id FROM timeout_task ORDER BY job_id LIMIT 100000",
	"SELECT job_id FROM timeout_task ORDER BY job_id LIMIT 0",
	"select job_id, status from `timeout_task` where status = 0 order by action_time desc, job_id",
	"SELECT job_id j, status AS `s t` FROM timeout_task t WHERE t.status <> 0 ORDER BY `s t`, j DESC",
	"SELECT timeout_task.job_id FROM timeout_task WHERE timeout_task.biz_id = 3 ORDER BY timeout_task.job_id",
	"SELECT attribute, job_id FROM timeout_task ORDER BY 1, 2",
	"SELECT attribute, job_id FROM timeout_task ORDER BY attribute DESC, job_id LIMIT 40",
	"SELECT job_id FROM timeout_task ORDER BY dedup_key, job_id LIMIT 30",
	"SELECT job_id, dedup_key FROM timeout_task ORDER BY dedup_key DESC, job_id DESC",
	"SELECT job_id FROM timeout_task ORDER BY status * 10 + attempts, job_id LIMIT 20",
	"SELECT t.*, t.status * 2 AS twice FROM timeout_task AS t ORDER BY twice DESC, t.job_id LIMIT 20",
	"SELECT job_id FROM timeout_task WHERE attribute = 'it''s' OR attribute = \"a\" ORDER BY job_id -- no 'more'",
	"SELECT job_id /* , biz_id */ FROM timeout_task /* ; */ WHERE dedup_key IS NULL -- really\n ORDER BY job_id",
	"SELECT job_id, CASE WHEN status = 0 THEN 'open' ELSE 'closed' END state FROM timeout_task ORDER BY state, job_id DESC",
	"SELECT job_id FROM timeout_task WHERE status IN (2, 3) AND (attempts BETWEEN 1 AND 2 OR biz_type = 1) ORDER BY 1",
	"SELECT job_id FROM timeout_task WHERE action_time <= '2025-03-02 12:00:00.000' ORDER BY action_time, job_id LIMIT 10",
	"SELECT job_id, attribute FROM timeout_task WHERE attribute LIKE '%a%' ORDER BY LENGTH(attribute), attribute, job_id",
	"SELECT status, status, job_id FROM timeout_task ORDER BY job_id LIMIT 3",
	"SELECT job_id, status / 4.0 FROM timeout_task ORDER BY 2 DESC, 1 LIMIT 30",

	"SELECT DISTINCT status FROM timeout_task ORDER BY status",
	"SELECT DISTINCT attribute, status AS s FROM timeout_task ORDER BY s DESC, attribute LIMIT 9 OFFSET 2",
	"SELECT DISTINCT dedup_key FROM timeout_task ORDER BY dedup_key DESC LIMIT 3",
	"SELECT DISTINCT status % 2, biz_type FROM timeout_task ORDER BY 2, 1",

	"SELECT COUNT(*) FROM timeout_task",
	"SELECT COUNT(*), COUNT(dedup_key), SUM(status), MIN(status), MAX(status), AVG(status) FROM timeout_task",
	"SELECT count( * ) AS n, 'all' AS what FROM timeout_task WHERE status = 4",
	"SELECT COUNT(*), SUM(attempts), MIN(attempts), MAX(attribute), AVG(attempts) FROM timeout_task WHERE status = 99",
	"SELECT MIN(action_time), MAX(action_time) FROM timeout_task WHERE status = 0",
	"SELECT MIN(attribute), MAX(attribute), MIN(dedup_key), MAX(dedup_key) FROM timeout_task",
	"SELECT SUM(CASE WHEN status = 0 THEN 1 ELSE 0 END) AS open, SUM(0.25 * attempts), AVG(attempts + 0.5) FROM timeout_task",
	"SELECT MIN(biz_id), MAX(biz_id), SUM(biz_id), AVG(biz_id), MAX(job_id) FROM timeout_task",
	"SELECT COUNT(*) FROM timeout_task LIMIT 1 OFFSET 1",

	"SELECT status, COUNT(*) FROM timeout_task GROUP BY status ORDER BY status",
	"SELECT COUNT(*) FROM timeout_task GROUP BY status ORDER BY status DESC",
	"SELECT COUNT(*) AS n, status FROM timeout_task GROUP BY 2 ORDER BY n DESC, status LIMIT 2 OFFSET 1",
	"SELECT status s, biz_type, COUNT(*), AVG(attempts), MAX(action_time) FROM timeout_task GROUP BY s, biz_type ORDER BY 1, 2",
	"SELECT attribute, COUNT(*) FROM timeout_task GROUP BY attribute ORDER BY COUNT(*) DESC, attribute",
	"SELECT attribute FROM timeout_task GROUP BY attribute ORDER BY attribute LIMIT 4",
	"SELECT dedup_key k, SUM(attempts) total FROM timeout_task t WHERE t.status = 0 GROUP BY k ORDER BY total, k DESC",
	"SELECT DATE(action_time) AS day, status, COUNT(*) FROM timeout_task GROUP BY day, status ORDER BY day, status",
	"SELECT status * 2, status + 1 AS next, COUNT(*) FROM timeout_task GROUP BY timeout_task.status ORDER BY next",
	"SELECT status % 2 AS odd, MIN(job_id), MAX(job_id), SUM(job_id) FROM timeout_task GROUP BY status % 2 ORDER BY odd",
	"SELECT biz_id, COUNT(*) FROM timeout_task GROUP BY biz_id ORDER BY biz_id",
	"SELECT status, COUNT(*) FROM timeout_task WHERE biz_id = 77 GROUP BY status ORDER BY status",
}

// unordered queries have one right set of rows.
var unordered = []string{
	"SELECT * FROM timeout_task",
	"SELECT attribute, status FROM timeout_task WHERE attempts > 1",
	"SELECT DISTINCT attribute FROM timeout_task",
	"SELECT DISTINCT * FROM timeout_task WHERE status = 2",
	"SELECT 1 FROM timeout_task WHERE status = 3",
	"SELECT ALL status FROM timeout_task WHERE attribute = ''",
	"SELECT COUNT(*), biz_type FROM timeout_task GROUP BY biz_type, status",
	"SELECT status FROM timeout_task GROUP BY status",
}

// differ compares the shards with the one table.
func differ(t *testing.T, r rig, query string, inOrder bool) {
	t.Helper()
	got, want := lines(r.ask(t, query)), r.askWhole(t, query)
	if !inOrder {
		slices.SortFunc(got, slices.Compare)
		slices.SortFunc(want, slices.Compare)
	}
	require.Equal(t, want, got, query)
}

// TestShardsAnswerAsOneTable is the promise of the package.
func TestShardsAnswerAsOneTable(t *testing.T) {
	onBoth(t, func(t *testing.T, open func(testing.TB, []taskRow) rig) {
		for _, n := range []int{0, 3, 400} {
			t.Run(fmt.Sprintf("rows=%d", n), func(t *testing.T) {
				r := open(t, randomRows(uint64(n), n))
				for _, query := range ordered {
					differ(t, r, query, true)
				}
				for _, query := range unordered {
					differ(t, r, query, false)
				}
			})
		}
	})
}

// TestRandomQueriesAnswerAsOneTable puts queries together by chance.
func TestRandomQueriesAnswerAsOneTable(t *testing.T) {
	onBoth(t, func(t *testing.T, open func(testing.TB, []taskRow) rig) {
		r := open(t, randomRows(5, 250))
		random := rand.New(rand.NewPCG(11, 12))
		for range 150 {
			differ(t, r, randomQuery(random), true)
		}
	})
}

func onBoth(t *testing.T, test func(t *testing.T, open func(testing.TB, []taskRow) rig)) {
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, newSQLiteRig)
	})
	t.Run("mysql", func(t *testing.T) {
		t.Parallel()
		test(t, newMySQLRig)
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
	values := []string{"biz_id", "biz_type", "status", "action_time", "attribute", "attempts", "dedup_key",
		"status % 3", "attempts + status", "LOWER(attribute)", "LENGTH(attribute)", "COALESCE(dedup_key, 'none')",
		"CASE WHEN attempts > 1 THEN 'many' ELSE 'few' END"}
	folds := []string{"COUNT(*)", "COUNT(dedup_key)", "SUM(attempts)", "SUM(status * 0.5)", "MIN(action_time)", "MAX(attribute)",
		"MIN(dedup_key)", "AVG(status)", "MAX(biz_id)", "SUM(biz_id)"}
	var where string
	if random.IntN(2) == 0 {
		conditions := []string{"status = 0", "attempts < 2", "dedup_key IS NOT NULL", "attribute > 'A'", "biz_id BETWEEN 2 AND 9",
			"NOT (biz_type = 1)", "action_time < '2025-03-03'", "5 > biz_id"}
		where = " WHERE " + strings.Join(some(conditions, 1), []string{" AND ", " OR "}[random.IntN(2)])
	}
	var limit string
	if random.IntN(2) == 0 {
		limit = fmt.Sprintf(" LIMIT %d OFFSET %d", random.IntN(30), random.IntN(10))
	}
	switch random.IntN(4) {
	case 0:
		return "SELECT " + list(some(values, 1)) + ", job_id FROM timeout_task" + where +
			" ORDER BY " + direct(append(some(values, 0), "job_id")) + limit
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

// TestLimitWithoutOrder may take any rows, but no others and not too few.
func TestLimitWithoutOrder(t *testing.T) {
	onBoth(t, func(t *testing.T, open func(testing.TB, []taskRow) rig) {
		r := open(t, randomRows(3, 120))
		for query, want := range map[string]int{
			"SELECT job_id FROM timeout_task LIMIT 10":                   10,
			"SELECT job_id FROM timeout_task LIMIT 50, 100":              70,
			"SELECT job_id FROM timeout_task LIMIT 1000":                 120,
			"SELECT job_id FROM timeout_task LIMIT 0":                    0,
			"SELECT DISTINCT job_id FROM timeout_task LIMIT 9":           9,
			"SELECT job_id FROM timeout_task WHERE biz_id = 77 LIMIT 10": 0,
			"SELECT job_id FROM timeout_task LIMIT 18446744073709551615": 120,
		} {
			all := map[string]bool{}
			for _, line := range r.askWhole(t, "SELECT job_id FROM timeout_task") {
				all[line[0]] = true
			}
			got := r.ask(t, query)
			require.Equal(t, []string{"job_id"}, got.Columns, query)
			require.Len(t, got.Rows, want, query)
			for _, line := range lines(got) {
				require.True(t, all[line[0]], "%s: %s is not there, or twice", query, line[0])
				delete(all, line[0])
			}
		}
	})
}
