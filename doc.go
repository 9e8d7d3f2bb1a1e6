// Package toc is the map of the timeout center.
//
// A timeout center stores tasks that must happen at a point in time ("close
// order 42 if unpaid at 12:30:00.000") and fires each one at that time through a
// business processor: exactly once when nothing breaks, at least once when
// something does.
//
// The way of a task through the packages (each package's comment has its part):
//
//	server/rest          takes a submit over HTTP: package api declares its JSON, package client sends it from Go. Or
//	server/console       takes it as a form of a page, server/kafka as a record of a topic, and app.Tasks in process
//	intake               checks it and makes the task, with its job_id
//	store                commits the row of the task in one of 8 × 1024 tables: the only truth
//	queue/dispatch       decides where the task waits from now on, besides its row
//	scanner              reads at each tick of a cron schedule which tasks are due soon, or
//	redistimer           claims them from Redis, where their ids are in slots (redistimer/slots)
//	queue                holds the task until its millisecond, and until its limits (queue/limits) let it start
//	worker               runs it by a processor, of the user's or one that ships (processor/webhook, processor/kafka,
//	                     processor/logger), or leases it to a consumer
//	store                records the outcome by a compare-and-set
//	internal/tracing     makes spans of submits and runs; internal/tracing/otlp exports them
//
// The product lines that each top folder may have at most. scripts/lines.sh counts them, and make lint holds the table: a
// feature comes in with its subtraction.
//
//	lines api 2000
//	lines app 4800
//	lines client 1800
//	lines cluster 4250
//	lines cmd 4650
//	lines configs 2550
//	lines intake 3700
//	lines internal 3000
//	lines migrations 1300
//	lines processor 1250
//	lines queue 3100
//	lines redistimer 4850
//	lines scanner 1050
//	lines server 8000
//	lines sharding 250
//	lines store 6370
//	lines task 600
//	lines worker 3010
//	lines . 100
//
// The layers, the highest first. A package imports only packages of the layers below its own; a test holds it so.
//
//	cmd/toc, examples/orderclose, examples/unpaid, clients
//	app
//	server/console
//	server/rest, cluster/forward, app/metrics, server/kafka
//	client, intake, scanner, redistimer, intake/pause, intake/bulk, cmd/toc/internal/sqltable
//	worker
//	cluster, redistimer/slots, processor/webhook, processor/kafka, processor/logger, intake/why, client/dedup
//	queue/dispatch
//	store, queue, api, processor, configs, cluster/peerproof, internal/tracing, internal/tracing/otlp
//	queue/limits
//	migrations, task, internal/groupcommit, internal/tlsclient
//	sharding, internal/wait, internal/outside, internal/mysqlsession, internal/logqueue, internal/httppool
package toc
