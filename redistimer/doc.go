// Package redistimer is the redis engine: a timer with low latency on Redis sorted sets, for business types
// whose mode is redis.
//
// A slot is the part of a topic that belongs to one partition, and the owner of the partition owns it. Any node
// puts (arms) the id of a task into its slot right after the row was committed. The owner claims the ids that
// are about to be due, loads their rows and offers them to the queue. A receipt reports the outcome of each
// task back to its slot:
//
//	arm ──► store queue ──claim──► prepare queue ──► rows loaded ──► queue ──► run
//	             ▲                      │                                       │
//	             └──── release, recover ┘          settle ◄── outcome durable ◄─┘
//
// Consumption has two phases, claim and settle, as in every queue that survives the loss of its consumers. A
// claim that is never settled is rolled back.
//
// Redis is only an index and may lose everything at any moment. Each slot has a marker, a lease that says up to
// which time the slot is complete. A slot without this node's marker is filled again from the store. While
// Redis is away, or while the slot belongs to another store, Serves returns false, and the scan engine fires
// the tasks.
//
// In a cluster each Redis master has its own rounds of claims, arms and settles (servers.go), so a slow
// master does not delay the others. A master that does not answer gets no calls except one ping a second.
//
// The package does not run tasks and never writes to the store.
package redistimer
