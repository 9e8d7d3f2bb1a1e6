package worker_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/task"
	"github.com/timeoutcenter/toc/worker"
)

// Before, the log had nothing about failed runs until a task was dead, 77 minutes later by default.
func TestFailedRunsAreToldOf(t *testing.T) {
	var down atomic.Bool
	down.Store(true)
	p := &script{f: func(context.Context, task.Task) error {
		if down.Load() {
			return errors.New("connection refused")
		}
		return nil
	}}
	bubble(t, func(t *testing.T, r *rig) {
		counts := func() [3]int {
			return [3]int{r.log.count("runs fail"), r.log.count("runs keep failing"), r.log.count("runs succeed again")}
		}
		ids := uint64(0)
		for range 250 { // 25 s
			r.submit(1, ids, 0)
			ids++
			r.after(100 * time.Millisecond)
		}
		require.Equal(t, [3]int{1, 2, 0}, counts())
		require.Equal(t, 1, r.log.count(`job_id=`), "one task as an example")
		require.Positive(t, r.log.count("last_error=\"connection refused\""))
		down.Store(false)
		r.after(time.Minute) // the retries end well, and nothing fails
		require.Equal(t, [3]int{1, 3, 1}, counts())
		down.Store(true)
		r.submit(1, ids, 0)
		r.after(time.Second)
		require.Equal(t, [3]int{2, 3, 1}, counts())
		down.Store(false)
	}, lane(p, func(b *task.BizType) { b.MaxRetries, b.BackoffMin, b.BackoffMax = 100, time.Second, time.Second }))
}

// Retries is the end of the longest pause of a failed run, and LastError is there while runs fail.
func TestRetriesAreKnownUntilTheLastOfThem(t *testing.T) {
	var fails atomic.Pointer[error]
	p := &script{f: func(context.Context, task.Task) error {
		if err := fails.Load(); err != nil {
			return *err
		}
		return nil
	}}
	bubble(t, func(t *testing.T, r *rig) {
		r.submit(1, 1, 0)
		r.after(time.Second)
		require.Zero(t, r.Runner.Retries())
		require.Empty(t, r.Runner.LastError(1))
		ended := time.Now()
		for _, c := range []struct {
			err    error
			longer time.Duration
		}{{errors.New("refused"), time.Minute}, {processor.RetryAfter(time.Hour, errors.New("refused")), time.Hour}, {processor.NoAttempt(2*time.Hour, errors.New("refused")), time.Hour}, {processor.RetryAfter(1000*time.Hour, errors.New("refused")), time.Hour}} {
			fails.Store(&c.err)
			before := r.Runner.Retries()
			r.submit(1, 1, 0)
			r.after(time.Millisecond)
			require.Contains(t, r.Runner.LastError(1), "refused")
			require.False(t, r.Runner.Retries().Before(before))
			require.InDelta(t, c.longer.Seconds(), r.Runner.Retries().Sub(ended).Seconds(), 10, c.err)
		}
		fails.Store(nil)
		for range 30 {
			r.submit(1, 1, 0)
			r.after(time.Second)
		}
		require.Empty(t, r.Runner.LastError(1))
	}, lane(p, func(b *task.BizType) { b.MaxRetries, b.BackoffMin, b.BackoffMax = 100, time.Minute, time.Minute }))
}

func TestAPanicIsToldOfWithItsPlace(t *testing.T) {
	p := &script{f: func(context.Context, task.Task) error { return explode(nil) }}
	bubble(t, func(t *testing.T, r *rig) {
		for id := range uint64(10) {
			r.submit(1, id, 0)
		}
		r.after(time.Second)
		require.Equal(t, 1, r.log.count("stack="))
		require.Equal(t, 1, r.log.count("explode"))
		require.Zero(t, r.log.count("worker.(*worker)"))
	}, lane(p))
}

// Where a panic is not the first failure of its business type, the next summary has its stack, once.
func TestALaterPanicIsToldOfWithItsPlace(t *testing.T) {
	p := &script{f: func(_ context.Context, t task.Task) error {
		if t.BizID == 2 {
			return explode(nil)
		}
		return errDown
	}}
	bubble(t, func(t *testing.T, r *rig) {
		r.submit(1, 1, 0)
		r.submit(1, 2, time.Second)
		r.submit(1, 3, 2*time.Second)
		r.submit(1, 4, 12*time.Second)
		r.after(3 * time.Second)
		require.Equal(t, 1, r.log.count("runs fail"))
		require.Zero(t, r.log.count("explode"))
		r.after(8 * time.Second)
		require.Equal(t, 1, r.log.count("runs keep failing"))
		require.Equal(t, 1, r.log.count(`panic="assignment to entry in nil map" stack=`))
		require.Equal(t, 1, r.log.count("explode"))
		r.after(10 * time.Second)
		require.Equal(t, 2, r.log.count("runs keep failing"))
		require.Equal(t, 1, r.log.count("explode"))
	}, lane(p, func(b *task.BizType) { b.BackoffMin, b.BackoffMax = time.Hour, time.Hour }))
}

