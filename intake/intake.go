// Package intake is the front desk: it takes tasks in, answers questions about
// them and changes them on request.
//
// Requests come in, checked; they go out as rows and moves to the store, and
// what is due soon goes straight into the queue. Every refusal is a typed
// answer: task.FieldError (bad input), task.ConflictError, task.ChangedError,
// task.ErrNotFound, task.ErrUnavailable.
//
// It refuses to know HTTP and the engines. What makes its answers honest is the
// queue's Hold: while a cancel or a reschedule is being decided the task cannot
// be started, and one that has started answers "running". That queue is the
// owner's, so in a cluster these questions go to the node that owns the task's
// partition; everything else any node decides itself.
package intake

import (
	"context"
	"errors"
	"time"

	"github.com/timeoutcenter/toc/dispatch"
	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// Store is what the desk needs of the task store; see store.Store.
type Store interface {
	NewID(bizID uint64) uint64
	Insert(ctx context.Context, tasks []task.Task) []store.Inserted
	Move(ctx context.Context, m store.Move) (applied bool, err error)
	Get(ctx context.Context, jobID uint64) (task.Task, error)
	Load(ctx context.Context, jobIDs []uint64) ([]task.Task, error)
	First(ctx context.Context, bizID uint64, bizKey string, bizType uint64, dedupKey string) (task.Task, error)
	List(ctx context.Context, bizID uint64, f store.Filter) ([]task.Task, error)
	ListDead(ctx context.Context, bizType *uint64, after uint64, limit int) ([]task.Task, error)
	CountDead(ctx context.Context, bizType *uint64) (int, error)
}

// Observer is told what was taken in, for the metrics.
type Observer interface {
	Submitted(b task.BizType, tasks int)
}

// Config is what a Desk works with.
type Config struct {
	Node     string // this node's name, as answers show it
	Store    Store
	Queue    *queue.Queue
	Layout   sharding.Layout
	Catalog  *task.Catalog
	Observer Observer
	// Cluster tells who decides about a partition's tasks; nil: this node, about all.
	Cluster Cluster
	// Dispatch decides where the tasks wait. Defaults to dispatch.StoreOnly.
	Dispatch Dispatcher
	Now      func() time.Time
}

// Dispatcher is what the desk needs of the engines; see dispatch.Dispatcher.
type Dispatcher interface {
	Where(t *task.Task) dispatch.Place
	Place(tasks ...task.Task)
	Forget(jobID uint64)
}

// Desk serves requests. It is safe for concurrent use.
type Desk struct{ cfg Config }

// New makes a Desk.
func New(cfg Config) *Desk {
	if cfg.Dispatch == nil {
		cfg.Dispatch = dispatch.StoreOnly{}
	}
	if cfg.Cluster == nil {
		cfg.Cluster = alone{}
	}
	return &Desk{cfg: cfg}
}

// Types gives the business types in force.
func (d *Desk) Types() *task.Types { return d.cfg.Catalog.Load() }

// partition tells where a task is; task.ErrNotFound if nowhere.
func (d *Desk) partition(jobID uint64) (int, error) {
	shard, ok := d.cfg.Layout.ShardOf(jobID)
	if !ok {
		return 0, task.ErrNotFound
	}
	return d.cfg.Layout.Partition(shard), nil
}

// hold takes hold of a task of ours, so that nobody starts it meanwhile. The
// partition may be lost before the task is held: then it is let go as it was.
// That a task is not as its caller has seen it says more than that it runs.
func (d *Desk) hold(ctx context.Context, jobID uint64, partition int, term uint64, ifMatch []string) (*queue.Hold, error) {
	h, err := d.cfg.Queue.Hold(ctx, jobID, partition)
	var runs *task.ConflictError
	if errors.As(err, &runs) && len(ifMatch) > 0 {
		var changed *task.ChangedError
		if _, unlike := d.matching(ctx, jobID, ifMatch); errors.As(unlike, &changed) {
			return nil, changed
		}
	}
	if err != nil || d.cfg.Cluster.Term(partition) == term {
		return h, err
	}
	h.Restore()
	d.dropLost(partition)
	return nil, Unavailable("partition %d has just been lost; task %d is not changed", partition, jobID)
}

// letGo ends the hold of a pending task as it stands in the store now, and gives
// it to its engine.
func (d *Desk) letGo(h *queue.Hold, t task.Task) {
	if d.cfg.Dispatch.Where(&t) != dispatch.Queue {
		h.Remove()
		return
	}
	p, _ := d.partition(t.JobID)
	h.Requeue(queue.Item{Task: t, Partition: p})
	d.dropLost(p)
}
