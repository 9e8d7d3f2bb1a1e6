package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/timeoutcenter/toc/internal/tracing"
	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/task"
)

// pool is the workers of a lane.
type pool struct {
	*Runner
	source      queue.Source
	tasks       queue.Source // of a pull type: what consumers lease; the workers only end leases
	bizType     task.BizType
	processor   processor.Processor
	batch       processor.Batch // nil: the processor has no batch form, or takes one task a call
	maxEntries  int             // that a worker takes at a time
	startWorker func()          // starts one more worker; the caller holds watch.mu
	group       sync.WaitGroup
	alive       atomic.Int32 // number of workers
	idle        atomic.Int32 // number of workers that wait for a task
}

// grow starts one more worker if all existing ones are busy and the pool is not full.
func (c *pool) grow() {
	if c.idle.Load() > 0 || c.alive.Load() >= int32(c.bizType.Workers) {
		return
	}
	c.watch.mu.Lock()
	defer c.watch.mu.Unlock()
	if c.idle.Load() == 0 && c.alive.Load() < int32(c.bizType.Workers) {
		c.startWorker()
	}
}

// The maximum number of tasks in one call of the batch form.
const (
	maxRun     = 256
	maxLimited = 1000 // of one that is processor.Limited
)

// limitsOf returns the maximum number of tasks that a worker takes for a processor at a time, and of its workers.
func limitsOf(p processor.Processor, configured int) (entries, workers int) {
	entries, workers = maxRun, configured
	if limited, ok := p.(processor.Limited); ok {
		tasks, calls := limited.Limits()
		entries = min(cmp.Or(max(0, tasks), maxRun), maxLimited)
		workers = min(cmp.Or(max(0, calls), configured), configured)
	}
	if _, ok := p.(processor.Batch); !ok {
		entries = 1
	}
	return entries, workers
}

// worker takes tasks and runs them, one call of the processor at a time. It is a goroutine. A processor may end
// that goroutine (runtime.Goexit); then another one takes over the tasks in these fields.
type worker struct {
	*pool
	run // what watch checks

	pending   []*queue.Entry // taken, and not recorded yet
	batchable int            // the number of tasks at the start of pending for the batch form
	called    bool           // pending[0] was passed to the processor alone
	start     time.Time      // of the last call
	failed    []failure      // not yet reported

	tasks []task.Task     // reused
	errs  [1]error        // reused
	spans []*tracing.Span // reused
}

// errExited: the processor ended the goroutine of the run.
var errExited = errors.New("the processor ended its goroutine")

// work takes tasks and runs them until the lane is closed, ctx ends, or another worker has replaced this one.
func (w *worker) work(ctx context.Context) {
	over := false
	defer func() {
		if over {
			w.watch.remove(w)
			w.alive.Add(-1)
			return
		}
		w.group.Go(func() { w.work(ctx) })
	}()
	ctx = w.label(ctx)
	w.fire(ctx) // the tasks of the previous goroutine
	for !w.isReplaced() {
		w.idle.Add(1)
		entries, err := w.source.Take(ctx, w.maxEntries)
		w.idle.Add(-1)
		if err != nil {
			break // closed, or ctx has ended
		}
		w.grow()
		entries = w.prepare(ctx, w.endLeases(ctx, entries))
		w.pending = w.admit(ctx, entries, w.cfg.Now())
		if w.batch != nil {
			w.batchable = ownTimeoutsLast(w.pending)
		}
		w.fire(ctx)
	}
	over = true
}

// admit ends tasks that are not to run: tasks that are too late, and tasks that a later one of their biz_id replaces. It
// gives back tasks whose outcome could not be recorded now: these would pile up, and run again after a restart.
func (w *worker) admit(ctx context.Context, entries []*queue.Entry, now time.Time) []*queue.Entry {
	superseded := w.findSuperseded(ctx, entries, now)
	admitted := entries[:0]
	var back []*queue.Entry
	for _, e := range entries {
		if !w.finisher.isWritable(e) {
			back = append(back, e)
			continue
		}
		if w.mayCoalesce(e, now) {
			later, known := superseded[e.ID()]
			if !known {
				back = append(back, e) // its database did not answer
				continue
			}
			if later {
				w.skip(e, task.Cancelled, "coalesced")
				continue
			}
		}
		if late := now.Sub(e.Task.Promised()); w.bizType.IsExpired(late) {
			w.expire(e, late)
			continue
		}
		admitted = append(admitted, e)
	}
	w.returnEntries(back...)
	return admitted
}

