// Package redistimer is the room of the second engine: a slot timer on Redis
// sorted sets, for business types whose mode is redis. Claimed ids of due tasks
// will come in from Redis, rows will go out to the queue, each with a
// queue.Receipt by which Redis learns what became of it.
//
// The engine is not built yet; configs refuses `mode: redis` until it is. What
// it will stand on is there: a partition is the unit of ownership and will be
// its slot, the queue takes offers from any engine and holds no task twice, and
// store.Load reads the claimed rows of a database in one statement.
package redistimer
