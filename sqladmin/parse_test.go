package sqladmin

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// refusals are queries and what their error must say.
var refusals = map[string]string{
	// Not one SELECT.
	"":                                     "there is no query",
	" -- nothing":                          "there is no query",
	";":                                    "there is no query",
	"INSERT INTO timeout_task VALUES":      "only SELECT",
	"UPDATE timeout_task SET status=3":     "only SELECT",
	"DELETE FROM timeout_task":             "only SELECT",
	"WITH x AS (SELECT 1) SELECT * FROM x": "only SELECT",
	"EXPLAIN SELECT * FROM timeout_task":   "only SELECT",
	"(SELECT * FROM timeout_task)":         "only SELECT",
	"PRAGMA query_only = 0":                "only SELECT",
	"SELECT 1 FROM timeout_task; SELECT 2 FROM timeout_task":     "one statement",
	"SELECT 1 FROM timeout_task; DROP TABLE timeout_task_0000":   "one statement",
	"SELECT 1 FROM timeout_task;;":                               "one statement",
	"SELECT (1;2) FROM timeout_task":                             "one statement",
	"SELECT 1 FROM timeout_task) UNION ALL (SELECT 2 FROM mysql": "closes nothing",
	"SELECT 1 FROM timeout_task WHERE (status = 0":               "never closed",
	"SELECT":                                                      "select list is empty",
	"SELECT FROM timeout_task":                                    "select list is empty",
	"SELECT DISTINCT FROM timeout_task":                           "select list is empty",
	"SELECT status,, attempts FROM timeout_task":                  "empty entry",
	"SELECT status":                                               "no FROM",
	"SELECT status FROM":                                          "nothing follows FROM",
	"SELECT status FROM timeout_task WHERE":                       "nothing follows WHERE",
	"SELECT status FROM timeout_task WHERE ORDER BY status":       "nothing follows WHERE",
	"SELECT status FROM timeout_task LIMIT":                       "nothing follows LIMIT",
	"SELECT status FROM timeout_task GROUP status":                "followed by BY",
	"SELECT status FROM timeout_task ORDER status":                "followed by BY",
	"SELECT status FROM timeout_task LIMIT 1 WHERE 1":             "wrong place",
	"SELECT status FROM timeout_task WHERE 1 WHERE 2":             "wrong place",
	"SELECT status FROM timeout_task FROM timeout_task":           "wrong place",
	"SELECT * FROM timeout_task WHERE 1 /*! INTO OUTFILE '/x' */": "executable comment",
	"SELECT * FROM timeout_task WHERE attribute = 'a' 'b'":        "side by side",
	"SELECT `toc__0` FROM timeout_task":                           "are taken",
	"SELECT status AS FROM timeout_task":                          "AS must be followed",
	"SELECT status AS a b FROM timeout_task":                      "AS must be followed",
	"SELECT status AS '' FROM timeout_task":                       "alias cannot be empty",
	"SELECT * AS everything FROM timeout_task":                    "cannot have an alias",

	// Not the task table alone.
	"SELECT * FROM users":                                                          "only timeout_task",
	"SELECT * FROM timeout_task_0000":                                              "only timeout_task",
	"SELECT * FROM 'timeout_task'":                                                 "only timeout_task",
	"SELECT * FROM (timeout_task)":                                                 "only timeout_task",
	"SELECT * FROM toc_0.timeout_task":                                             "only timeout_task",
	"SELECT * FROM timeout_task.x":                                                 "databases are chosen",
	"SELECT * FROM timeout_task, timeout_task":                                     "joins",
	"SELECT * FROM timeout_task a, timeout_task b":                                 "joins",
	"SELECT * FROM timeout_task JOIN x":                                            "joins",
	"SELECT * FROM timeout_task a LEFT JOIN b ON 1":                                "joins",
	"SELECT * FROM timeout_task STRAIGHT_JOIN b":                                   "joins",
	"SELECT * FROM timeout_task FORCE INDEX (PRIMARY)":                             "only an alias",
	"SELECT * FROM timeout_task PARTITION (p0)":                                    "only an alias",
	"SELECT * FROM timeout_task AS a b":                                            "only an alias",
	"SELECT * FROM timeout_task AS":                                                "AS must be followed",
	"SELECT * FROM timeout_task UNION SELECT 1":                                    "UNION",
	"SELECT * FROM timeout_task EXCEPT SELECT 1":                                   "EXCEPT",
	"SELECT * FROM (SELECT * FROM timeout_task) t":                                 "sub-selects",
	"SELECT (SELECT 1) FROM timeout_task":                                          "sub-selects",
	"SELECT * FROM timeout_task WHERE biz_id IN (SELECT biz_id FROM timeout_task)": "sub-selects",
	"SELECT * FROM timeout_task WHERE EXISTS (TABLE users)":                        "TABLE",
	"SELECT * FROM timeout_task WHERE biz_id IN (VALUES ROW(1))":                   "VALUES",
	"SELECT * FROM timeout_task WHERE job_id IN sqlite_master":                     "IN must be followed",
	"SELECT * FROM timeout_task WHERE job_id IN `users`":                           "IN must be followed",

	// Not only reading.
	"SELECT * INTO OUTFILE '/tmp/x' FROM timeout_task":              "INTO",
	"SELECT * FROM timeout_task INTO DUMPFILE '/tmp/x'":             "INTO",
	"SELECT status INTO @x FROM timeout_task":                       "variables",
	"SELECT status INTO x FROM timeout_task":                        "INTO",
	"SELECT @x := status FROM timeout_task":                         "variables",
	"SELECT * FROM timeout_task FOR UPDATE":                         "locking reads",
	"SELECT * FROM timeout_task FOR SHARE":                          "locking reads",
	"SELECT * FROM timeout_task WHERE status=0 FOR UPDATE":          "locking reads",
	"SELECT * FROM timeout_task LOCK IN SHARE MODE":                 "locking reads",
	"SELECT * FROM timeout_task PROCEDURE ANALYSE()":                "PROCEDURE",
	"SELECT GET_LOCK('x', 1) FROM timeout_task":                     "GET_LOCK() is not allowed",
	"SELECT release_lock ('x') FROM timeout_task":                   "release_lock() is not allowed",
	"SELECT * FROM timeout_task WHERE sleep(1)":                     "sleep() is not allowed",
	"SELECT * FROM timeout_task WHERE `SLEEP`(1)":                   "SLEEP() is not allowed",
	"SELECT * FROM timeout_task WHERE sl/**/eep(1) OR sleep/**/(1)": "sleep() is not allowed",
	"SELECT * FROM timeout_task WHERE ſleep(1)":                     "no function of this name",
	"SELECT * FROM timeout_task ORDER BY BENCHMARK(1000000, 1)":     "BENCHMARK() is not allowed",
	"SELECT LOAD_FILE('/etc/passwd') FROM timeout_task":             "LOAD_FILE() is not allowed",
	"SELECT load_extension('x') FROM timeout_task":                  "load_extension() is not allowed",
	"SELECT writefile('x', 'y') FROM timeout_task":                  "writefile() is not allowed",
	"SELECT readfile('x') FROM timeout_task":                        "readfile() is not allowed",
	"SELECT edit('x') FROM timeout_task":                            "edit() is not allowed",
	"SELECT LAST_INSERT_ID(5) FROM timeout_task":                    "LAST_INSERT_ID() is not allowed",
	"SELECT FOUND_ROWS() FROM timeout_task":                         "FOUND_ROWS() is not allowed",
	"SELECT NEXTVAL(s) FROM timeout_task":                           "sequences",
	"SELECT ABS(NEXT VALUE FOR s) FROM timeout_task":                "sequences",

	// Not mergeable.
	"SELECT SQL_CALC_FOUND_ROWS * FROM timeout_task":                                 "modifiers",
	"SELECT DISTINCTROW * FROM timeout_task":                                         "DISTINCTROW",
	"SELECT COUNT(DISTINCT biz_id) FROM timeout_task":                                "DISTINCT",
	"SELECT SUM(DISTINCT status) FROM timeout_task":                                  "DISTINCT",
	"SELECT GROUP_CONCAT(status) FROM timeout_task":                                  "GROUP_CONCAT cannot be merged",
	"SELECT STDDEV(status) FROM timeout_task":                                        "STDDEV cannot be merged",
	"SELECT BIT_OR(status), 1 FROM timeout_task":                                     "BIT_OR cannot be merged",
	"SELECT TOTAL(status) FROM timeout_task":                                         "TOTAL cannot be merged",
	"SELECT ANY_VALUE(status) FROM timeout_task":                                     "ANY_VALUE cannot be merged",
	"SELECT COUNT() FROM timeout_task":                                               "needs an argument",
	"SELECT COUNT(*) * 2 FROM timeout_task":                                          "expression over an aggregate",
	"SELECT 1 + COUNT(*) AS n FROM timeout_task":                                     "expression over an aggregate",
	"SELECT ROUND(AVG(status)) FROM timeout_task":                                    "expression over an aggregate",
	"SELECT SUM(status) + SUM(attempts) FROM timeout_task":                           "expression over an aggregate",
	"SELECT `count`(*) + 1 FROM timeout_task":                                        "expression over an aggregate",
	"SELECT MAX(COUNT(*)) FROM timeout_task":                                         "aggregate of an aggregate",
	"SELECT status, COUNT(*) FROM timeout_task":                                      "not the same in all rows",
	"SELECT *, COUNT(*) FROM timeout_task":                                           "not the same in all rows",
	"SELECT attempts, COUNT(*) FROM timeout_task GROUP BY status":                    "not the same in all rows",
	"SELECT status + attempts, COUNT(*) FROM timeout_task GROUP BY status":           "not the same in all rows",
	"SELECT * FROM timeout_task GROUP BY status":                                     "not the same in all rows",
	"SELECT COUNT(*) FILTER (WHERE status = 0) FROM timeout_task":                    "expression over an aggregate",
	"SELECT COUNT(*) OVER () FROM timeout_task":                                      "window functions",
	"SELECT ROW_NUMBER() OVER (ORDER BY job_id) FROM timeout_task":                   "window functions",
	"SELECT status FROM timeout_task WINDOW w AS (ORDER BY status)":                  "window functions",
	"SELECT status, COUNT(*) FROM timeout_task GROUP BY status HAVING COUNT(*)>1":    "HAVING",
	"SELECT status, COUNT(*) FROM timeout_task GROUP BY status WITH ROLLUP":          "ROLLUP",
	"SELECT status FROM timeout_task GROUP BY status DESC":                           "does not sort",
	"SELECT COUNT(*) AS n FROM timeout_task GROUP BY n":                              "aggregate cannot stand in GROUP BY",
	"SELECT 1 FROM timeout_task GROUP BY COUNT(*)":                                   "aggregate cannot stand in GROUP BY",
	"SELECT status FROM timeout_task WHERE COUNT(*) > 1":                             "aggregate cannot stand in WHERE",
	"SELECT DISTINCT COUNT(*) FROM timeout_task":                                     "DISTINCT with aggregates",
	"SELECT DISTINCT status FROM timeout_task GROUP BY status":                       "DISTINCT with aggregates",
	"SELECT DISTINCT status FROM timeout_task ORDER BY job_id":                       "output columns only",
	"SELECT DISTINCT * FROM timeout_task ORDER BY status + 1":                        "output columns only",
	"SELECT COUNT(*) FROM timeout_task ORDER BY status":                              "output columns and group columns only",
	"SELECT status, COUNT(*) FROM timeout_task GROUP BY status ORDER BY MAX(job_id)": "output columns and group columns only",
	"SELECT status FROM timeout_task ORDER BY COUNT(*)":                              "needs it in the select list",
	"SELECT status FROM timeout_task ORDER BY 2":                                     "no such column",
	"SELECT status FROM timeout_task ORDER BY 0":                                     "no such column",
	"SELECT * FROM timeout_task ORDER BY 1":                                          "cannot be used with *",
	"SELECT status FROM timeout_task ORDER BY 'status'":                              "string does nothing",
	"SELECT status FROM timeout_task ORDER BY \"status\"":                            "string does nothing",
	"SELECT status FROM timeout_task ORDER BY status,":                               "empty entry",
	"SELECT status FROM timeout_task ORDER BY DESC":                                  "empty entry",
	"SELECT status FROM timeout_task ORDER BY status DESC NULLS LAST":                "NULLS FIRST and NULLS LAST",
	"SELECT status FROM timeout_task ORDER BY attribute COLLATE nocase":              "collation",
	"SELECT CONVERT(attribute USING latin1) FROM timeout_task":                       "collation",
	"SELECT status a, attempts a FROM timeout_task ORDER BY a":                       "alias of several",
	"SELECT status DIV 2 AS half FROM timeout_task ORDER BY half + 1":                "expression of an alias",
	"SELECT status DIV 2 AS status, COUNT(*) FROM timeout_task GROUP BY status":      "both a column and an alias",
	"SELECT job_id, RAND() AS r FROM timeout_task ORDER BY r":                        "is random",
	"SELECT random(), job_id FROM timeout_task ORDER BY 1":                           "is random",
	"SELECT status FROM timeout_task LIMIT -1":                                       "whole numbers",
	"SELECT status FROM timeout_task LIMIT 1.5":                                      "whole numbers",
	"SELECT status FROM timeout_task LIMIT ALL":                                      "whole numbers",
	"SELECT status FROM timeout_task LIMIT 1 OFFSET":                                 "whole numbers",
	"SELECT status FROM timeout_task LIMIT 1 2 3":                                    "whole numbers",
	"SELECT status FROM timeout_task LIMIT 1, 2, 3":                                  "nothing may follow",
	"SELECT status FROM timeout_task FETCH FIRST 3 ROWS ONLY":                        "LIMIT n",
}