// fire runs the pending tasks. The processor may end the goroutine in any call; the next goroutine calls fire
// again, which continues after that call.
func (w *worker) fire(ctx context.Context) {
	if n := w.batchable; n > 0 {
		w.batchable, w.called = 0, n == 1
		if errs, whole := w.processBatch(ctx, w.pending[:n]); whole {
			w.record(ctx, w.pending[:n], errs)
		}
	}
	for len(w.pending) > 0 {
		one := w.pending[:1]
		switch {
		case w.called:
			w.errs[0] = errExited
		case w.batch != nil && len(w.confirm(ctx, one)) == 0: // earlier calls took time
			w.pending = w.pending[1:]
			continue
		default:
			w.called = true
			w.errs[0] = w.process(ctx, one)
		}
		w.record(ctx, one, w.errs[:])
	}
	w.report(ctx)
}

// ownTimeoutsLast moves tasks with their own time-out behind the others, and returns the number of others: a batch
// has one time-out for all.
func ownTimeoutsLast(entries []*queue.Entry) (others int) {
	for i, e := range entries {
		if e.Task.Timeout == 0 {
			entries[i], entries[others] = entries[others], e
			others++
		}
	}
	return others
}

// record passes the outcomes of ended runs, the first ones of pending, to the finisher.
func (w *worker) record(ctx context.Context, entries []*queue.Entry, errs []error) {
	end := w.cfg.Now()
	if ctx.Err() == nil { // else the run was cancelled
		w.failures.record(&w.bizType, func(i int) *task.Task { return &entries[i].Task }, errs, end)
	}
	finished, list := make([]finish, len(entries)), make([]*finish, 0, len(entries))
	var back []*queue.Entry
	for i, e := range entries {
		if errs[i] != nil && ctx.Err() != nil {
			back = append(back, e) // cancelled by the shutdown: not the task's fault, it runs again
			continue
		}
		outcome, move, row := decide(&w.bizType, e.Task, errs[i], end)
		if outcome == Dead {
			w.cfg.Logger.Warn("task is dead", "biz_type", w.bizType.Name, "job_id", row.JobID, "biz_id", row.GivenBizID(), "attempts",
				row.Attempts, "error", row.LastError)
		}
		if outcome == Failed || outcome == Dead {
			w.failed = append(w.failed, failure{row, errs[i]})
		}
		finished[i] = finish{entry: e, bizType: &w.bizType, outcome: outcome, move: move, row: row, ran: end.Sub(w.start),
			late: max(0, w.start.Sub(e.Task.Promised()))}
		list = append(list, &finished[i])
	}
	w.finisher.add(list...)
	w.returnEntries(back...)
	w.pending, w.called = w.pending[len(entries):], false
	w.report(ctx)
}

// process runs one task.
func (w *worker) process(ctx context.Context, one []*queue.Entry) error {
	_, err := w.call(ctx, one, cmp.Or(one[0].Task.Timeout, w.bizType.Timeout), func(ctx context.Context) ([]error, error) {
		return nil, w.processor.Process(ctx, w.tasks[0])
	})
	return err
}

// processBatch runs tasks by the batch form, and reports whether this gave their results. If not, it is unknown
// which task failed, and each runs alone.
func (w *worker) processBatch(ctx context.Context, entries []*queue.Entry) (errs []error, whole bool) {
	errs, err := w.call(ctx, entries, w.bizType.Timeout, func(ctx context.Context) ([]error, error) {
		return w.batch.ProcessBatch(ctx, w.tasks), nil
	})
	switch {
	case err == nil && errs == nil:
		return make([]error, len(entries)), true
	case err == nil && len(errs) == len(entries):
		return errs, true
	case err == nil:
		err = fmt.Errorf("the processor answered %d results for %d tasks", len(errs), len(entries))
	}
	if len(entries) == 1 {
		return []error{err}, true
	}
	w.cfg.Logger.Warn("batch failed as a whole; its tasks run one by one", "biz_type", w.bizType.Name, "tasks", len(entries), "error", err)
	return nil, false
}

// call makes one call of the processor, for the tasks of some entries. It returns an error for each, or one for all.
func (w *worker) call(ctx context.Context, entries []*queue.Entry, timeout time.Duration,
	run func(context.Context) ([]error, error)) (errs []error, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	w.tasks = w.tasks[:0]
	for _, e := range entries {
		w.tasks = append(w.tasks, e.Task)
	}
	w.begin(entries, timeout)
	defer w.end()
	ctx = w.beginSpans(ctx)
	defer func() { w.endSpans(errs, err) }()
	defer w.recoverPanic(&err)
	err = errExited // unless the call returns
	return run(ctx)
}

// recoverPanic turns a panic into a failed run.
func (w *worker) recoverPanic(err *error) {
	if p := recover(); p != nil {
		*err = &panicError{text: fmt.Sprint(p), stack: callerFrames(string(debug.Stack()))}
	}
}
