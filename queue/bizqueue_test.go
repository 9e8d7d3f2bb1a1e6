package queue_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/task"
)

func TestRemoveTypeReleasesWhatHasNotStarted(t *testing.T) {
	bubble(t, 10, func(t *testing.T, r *rig) {
		r.read(r.order(1, ahead))
		require.Len(t, r.checks(), 1)
		r.read(r.order(2, time.Hour), r.order(3, 0), r.mail(5, 0))
		running := r.one(r.orders)
		r.read(r.order(4, 0))
		r.SetResume(orders, 0, task.Key{})

		r.RemoveType(orders)
		for _, id := range []uint64{1, 2, 4} {
			require.Equal(t, []string{"released"}, r.receiptsOf(id))
		}
		require.Empty(t, r.receiptsOf(3), "running tasks go on")
		require.Empty(t, r.receiptsOf(5), "other types are not affected")
		_, err := r.orders.Take(t.Context(), 1)
		require.ErrorIs(t, err, queue.ErrClosed)
		_, behind := r.refill()
		require.False(t, behind)
		require.Equal(t, []uint64{5}, r.ids(r.mails))
		r.processed(running)
		require.Equal(t, []string{"acked"}, r.receiptsOf(3))
		r.RemoveType(orders)
		r.RemoveType(99)
	})
}

func TestRemoveTypeEndsAllItsWorkers(t *testing.T) {
	bubble(t, 10, func(t *testing.T, r *rig) {
		var workers sync.WaitGroup
		for range 10 {
			workers.Go(func() {
				if _, err := r.orders.Take(t.Context(), 1); err != queue.ErrClosed {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		r.RemoveType(orders)
		workers.Wait()
	})
}

// A worker of the removed type that comes back from a long run must not take from the new queue: it has the old
// processor.
func TestATypeThatIsAddedAgainHasNewWorkers(t *testing.T) {
	bubble(t, 10, func(t *testing.T, r *rig) {
		old := r.orders
		r.read(r.order(1, 0))
		running := r.one(old)
		r.RemoveType(orders)
		consumer := r.AddType(task.BizType{ID: orders})
		require.Empty(t, r.read(r.order(1, 0), r.order(2, 0)))

		r.processed(running)
		_, err := old.Take(t.Context(), 1)
		require.ErrorIs(t, err, queue.ErrClosed)
		require.Equal(t, []uint64{2}, r.ids(consumer), "1 was running when it was read")
	})
}

func TestARunOfARemovedTypeIsRetriedWhenTheTypeIsAddedAgain(t *testing.T) {
	bubble(t, 10, func(t *testing.T, r *rig) {
		r.read(r.order(1, 0))
		e := r.one(r.orders)
		r.RemoveType(orders)
		consumer := r.AddType(task.BizType{ID: orders})
		r.Done(e, e.Task, true)
		require.Equal(t, queue.Stats{Depth: 1}, r.Stats(orders))
		require.Equal(t, []uint64{1}, r.ids(consumer))
	})
}

func TestAddTypeReturnsTheSourceThatIsThere(t *testing.T) {
	bubble(t, 10, func(t *testing.T, r *rig) {
		r.read(r.order(1, 0))
		require.Equal(t, []uint64{1}, r.ids(r.AddType(task.BizType{ID: orders})))
	})
}

func TestDropPartitionsReleasesItsTasks(t *testing.T) {
	bubble(t, 10, func(t *testing.T, r *rig) {
		r.read(r.order(1, ahead))
		require.Len(t, r.checks(), 1)
		r.read(r.order(13, 0))
		running := r.one(r.orders)
		r.read(r.order(5, time.Hour), r.order(9, 0), r.mail(17, 0), r.order(2, 0), r.mail(3, time.Hour))
		r.SetResume(orders, 1, task.Key{})

		r.lose(1)
		for _, id := range []uint64{1, 5, 9, 17} {
			require.Equal(t, []string{"released"}, r.receiptsOf(id))
		}
		_, behind := r.refill()
		require.False(t, behind)
		require.Equal(t, queue.Stats{Depth: 1, Running: 1}, r.Stats(orders))
		require.Equal(t, queue.Stats{Depth: 1}, r.Stats(mails))
		require.Equal(t, []uint64{2}, r.ids(r.orders))
		r.processed(running)
		require.Equal(t, []string{"acked"}, r.receiptsOf(13))
	})
}

func TestClose(t *testing.T) {
	bubble(t, 10, func(t *testing.T, r *rig) {
		r.read(r.order(1, 0))
		running := r.one(r.orders)
		var workers sync.WaitGroup
		for _, l := range []queue.Source{r.orders, r.mails} {
			for range 5 {
				workers.Go(func() {
					if _, err := l.Take(t.Context(), 1); err != queue.ErrClosed {
						t.Error(err)
					}
				})
			}
		}
		synctest.Wait()
		r.read(r.order(2, ahead))
		require.Len(t, r.checks(), 1)
		r.read(r.order(3, time.Hour), r.mail(4, time.Hour))
		h := r.hold(3)

		r.Close()
		workers.Wait()
		require.Equal(t, []string{"released"}, r.receiptsOf(2))
		require.Equal(t, []string{"released"}, r.receiptsOf(4))

		// Nothing is accepted any more.
		r.read(r.order(5, 0))
		require.Equal(t, []string{"released"}, r.receiptsOf(5))
		_, err := r.AddType(task.BizType{ID: 77}).Take(t.Context(), 1)
		require.ErrorIs(t, err, queue.ErrClosed)
		h.Restore()
		require.Equal(t, []string{"released"}, r.receiptsOf(3))
		_, behind := r.refill()
		require.False(t, behind)
		require.False(t, r.WaitRoom(t.Context(), orders, time.Hour))

		// A task that still runs is the last to leave, and is not retried from this queue.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, r.WaitIdle(ctx), context.DeadlineExceeded)
		var waiters sync.WaitGroup
		for range 3 {
			waiters.Go(func() {
				if err := r.WaitIdle(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		r.Done(running, running.Task, true)
		waiters.Wait()
		require.Equal(t, []string{"acked"}, r.receiptsOf(1))
		r.Close()
	})
}

func TestWaitIdleWaitsForHolds(t *testing.T) {
	bubble(t, 10, func(t *testing.T, r *rig) {
		for _, end := range []func(*queue.Hold){(*queue.Hold).Restore, (*queue.Hold).Remove} {
			h := r.hold(1)
			idle := make(chan error, 1)
			go func() { idle <- r.WaitIdle(t.Context()) }()
			synctest.Wait()
			require.Empty(t, idle)
			end(h)
			require.NoError(t, <-idle)
		}
	})
}
