package queue_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/task"
)

func TestADueTaskIsTakenAtOnce(t *testing.T) {
	bubble(t, 10, func(t *testing.T, r *rig) {
		require.Empty(t, r.read(r.order(1, -time.Hour)))
		require.Equal(t, queue.Stats{Depth: 1}, r.Stats(orders))

		e := r.one(r.orders)
		require.Equal(t, r.row(1), e.Task)
		require.Equal(t, queue.Stats{Running: 1}, r.Stats(orders))

		r.processed(e)
		require.Equal(t, queue.Stats{}, r.Stats(orders))
		require.Equal(t, []string{"acked"}, r.receiptsOf(1))
	})
}

func TestATaskIsTakenAtItsMomentAndNeverBefore(t *testing.T) {
	bubble(t, 100, func(t *testing.T, r *rig) {
		r.check()
		moments := []time.Duration{0, 1, 7, 49, 50, 51, 99, 100, 101, 999, 1000, 1001, 9999} // ms
		for i, ms := range moments {
			r.read(r.order(uint64(i), ms*time.Millisecond))
		}
		for i, ms := range moments {
			taken, err := r.orders.Take(t.Context(), 10)
			require.NoError(t, err)
			require.Len(t, taken, 1)
			require.Equal(t, uint64(i), taken[0].ID())
			require.Equal(t, ms*time.Millisecond, time.Since(r.start))
			r.processed(taken[0])
		}
	})
}

func TestAMomentInAFractionOfAMillisecondIsKeptToo(t *testing.T) {
	bubble(t, 100, func(t *testing.T, r *rig) {
		r.check()
		r.after(300 * time.Microsecond)
		r.read(r.stored(task.Task{JobID: 1, BizType: orders, ActionTime: r.start.Add(time.Millisecond)}))
		_, err := r.orders.Take(t.Context(), 1)
		require.NoError(t, err)
		require.Equal(t, time.Millisecond, time.Since(r.start))
	})
}

func TestTasksAreTakenInTheOrderInWhichTheyCanFirstRun(t *testing.T) {
	bubble(t, 100, func(t *testing.T, r *rig) {
		r.check()
		// Overdue tasks run in the order in which they were offered, whatever their action_time: a retry or a
		// late row never jumps the queue.
		r.read(r.order(1, -time.Second), r.order(2, -time.Hour), r.order(3, -time.Minute), r.order(4, 0))
		r.read(r.order(10, 30*time.Millisecond), r.order(11, 10*time.Millisecond), r.order(12, 20*time.Millisecond))
		r.after(time.Second)
		require.Equal(t, []uint64{1, 2, 3, 4, 11, 12, 10}, r.ids(r.orders))
	})
}

func TestADueTaskIsBeforeOneThatBecameDueLater(t *testing.T) {
	bubble(t, 100, func(t *testing.T, r *rig) {
		r.check()
		r.read(r.order(1, 100*time.Millisecond))
		r.after(60 * time.Millisecond) // it is checked and ready by now
		r.read(r.order(2, 0))
		r.after(40 * time.Millisecond)
		r.read(r.order(3, -time.Hour))
		require.Equal(t, []uint64{2, 1, 3}, r.ids(r.orders))
	})
}

func TestTakeTakesAtMostMax(t *testing.T) {
	bubble(t, 100, func(t *testing.T, r *rig) {
		for id := range uint64(7) {
			r.read(r.order(id, 0))
		}
		require.Len(t, r.due(r.orders, 3), 3)
		require.Len(t, r.due(r.orders, 3), 3)
		require.Len(t, r.due(r.orders, 3), 1)
		require.Empty(t, r.due(r.orders, 3))
	})
}

func TestTakeDoesNotWaitForMore(t *testing.T) {
	bubble(t, 100, func(t *testing.T, r *rig) {
		r.check()
		r.read(r.order(1, time.Second), r.order(2, 1001*time.Millisecond))
		taken, err := r.orders.Take(t.Context(), 10)
		require.NoError(t, err)
		require.Len(t, taken, 1)
		require.Equal(t, time.Second, time.Since(r.start))
	})
}

// Who waits for a time looks at the clock each second: no timer shows that it was set.
func TestAClockThatIsSetForward(t *testing.T) {
	bubble(t, 10, func(t *testing.T, r *rig) {
		r.check()
		r.read(r.order(1, time.Hour))
		var taken []*queue.Entry
		var wg sync.WaitGroup
		wg.Go(func() {
			var err error
			taken, err = r.orders.Take(t.Context(), 1)
			require.NoError(t, err)
		})
		time.Sleep(10 * time.Second) // in a bubble
		r.ahead.Store(int64(time.Hour))
		wg.Wait()
		require.Len(t, taken, 1)
		require.Less(t, time.Since(r.start), 13*time.Second)
	})
}

