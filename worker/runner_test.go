package worker_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/task"
	"github.com/timeoutcenter/toc/worker"
)

var errDown = errors.New("the shop is down")

func TestATaskRunsAtItsTimeAndIsProcessed(t *testing.T) {
	p := answer(nil)
	bubble(t, func(t *testing.T, r *rig) {
		start := time.Now()
		id := r.submit(1, 42, 3*time.Second)
		r.after(3*time.Second - time.Millisecond)
		require.Zero(t, p.runs())
		r.after(time.Millisecond)
		require.Equal(t, 1, p.runs())
		require.Equal(t, id, p.tasks()[0].JobID)
		require.Equal(t, start.Add(3*time.Second), p.starts()[0])
		require.Equal(t, task.Processed, r.store.row(id).Status)
		require.Equal(t, map[worker.Outcome]int{worker.Processed: 1}, r.tally.counts())
		require.Equal(t, []time.Duration{0}, r.tally.late())
		require.Equal(t, queue.Stats{}, r.queue.Stats(1))
	}, lane(p))
}

func TestLatenessAndLengthOfARunAreTold(t *testing.T) {
	p := &script{f: func(context.Context, task.Task) error { time.Sleep(300 * time.Millisecond); return nil }}
	bubble(t, func(t *testing.T, r *rig) {
		r.submit(1, 42, -2*time.Second)
		r.after(time.Second)
		require.Equal(t, []time.Duration{2 * time.Second}, r.tally.late())
		require.Equal(t, []time.Duration{300 * time.Millisecond}, r.tally.lengths())
	}, lane(p))
}

func TestOutcomes(t *testing.T) {
	for _, c := range []struct {
		name    string
		p       processor.Processor
		outcome worker.Outcome
		status  task.Status
		text    string
	}{
		{"processed", answer(nil), worker.Processed, task.Processed, ""},
		{"failed", answer(errDown), worker.Failed, task.Pending, "the shop is down"},
		{"asked for a pause", answer(processor.RetryAfter(time.Hour, errDown)), worker.Failed, task.Pending, "the shop is down"},
		{"discarded", answer(processor.Discard(errDown)), worker.Discarded, task.Cancelled, "discarded: the shop is down"},
		{"panicked", &script{f: func(context.Context, task.Task) error { panic("out of cheese") }}, worker.Failed, task.Pending, "panic: out of cheese"},
		{"panicked with nil", &script{f: func(context.Context, task.Task) error { panic(nil) }}, worker.Failed, task.Pending, "panic: panic called with nil argument"},
		{"a function", processor.Func(func(context.Context, task.Task) error { return errDown }), worker.Failed, task.Pending, "the shop is down"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.near = 0
				id := r.submit(1, 42, 0)
				r.settle()
				row := r.store.row(id)
				require.Equal(t, c.status, row.Status)
				require.Equal(t, c.text, row.LastError)
				require.Equal(t, map[worker.Outcome]int{c.outcome: 1}, r.tally.counts())
				require.Equal(t, queue.Stats{}, r.queue.Stats(1))
			}, lane(c.p))
		})
	}
}

func TestAWorkerSurvivesAPanic(t *testing.T) {
	p := &script{f: func(_ context.Context, t task.Task) error {
		if t.BizID < 10 {
			panic("out of cheese")
		}
		return nil
	}}
	bubble(t, func(t *testing.T, r *rig) {
		r.near = 0
		for id := range uint64(20) {
			r.submit(1, id, 0)
		}
		r.settle()
		require.Equal(t, map[worker.Outcome]int{worker.Failed: 10, worker.Processed: 10}, r.tally.counts())
		require.Contains(t, r.log.String(), "runner_test.go", "the log has the stack")
	}, lane(p, func(b *task.BizType) { b.Workers = 1 }))
}

