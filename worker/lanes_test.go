package worker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/task"
	"github.com/timeoutcenter/toc/worker"
)

func slow(d time.Duration) *script {
	return &script{f: func(context.Context, task.Task) error { time.Sleep(d); return nil }}
}

// A business type that changed gets new workers and a new processor. The old
// ones end their runs, take nothing more, and the processor is closed then.
func TestAChangedLaneClosesTheOldProcessorAfterItsLastRun(t *testing.T) {
	old, now := slow(10*time.Second), slow(time.Second)
	bubble(t, func(t *testing.T, r *rig) {
		start := time.Now()
		require.EqualValues(t, 1, r.ticks.Load())
		for id := range uint64(4) {
			r.submit(1, id, 0) // all workers are busy
		}
		waits := r.submit(1, 4, 0)
		r.after(3 * time.Second)
		require.Equal(t, 4, old.runs())

		r.set(lane(now))
		require.EqualValues(t, 2, r.ticks.Load())
		require.Empty(t, old.closings())
		require.Equal(t, queue.Stats{}, r.queue.Stats(1), "what had not started is back in the store")
		r.queue.Offer(nil, queue.Item{Task: r.store.row(waits)}) // where a scan finds it
		for id := range uint64(20) {
			r.submit(1, 5+id, time.Duration(1+id)*time.Second)
		}
		r.after(7 * time.Second)
		require.Equal(t, []time.Time{start.Add(10 * time.Second)}, old.closings())
		r.after(time.Minute)
		require.Equal(t, 4, old.runs(), "the old processor runs nothing more")
		require.Equal(t, 21, now.runs())
		require.Equal(t, waits, now.tasks()[0].JobID)
		require.Equal(t, map[worker.Outcome]int{worker.Processed: 25}, r.tally.counts())
		require.Empty(t, now.closings())
	}, lane(old))
	require.Len(t, now.closings(), 1, "closed at the end")
	require.Len(t, old.closings(), 1, "closed once")
}

func TestAnUnchangedLaneIsKept(t *testing.T) {
	p, other := slow(5*time.Second), answer(nil)
	kept := lane(p)
	bubble(t, func(t *testing.T, r *rig) {
		for id := range uint64(8) {
			r.submit(1, id, 0)
		}
		r.settle()
		r.set(kept, lane(other, func(b *task.BizType) { b.ID = 2 }))
		require.Equal(t, queue.Stats{Depth: 4, Running: 4}, r.queue.Stats(1))
		r.submit(2, 1, 0)
		r.after(10 * time.Second)
		require.Equal(t, 8, p.runs())
		require.Equal(t, 1, other.runs())
		require.Empty(t, p.closings())
		r.set(kept)
		require.Len(t, other.closings(), 1)
		require.EqualValues(t, 3, r.ticks.Load())
	}, kept)
	require.Len(t, p.closings(), 1)
}

func TestARemovedLaneGoesAfterItsRuns(t *testing.T) {
	p := slow(5 * time.Second)
	bubble(t, func(t *testing.T, r *rig) {
		id := r.submit(1, 1, 0)
		later := r.submit(1, 2, 8*time.Second)
		r.settle()
		r.set()
		r.after(time.Minute)
		require.Len(t, p.closings(), 1)
		require.Equal(t, task.Processed, r.store.row(id).Status)
		require.Equal(t, task.Pending, r.store.row(later).Status)
	}, lane(p))
}

// A run of the old lane that fails is tried again by the new processor.
func TestARunOfTheOldLaneIsTriedAgainByTheNewOne(t *testing.T) {
	old := &script{f: func(context.Context, task.Task) error { time.Sleep(5 * time.Second); return errDown }}
	now := answer(nil)
	bubble(t, func(t *testing.T, r *rig) {
		id := r.submit(1, 1, 0)
		r.settle()
		r.set(lane(now))
		r.after(time.Minute)
		require.Equal(t, 1, old.runs())
		require.Equal(t, 1, now.runs())
		require.Equal(t, task.Processed, r.store.row(id).Status)
		require.Equal(t, 1, r.store.row(id).Attempts)
	}, lane(old))
}

type stubborn struct{ script }

func (*stubborn) Close() error { return errors.New("the door is stuck") }

func TestAProcessorThatDoesNotCloseIsLogged(t *testing.T) {
	p := &stubborn{}
	bubble(t, func(t *testing.T, r *rig) {
		r.set()
		require.Contains(t, r.log.String(), "the door is stuck")
	}, lane(p))
}

// A graceful stop gives back waiting tasks, and records running ones.
func TestAGracefulStop(t *testing.T) {
	p := slow(5 * time.Second)
	bubble(t, func(t *testing.T, r *rig) {
		start := time.Now()
		var ids []uint64
		for id := range uint64(10) {
			ids = append(ids, r.submit(1, id, 0))
		}
		later := r.submit(1, 50, 6*time.Second)
		r.after(time.Second)
		r.stop()
		require.Equal(t, 5*time.Second, time.Since(start))
		require.Equal(t, 4, p.runs())
		require.Equal(t, []time.Time{start.Add(5 * time.Second)}, p.closings())
		pending := 0
		for _, id := range append(ids, later) {
			row := r.store.row(id)
			if row.Status == task.Pending {
				pending++
				require.Zero(t, row.Attempts)
			}
		}
		require.Equal(t, 7, pending)
		require.Equal(t, map[worker.Outcome]int{worker.Processed: 4}, r.tally.counts())
		require.NoError(t, r.queue.WaitIdle(t.Context()))
	}, lane(p))
}

func TestAStopDoesNotTryFailedRunsAgain(t *testing.T) {
	p := &script{f: func(context.Context, task.Task) error { time.Sleep(5 * time.Second); return errDown }}
	bubble(t, func(t *testing.T, r *rig) {
		id := r.submit(1, 1, 0)
		r.settle()
		r.stop()
		require.Equal(t, 1, p.runs())
		require.Equal(t, 1, r.store.row(id).Attempts, "but it is recorded that they failed")
	}, lane(p))
}

func TestAtTheEndOfPatienceRunsAreToldToStop(t *testing.T) {
	p := &script{f: func(ctx context.Context, _ task.Task) error { <-ctx.Done(); return ctx.Err() }}
	bubble(t, func(t *testing.T, r *rig) {
		id := r.submit(1, 1, 0)
		r.after(time.Second)
		time.AfterFunc(2*time.Second, r.cancelDrain)
		start := time.Now()
		require.ErrorIs(t, r.stopped(), context.Canceled)
		require.Equal(t, 2*time.Second, time.Since(start))
		row := r.store.row(id)
		require.Equal(t, task.Pending, row.Status)
		require.Zero(t, row.Attempts, "it was not the task's fault")
		require.Empty(t, r.tally.counts())
		require.Len(t, p.closings(), 1)
	}, lane(p))
}
