// Package redistimer is the low-latency engine: a slot timer on Redis sorted
// sets, for business types whose mode is redis.
//
// A slot is one partition of one topic; its owner is the partition's. Ids of
// tasks come in (armed, by any node, right after their row was committed), rows
// of due tasks go out to the queue, each with a receipt by which the slot learns
// what became of it:
//
//	arm ──► store queue ──claim──► prepare queue ──► rows loaded ──► queue ──► run
//	             ▲                      │                                       │
//	             └──── release, recover ┘          settle ◄── outcome durable ◄─┘
//
// The consumption has two phases, as in every queue that survives its consumers
// (claim, then settle). A claim that nobody settles is rolled back, untouched.
//
// Redis is an index, never the truth: it may lose everything at any moment. Each
// slot has a marker, a lease that says up to which time it is complete; a slot
// without our own is armed again from the store. While Redis is away, or a slot is
// another store's, Serves says no, and the scan engine fires the tasks.
//
// In a cluster each master has its own rounds of claims, arms and settles
// (servers.go), so that nobody waits for the socket of another. A master that is
// silent is left alone, and asked each second whether it answers.
//
// It refuses to know what a run is, and never writes to the store.
package redistimer
