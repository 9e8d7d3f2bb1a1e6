package worker

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/pprof"
	"strings"
	"sync"
	"time"

	"github.com/timeoutcenter/toc/internal/tracing"
	"github.com/timeoutcenter/toc/internal/wait"
	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/queue"
)

// watch lists all workers. Lock order: watch.mu, then the mu of a run.
type watch struct {
	mu      sync.Mutex
	workers map[*worker]struct{}
	last    int // number of the last worker, for its label
}

// run is the current call of a worker.
type run struct {
	name     string // the worker's label
	mu       sync.Mutex
	entries  []*queue.Entry // of the current call; empty: there is none
	since    time.Time
	timeout  time.Duration
	stuck    bool   // the call ignored its time-out, and this was logged
	replaced bool   // another worker was started in its place
	replace  func() // starts another worker in its place; watch.mu may be held
}

const (
	checkEvery = 100 * time.Millisecond // between two checks of the runs
	idleEvery  = time.Second            // the same while there are none: a run is stuck after the grace, which is longer
)

// watchRuns checks all runs until ended is closed.
func (r *Runner) watchRuns(ctx context.Context, ended <-chan struct{}) {
	for every := checkEvery; ; {
		pause, roused := wait.Slowed(ctx, every)
		select {
		case <-time.After(pause):
		case <-roused:
		case <-ended: // not the end of ctx: runs may outlive it
			return
		}
		if every = idleEvery; r.checkRuns(r.cfg.Now()) {
			every = checkEvery
		}
		r.failures.logSummaries(r.cfg.Now())
	}
}

// checkRuns finds the runs that have exceeded their time-out by more than the grace. It logs each of them once,
// and starts another worker in its place while the pool has fewer than twice its size. It reports whether there are runs.
func (r *Runner) checkRuns(now time.Time) (busy bool) {
	var newlyStuck []*worker
	r.watch.mu.Lock()
	for w := range r.watch.workers {
		w.run.mu.Lock()
		busy = busy || len(w.entries) > 0
		if ignored := w.overrun(now); ignored > r.cfg.Grace {
			if !w.stuck {
				w.stuck = true
				newlyStuck = append(newlyStuck, w)
			}
			if !w.replaced && w.alive.Load() < int32(2*w.bizType.Workers) {
				w.replaced = true
				w.replace()
			}
		}
		w.run.mu.Unlock()
	}
	r.watch.mu.Unlock()
	if len(newlyStuck) == 0 {
		return busy
	}
	stacks := workerStacks()
	for _, w := range newlyStuck {
		w.run.mu.Lock()
		facts := append(w.logFields(now), "time_out", w.timeout, "stack", stackOf(stacks, w.name))
		w.run.mu.Unlock()
		r.cfg.Logger.Warn("a run ignores its time-out; another worker takes its place, up to twice workers", facts...)
	}
	return busy
}

// Stuck counts the runs of a business type that have exceeded their time-out.
type Stuck struct {
	BizType string
	Runs    int
	For     time.Duration // how long the longest of them has exceeded it
}

// Stuck lists the business types with runs that have exceeded their time-out and the grace.
func (r *Runner) Stuck() []Stuck {
	var list []Stuck
	now := r.cfg.Now()
	r.watch.mu.Lock()
	defer r.watch.mu.Unlock()
	for w := range r.watch.workers {
		w.run.mu.Lock()
		stuck, ignored := w.stuck, w.overrun(now)
		w.run.mu.Unlock()
		if !stuck {
			continue
		}
		i := 0
		for i < len(list) && list[i].BizType != w.bizType.Name {
			i++
		}
		if i == len(list) {
			list = append(list, Stuck{BizType: w.bizType.Name})
		}
		list[i].Runs++
		list[i].For = max(list[i].For, ignored)
	}
	return list
}

// add and remove keep the list of workers.
func (v *watch) add(w *worker) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.addLocked(w)
}

func (v *watch) addLocked(w *worker) {
	v.last++
	w.name = fmt.Sprintf("%s/%d", w.bizType.Name, v.last)
	v.workers[w] = struct{}{}
}

func (v *watch) remove(w *worker) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.workers, w)
}

// begin records the start of a call of the processor.
func (w *worker) begin(entries []*queue.Entry, timeout time.Duration) {
	w.start = w.cfg.Now()
	w.run.mu.Lock()
	w.entries, w.since, w.timeout = entries, w.start, timeout
	w.run.mu.Unlock()
	for _, e := range entries {
		if late, first := e.Called(w.start); first {
			w.cfg.Observer.Started(w.bizType, late)
		}
	}
}