func TestAFailingTaskRunsAtMostMaxRetriesAndOneTimes(t *testing.T) {
	p := answer(errDown)
	bubble(t, func(t *testing.T, r *rig) {
		r.near = time.Hour
		id := r.submit(1, 42, 0)
		r.after(time.Hour)
		require.Equal(t, 4, p.runs())
		require.Equal(t, task.Dead, r.store.row(id).Status)
		require.Equal(t, 4, r.store.row(id).Attempts)
		require.Equal(t, map[worker.Outcome]int{worker.Failed: 3, worker.Dead: 1}, r.tally.counts())
		starts, begun := p.starts(), p.tasks()
		for i, pause := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
			got := starts[i+1].Sub(starts[i])
			require.GreaterOrEqual(t, got, pause)
			require.LessOrEqual(t, got, pause*5/4)
			require.Equal(t, i+1, begun[i+1].Attempts, "it sees how often it failed")
			require.Equal(t, "the shop is down", begun[i+1].LastError)
		}
		require.Equal(t, []time.Duration{0, 0, 0, 0}, r.tally.late(), "a retry is measured by its own time")
		require.Contains(t, r.log.String(), "task is dead")
	}, lane(p))
}

// A retry starts at its own time, and is late by what was promised.
func TestTheLatenessOfAPromiseHasThePausesOfItsRetries(t *testing.T) {
	p := &script{f: func(_ context.Context, t task.Task) error {
		if t.Attempts < 2 {
			return processor.RetryAfter(time.Minute, errDown)
		}
		time.Sleep(time.Second)
		return nil
	}}
	bubble(t, func(t *testing.T, r *rig) {
		r.near = time.Hour
		r.submit(1, 42, 0)
		r.after(time.Hour)
		require.Equal(t, []time.Duration{0, 0, 0}, r.tally.late())
		require.Equal(t, []time.Duration{2 * time.Minute}, r.tally.promiseLateness, "of the run that succeeded, until its start")
	}, lane(p))
}

func TestWithoutRetriesTheFirstFailureIsTheLast(t *testing.T) {
	p := answer(errDown)
	bubble(t, func(t *testing.T, r *rig) {
		id := r.submit(1, 42, 0)
		r.after(time.Hour)
		require.Equal(t, 1, p.runs())
		require.Equal(t, task.Dead, r.store.row(id).Status)
	}, lane(p, func(b *task.BizType) { b.MaxRetries = 0 }))
}

func TestARetryThatIsFarOffIsLeftToTheScanner(t *testing.T) {
	p := answer(processor.RetryAfter(time.Minute, errDown))
	bubble(t, func(t *testing.T, r *rig) {
		id := r.submit(1, 42, 0)
		r.after(time.Hour)
		require.Equal(t, 1, p.runs())
		require.Equal(t, p.starts()[0].Add(time.Minute).UTC(), r.store.row(id).ActionTime)
	}, lane(p))
}

func TestRetryAfterIsKeptToTheMillisecond(t *testing.T) {
	p := answer(processor.RetryAfter(1234*time.Millisecond, errDown))
	bubble(t, func(t *testing.T, r *rig) {
		r.submit(1, 42, 0)
		r.after(time.Minute)
		require.Equal(t, 4, p.runs())
		starts := p.starts()
		for i := range 3 {
			require.Equal(t, 1234*time.Millisecond, starts[i+1].Sub(starts[i]))
		}
	}, lane(p))
}

func TestARunHasItsTimeout(t *testing.T) {
	p := &script{f: func(ctx context.Context, _ task.Task) error {
		<-ctx.Done()
		return ctx.Err()
	}}
	bubble(t, func(t *testing.T, r *rig) {
		r.near = 0
		id := r.submit(1, 42, 0)
		r.after(7 * time.Second)
		require.Equal(t, context.DeadlineExceeded.Error(), r.store.row(id).LastError)
		require.Equal(t, []time.Duration{7 * time.Second}, r.tally.lengths())
	}, lane(p, func(b *task.BizType) { b.Timeout = 7 * time.Second }))
}

