// Package redistimer is the redis engine: a timer with low latency on Redis sorted sets, for business types
// whose mode is redis.
//
// A slot is the part of a topic that belongs to one partition, and the owner of the partition owns it. Redis holds
// the ids of the tasks that are due within half a minute. They come there in two ways: any node puts (arms) the id of
// a task that is due so soon into its slot right after the row was committed, and the owner reads once in a cycle
// which rows are due soon, and arms what its slots lack. The owner claims the ids that are about to be due, loads
// their rows and offers them to the queue. A receipt reports the outcome of each task back to its slot:
//
//	submit ──► arm ─┐
//	                ├─► store queue ──claim──► prepare queue ──► rows loaded ──► queue ──► run
//	read of rows ───┘        ▲                      │                                       │
//	                         └────── given back ────┘          settle ◄── outcome durable ◄─┘
//
// Consumption has two phases, claim and settle, as in every queue that survives the loss of its consumers. A
// claim that is never settled is given back.
//
// Redis is only an index and may lose everything at any moment. No record says how many of the rows it has: the next
// read arms the rest. A surprise causes a read at once: a server that lost its keys or was replaced (pulse.go) or answers
// again, a new owner, a new type, a node that died. While Redis is away, or while it belongs to another center,
// Serves returns false, and the scan engine fires the tasks.
//
// In a cluster each Redis master has its own rounds of claims, arms and settles (servers.go), so a slow
// master does not delay the others. A master that does not answer gets one call a second.
//
// A slot is in memory only while it has something: a head, claims, a fault, or a reason to be asked (slot.go). The slots of a
// server that wait are in a heap, the next head first:
//
//	no slotState ──head or sweep──► waiting ──its time──► due ──there is room──► asked ──answer──► waiting, idle or no slotState
//
// So idle business types cost neither memory nor time. A new owner sweeps over the slots of its partitions and asks each once.
//
// The parts of a Timer share one lock and call each other: reader, planner, claimer, writer, health, placement, listener.
//
// The package does not run tasks and never writes to the store.
package redistimer
