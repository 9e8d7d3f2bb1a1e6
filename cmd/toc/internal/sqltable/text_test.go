package sqltable

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOnlyOneSelectIsRun(t *testing.T) {
	r := sqliteRig(t, pendingRows(1, 2))
	for query, problem := range map[string]string{
		"":                                              "the query is empty",
		" -- SELECT 1\n /* ; */ ":                       "the query is empty",
		"DELETE FROM timeout_task":                      `near "DELETE": not a SELECT`,
		"UPDATE timeout_task SET status = 3":            `near "UPDATE": not a SELECT`,
		"VALUES (1)":                                    `near "VALUES": not a SELECT`,
		"PRAGMA query_only = 0":                         `near "PRAGMA": not a SELECT`,
		"ATTACH 'x.db' AS x":                            `near "ATTACH": not a SELECT`,
		"CREATE TABLE t (a)":                            `near "CREATE": not a SELECT`,
		"EXPLAIN SELECT 1":                              `near "EXPLAIN": not a SELECT`,
		"/* SELECT */ VACUUM INTO 'x.db'":               `near "VACUUM": not a SELECT`,
		"SELECT 1; DELETE FROM timeout_task":            `near "DELETE": a second statement`,
		"SELECT ';' ;; -- no more":                      `near ";": a second statement`,
		"WITH t AS (SELECT 1) DELETE FROM timeout_task": `near "DELETE": a statement that writes`,
		"WITH t AS (SELECT 1) REPLACE INTO x SELECT 1":  `near "INTO": a statement that writes`,
		"SELECT * FROM timeout_task WHERE status = ?":   `near "?": there are no parameters`,
		"SELEC 1":                                        `near "SELEC": not a SELECT`,
		"SELECT * FORM timeout_task":                     `near "FORM": syntax error; the SQL is SQLite's, the tables are timeout_task and timeout_task_counts`,
		"SELECT nosuch FROM timeout_task":                "no such column: nosuch",
		"SELECT * FROM tasks_of_mine":                    "no such table: tasks_of_mine",
		"SELECT UTC_TIMESTAMP()":                         "no such function: UTC_TIMESTAMP",
		"SELECT writefile('x', 'y')":                     "no such function: writefile",
		"SELECT COUNT(*) FROM timeout_task WHERE (1 = 1": "incomplete input",
		"SELECT 'open FROM timeout_task":                 `unrecognized token: "'open FROM timeout_task"`,
		"SELECT * FROM pragma_query_only(0)":             "too many arguments on pragma_query_only()",
	} {
		require.ErrorContains(t, Check(query), problem, query)
		_, err := r.Run(t.Context(), query, 10)
		require.Error(t, err, query)
	}
	for _, query := range []string{
		"SELECT 'INSERT; INTO', \"DELETE\", [UPDATE], `INTO` FROM (SELECT 1 AS \"DELETE\", 2 AS \"UPDATE\", 3 AS [INTO]);",
		"select replace('a', 'a', 'b') -- ; DELETE",
		"WITH t AS (SELECT 1) SELECT * FROM t; /* and no more */",
	} {
		require.NoError(t, Check(query), query)
		require.Len(t, r.ask(t, query).Rows, 1, query)
	}
	_, err := r.Run(t.Context(), "SELECT load_extension('x')", 10)
	require.ErrorContains(t, err, "not authorized")
	require.Len(t, r.ask(t, "SELECT * FROM timeout_task").Rows, 2)
}

func TestWideLiterals(t *testing.T) {
	for text, want := range map[string]string{
		"SELECT 9223372036854775807":                "SELECT 9223372036854775807",
		"SELECT 9223372036854775808, 1":             "SELECT x'3039323233333732303336383534373735383038', 1",
		"SELECT '9223372036854775808'":              "SELECT '9223372036854775808'",
		"SELECT 18446744073709551616":               "SELECT 18446744073709551616",
		"SELECT a9223372036854775808, 0.5 /* 1 */ ": "SELECT a9223372036854775808, 0.5 /* 1 */ ",
	} {
		q, err := parse(text)
		require.NoError(t, err)
		require.Equal(t, want, q.sql)
		require.Equal(t, text, readable(q.sql))
	}
}