// end records that the call has ended, in any way.
func (w *worker) end() {
	w.run.mu.Lock()
	var facts []any
	if w.stuck {
		facts = w.logFields(w.cfg.Now())
	}
	w.entries, w.stuck = nil, false
	w.run.mu.Unlock()
	if facts != nil {
		w.cfg.Logger.Info("a run that had ignored its time-out has ended after all", facts...)
	}
}

func (w *worker) isReplaced() bool {
	w.run.mu.Lock()
	defer w.run.mu.Unlock()
	return w.replaced
}

// overrun is how long the current call has exceeded its time-out.
func (r *run) overrun(now time.Time) time.Duration {
	if len(r.entries) == 0 {
		return 0
	}
	return max(0, now.Sub(r.since)-r.timeout)
}

// logFields are the log attributes of the current call.
func (w *worker) logFields(now time.Time) []any {
	facts := []any{"biz_type", w.bizType.Name}
	if len(w.entries) == 0 {
		return facts // it has just ended
	}
	t := &w.entries[0].Task
	facts = append(facts, "job_id", t.JobID, "biz_id", t.GivenBizID(), "attempt", t.Attempts+1,
		"running_for", now.Sub(w.since).Round(time.Millisecond))
	if len(w.entries) > 1 {
		facts = append(facts, "batch", len(w.entries))
	}
	return facts
}

// workerLabel is the profiler label (runtime/pprof) that names a worker. It appears in profiles, and stackOf
// finds a worker's stack by it.
const workerLabel = "toc_worker"

func (w *worker) label(ctx context.Context) context.Context {
	ctx = pprof.WithLabels(ctx, pprof.Labels(workerLabel, w.name))
	pprof.SetGoroutineLabels(ctx)
	return ctx
}

// workerStacks returns the stacks of all goroutines, one paragraph each.
func workerStacks() []string {
	var text bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&text, 1); err != nil {
		return nil
	}
	return strings.Split(text.String(), "\n\n")
}

// maxStack is the maximum length of a stack in a log line, in bytes.
const maxStack = 4096

// stackOf finds the stack of a worker. Goroutines that a processor starts inherit the label, but not the
// worker's own frames.
func stackOf(stacks []string, worker string) string {
	label := fmt.Sprintf("%q:%q", workerLabel, worker)
	for _, s := range stacks {
		if !strings.Contains(s, label) || !strings.Contains(s, "worker.(*worker).fire") {
			continue
		}
		var text strings.Builder
		for line := range strings.Lines(s) {
			if f := strings.Fields(line); len(f) == 4 && f[0] == "#" { // "#  0x46bd8e  main.f+0x2e  /dir/f.go:12"
				text.WriteString(f[2] + " " + f[3] + "\n")
			}
			if text.Len() >= maxStack {
				return text.String()[:maxStack]
			}
		}
		return text.String()
	}
	return ""
}

// beginSpans begins a span for each of w.tasks that is traced. The context of a batch has none of them, that of a single
// task has its own.
func (w *worker) beginSpans(ctx context.Context) context.Context {
	w.spans = w.spans[:0]
	for i := range w.tasks {
		own, span := w.cfg.Tracer.Run(ctx, w.bizType.Name, &w.tasks[i], w.start)
		if span != nil {
			for len(w.spans) < i {
				w.spans = append(w.spans, nil)
			}
			w.spans = append(w.spans, span)
		}
		if len(w.tasks) == 1 {
			return own
		}
	}
	return ctx
}

// endSpans ends the spans of beginSpans. errs are the results of the batch, or err is why it has none.
func (w *worker) endSpans(errs []error, err error) {
	for i, span := range w.spans {
		switch {
		case err != nil:
			endSpan(span, err)
		case errs == nil:
			endSpan(span, nil)
		case len(errs) != len(w.tasks):
			endSpan(span, errOtherNumber)
		default:
			endSpan(span, errs[i])
		}
	}
	clear(w.spans)
}

// errOtherNumber is why each task of a batch is run again, alone.
var errOtherNumber = errors.New("the processor answered another number of results")

// endSpan ends the span of a run. A discarded task has not failed.
func endSpan(span *tracing.Span, err error) {
	failure := ""
	if span != nil && err != nil && !processor.IsDiscard(err) {
		failure = cmp.Or(*reason(err), "failed")
	}
	span.End(failure)
}