func TestTakeEndsWithItsContext(t *testing.T) {
	bubble(t, 10, func(t *testing.T, r *rig) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var wg sync.WaitGroup
		for range 3 { // the leader, and two workers that wait to become it
			wg.Go(func() {
				_, err := r.orders.Take(ctx, 1)
				require.ErrorIs(t, err, context.DeadlineExceeded)
			})
		}
		wg.Wait()
		// A new leader can still be chosen.
		r.read(r.order(1, 0))
		r.one(r.orders)
	})
}

func TestAnEarlierTaskWakesTheLeader(t *testing.T) {
	bubble(t, 10, func(t *testing.T, r *rig) {
		r.check()
		r.read(r.order(1, time.Minute))
		var got []uint64
		var wg sync.WaitGroup
		wg.Go(func() {
			for range 3 {
				taken, err := r.orders.Take(t.Context(), 1)
				require.NoError(t, err)
				got = append(got, taken[0].ID())
			}
		})
		r.after(time.Second)
		r.read(r.order(2, time.Second))
		r.after(time.Second / 2)
		r.read(r.order(3, 0))
		wg.Wait()
		require.Equal(t, []uint64{3, 2, 1}, got)
		require.Equal(t, time.Minute, time.Since(r.start))
	})
}

func TestTwoTypesDoNotDelayEachOther(t *testing.T) {
	bubble(t, 4, func(t *testing.T, r *rig) {
		r.check()
		// The queue of orders is full and no worker takes from it.
		for id := range uint64(4) {
			r.read(r.order(id, 0))
		}
		require.Equal(t, []uint64{orders}, r.read(r.order(5, 0)))

		require.Empty(t, r.read(r.mail(10, 0), r.mail(11, 3*time.Second)))
		require.Equal(t, []uint64{10}, r.ids(r.mails))
		taken, err := r.mails.Take(t.Context(), 1)
		require.NoError(t, err)
		require.Equal(t, uint64(11), taken[0].ID())
		require.Equal(t, 3*time.Second, time.Since(r.start))
		require.Equal(t, queue.Stats{Depth: 4, ResumePoints: 1}, r.Stats(orders))
	})
}

// Tasks are overdue until they start, also while their rows are read again.
func TestEachOverdue(t *testing.T) {
	bubble(t, 10, func(t *testing.T, r *rig) {
		overdue := func() map[uint64][]time.Time {
			list := map[uint64][]time.Time{}
			r.EachOverdue(func(bizType uint64, due time.Time) { list[bizType] = append(list[bizType], due) })
			return list
		}
		require.Empty(t, overdue())
		r.read(r.order(1, 3*time.Second), r.order(2, -time.Second), r.mail(3, -time.Hour))
		late := map[uint64][]time.Time{orders: {r.start.Add(-time.Second)}, mails: {r.start.Add(-time.Hour)}}
		require.Equal(t, late, overdue())
		taken, err := r.orders.Take(t.Context(), 1)
		require.NoError(t, err)
		delete(late, orders)
		require.Equal(t, late, overdue())
		r.Done(taken[0], taken[0].Task, false)
		checks, err := r.NextChecks(t.Context())
		require.NoError(t, err)
		require.Len(t, checks, 1)
		time.Sleep(5 * time.Second)
		late[orders] = []time.Time{r.start.Add(3 * time.Second)}
		require.Equal(t, late, overdue())
		r.ApplyChecks(checks, nil)
	})
}

// Many workers and many due tasks: the leader's token must never get lost.
func TestManyWorkersTakeEverythingOnce(t *testing.T) {
	const workers, tasks = 64, 5000
	bubble(t, tasks, func(t *testing.T, r *rig) {
		r.check()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		taken := make(chan *queue.Entry, tasks)
		var group sync.WaitGroup
		for w := range workers {
			group.Go(func() {
				for {
					entries, err := r.orders.Take(ctx, 1+w%3)
					if err != nil {
						return
					}
					for _, e := range entries {
						require.False(t, time.Now().Before(e.Task.ActionTime), "early")
						taken <- e
						r.processed(e)
					}
				}
			})
		}
		var offerers sync.WaitGroup
		for o := range 8 {
			offerers.Go(func() {
				for id := o; id < tasks; id += 8 {
					r.read(r.order(uint64(id), time.Duration(id%50-10)*time.Millisecond))
				}
			})
		}
		offerers.Wait()
		r.after(time.Second)
		synctest.Wait()
		require.Len(t, taken, tasks)
		var ids []uint64
		for range tasks {
			ids = append(ids, (<-taken).ID())
		}
		slices.Sort(ids)
		require.Len(t, slices.Compact(ids), tasks)
		require.Equal(t, queue.Stats{}, r.Stats(orders))
		cancel()
		group.Wait()
	})
}

func TestABigBatchEndsWithItsPartition(t *testing.T) {
	bubble(t, 100, func(t *testing.T, r *rig) {
		for i := range uint64(20) { // of partition 0, then of partition 1
			r.read(r.order(4*i, 0))
		}
		for i := range uint64(20) {
			r.read(r.order(4*i+1, 0))
		}
		require.Len(t, r.due(r.orders, 64), 20)
		require.Len(t, r.due(r.orders, 64), 20)
	})
}
