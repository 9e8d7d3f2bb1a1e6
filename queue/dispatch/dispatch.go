// Package dispatch decides where a pending task waits until it fires, and what follows a change of its row.
//
// Each change of a row that the store has committed is passed to Moved: by package intake, by package worker, and by the operations
// of intake/bulk. Moved ends the caller's grip on the task (a queue.Hold, or the queue.Entry of a run), and passes the change on:
//
//	change                       row after it   queue of this node        other nodes   redis engine
//	Inserted                     pending        takes it if it is Queue   if Owner      arms it within its horizon
//	Edited                       pending        takes it if it is Queue   if Owner      arms it within its horizon, or forgets it
//	Edited                       dead           lets it go                -             puts it into the dead queue
//	Edited                       final          lets it go                -             forgets it, also in the dead queue
//	the end of a run, or a lease pending        takes it if it is Queue   if Owner      as Inserted, if this node's queue has not taken it
//	the same, of a claimed task  pending        takes it if it is Queue   if Owner      learns it by the receipt, unless it is Owner
//	the same                     dead, final    lets it go                -             learns it by the receipt, if it was claimed
//	Confirmed                    pending        -                         -             arms it if its slot lacks it
//	any, its row not read        pending        the row is read; then as Inserted
//	any, its row not read        not pending    lets it go                -             reads the row; then as Edited
//
// Queue and Owner are the places that Where returns. A pending task that waits in the Store is read by its engine in time, so nobody
// learns of it. A task that belongs into the queue although its caller has no grip on it is read again, because only a row that is
// read under a queue.Read may come in.
package dispatch

import (
	"cmp"
	"context"
	"time"

	"github.com/timeoutcenter/toc/queue"
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
	// Moved takes changes of tasks of any engine and partition. It cannot fail: the engine finds a task that it could not
	// take later, and the task is late. It may wait for Redis, for at most a tenth of a second.
	Moved(changes []Change)
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

// Rows is the part of the task store that reads rows; see store.Store.
type Rows interface {
	Load(ctx context.Context, jobIDs []uint64) ([]task.Task, error)
}

// Config configures a Dispatcher.
type Config struct {
	Layout sharding.Layout
	Queue  *queue.Queue
	Store  Rows
	// Ownership defaults to all partitions, the engines to none, and Nodes to SingleNode.
	Ownership Ownership
	Scanner   Scanner
	Timer     Timer
	Nodes     Nodes
}

// none is what a Config leaves out: it owns every partition, and is an engine that serves nothing.
type none struct{}

func (none) Owns(int) bool                       { return true }
func (none) Until(uint64, int) (time.Time, bool) { return time.Time{}, false }
func (none) Tick()                               {}
func (none) Moved([]Change)                      {}

// Dispatcher passes changes of tasks to the queue and the engines of a node, and to the other nodes. It is safe for concurrent use.
type Dispatcher struct{ cfg Config }

// New makes a Dispatcher.
func New(cfg Config) *Dispatcher {
	cfg.Ownership, cfg.Nodes = cmp.Or[Ownership](cfg.Ownership, none{}), cmp.Or[Nodes](cfg.Nodes, SingleNode{})
	cfg.Scanner, cfg.Timer = cmp.Or[Scanner](cfg.Scanner, none{}), cmp.Or[Timer](cfg.Timer, none{})
	return &Dispatcher{cfg}
}

// Tick starts a scan now: the queue may have room for tasks that were left in the store.
func (d *Dispatcher) Tick() { d.cfg.Scanner.Tick() }

// Where returns where a pending task waits now.
func (d *Dispatcher) Where(t *task.Task) Place {
	shard, ok := d.cfg.Layout.ShardOf(t.JobID)
	if !ok {
		return Store
	}
	p := d.cfg.Layout.Partition(shard)
	f := Facts{Owned: d.cfg.Ownership.Owns(p)}
	var serves bool
	if f.Until, serves = d.cfg.Scanner.Until(t.BizType, p); serves {
		f.Engine = Scan
	} else if f.Until, serves = d.cfg.Timer.Until(t.BizType, p); serves {
		f.Engine = Redis
	}
	return f.Where(t.ActionTime)
}
