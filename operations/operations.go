// Package operations runs the redrives and discards of dead tasks that have a rate. All that it knows of an operation is
// in the store: its counts and how far it got. So any node can go on with one, from where it is.
//
// One node runs all operations: the owner of partition 0. A second one, during a hand-over, changes and counts nothing
// twice: the store refuses a step from an old reading.
package operations

import (
	"context"
	"log/slog"
	"time"

	"github.com/timeoutcenter/toc/internal/wait"
	"github.com/timeoutcenter/toc/store"
)

// Store is the part of store.Store with the operations.
type Store interface {
	Writable(database int) bool
	RunningOperations(ctx context.Context, limit int) ([]store.Operation, error)
	OperationStep(ctx context.Context, database int, o *store.Operation, most int) (jobIDs []uint64, err error)
	StopOperation(ctx context.Context, id uint64, at time.Time) (stopped bool, err error)
}

// Config configures a Runner.
type Config struct {
	Store     Store
	Databases int
	// Runs reports whether this node is the one that runs operations.
	Runs func() bool
	// Redriven is told of tasks that may have become pending and due.
	Redriven func(ctx context.Context, jobIDs []uint64)
	Now      func() time.Time
	Logger   *slog.Logger
}

const (
	tick    = time.Second
	maxRuns = 100 // operations that run at a time; further ones wait for their end
)

// Runner runs operations.
type Runner struct {
	cfg  Config
	owed map[uint64]float64 // by operation: tasks that it may change now
}

// New makes a Runner.
func New(cfg Config) *Runner { return &Runner{cfg: cfg, owed: map[uint64]float64{}} }

// Run works until ctx ends.
func (r *Runner) Run(ctx context.Context) error {
	last := time.Now() // monotonic
	for {
		if err := wait.For(ctx, tick); err != nil {
			return err
		}
		now := time.Now()
		// What a long tick has missed is not caught up with: the rate is a limit.
		passed := min(now.Sub(last), 2*tick)
		last = now
		if !r.cfg.Runs() {
			clear(r.owed) // the node that takes over begins with nothing, too
			continue
		}
		r.round(ctx, passed)
	}
}

// round gives each operation what the time allows.
func (r *Runner) round(ctx context.Context, passed time.Duration) {
	list, err := r.cfg.Store.RunningOperations(ctx, maxRuns)
	if err != nil && ctx.Err() == nil {
		r.cfg.Logger.Warn("not all databases tell their operations; trying again", "error", err)
	}
	owed := make(map[uint64]float64, len(list))
	for i := range list {
		o := &list[i]
		if o.State == store.OperationStopped { // not yet in all databases
			if _, err := r.cfg.Store.StopOperation(ctx, o.ID, r.cfg.Now()); err != nil {
				r.cfg.Logger.Warn("operation not stopped in all databases; trying again", "operation", o.ID, "error", err)
			}
			continue
		}
		owed[o.ID] = r.advance(ctx, o, r.owed[o.ID]+o.Rate*passed.Seconds())
	}
	r.owed = owed
}

// advance changes as many tasks of an operation as are owed, and returns what is left of that: a part of a task, or what
// a database that does not answer has not taken: at most a tick's, or one.
func (r *Runner) advance(ctx context.Context, o *store.Operation, owed float64) float64 {
	for d := range r.cfg.Databases {
		for (owed >= 1 || o.Left(1) < 1) && o.Runs(d) && r.cfg.Store.Writable(d) && r.cfg.Runs() && ctx.Err() == nil {
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
			if o.Kind == store.OperationRedrive {
				r.cfg.Redriven(ctx, jobIDs)
			}
		}
	}
	return min(owed, max(1, o.Rate*tick.Seconds()))
}