func TestATaskThatIsTooLateDiesInsteadOfRunning(t *testing.T) {
	p := answer(nil)
	bubble(t, func(t *testing.T, r *rig) {
		onTime := r.submit(1, 42, -time.Minute)
		late := r.submit(1, 43, -time.Minute-time.Millisecond)
		r.settle()
		require.Equal(t, 1, p.runs())
		require.Equal(t, task.Processed, r.store.row(onTime).Status)
		require.Equal(t, task.Dead, r.store.row(late).Status)
		require.Equal(t, "expired: 1m0.001s late", r.store.row(late).LastError)
		require.Equal(t, map[worker.Outcome]int{worker.Processed: 1, worker.Dead: 1}, r.tally.counts())
		require.Len(t, r.tally.late(), 1)
	}, lane(p, func(b *task.BizType) { b.ExpireAfter = time.Minute }))
}

func TestATaskThatIsTooLateIsSkipped(t *testing.T) {
	p := answer(nil)
	bubble(t, func(t *testing.T, r *rig) {
		late := r.submit(1, 43, -2*time.Minute)
		r.settle()
		require.Zero(t, p.runs())
		require.Equal(t, task.Cancelled, r.store.row(late).Status)
		require.Equal(t, "expired", r.store.row(late).LastError)
		require.Equal(t, map[worker.Outcome]int{worker.Discarded: 1}, r.tally.counts())
	}, lane(p, func(b *task.BizType) { b.ExpireAfter, b.OnExpire = time.Minute, task.OnExpireSkip }))
}

func TestATaskThatIsTooLateRunsAnyway(t *testing.T) {
	p := answer(nil)
	bubble(t, func(t *testing.T, r *rig) {
		late := r.submit(1, 43, -2*time.Minute)
		r.settle()
		require.Equal(t, 1, p.runs())
		require.Equal(t, task.Processed, r.store.row(late).Status)
	}, lane(p, func(b *task.BizType) { b.ExpireAfter, b.OnExpire = time.Minute, task.OnExpireRun }))
}

// Of the overdue tasks of one biz_id only the latest runs. One that starts in time always runs.
func TestCoalesce(t *testing.T) {
	p := answer(nil)
	bubble(t, func(t *testing.T, r *rig) {
		oldest, older, latest := r.insert(1, 42, -time.Hour), r.insert(1, 42, -time.Minute), r.insert(1, 42, -2*time.Second)
		other, next := r.insert(1, 43, -time.Hour), r.insert(1, 42, time.Minute)
		for _, row := range []task.Task{oldest, older, latest, other, next} { // all are stored before the first one starts
			r.offer(row)
		}
		r.after(2 * time.Minute)
		for _, one := range []task.Task{oldest, older} {
			require.Equal(t, task.Cancelled, r.store.row(one.JobID).Status)
			require.Equal(t, "coalesced", r.store.row(one.JobID).LastError)
		}
		for _, one := range []task.Task{latest, other, next} {
			require.Equal(t, task.Processed, r.store.row(one.JobID).Status)
		}
		require.Equal(t, 3, p.runs())
	}, lane(p, func(b *task.BizType) { b.Coalesce = true }))
}

// A receiver that hangs for what it has refused before must not stop first runs.
func TestRetriesTakeAQuarterOfTheWorkers(t *testing.T) {
	var retries, most atomic.Int32
	p := &script{f: func(ctx context.Context, t task.Task) error {
		if t.Attempts > 0 {
			most.Store(max(most.Load(), retries.Add(1)))
			defer retries.Add(-1)
			<-ctx.Done()
			return ctx.Err()
		}
		if t.BizID < 100 {
			return errors.New("refused")
		}
		return nil
	}}
	bubble(t, func(t *testing.T, r *rig) {
		for id := range uint64(20) {
			r.submit(1, id, 0)
		}
		r.after(10 * time.Second) // all of them hang
		for id := range uint64(50) {
			r.submit(1, 100+id, 0)
		}
		r.after(time.Second)
		require.Equal(t, 50, r.tally.counts()[worker.Processed])
		require.EqualValues(t, 2, most.Load())
		r.after(time.Hour)
		require.EqualValues(t, 2, most.Load())
	}, lane(p, func(b *task.BizType) {
		b.Workers, b.Timeout, b.MaxRetries, b.BackoffMin, b.BackoffMax = 8, time.Minute, 100, time.Second, time.Second
	}))
}

