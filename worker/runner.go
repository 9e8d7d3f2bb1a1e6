// Package worker runs tasks. Due tasks come in from the queue, by business type. Their outcomes go out to the
// store as moves, in batches.
//
// Tasks of a pull type do not run here. Lease gives them to a consumer, and Settle records what the consumer
// answers (pull.go, settle.go).
//
// The package does not know which engine found a task: each entry of the queue carries its own receipt.
package worker

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/timeoutcenter/toc/internal/tracing"
	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/queue/dispatch"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// Store records outcomes; see store.Store.
type Store interface {
	Writable(database int) bool
	Stamp(database int) time.Time
	Apply(ctx context.Context, database int, stamp time.Time, moves []store.Move) (applied []bool, err error)
	ApplyLater(ctx context.Context, database int, m store.Move, done func(applied bool, err error))
	MoveAll(ctx context.Context, moves []store.Move) []store.Moved
	Load(ctx context.Context, ids []uint64) ([]task.Task, error)
	Superseded(ctx context.Context, database int, tasks []task.Task, of store.Rivals) (map[uint64]bool, error)
	NextDue(ctx context.Context, partition int) (at time.Time, none bool, err error)
	Leased(ctx context.Context, partition int, bizType uint64, now, until time.Time) ([]task.Task, error)
}

// Observer receives events for the metrics. Finished is called when the outcome is durable; promiseLateness is the
// time from the task's promised time to the start of this run, at least 0.
type Observer interface {
	Started(b task.BizType, late queue.Lateness)
	Finished(b task.BizType, o Outcome, ran, promiseLateness time.Duration)
	// Fenced: a part of an outcome was not written, because the row was edited during the run.
	Fenced(b task.BizType, why Fence)
}

// Ownership has the partitions of this node; see cluster.Ownership.
type Ownership interface {
	// Term is a number that changes each time this node takes a partition; 0 while another node owns it.
	Term(partition int) uint64
	// TakenUncleanly reports whether this node took the partition, in its present term, from a process that did
	// not hand it over, and when. Tasks that were due by then may have been started, and may have ended that
	// process.
	TakenUncleanly(partition int) (at time.Time, ok bool)
	// Taken returns when this node took the partition, in its present term, and whether that was from a process that did not hand
	// it over.
	Taken(partition int) (at time.Time, fromDead bool)
	// Settled ends the state of TakenUncleanly: no task that was due by then is pending any more.
	Settled(partition int, term uint64)
}

// Config is the configuration of a Runner.
type Config struct {
	Queue     *queue.Queue
	Store     Store
	Layout    sharding.Layout
	Observer  Observer
	Dispatch  *dispatch.Dispatcher // defaults to one without engines, for which every task waits in the store
	Ownership Ownership
	// Failed is called for each failed run, and for each task that becomes dead without a run. It gets the task
	// as it will be recorded, and the worker waits for it. Defaults to nothing.
	Failed func(ctx context.Context, t task.Task, err error)
	// Grace is how long a run may continue after its time-out before it counts as stuck. Defaults to 10 s.
	Grace time.Duration
	// Tracer makes the spans of runs; nil: there are none.
	Tracer *tracing.Tracer
	Now    func() time.Time
	Logger *slog.Logger
}

// Lane is a business type with the processor that runs its tasks. A changed lane is a new *Lane.
type Lane struct {
	BizType   task.BizType
	Processor processor.Processor
}

// Runner takes due tasks from the queue, runs them and records their outcomes.
type Runner struct {
	cfg      Config
	finisher *finisher
	watch    watch
	failures failures
	marks    *marks
	alone    chan struct{} // holds one token while runAlone runs a task
	pulls    pulls

	lanes   map[uint64]*Lane
	workers sync.WaitGroup // of open and closing lanes
}