func TestParseRefuses(t *testing.T) {
	for query, problem := range refusals {
		_, err := Parse(query)
		var bad *SyntaxError
		require.ErrorAs(t, err, &bad, query)
		require.Contains(t, bad.Error(), problem, query)
	}
}

func TestSyntaxErrorSaysWhereAndWhatInstead(t *testing.T) {
	_, err := Parse("SELECT * FROM timeout_task a JOIN users")
	require.EqualError(t, err, `near "JOIN" (byte 30): joins are not supported over shards; select from timeout_task alone`)
	_, err = Parse(`SELECT * FROM "` + strings.Repeat("x", 5000) + `"`)
	require.ErrorContains(t, err, "only timeout_task")
	require.Less(t, len(err.Error()), 200)
}

// TestParseAccepts: these look like something that is refused.
func TestParseAccepts(t *testing.T) {
	for _, query := range []string{
		"SELECT * FROM TIMEOUT_TASK",
		"SELECT 'SELECT; INTO @x' FROM timeout_task WHERE attribute <> \"FOR UPDATE\"",
		"SELECT SUBSTRING(attribute FROM 1 FOR 8) FROM timeout_task",
		"SELECT EXTRACT(HOUR FROM action_time) AS h, COUNT(*) FROM timeout_task GROUP BY h",
		"SELECT status IS NOT DISTINCT FROM attempts FROM timeout_task",
		"SELECT job_id FROM timeout_task WHERE action_time < NOW() - INTERVAL 1 DAY ORDER BY action_time + INTERVAL 1 HOUR",
		"SELECT REPLACE(attribute, 'a', 'b') FROM timeout_task",
		"SELECT MIN(status, attempts) FROM timeout_task",
		"SELECT MAX(MIN(status, attempts)) FROM timeout_task",
		"SELECT DATE(action_time) + INTERVAL 1 DAY, COUNT(*) FROM timeout_task GROUP BY action_time",
		"SELECT CAST(status AS CHAR), COUNT(*), NOW() FROM timeout_task t GROUP BY t.status",
		"SELECT status DIV 2 AS status FROM timeout_task ORDER BY status",
		"SELECT status AS STATUS, COUNT(*) FROM timeout_task GROUP BY status ORDER BY count( * )",
		"SELECT attribute FROM timeout_task WHERE attribute = 'x' COLLATE utf8mb4_general_ci",
		"SELECT job_id FROM timeout_task ORDER BY NULL",
		"SELECT job_id FROM timeout_task ORDER BY RAND() LIMIT 5",
		"SELECT MIN(DISTINCT status) FROM timeout_task",
	} {
		q, err := Parse(query)
		require.NoError(t, err, query)
		for _, d := range []Dialect{MySQL, SQLite} {
			_, err := q.plan(d)
			require.NoError(t, err, query)
		}
	}
}

