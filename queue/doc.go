// Package queue holds in memory the tasks that are due now or within a short time. It is bounded, orders them
// by the time at which they can first run, and holds each task once.
//
// The engines offer tasks that they read from the store. Workers take the tasks that are due. The package does
// not know the store, the engines or the processors. An entry carries its own Receipt, which reports back to
// the engine.
//
// A task in the queue is in one of these states:
//
//	             Offer                    NextChecks          ApplyChecks
//	(store) ─────────────► waiting ─────────────────► checking ─────────► ready
//	   ▲  │  read before due  │                            │                │
//	   │  └───────────────────┼── read when due ───────────┼──────────────► │
//	   │                      ▼                            ▼                ▼ Take
//	   └──── read later ◄── displaced         cancelled or moved         running ──► Done
//
//	Hold takes a task out of this picture while it is not running, so that a cancel or a
//	reschedule can change its row before a worker starts it.
//
// How it works:
//
//   - Each business type has its own queue, bound and workers. A slow type never delays another.
//   - A task that is due never waits behind one that is not. In a full queue an earlier task displaces the
//     latest waiting one, which stays in the store.
//   - When a full queue rejects tasks, it records where to resume reading (NextRefill). The rows are read as
//     soon as there is room, not at the next tick.
//   - A row that was read before its time is read again right before it runs.
//   - A page that was read before a task finished may still show it as pending. Engines therefore announce
//     their reads (BeginRead). A task that leaves the queue during a read of its partition leaves a tombstone
//     until the read ends, so its stale row is not taken for a new task.
package queue
