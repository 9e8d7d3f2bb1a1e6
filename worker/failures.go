package worker

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/timeoutcenter/toc/internal/logqueue"
	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/task"
)

// summaryEvery is the time between two log lines while runs fail.
const summaryEvery = 10 * time.Second

// failures logs failed runs: the first one of a business type at once, then a count every summaryEvery, until
// no run failed in that time and others succeeded.
type failures struct {
	logger *slog.Logger
	some   atomic.Bool // byType has entries
	mu     logqueue.Mutex
	byType map[uint64]*failing
	until  time.Time // until when tasks that have failed may run again
}

// longestPause bounds how long after a failed run its task is expected to run again, if the run has asked for a longer pause
// than BackoffMax.
const longestPause = time.Hour

// failing is a business type whose runs fail.
type failing struct {
	bizType      task.BizType
	since, next  time.Time   // next is when the next summary is due
	failed, well int         // runs since the last summary
	all          int         // failed runs
	last         error       // of the last failed run
	panic        *panicError // of the last run that panicked since the log has shown a stack
	lastAt       time.Time   // when it ended
	isWell       bool        // the last runs succeeded
}

// record counts runs that have ended. errs has an element for each task.
func (f *failures) record(b *task.BizType, tasks func(i int) *task.Task, errs []error, now time.Time) {
	failed, last, longest := 0, 0, b.BackoffMax
	var panicked *panicError
	for i, err := range errs {
		if err == nil || processor.IsDiscard(err) {
			continue
		}
		failed, last = failed+1, i
		if p, ok := errors.AsType[*panicError](err); ok {
			panicked = p
		}
		pause, _ := processor.RetryPause(err)
		longest = max(longest, min(pause, longestPause))
		if f.logger.Enabled(context.Background(), slog.LevelDebug) {
			f.logger.Debug("run failed", runLogFields(b, tasks(i), err)...)
		}
	}
	if failed == 0 && !f.some.Load() {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	g := f.byType[b.ID]
	if g == nil {
		if failed == 0 {
			return
		}
		g = &failing{bizType: *b, since: now, next: now.Add(summaryEvery)}
		if f.byType == nil {
			f.byType = make(map[uint64]*failing)
		}
		f.byType[b.ID] = g
		f.some.Store(true)
		f.mu.Log(f.logger, slog.LevelWarn, "runs fail", runLogFields(b, tasks(last), errs[last])...)
		if panicked != nil && errors.Is(errs[last], panicked) {
			panicked = nil
		}
	}
	g.panic = cmp.Or(panicked, g.panic)
	g.failed, g.all, g.well = g.failed+failed, g.all+failed, g.well+len(errs)-failed
	g.isWell = failed == 0
	if failed > 0 {
		g.last = errs[last]
		g.lastAt = now
		if until := now.Add(longest + time.Second); until.After(f.until) { // the row is written a little later
			f.until = until
		}
	}
}

// Retries returns until when tasks that have failed on this node may run again.
func (r *Runner) Retries() time.Time {
	r.failures.mu.Lock()
	defer r.failures.mu.Unlock()
	return r.failures.until
}

// LastError returns why a run of a business type has failed, while its runs fail here; else it is empty.
func (r *Runner) LastError(bizType uint64) string {
	r.failures.mu.Lock()
	defer r.failures.mu.Unlock()
	if g := r.failures.byType[bizType]; g != nil && r.cfg.Now().Sub(g.lastAt) <= max(g.bizType.BackoffMax, longestPause) {
		return *reason(g.last)
	}
	return ""
}

// logSummaries logs the summaries that are due. It is called regularly.
func (f *failures) logSummaries(now time.Time) {
	if !f.some.Load() {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, g := range f.byType {
		if now.Before(g.next) {
			continue
		}
		switch {
		case g.failed > 0:
			facts := []any{"biz_type", g.bizType.Name, "failed", g.failed, "succeeded", g.well, "last_error", *reason(g.last)}
			if g.panic != nil {
				facts = append(facts, "panic", g.panic.text, "stack", g.panic.stack)
				g.panic = nil
			}
			f.mu.Log(f.logger, slog.LevelWarn, "runs keep failing", facts...)
		case g.isWell:
			f.mu.Log(f.logger, slog.LevelInfo, "runs succeed again", "biz_type", g.bizType.Name, "failed", g.all, "after",
				now.Sub(g.since).Round(time.Second))
			delete(f.byType, id)
		}
		g.failed, g.well, g.next = 0, 0, now.Add(summaryEvery)
	}
	f.some.Store(len(f.byType) > 0)
}

// runLogFields are the log attributes of a failed run.
func runLogFields(b *task.BizType, t *task.Task, err error) []any {
	facts := []any{"biz_type", b.Name, "job_id", t.JobID, "biz_id", t.GivenBizID(), "attempt", t.Attempts + 1, "error", *reason(err)}
	if p, ok := errors.AsType[*panicError](err); ok {
		facts = append(facts, "stack", p.stack)
	}
	return facts
}

// panicError is a run that panicked.
type panicError struct{ text, stack string }

func (e *panicError) Error() string { return "panic: " + e.text }

// callerFrames returns the frames of a stack (debug.Stack) between the panic and this package: those of the
// processor.
func callerFrames(stack string) string {
	if _, after, ok := strings.Cut(stack, "\npanic("); ok {
		if lines := strings.SplitN(after, "\n", 3); len(lines) == 3 { // skip the rest of that line and its position in the runtime
			stack = lines[2]
		}
	}
	own, _, _ := strings.Cut(stack, "\ngithub.com/timeoutcenter/toc/worker.(*worker).")
	return own
}

// failure is an argument of Config.Failed: a run that failed, or a task that became dead without a run.
type failure struct {
	row task.Task
	err error
}

// report calls Config.Failed. That call may end the goroutine; the next goroutine calls fire, which reports the
// rest.
func (w *worker) report(ctx context.Context) {
	for len(w.failed) > 0 {
		f := w.failed[0]
		w.failed = w.failed[1:]
		w.reportFailure(ctx, w.bizType.Name, f)
	}
}

func (r *Runner) reportFailure(ctx context.Context, bizType string, f failure) {
	defer func() {
		if p := recover(); p != nil {
			r.cfg.Logger.Error("the error handler panicked", "biz_type", bizType, "job_id", f.row.JobID, "panic", p,
				"stack", callerFrames(string(debug.Stack())))
		}
	}()
	r.cfg.Failed(ctx, f.row, f.err)
}