func TestNoMoreRunsAtOnceThanWorkers(t *testing.T) {
	var open, most atomic.Int32
	p := &script{f: func(context.Context, task.Task) error {
		most.Store(max(most.Load(), open.Add(1)))
		defer open.Add(-1)
		time.Sleep(time.Second)
		return nil
	}}
	bubble(t, func(t *testing.T, r *rig) {
		for id := range uint64(12) {
			r.submit(1, id, 0)
		}
		r.after(3 * time.Second)
		require.Equal(t, map[worker.Outcome]int{worker.Processed: 12}, r.tally.counts())
		require.EqualValues(t, 4, most.Load())
	}, lane(p))
}

func TestASlowTypeDoesNotDelayAnother(t *testing.T) {
	slow := &script{f: func(context.Context, task.Task) error { time.Sleep(20 * time.Second); return nil }}
	quick := answer(nil)
	bubble(t, func(t *testing.T, r *rig) {
		for id := range uint64(100) {
			r.submit(1, id, 0)
		}
		id := r.submit(2, 5, time.Second)
		r.after(time.Second)
		require.Equal(t, task.Processed, r.store.row(id).Status)
		require.Equal(t, 4, slow.runs())
	}, lane(slow), lane(quick, func(b *task.BizType) { b.ID, b.Name = 2, "mail" }))
}

// The parts of lateness add up to it, and the part to blame is the one that grows.
func TestPartsOfLateness(t *testing.T) {
	const slow = 150 * time.Millisecond
	for name, row := range map[string]struct {
		in, load, mark time.Duration
		busy           bool
		want           queue.Lateness
	}{
		"in time":         {in: 10 * time.Second},
		"found late":      {in: -3 * time.Second, want: queue.Lateness{Find: 3 * time.Second}},
		"a slow database": {in: 10 * time.Second, load: slow, want: queue.Lateness{Check: 100 * time.Millisecond}}, // the check began 50 ms before
		"a slow mark":     {in: -3 * time.Second, mark: slow, want: queue.Lateness{Find: 3 * time.Second, Start: slow}},
		"busy workers":    {in: 10 * time.Second, busy: true, want: queue.Lateness{Wait: 500 * time.Millisecond}},
		"both":            {in: 10 * time.Second, load: slow, busy: true, want: queue.Lateness{Check: 100 * time.Millisecond, Wait: 500 * time.Millisecond}},
	} {
		t.Run(name, func(t *testing.T) {
			var called time.Time
			p := &script{f: func(_ context.Context, t task.Task) error {
				if t.BizID == 1 {
					time.Sleep(time.Second)
				} else {
					called = time.Now()
				}
				return nil
			}}
			bubble(t, func(t *testing.T, r *rig) {
				r.store.beforeLoad = func(context.Context, int) error { time.Sleep(row.load); return nil }
				r.store.beforeMoves = func(int) error { time.Sleep(row.mark); return nil }
				if row.mark > 0 {
					r.killed()
				}
				if row.busy {
					r.submit(1, 1, row.in-500*time.Millisecond)
				}
				id := r.submit(1, 42, row.in)
				r.after(max(0, row.in) + time.Minute)
				last := r.tally.parts[len(r.tally.parts)-1]
				require.Equal(t, row.want, last)
				require.Equal(t, called.Sub(r.store.row(id).ActionTime), last.Total())
			}, lane(p, func(b *task.BizType) { b.Workers = 1 }))
		})
	}
}
