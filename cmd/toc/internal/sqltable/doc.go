// Package sqltable runs one SELECT over all shards as if they were one table.
//
// In come the text of a SELECT and one open database per shard database; out
// comes one result, ready to be written as a table, JSON or CSV. The SELECT runs
// in a SQLite inside the process. Its tables are virtual: SQLite asks for their
// rows, and this package asks the servers.
//
//	SELECT ─► SQLite in memory ─► table: which columns, which conditions
//	                                │
//	                                ▼
//	                              request: the statement for the servers ─► cursor: their rows
//
// The tables:
//
//	timeout_task         every task, with all its columns
//	timeout_task_counts  tasks per biz_type and status, counted by the servers
//
// The servers never see the user's text. A statement for them is made of the
// columns' names, of parameters, and runs in a read-only transaction.
//
// Conditions only save work. What is sent on lets through at least the rows that
// SQLite wants, and SQLite checks every row again.
//
// SQLite's integers are signed. An unsigned number of 2^63 or more is therefore a
// BLOB of its 20 digits: SQLite sorts BLOBs behind all numbers, and BLOBs of one
// length by their digits. So =, <, IN, ORDER BY, GROUP BY, MIN, MAX and joins are
// right for all ids; a literal of that size becomes such a BLOB as well. Sums of
// such ids are floating point, and bit operations on them are wrong.
package sqltable
