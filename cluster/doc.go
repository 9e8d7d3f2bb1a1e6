// Package cluster answers which partitions are this node's.
//
// Locks come in, ownership goes out: a set of partitions that changes now and
// then. It refuses to know what is done with a partition.
//
// Single is the cluster of one node: it owns every partition of each database that
// it holds (store.Lock), by a lease per database, so that a second process on the same
// store is refused. Consul is a node among others that meet in Consul; together they
// hold the databases against single nodes and other clusters.
//
// # Who shall have what
//
// Each node works out the same assignment from the list of ready nodes (see
// assign) and then does its own part: it locks what is assigned to it and free,
// and hands over what it holds and is another's. The lock decides; two nodes that
// see different lists for a moment only wait for each other. A hand-over is: owned
// no longer → drained → unlocked.
//
// # No partition has two owners
//
// All locks of a node hang on its session, the session on the node's check, and
// the check goes critical a TTL after the last heartbeat. A heartbeat is sent
// every TTL/5. It passes the check at the agent and then reads the session from
// the servers, consistently: an agent that is cut off from its servers would take
// heartbeats for ever. Let s be this node's time just before such a beat was sent,
// both parts of which succeeded:
//
//	the agent counts its TTL from when it got the beat, so not before s
//	the session ends, and the locks are free, at s + TTL at the earliest
//	this node owns nothing from             s + TTL·2/3, by its own clocks
//
// What is left, TTL/3, is for clocks that run at different rates and for work that
// is in hand when ownership ends. Whether the lease still runs is asked at each use
// of it (Ownership.Owns), so that it also holds for a process that was paused. The
// monotonic clock of a paused machine may have stood still; therefore the wall
// clock must agree. A step of the wall clock forward costs at most a new session,
// a step back nothing.
//
// A beat may still find the session when its end is on the way from the agent to
// the servers. That cannot be if it was done within TTL·9/10 from the sending of
// the good beat before; if it was not, the node ends its session and starts anew.
//
// A session may also end without regard to the TTL: by hand, by the agent's
// leaving, by the death of the agent's machine. Its holder finds out with the next
// beat or from the watch, or, cut off, when its lease ends. So a lock that its
// holder did not hand over (its flags tell) and whose holder's check has not gone
// critical is left alone for a TTL. All nodes must have the same TTL for this.
//
// With KeepOnLoss a heartbeat that cannot reach Consul extends the lease as well.
// Then a node that is cut off and the one that takes over may both work a
// partition: every task runs, some of them twice.
//
// # What is in Consul
//
//	<prefix>/layout          the layout, written once
//	<prefix>/id              the cluster's random id, by which it holds the databases
//	<prefix>/partitions/<p>  lock; value: the node's name, flags: its process
//	<prefix>/workers/<n>     lock on a worker number of job_ids
//	<prefix>/nodes/<name>    lock on a node's name; deleted by who leaves or, later, joins
//	service <prefix>         one instance a process, with the checks "alive" (the TTL)
//	                         and "ready" (it may be given partitions)
package cluster
