// Package dispatch decides where a pending task waits until it fires.
//
// A task comes in as it is in the store. Where returns its place. If that is the queue of this node, the caller puts the
// task there, because it holds the task or has just run it. All other tasks go to Place, which passes them to both engines;
// each engine takes the tasks that it serves.
package dispatch

import (
	"time"

	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/task"
)

// Place is where a pending task waits, besides its row.
type Place uint8

// The places.
const (
	Store Place = iota // nowhere else: its engine reads the row in time
	Queue              // in the queue of this node
	Owner              // in the queue of the node that owns its partition, which is notified
	Slot               // in its slot in Redis
)

func (p Place) String() string { return [...]string{"store", "queue", "owner", "slot"}[p] }

// EngineKind names the engine that serves a task.
type EngineKind uint8

// The kinds.
const (
	NoEngine EngineKind = iota // its business type is not configured
	Scan
	Redis
)

// Facts decide the place of a task.
type Facts struct {
	Engine EngineKind
	// Until is how far ahead the engine needs to know of tasks: the lookahead of the scan engine, the horizon
	// of the redis engine.
	Until time.Time
	Owned bool // this node owns the task's partition
}

// Where returns where a task waits that is due at the given time.
//
//	engine   due        partition   waits in
//	none     any        any         Store   a tick finds it once its business type is configured
//	scan     by Until   ours        Queue
//	scan     by Until   another's   Owner
//	scan     later      any         Store   a tick reads it in time
//	redis    by Until   any         Slot
//	redis    later      any         Store   a read of the timer arms it in time
//
// The scan engine serves the redis-mode tasks of slots that are out of reach.
func (f Facts) Where(due time.Time) Place {
	switch {
	case f.Engine == NoEngine || due.After(f.Until):
		return Store
	case f.Engine == Redis:
		return Slot
	case f.Owned:
		return Queue
	default:
		return Owner
	}
}

// Engine brings the tasks that it serves into their owner's queue at their time. A task has at most one engine.
type Engine interface {
	// Until reports whether this engine serves a business type in a partition now. If so, the engine must be
	// given the tasks that are due by until. It finds later ones itself.
	Until(bizType uint64, partition int) (until time.Time, serves bool)
	// Place takes pending tasks of any engine and partition, after they were stored. It cannot fail: the engine
	// finds a task that it could not take later, and the task is late.
	Place(tasks ...task.Task)
}

// Scanner is the scan engine; see scanner.Scanner.
type Scanner interface {
	Engine
	// Tick starts a scan now: the queue may have room for tasks that were left in the store.
	Tick()
}

// Timer is the redis engine; see redistimer.Timer.
type Timer interface {
	Engine
	// Confirm is Place for tasks that were stored some time ago, in case the engine has lost them.
	Confirm(tasks ...task.Task)
	// Forget drops a task that is not pending any more, or is due later than before.
	Forget(jobID uint64)
	// Finish is Forget for a task that is processed or cancelled for good: its row need not be read.
	Finish(jobID, bizType uint64)
}

// Nodes are the other nodes; see forward.Forwarder.
type Nodes interface {
	// Notify sends tasks that were stored to the nodes that own them. It does not block and may fail silently.
	// Then the owner's engine finds the tasks, but late.
	Notify(tasks ...task.Task)
}

// SingleNode is the Nodes of a center with one node.
type SingleNode struct{}

// Notify does nothing.
func (SingleNode) Notify(...task.Task) {}

// Ownership reports which partitions this node owns; see cluster.Ownership.
type Ownership interface{ Owns(partition int) bool }

// Dispatcher passes tasks to the two engines of a node. It is safe for concurrent use.
type Dispatcher struct {
	Layout    sharding.Layout
	Ownership Ownership
	Scanner
	Timer Timer
}

// StoreOnly is the dispatcher of a node without engines: every task waits in the store.
type StoreOnly struct{}

// Where returns Store.
func (StoreOnly) Where(*task.Task) Place { return Store }

// Place, Confirm, Forget, Finish and Tick do nothing.
func (StoreOnly) Place(...task.Task)    {}
func (StoreOnly) Confirm(...task.Task)  {}
func (StoreOnly) Forget(uint64)         {}
func (StoreOnly) Finish(uint64, uint64) {}
func (StoreOnly) Tick()                 {}

// Where returns where a pending task waits now.
func (d *Dispatcher) Where(t *task.Task) Place {
	shard, ok := d.Layout.ShardOf(t.JobID)
	if !ok {
		return Store
	}
	p := d.Layout.Partition(shard)
	f := Facts{Owned: d.Ownership.Owns(p)}
	var serves bool
	if f.Until, serves = d.Scanner.Until(t.BizType, p); serves {
		f.Engine = Scan
	} else if f.Until, serves = d.Timer.Until(t.BizType, p); serves {
		f.Engine = Redis
	}
	return f.Where(t.ActionTime)
}

// Place passes pending tasks to the engines. Tasks that are in the queue of this node may be passed, too. It
// may wait for Redis, for at most a tenth of a second.
func (d *Dispatcher) Place(tasks ...task.Task) {
	d.Scanner.Place(tasks...)
	d.Timer.Place(tasks...)
}

// Confirm passes pending tasks that were stored some time ago to the redis engine, in case it has lost them. It may wait
// as Place.
func (d *Dispatcher) Confirm(tasks ...task.Task) { d.Timer.Confirm(tasks...) }

// Forget makes the engines drop a task that is not pending any more, or is due later than before.
func (d *Dispatcher) Forget(jobID uint64) { d.Timer.Forget(jobID) }

// Finish is Forget for a task that is processed or cancelled.
func (d *Dispatcher) Finish(jobID, bizType uint64) { d.Timer.Finish(jobID, bizType) }
