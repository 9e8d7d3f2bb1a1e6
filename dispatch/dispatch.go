// Package dispatch decides where a pending task waits until it fires.
//
// Tasks come in as they stand in the store. A task that waits in the memory of this
// node is put into the queue by whoever has it in hand: under its hold, or as its run
// ends. Of every other task the engines are told, each takes what is its own.
package dispatch

import (
	"time"

	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/task"
)

// Place is where a pending task waits, beside its row.
type Place uint8

// The places.
const (
	Store Place = iota // nowhere else: its engine reads the row in time
	Queue              // in the queue of this node
	Owner              // in the queue of the node that owns its partition, which is told of it
	Slot               // in its slot in Redis
)

func (p Place) String() string { return [...]string{"store", "queue", "owner", "slot"}[p] }

// EngineKind says which engine serves a task.
type EngineKind uint8

// The kinds.
const (
	NoEngine EngineKind = iota // its business type is not configured
	Scan
	Redis
)

// Facts are what the place of a task depends on.
type Facts struct {
	Engine EngineKind
	// Until is how far ahead the engine wants to know of tasks: the lookahead of the scan
	// engine, the horizon of the redis engine.
	Until time.Time
	Owned bool // the task's partition is this node's
}

// Where says where a task waits that is due then.
//
//	engine   due        partition   waits in
//	none     any        any         Store   a tick finds it once its business type is configured
//	scan     by Until   ours        Queue
//	scan     by Until   another's   Owner
//	scan     later      any         Store   a tick reads it in time
//	redis    by Until   any         Slot
//	redis    later      any         Store   its slot is filled as the horizon moves on
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

// Engine brings the tasks that it serves into the queue of the node that owns them, at
// their time. A task has one engine at most.
type Engine interface {
	// Until tells whether the tasks of a business type in a partition are this engine's
	// now, and if so up to when they must be due for it to want to know of them. Later
	// ones it finds by itself.
	Until(bizType uint64, partition int) (until time.Time, serves bool)
	// Place is told of pending tasks, of any engine and partition, as they were stored. It
	// cannot fail: what an engine could not take it finds late.
	Place(tasks ...task.Task)
}

// Scanner is the scan engine; see scanner.Scanner.
type Scanner interface {
	Engine
	// Tick has it look for tasks now: there may be room for those that it left in the store.
	Tick()
}

// Timer is the redis engine; see redistimer.Timer.
type Timer interface {
	Engine
	// Forget is told of a task that is not pending any more, or is due later than it was.
	Forget(jobID uint64)
}

// Nodes is the other nodes; see forward.Forwarder.
type Nodes interface {
	// Notify tells the owners of tasks that were stored, of those that are not this node's.
	// It does not block and may fail silently: their engines find the tasks late.
	Notify(tasks ...task.Task)
}

// Alone is the Nodes of a node without others.
type Alone struct{}

// Notify does nothing.
func (Alone) Notify(...task.Task) {}

// Ownership tells which partitions are this node's; see cluster.Ownership.
type Ownership interface{ Owns(partition int) bool }

// Dispatcher is the two engines of a node, to those who change tasks. It is safe for
// concurrent use.
type Dispatcher struct {
	Layout    sharding.Layout
	Ownership Ownership
	Scanner
	Timer Timer
}

// None is a node without engines: every task waits in the store.
type None struct{}

// Where is Store.
func (None) Where(*task.Task) Place { return Store }

// Place, Forget and Tick do nothing.
func (None) Place(...task.Task) {}
func (None) Forget(uint64)      {}
func (None) Tick()              {}

// Where says where a pending task waits now.
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

// Place tells the engines of pending tasks; those in the queue of this node do no harm. It
// may wait for Redis, for a tenth of a second at most.
func (d *Dispatcher) Place(tasks ...task.Task) {
	d.Scanner.Place(tasks...)
	d.Timer.Place(tasks...)
}

// Forget tells the engines of a task that is not pending any more, or is due later than
// it was.
func (d *Dispatcher) Forget(jobID uint64) { d.Timer.Forget(jobID) }