func TestItemsAndTheirHeaders(t *testing.T) {
	type want struct{ expr, alias, label string }
	for written, w := range map[string]want{
		"status":                          {"status", "", "status"},
		"t . status":                      {"t . status", "", "t . status"},
		"status s":                        {"status", "s", "s"},
		"status AS s":                     {"status", "s", "s"},
		"status as `a b`":                 {"status", "a b", "a b"},
		"status 'a b'":                    {"status", "a b", "a b"},
		"status + 1 n":                    {"status + 1", "n", "n"},
		"(status) n":                      {"(status)", "n", "n"},
		"COUNT(*)  n":                     {"COUNT(*)", "n", "n"},
		"Count( * )":                      {"Count( * )", "", "Count( * )"},
		"status/* why */+ 1":              {"status + 1", "", "status/* why */+ 1"},
		"status IS NULL":                  {"status IS NULL", "", "status IS NULL"},
		"status IS NOT NULL":              {"status IS NOT NULL", "", "status IS NOT NULL"},
		"status ISNULL":                   {"status ISNULL", "", "status ISNULL"},
		"status = TRUE":                   {"status = TRUE", "", "status = TRUE"},
		"CASE WHEN 1 THEN 2 END":          {"CASE WHEN 1 THEN 2 END", "", "CASE WHEN 1 THEN 2 END"},
		"CASE WHEN 1 THEN 2 END x":        {"CASE WHEN 1 THEN 2 END", "x", "x"},
		"action_time + INTERVAL 1 DAY":    {"action_time + INTERVAL 1 DAY", "", "action_time + INTERVAL 1 DAY"},
		"action_time + INTERVAL 1 DAY x":  {"action_time + INTERVAL 1 DAY", "x", "x"},
		"action_time day":                 {"action_time", "day", "day"},
		"DATE '2025-01-01'":               {"DATE '2025-01-01'", "", "DATE '2025-01-01'"},
		"attribute LIKE 'a'":              {"attribute LIKE 'a'", "", "attribute LIKE 'a'"},
		"attribute LIKE 'a' ESCAPE '!' x": {"attribute LIKE 'a' ESCAPE '!'", "x", "x"},
		"x'0a' y":                         {"x'0a'", "y", "y"},
		"BINARY attribute":                {"BINARY attribute", "", "BINARY attribute"},
		"attribute->'$.a' j":              {"attribute->'$.a'", "j", "j"},
	} {
		q, err := Parse("SELECT " + written + " FROM timeout_task t")
		require.NoError(t, err, written)
		require.Len(t, q.items, 1, written)
		it := q.items[0]
		require.Equal(t, w, want{render(it.expr), it.alias, it.label}, written)
	}
}

