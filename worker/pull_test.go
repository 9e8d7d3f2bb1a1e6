package worker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/task"
	"github.com/timeoutcenter/toc/worker"
)

// pullLane is a lane whose tasks are leased for a second.
func pullLane(change ...func(b *task.BizType)) *worker.Lane {
	b := task.BizType{ID: 1, Name: "orders", Pull: true, TTR: time.Second, MaxInFlight: 100, Workers: 4, Timeout: time.Second,
		MaxRetries: 2, BackoffMin: 4 * time.Second, BackoffMax: time.Hour, Cuts: 3}
	for _, f := range change {
		f(&b)
	}
	return &worker.Lane{BizType: b, Processor: processor.Func(func(context.Context, task.Task) error { panic("a leased task is not run") })}
}

// leaseIn leases what falls due within a while.
func (r *rig) leaseIn(d time.Duration) []task.Task {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	list, err := r.Lease(context.Background(), ctx, 1, 10, 0)
	require.NoError(r.t, err)
	return list
}

// A type that is not pulled any more ends the leases, and runs the tasks.
func TestALeaseOfATypeThatIsNotPulledAnyMore(t *testing.T) {
	ran := make(chan task.Task, 1)
	push := pullLane(func(b *task.BizType) { b.Pull = false })
	push.Processor = processor.Func(func(_ context.Context, t task.Task) error { ran <- t; return nil })
	bubbleOf(t, func() []*worker.Lane { ran = make(chan task.Task, 1); return []*worker.Lane{push} }, func(t *testing.T, r *rig) {
		row := r.insert(1, 42, time.Second)
		row.Lease = 77
		r.store.byHand(row.JobID, func(t *task.Task) { *t = row })
		r.offer(row)
		got := <-ran
		require.Equal(t, 1, got.Attempts)
		require.Zero(t, got.Lease)
	})
}

func TestAConsumerThatHasGoneTakesNoLease(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		id := r.submit(1, 42, time.Second)
		gone, leave := context.WithCancel(t.Context())
		r.store.beforeApply = func(context.Context, int) error { leave(); return nil } // in the middle of the hand-out
		_, err := r.Lease(gone, gone, 1, 10, 0)
		require.ErrorIs(t, err, context.Canceled)
		r.store.beforeApply = nil
		synctest.Wait()
		row := r.store.row(id)
		require.Zero(t, row.Lease)
		require.Zero(t, row.Attempts, "this was no attempt")
		began := time.Now()
		require.Len(t, r.leaseIn(time.Second), 1, "the next one gets it")
		require.Less(t, time.Since(began), 100*time.Millisecond)
	}, pullLane())
}

func TestLeaseOfAClosedType(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		waited := make(chan error)
		go func() {
			_, err := r.Lease(context.Background(), context.Background(), 1, 1, 0)
			waited <- err
		}()
		synctest.Wait()
		r.set() // the type is gone
		require.ErrorIs(t, <-waited, queue.ErrClosed)
		_, err := r.Lease(t.Context(), nil, 1, 1, 0)
		require.ErrorIs(t, err, queue.ErrClosed)
		r.stop()
		_, err = r.Lease(t.Context(), nil, 1, 1, 0)
		require.ErrorIs(t, err, worker.ErrStopped)
	}, pullLane())
}
