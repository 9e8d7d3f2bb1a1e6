// Package sqladmin runs one SELECT over all shards as if timeout_task were a
// single table.
//
// In comes the text of a SELECT from timeout_task and one open database per
// shard database; out goes one result under one header, ready to be written as
// a table, JSON or CSV. The room knows nothing of configuration, of the task
// store, or of which shard a task belongs to: it asks every table.
//
//	query ─► tokenize ─► Parse ─► plan ─► UNION ALL over ~64 tables ─► merge ─► Result
//	            │          │               (one read-only snapshot per
//	            └─ refuse ─┘                database, databases in parallel)
//
// There is no SQL grammar here. The tokenizer knows strings, names, comments
// and the depth of parentheses, which is enough to cut a SELECT into clauses and
// select items; the expressions in them go to the databases as they are. What
// cannot be merged exactly is refused with a SyntaxError, never answered nearly.
//
// The statement that the databases see is built anew from the tokens: without
// comments, and with every string in single quotes. So MySQL and SQLite read
// the same thing that was checked here, although their lexical rules differ.
//
// Known limits. On SQLite, which has no unsigned 64-bit integer, a biz_id of 2^63
// or more is stored as a negative number. Of the plain columns job_id, biz_id and
// biz_type these are right for all values: =, <>, IN, and <, <=, >, >=, BETWEEN
// with a literal (joined by AND, OR, NOT); ORDER BY, GROUP BY, DISTINCT, MIN, MAX,
// SUM, AVG. Other arithmetic and comparison with expressions is signed. On MySQL,
// AVG has the decimals of the server's default div_precision_increment, 4.
package sqladmin
