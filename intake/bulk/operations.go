// Package bulk runs the redrives and discards of dead tasks that have a rate, and the retries of failing ones. The
// store has the counts and the progress of each operation. So any node can continue an operation.
//
// One node runs redrives and discards: the owner of partition 0. A second one, during a hand-over, changes and counts nothing
// twice: the store rejects a step from an old reading.
package bulk

import (
	"context"
	"log/slog"
	"time"

	"github.com/timeoutcenter/toc/internal/wait"
	"github.com/timeoutcenter/toc/queue/dispatch"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// Store is the part of store.Store with the operations.
type Store interface {
	Writable(database int) bool
	RunningOperations(ctx context.Context, limit int) ([]store.Operation, error)
	OperationStep(ctx context.Context, database int, o *store.Operation, most int) (jobIDs []uint64, err error)
	StopOperation(ctx context.Context, id uint64, at time.Time) (stopped bool, err error)
	OperationTasks(ctx context.Context, database int, operation, after uint64, limit int) ([]store.OperationTask, error)
	EndUndo(ctx context.Context, database int, o *store.Operation) error
}

// Dispatcher is the part of dispatch.Dispatcher that takes changes.
type Dispatcher interface {
	Moved(changes ...dispatch.Change) (queued int)
}

// Control reports whether there may be an operation that runs; see pause.Control. Only then the Store is asked.
type Control interface{ OperationRuns() bool }

// Undoer takes back those of the tasks that are in partitions of this node; see intake.Service.
type Undoer interface {
	UndoTasks(ctx context.Context, database int, o *store.Operation, tasks []store.OperationTask) error
}

// Config configures a Runner.
type Config struct {
	Store     Store
	Databases int
	Control   Control
	// Ownership has the partitions of this node. The owner of partition 0 runs operations.
	Ownership dispatch.Ownership
	Undoer    Undoer
	// Dispatch receives the tasks that may have changed.
	Dispatch Dispatcher
	Now      func() time.Time
	Logger   *slog.Logger
}

const (
	tick    = time.Second
	maxRuns = 100 // operations that run at a time, the oldest; package intake starts fewer
)

// Runner runs operations.
type Runner struct {
	cfg    Config
	owed   map[uint64]float64 // by operation: tasks that it may change now
	places map[uint64]place   // by undo
}

// place is how far an undo got on this node.
type place struct {
	database int
	after    uint64 // job_id
}

// New makes a Runner.
func New(cfg Config) *Runner { return &Runner{cfg: cfg} }

// Run works until ctx ends.
func (r *Runner) Run(ctx context.Context) error {
	last := time.Now() // monotonic
	for {
		if err := wait.Poll(ctx, tick); err != nil {
			return err
		}
		now := time.Now()
		// A long tick counts as two at most, because the rate is a limit: the rest is not caught up with.
		passed := min(now.Sub(last), 2*tick)
		last = now
		if r.cfg.Control.OperationRuns() {
			r.round(ctx, passed)
		} else {
			r.owed, r.places = nil, nil
		}
	}
}

// round gives each operation what the time allows.
func (r *Runner) round(ctx context.Context, passed time.Duration) {
	list, err := r.cfg.Store.RunningOperations(ctx, maxRuns)
	if err != nil && ctx.Err() == nil {
		r.cfg.Logger.Warn("cannot read operations from all databases; trying again", "error", err)
	}
	owed, places := make(map[uint64]float64, len(list)), make(map[uint64]place)
	for i := range list {
		o := &list[i]
		if o.State == store.OperationStopped { // not yet in all databases
			if _, err := r.cfg.Store.StopOperation(ctx, o.ID, r.cfg.Now()); err != nil {
				r.cfg.Logger.Warn("operation not stopped in all databases; trying again", "operation", o.ID, "error", err)
			}
			continue
		}
		if o.Kind == store.OperationUndo {
			places[o.ID] = r.undo(ctx, o, r.places[o.ID])
		} else if r.cfg.Ownership.Owns(0) { // the node that takes over begins with nothing
			owed[o.ID] = r.advance(ctx, o, r.owed[o.ID]+o.Rate*passed.Seconds())
		}
	}
	r.owed, r.places = owed, places
}

const (
	undoBatch   = 50 // tasks that are taken back at a time
	undoBatches = 20 // a round
)

// undo takes back the changes of an operation, and returns how far it got. Each node does so for its own partitions,
// because only the owner of a task can see whether it runs. It goes round the databases, each at most once.
func (r *Runner) undo(ctx context.Context, o *store.Operation, at place) place {
	batches := undoBatches
	for range r.cfg.Databases {
		d := at.database
		for o.Runs(d) && r.cfg.Store.Writable(d) && ctx.Err() == nil {
			if batches--; batches < 0 {
				return at
			}
			list, err := r.cfg.Store.OperationTasks(ctx, d, o.Undoes, at.after, undoBatch)
			if err == nil && len(list) > 0 {
				at.after = list[len(list)-1].JobID
				err = r.cfg.Undoer.UndoTasks(ctx, d, o, list)
			} else if err == nil && r.cfg.Ownership.Owns(0) {
				err = r.cfg.Store.EndUndo(ctx, d, o) // tasks of other nodes may be left
			}
			if err != nil && ctx.Err() == nil {
				r.cfg.Logger.Warn("undo does not advance; trying again", "operation", o.ID, "database", d, "error", err)
			}
			if err != nil || len(list) == 0 {
				break
			}
		}
		at = place{database: (d + 1) % r.cfg.Databases}
	}
	return at
}

// advance changes as many tasks of an operation as are owed, for a tick at most, because others wait for their turn,
// and returns what is left of that: a part of a task, or what
// a database that does not answer has not taken: at most a tick's, or one.
//
// With a limit the databases take turns: one begins when all before it have ended. So what they have done together is
// known, also while one is away, or if a step has been made and not answered.
func (r *Runner) advance(ctx context.Context, o *store.Operation, owed float64) float64 {
	began := time.Now()
	for d := range r.cfg.Databases {
		if o.Limit > 0 && d > 0 && o.Parts[d-1].State != store.OperationDone {
			break
		}
		for (owed >= 1 || o.Left(1) < 1) && o.Runs(d) && r.cfg.Store.Writable(d) && r.cfg.Ownership.Owns(0) && ctx.Err() == nil &&
			time.Since(began) < tick {
			jobIDs, err := r.cfg.Store.OperationStep(ctx, d, o, int(min(owed, store.MaxOperationStep)))
			if err != nil {
				if ctx.Err() == nil {
					r.cfg.Logger.Warn("operation does not advance; trying again", "operation", o.ID, "database", d, "error", err)
				}
				break
			}
			if len(jobIDs) == 0 {
				break // it has ended here, or another node or a stop was faster
			}
			owed -= float64(len(jobIDs))
			status := task.Pending
			if o.Kind == store.OperationDiscard {
				status = task.Cancelled
			}
			changes := make([]dispatch.Change, len(jobIDs))
			for i, id := range jobIDs {
				changes[i] = dispatch.Change{JobID: id, Status: status}
			}
			r.cfg.Dispatch.Moved(changes...)
		}
	}
	return min(owed, max(1, o.Rate*tick.Seconds()))
}
