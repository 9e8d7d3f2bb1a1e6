// Package queue holds the near future in memory: the tasks that are due, or due
// soon, bounded, in the order in which they can first run, and none of them
// twice.
//
// Engines offer tasks that they read from the store; workers take those that
// are due. It refuses to know the store, the engines and what a run is: an entry
// carries its own Receipt.
//
// A task in the queue is in one of these states:
//
//	             Offer                    NextChecks            Checked
//	(store) ─────────────► waiting ─────────────────► checking ─────────► ready
//	   ▲  │  read before due  │                            │                │
//	   │  └───────────────────┼── read when due ───────────┼──────────────► │
//	   │                      ▼                            ▼                ▼ Take
//	   └──── left behind ◄── displaced          gone or moved on         running ──► Done
//
//	Hold takes a task that is not running out of this picture for a moment, so
//	that a cancel or a reschedule decides alone.
//
// What makes it safe:
//
//   - One lane a business type, each with its own bound and its own workers, so
//     a slow type never delays another.
//   - A task that is due never waits behind one that is not: in a full lane a
//     nearer task displaces the farthest waiting one, which stays in the store.
//   - What a full lane turns away is remembered as a place to read on from
//     (NextRefill), so nothing waits for the next tick once there is room.
//   - A row that was read before its time is checked again right before it runs.
//   - A page that was read before a task finished may still show it as pending.
//     Reads are announced (BeginRead); a task that leaves the queue while its
//     partition is being read leaves a tombstone until the read has ended, so
//     the stale row is not taken for a new task.
package queue
