package processor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// Store records outcomes; see store.Store.
type Store interface {
	Stamp(database int) time.Time
	Apply(ctx context.Context, database int, stamp time.Time, moves []store.Move) (applied []bool, err error)
	Load(ctx context.Context, ids []uint64) ([]task.Task, error)
}

// Observer is told what happens, for the metrics. Finished is called when the
// outcome is durable.
type Observer interface {
	Started(b task.BizType, lateness time.Duration)
	Finished(b task.BizType, o Outcome, ran time.Duration)
}

// Config is what a Runner works with.
type Config struct {
	Queue    *queue.Queue
	Store    Store
	Layout   sharding.Layout
	Observer Observer
	// Near tells whether a task due then belongs into the queue now.
	Near func(bizType uint64, partition int, due time.Time) bool
	// Kept is told of other tasks that will run again: their engine is to find
	// them. May be nil.
	Kept func(tasks ...task.Task)
	// LanesChanged is called when lanes were opened or closed, or when a database
	// records outcomes again: there may be tasks for them in the store.
	LanesChanged func()
	Now          func() time.Time
	Logger       *slog.Logger
}

// Lane is a business type with the processor that fires its tasks. A lane that
// changed is another *Lane.
type Lane struct {
	BizType   task.BizType
	Processor Processor
}

// Runner takes due tasks from the queue, runs them and records what happened.
type Runner struct {
	cfg      Config
	finisher *finisher

	lanes   map[uint64]*Lane
	workers sync.WaitGroup // of lanes open and closing
}

// New makes a Runner without lanes.
func New(cfg Config) *Runner {
	if cfg.Kept == nil {
		cfg.Kept = func(...task.Task) {}
	}
	return &Runner{
		cfg:   cfg,
		lanes: make(map[uint64]*Lane),
		finisher: &finisher{
			store: cfg.Store, queue: cfg.Queue, layout: cfg.Layout,
			observer: cfg.Observer, near: cfg.Near, kept: cfg.Kept, back: cfg.LanesChanged, logger: cfg.Logger,
		},
	}
}

// Run runs lanes until the queue is closed and all that was running has been
// recorded. The end of ctx is the end of patience: runs under way are told to
// stop, and what is not recorded by then will run again.
func (r *Runner) Run(ctx context.Context, lanes <-chan []*Lane) error {
	r.finisher.start(ctx)
	checks, stopChecks := context.WithCancel(ctx)
	checked := make(chan error, 1)
	go func() { checked <- r.recheck(checks) }()

	for set := range lanes {
		r.reconcile(ctx, set)
		r.cfg.LanesChanged()
	}
	r.workers.Wait()
	stopChecks()
	err := <-checked
	r.finisher.wait()
	if ctx.Err() == nil && errors.Is(err, context.Canceled) {
		err = nil
	}
	return err
}

// reconcile opens the lanes that are new, closes those that are gone, and does
// both for those that changed. A closed lane's tasks under way go on.
func (r *Runner) reconcile(ctx context.Context, set []*Lane) {
	want := make(map[uint64]*Lane, len(set))
	for _, l := range set {
		want[l.BizType.ID] = l
	}
	for id, l := range r.lanes {
		if want[id] != l {
			r.cfg.Queue.CloseLane(id)
			delete(r.lanes, id)
		}
	}
	for id, l := range want {
		if _, open := r.lanes[id]; !open {
			r.lanes[id] = l
			r.open(ctx, l)
		}
	}
}

// open starts the workers of a lane. The last one to end closes the processor.
func (r *Runner) open(ctx context.Context, l *Lane) {
	lane := r.cfg.Queue.SetLane(l.BizType.ID)
	var group sync.WaitGroup
	batch, batched := l.Processor.(Batch)
	for range l.BizType.Workers {
		group.Go(func() {
			w := worker{Runner: r, lane: lane, bizType: l.BizType, processor: l.Processor}
			if batched {
				w.batch = batch
			}
			w.run(ctx)
		})
	}
	r.workers.Go(func() {
		group.Wait()
		if c, ok := l.Processor.(io.Closer); ok {
			if err := c.Close(); err != nil {
				r.cfg.Logger.Warn("processor not closed cleanly", "biz_type", l.BizType.Name, "error", err)
			}
		}
	})
}