// New makes a Runner without lanes.
func New(cfg Config) *Runner {
	if cfg.Dispatch == nil {
		cfg.Dispatch = dispatch.New(dispatch.Config{Layout: cfg.Layout, Queue: cfg.Queue, Store: cfg.Store})
	}
	if cfg.Failed == nil {
		cfg.Failed = func(context.Context, task.Task, error) {}
	}
	cfg.Grace = cmp.Or(cfg.Grace, 10*time.Second)
	m := &marks{refused: make([]atomic.Pointer[refusal], cfg.Layout.Shards())}
	return &Runner{
		cfg: cfg, marks: m, alone: make(chan struct{}, 1),
		watch:    watch{workers: make(map[*worker]struct{})},
		failures: failures{logger: cfg.Logger},
		lanes:    make(map[uint64]*Lane),
		pulls: pulls{lanes: make(map[uint64]*pool), lent: make(map[uint64]grantedLease), count: make(map[uint64]int),
			terms: make(map[inTerm]bool), read: make(map[uint64]time.Time)},
		finisher: &finisher{cfg: cfg, marks: m, failing: make([]atomic.Pointer[error], cfg.Layout.Databases), held: newHeldOutcomes(cfg.Layout)},
	}
}

// Run runs lanes until the queue is closed and all outcomes are recorded. When ctx ends, the running calls are
// cancelled, and tasks without a recorded outcome will run again.
func (r *Runner) Run(ctx context.Context, lanes <-chan []*Lane) error {
	r.finisher.start(ctx)
	abandoned := make(chan struct{})
	stopAbandon := context.AfterFunc(ctx, func() {
		r.abandon(func(int) bool { return true })
		close(abandoned)
	})
	checks, stopChecks := context.WithCancel(ctx)
	for d := range r.cfg.Layout.Databases {
		r.marks.work.Go(func() { r.settlePartitions(checks, d) })
	}
	checked := make(chan error, 1)
	go func() { checked <- r.recheck(checks) }()
	ended, watched := make(chan struct{}), make(chan struct{})
	go func() { r.watchRuns(ctx, ended); close(watched) }()

	for set := range lanes {
		r.reconcile(ctx, set)
		r.cfg.Dispatch.Tick() // the store may have tasks for the new lanes
	}
	r.pulls.stop()
	r.workers.Wait()
	close(ended)
	<-watched
	stopChecks()
	err := <-checked
	if !stopAbandon() {
		<-abandoned
	}
	r.finisher.wait()
	r.marks.work.Wait()
	if ctx.Err() == nil && errors.Is(err, context.Canceled) {
		err = nil
	}
	return err
}

// reconcile opens new lanes, closes removed ones, and replaces changed ones. Running tasks of a closed lane
// continue.
func (r *Runner) reconcile(ctx context.Context, set []*Lane) {
	want := make(map[uint64]*Lane, len(set))
	for _, l := range set {
		want[l.BizType.ID] = l
	}
	for id, l := range r.lanes {
		if want[id] != l {
			r.cfg.Queue.RemoveType(id)
			delete(r.lanes, id)
		}
	}
	r.pulls.setLanes(want)
	for id, l := range want {
		if _, open := r.lanes[id]; !open {
			r.lanes[id] = l
			r.open(ctx, l)
		}
	}
}

// open starts the first worker of a lane. Others start when all existing ones are busy. The last one to end
// closes the processor.
func (r *Runner) open(ctx context.Context, l *Lane) {
	c := &pool{Runner: r, bizType: l.BizType, processor: l.Processor}
	c.maxEntries, c.bizType.Workers = limitsOf(l.Processor, l.BizType.Workers)
	c.source = r.cfg.Queue.AddType(c.bizType)
	if l.BizType.Pull {
		c.tasks, c.source, c.maxEntries = c.source.Within(room{&r.pulls, &c.bizType, r.cfg.Now}), c.source.Expired(), maxRun
		r.pulls.open(c)
	} else if c.maxEntries > 1 {
		c.batch, _ = l.Processor.(processor.Batch)
	}
	c.startWorker = func() {
		w := &worker{pool: c, run: run{replace: c.startWorker}}
		r.watch.addLocked(w)
		c.alive.Add(1)
		c.group.Go(func() { w.work(ctx) })
	}
	r.watch.mu.Lock()
	c.startWorker()
	r.watch.mu.Unlock()
	r.workers.Go(func() {
		c.group.Wait()
		if p, ok := l.Processor.(io.Closer); ok {
			if err := p.Close(); err != nil {
				r.cfg.Logger.Warn("processor not closed cleanly", "biz_type", l.BizType.Name, "error", err)
			}
		}
	})
}
