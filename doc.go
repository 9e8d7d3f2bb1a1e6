// Package toc is the map of the timeout center.
//
// A timeout center stores tasks that must happen at a point in time ("close
// order 42 if unpaid at 12:30:00.000") and fires each one at that time through a
// business processor: exactly once when nothing breaks, at least once when
// something does.
//
// The way of a task through the packages (each package's comment has its part):
//
//	server/rest, client  a request comes in, as JSON (api), or in process: app.Tasks
//	server/console       or as a form of a page
//	server/kafka         or as a record of a topic
//	intake               is checked, gets its job_id
//	store                and a row in one of 8 × 1024 tables: the only truth
//	queue/dispatch       says where it waits until then
//	scanner              a cron tick reads what is due soon, or
//	redistimer           a slot timer in Redis (redistimer/slots) says what is due
//	queue                holds it until its millisecond, and until its limits (queue/limits) let it start
//	worker               runs it by a processor, of the user's or one that ships
//	                     (processor/webhook, processor/kafka, processor/logger)
//	store                the outcome is recorded by a compare-and-set
//	internal/tracing     makes spans of submits and runs; internal/tracing/otlp exports them
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
//	store, queue, queue/dispatch, api, processor, configs, cluster/peerproof, internal/tracing, internal/tracing/otlp
//	queue/limits
//	migrations, task, internal/groupcommit, internal/tlsclient
//	sharding, internal/wait, internal/outside, internal/mysqlsession, internal/logqueue, internal/httppool
package toc