func explode(m map[int]int) error {
	m[1] = 1
	return nil
}

func TestFailedRunsAreReported(t *testing.T) {
	p := &script{f: func(ctx context.Context, t task.Task) error {
		switch t.BizID {
		case 1:
			return errDown
		case 2:
			panic("boom")
		case 3:
			<-ctx.Done()
			return ctx.Err()
		case 4:
			runtime.Goexit()
		case 5:
			return processor.Discard(errDown)
		case 6:
			return processor.RetryAfter(time.Hour, errDown)
		case 7:
			return processor.NoAttempt(time.Hour, errDown)
		}
		return nil
	}}
	bubble(t, func(t *testing.T, r *rig) {
		r.near = 2 * time.Minute
		for id := range uint64(8) {
			r.submit(1, id, 0)
		}
		r.submit(1, 8, -2*time.Hour)
		r.after(30 * time.Second)
		require.Equal(t, []string{
			"1 pending 1: " + errDown.Error(), "2 pending 1: panic: boom", "3 pending 1: context deadline exceeded",
			"4 pending 1: the processor ended its goroutine", "6 pending 1: " + errDown.Error(), "7 pending 0: not tried: " + errDown.Error(),
			"8 dead 0: expired: 2h0m0s late",
		}, r.reports.taken())
		r.after(3 * time.Minute)
		require.Equal(t, []string{
			"1 dead 2: " + errDown.Error(), "2 dead 2: panic: boom", "3 dead 2: context deadline exceeded", "4 dead 2: the processor ended its goroutine",
		}, r.reports.taken())

		r.killed()
		r.term.Add(1)
		r.submitCutOff(1, 9, -time.Minute, 3)
		r.settle()
		require.Equal(t, []string{"9 dead 0: started 3 times without an end: its run may end the process"}, r.reports.taken())
	}, lane(p, func(b *task.BizType) {
		b.Workers, b.MaxRetries, b.BackoffMin, b.BackoffMax, b.ExpireAfter = 10, 1, time.Minute, time.Minute, time.Hour
	}))
}

// Of a batch each failed task is reported; of one that failed as a whole the runs of its tasks are.
func TestFailedTasksOfABatchAreReported(t *testing.T) {
	p := &pack{script: script{f: func(context.Context, task.Task) error { return errDown }}, batch: func(_ context.Context, tasks []task.Task) []error {
		if len(tasks) == 2 {
			return []error{nil, errors.New("no luck")}
		}
		panic("boom")
	}}
	bubble(t, func(t *testing.T, r *rig) {
		r.near = 0
		for range 2 {
			r.submit(1, 1, time.Second) // together
		}
		r.after(time.Second)
		require.Equal(t, []string{"1 pending 1: no luck"}, r.reports.taken())
		for range 3 {
			r.submit(1, 1, time.Second)
		}
		r.after(time.Second)
		down := "1 pending 1: " + errDown.Error()
		require.Equal(t, []string{down, down, down}, r.reports.taken())
		require.Equal(t, []int{2, 3}, p.calls())
	}, lane(p, one))
}

// A report that panics, or ends its goroutine, changes no outcome, and the next ones follow.
func TestAReportMayPanicOrEndItsGoroutine(t *testing.T) {
	for name, then := range map[string]func(task.Task){
		"panic":  func(task.Task) { panic("boom") },
		"goexit": func(task.Task) { runtime.Goexit() },
	} {
		t.Run(name, func(t *testing.T) {
			p := &pack{batch: func(_ context.Context, tasks []task.Task) []error {
				errs := make([]error, len(tasks))
				for i := range tasks {
					errs[i] = errDown
				}
				return errs
			}}
			bubble(t, func(t *testing.T, r *rig) {
				r.reports.then = then
				for id := range uint64(20) {
					r.submit(1, id, time.Second)
				}
				r.after(2 * time.Second)
				require.Len(t, r.reports.taken(), 20)
				require.Equal(t, map[worker.Outcome]int{worker.Dead: 20}, r.tally.counts())
				require.Less(t, len(p.calls()), 20)
				require.Zero(t, p.runs())
				require.Equal(t, queue.Stats{}, r.queue.Stats(1))
				if name == "panic" {
					require.Equal(t, 20, r.log.count("the error handler panicked"))
				}
			}, lane(p, one, func(b *task.BizType) { b.MaxRetries = 0 }))
		})
	}
}

// A cancelled run has not failed.
func TestARunThatIsToldToStopIsNotReported(t *testing.T) {
	p := &script{f: func(ctx context.Context, _ task.Task) error { <-ctx.Done(); return ctx.Err() }}
	bubble(t, func(t *testing.T, r *rig) {
		r.submit(1, 1, 0)
		r.settle()
		r.cancelDrain()
		r.settle()
		require.Equal(t, 1, p.runs())
		require.Empty(t, r.reports.taken())
	}, lane(p))
}
