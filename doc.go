// Package toc is the map of the house: the timeout center.
//
// A timeout center stores tasks that must happen at a point in time ("close
// order 42 if unpaid at 12:30:00.000") and fires each one at that time through a
// business processor: exactly once when nothing breaks, at least once whatever
// breaks.
//
// The way of a task through the rooms (each package's comment tells its own):
//
//	httpapi, client   a request comes in
//	intake            is checked, gets its job_id
//	store             and a row in one of 8 × 1024 tables: the only truth
//	scanner           a cron tick reads what is due soon
//	queue             holds it until its millisecond
//	worker            runs it by a processor; processor/webhook and processor/logger ship
//	store             the outcome is recorded by a compare-and-set
//
// Around them:
//
//	task              the words: Task, Status, the business types, the answers
//	sharding          biz_id → shard → database, table, partition; job_id
//	migrations        the tables, as numbered SQL
//	cluster           which partitions are this node's
//	groupcommit       many small writes as few big ones
//	metrics           what is counted
//	configs           the configuration, its defaults, its example files
//	taskjson          a task as JSON
//	app               builds the rooms, starts and drains them in order
//	cmd/toc           the program; internal/sqltable runs one SELECT over all shards
//
// A room knows only rooms that stand below it on this map; only app knows all.
package toc