// maxRun is how many tasks the batch form is handed at most.
const maxRun = 256

// worker is one goroutine of a lane.
type worker struct {
	*Runner
	lane      queue.Lane
	bizType   task.BizType
	processor Processor
	batch     Batch
	tasks     []task.Task // reused
}

func (w *worker) run(ctx context.Context) {
	most := 1
	if w.batch != nil {
		most = maxRun
	}
	for {
		entries, err := w.lane.Take(ctx, most)
		if err != nil {
			return // closed, or out of patience
		}
		start := w.cfg.Now()
		entries = w.admit(entries, start)
		if len(entries) > 0 {
			w.fire(ctx, entries, start)
		}
	}
}

// admit tells the observer that tasks start, and lets those that are too late
// die instead. Tasks whose outcome could not be recorded now do not start: they
// would pile up, and run again after a restart.
func (w *worker) admit(entries []*queue.Entry, now time.Time) []*queue.Entry {
	admitted := entries[:0]
	for _, e := range entries {
		if !w.finisher.writable(e.Partition) {
			w.cfg.Queue.Return(e)
			continue
		}
		late := max(0, now.Sub(e.Task.ActionTime))
		if w.bizType.ExpireAfter > 0 && late > w.bizType.ExpireAfter {
			move, row := expire(e.Task, late)
			w.finisher.add(finish{entry: e, bizType: &w.bizType, outcome: Dead, move: move, row: row})
			continue
		}
		w.cfg.Observer.Started(w.bizType, late)
		admitted = append(admitted, e)
	}
	return admitted
}

func (w *worker) fire(ctx context.Context, entries []*queue.Entry, start time.Time) {
	var errs []error
	if w.batch != nil {
		errs = w.processBatch(ctx, entries)
	} else {
		errs = []error{w.process(ctx, entries[0].Task)}
	}
	end := w.cfg.Now()
	finished := make([]finish, 0, len(entries))
	for i, e := range entries {
		if errs[i] != nil && ctx.Err() != nil {
			w.cfg.Queue.Return(e) // told to stop: not the task's fault, it runs again
			continue
		}
		outcome, move, row := decide(&w.bizType, e.Task, errs[i], end)
		if outcome == Dead {
			w.cfg.Logger.Warn("task is dead", "biz_type", w.bizType.Name, "job_id", row.JobID, "attempts", row.Attempts, "error", row.LastError)
		}
		finished = append(finished, finish{entry: e, bizType: &w.bizType, outcome: outcome, move: move, row: row, ran: end.Sub(start)})
	}
	w.finisher.add(finished...)
}

func (w *worker) process(ctx context.Context, t task.Task) (err error) {
	ctx, cancel := context.WithTimeout(ctx, w.bizType.Timeout)
	defer cancel()
	defer w.recoverPanic(&err)
	return w.processor.Process(ctx, t)
}

func (w *worker) processBatch(ctx context.Context, entries []*queue.Entry) []error {
	w.tasks = w.tasks[:0]
	for _, e := range entries {
		w.tasks = append(w.tasks, e.Task)
	}
	errs, err := func() (errs []error, err error) {
		ctx, cancel := context.WithTimeout(ctx, w.bizType.Timeout)
		defer cancel()
		defer w.recoverPanic(&err)
		return w.batch.ProcessBatch(ctx, w.tasks), nil
	}()
	if err == nil && errs == nil {
		return make([]error, len(entries))
	}
	if err == nil && len(errs) != len(entries) {
		err = fmt.Errorf("the processor answered %d results for %d tasks", len(errs), len(entries))
	}
	if err != nil {
		errs = make([]error, len(entries))
		for i := range errs {
			errs[i] = err
		}
	}
	return errs
}

// recoverPanic makes a panic a failed run.
func (w *worker) recoverPanic(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("panic: %v", p)
		w.cfg.Logger.Error("processor panicked", "biz_type", w.bizType.Name, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	}
}