// TestPlanIsOneStatementPerChunk shows what the databases are sent.
func TestPlanIsOneStatementPerChunk(t *testing.T) {
	statement := func(d Dialect, query string) string {
		q, err := Parse(query)
		require.NoError(t, err)
		p, err := q.plan(d)
		require.NoError(t, err)
		return p.statement([]string{"timeout_task_0000", "timeout_task_0001"})
	}
	want := func(parts ...string) string { return strings.Join(parts, "") }
	require.Equal(t, want(
		"(SELECT *, status AS toc__0 FROM `timeout_task_0000` AS `t` WHERE t.status = 0 ORDER BY toc__0 DESC LIMIT 7)",
		" UNION ALL ",
		"(SELECT *, status AS toc__0 FROM `timeout_task_0001` AS `t` WHERE t.status = 0 ORDER BY toc__0 DESC LIMIT 7)",
		" ORDER BY toc__0 DESC LIMIT 7",
	), statement(MySQL, "SELECT * FROM timeout_task t WHERE t.status = 0 ORDER BY status DESC LIMIT 2, 5;"))
	require.Equal(t, want(
		"SELECT * FROM (SELECT DISTINCT biz_id, ((biz_id | 0x8000000000000000) - (biz_id & 0x8000000000000000)) AS toc__0",
		" FROM `timeout_task_0000` AS `timeout_task` ORDER BY toc__0 LIMIT 5)",
		" UNION ",
		"SELECT * FROM (SELECT DISTINCT biz_id, ((biz_id | 0x8000000000000000) - (biz_id & 0x8000000000000000)) AS toc__0",
		" FROM `timeout_task_0001` AS `timeout_task` ORDER BY toc__0 LIMIT 5)",
		" ORDER BY toc__0 LIMIT 5",
	), statement(SQLite, "SELECT DISTINCT biz_id FROM timeout_task ORDER BY biz_id LIMIT 5"))
	require.Equal(t, want(
		"(SELECT status AS `s`, SUM(attempts), COUNT(attempts), status AS toc__0 FROM `timeout_task_0000` AS `timeout_task` GROUP BY toc__0)",
		" UNION ALL ",
		"(SELECT status AS `s`, SUM(attempts), COUNT(attempts), status AS toc__0 FROM `timeout_task_0001` AS `timeout_task` GROUP BY toc__0)",
	), statement(MySQL, "SELECT status s, AVG(attempts) FROM timeout_task GROUP BY s ORDER BY 2 LIMIT 1"))
}
