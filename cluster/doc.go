// Package cluster decides which partitions this node owns.
//
// Locks come in. Ownership goes out: a set of partitions that changes now and then. The package does not know
// what a partition is used for.
//
// Single is a cluster of one node. It owns every partition of each database that it holds (store.Lock), by a
// lease per database, so a second process on the same store is refused. Consul is one of several nodes that are
// coordinated by Consul. Together they hold the databases against single nodes and other clusters.
//
// # Which node should own what
//
// Each node computes the same assignment from the list of ready nodes (see assign) and then does its own part.
// It locks the free partitions that are assigned to it, and hands over the ones that are assigned to another. The
// lock decides: two nodes that see different lists for a moment only wait for each other. The steps of a
// hand-over are: owned no longer → drained → unlocked.
//
// # No partition has two owners
//
// All locks of a node depend on its session. The session depends on the node's check, and the check becomes
// critical a TTL after the last heartbeat. A heartbeat is sent every TTL/5. It renews the session, reads it from
// the servers, consistently, and then passes the check at the agent: an agent that is cut off from its servers
// would accept heartbeats for ever. Let s be this node's time just before it sent such a beat, all parts of which
// succeeded:
//
//	the agent counts its TTL from when it got the beat, so not before s
//	the session's own TTL, which is not shorter, counts from its renewal, so not before s
//	the session ends, and the locks are free, at s + TTL at the earliest
//	this node owns nothing from             s + TTL·2/3, by its own clocks
//
// The rest, TTL/3, is for clocks that run at different rates and for work that is under way when ownership
// ends. Each use of a lease checks whether it still runs (Ownership.Owns), so the rule also holds for a process
// that was paused. The monotonic clock of a paused machine may have stood still; therefore the wall clock must
// agree. A step of the wall clock forward costs at most a new session, a step back nothing.
//
// A beat may still find the session when its end is on the way from the agent to the servers. That is
// impossible within TTL·9/10 from the sending of the last good beat. If a beat took longer, the node ends its
// session and starts a new one.
//
// A session may also end without regard to the TTL: by hand, by the agent's leaving, by the death of the
// agent's machine. Its holder notices with the next beat or from the watch, or, if it is cut off, when its
// lease ends. So when a lock becomes free, the other nodes wait a TTL before they take it. They do not wait if
// its holder handed it over (the flags of the lock show this) or if the holder's check is critical. For this all
// nodes must have the same TTL.
//
// # A node's word expires
//
// A check ends a session only if its agent can report it. An agent whose token for it was deleted cannot: the check
// stays as it was last reported. So the session has its own TTL (SessionTTL), and Consul ends it within twice that TTL
// if it is not renewed. A node counts as a member only while its session lives, which the lock on its name shows. A lock
// that Consul keeps for longer, or that nobody takes, is reported (Idle).
//
// A node whose token may not write keys can neither take nor release a lock. It works on with what it has, and the
// others do not count on it.
//
// With KeepOnLoss a heartbeat that cannot reach Consul extends the lease as well. Then a node that is cut off
// and the node that takes over may both work on a partition: every task runs, some of them twice.
//
// # What is in Consul
//
//	<prefix>/layout          the layout, written once
//	<prefix>/id              the cluster's random id, by which it holds the databases
//	<prefix>/partitions/<p>  lock; value: the node's name, flags: its process
//	<prefix>/workers/<n>     lock on a worker number of job_ids
//	<prefix>/nodes/<name>    lock on a node's name; value: its service; deleted by the leaving node or a later joining one
//	service <prefix>         one instance a process, with the checks "alive" (the TTL)
//	                         and "ready" (it may get partitions)
package cluster
