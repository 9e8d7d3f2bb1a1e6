package queue_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/task"
)

const ahead = 50 * time.Millisecond // the default CheckAhead

func TestAWaitingRowIsCheckedRightBeforeItsTime(t *testing.T) {
	bubble(t, 10, func(t *testing.T, r *rig) {
		r.read(r.order(1, 3*time.Second), r.order(2, 3*time.Second+ahead), r.order(4, 3*time.Second+ahead+time.Millisecond), r.mail(3, time.Second))
		for _, want := range []struct {
			ids []uint64
			at  time.Duration
		}{{[]uint64{3}, time.Second - ahead}, {[]uint64{1}, 3*time.Second - ahead}, {[]uint64{2, 4}, 3 * time.Second}} {
			list, err := r.NextChecks(t.Context())
			require.NoError(t, err)
			var ids []uint64
			for _, e := range list {
				ids = append(ids, e.ID())
			}
			require.Equal(t, want.ids, ids, "they share a read")
			require.Equal(t, want.at, time.Since(r.start))
		}
	})
}

// While many rows are read again, those of a partition are read in turns, each once in 750 ms.
func TestManyRowsAreCheckedTogether(t *testing.T) {
	bubble(t, 100_000, func(t *testing.T, r *rig) {
		seen := map[int]map[time.Duration]int{} // by partition: how many at which times
		var wg sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		wg.Go(func() {
			for {
				list, err := r.NextChecks(ctx)
				if err != nil {
					return
				}
				require.LessOrEqual(t, len(list), 1000, "the lock is not held for long")
				rows, now := make(map[uint64]task.Task, len(list)), time.Since(r.start)
				for _, e := range list {
					rows[e.ID()] = e.Task
					require.LessOrEqual(t, time.Until(e.Task.ActionTime), 950*time.Millisecond)
					if seen[e.Partition] == nil {
						seen[e.Partition] = map[time.Duration]int{}
					}
					if now > 5*time.Second && now <= 8*time.Second {
						seen[e.Partition][now]++
					}
				}
				r.ApplyChecks(list, rows)
			}
		})
		for id := uint64(1); id <= 16_000; id++ { // 2,000 a second
			it := r.order(id, 2*time.Second)
			it.Partition = int(id % 4)
			r.read(it)
			r.after(time.Second / 2000)
		}
		cancel()
		wg.Wait()
		for p := range 4 {
			require.Len(t, seen[p], 4, "turns in three seconds")
			for at, n := range seen[p] {
				require.InDelta(t, 375, n, 1)
				require.Equal(t, time.Duration(p)*750*time.Millisecond/4, (at+200*time.Millisecond)%(750*time.Millisecond), "one after the other")
			}
		}
	})
}

func TestARunThatHasEndedIsTheLast(t *testing.T) {
	bubble(t, 10, func(t *testing.T, r *rig) {
		r.read(r.order(1, 0), r.order(2, 0), r.order(3, time.Second))
		first, second := r.due(r.orders, 1)[0], r.due(r.orders, 1)[0]
		isLast, _ := r.RunsEnded(first)
		require.False(t, isLast)
		isLast, _ = r.RunsEnded(second)
		require.False(t, isLast, "another waits")
		third := r.hold(3)
		third.Remove()
		r.read(r.order(4, 0))
		fourth := r.due(r.orders, 1)[0]
		isLast, _ = r.RunsEnded(fourth)
		require.True(t, isLast, "the outcomes of all are waited for")
	})
}

// A row that a hand moves by a second is not due soon: in a full queue it gives its place to one that is.
func TestAMovedTaskGivesItsPlaceToAnEarlierOne(t *testing.T) {
	bubble(t, 1, func(t *testing.T, r *rig) {
		r.check()
		r.read(r.order(1, 100*time.Millisecond))
		r.stored(task.Task{JobID: 1, BizType: orders, ActionTime: r.start.Add(time.Second)})
		time.Sleep(100 * time.Millisecond) // in a bubble
		require.Empty(t, r.read(r.order(2, 0)))
		require.EqualValues(t, 2, r.one(r.orders).ID())
	})
}

// A row of the backlog that a hand moves to a later time is not of the backlog any more, and another one may come.
func TestAMovedTaskLeavesTheBacklog(t *testing.T) {
	bubble(t, 2, func(t *testing.T, r *rig) {
		r.RemoveType(orders)
		r.orders = r.AddType(task.BizType{ID: orders, Workers: 1, CatchUp: 1})
		r.check()
		r.read(r.order(1, -time.Hour), r.order(2, -time.Hour))
		r.stored(task.Task{JobID: 1, BizType: orders, ActionTime: r.start.Add(time.Hour)})
		time.Sleep(3 * time.Second) // in a bubble
		require.Empty(t, r.due(r.orders, 1), "its row is read again")
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		next, err := r.NextRefill(ctx)
		require.NoError(t, err)
		require.EqualValues(t, 2, next.From.JobID)
	})
}

func TestEndedRunsLeaveRoom(t *testing.T) {
	bubble(t, 10, func(t *testing.T, r *rig) {
		for id := range uint64(6) {
			r.read(r.order(id+1, 0))
		}
		list := r.due(r.orders, 6)
		_, isTight := r.RunsEnded(list[:3]...)
		require.False(t, isTight)
		_, isTight = r.RunsEnded(list[3])
		require.True(t, isTight, "more than a third of the queue")
		r.Done(list[0], task.Task{JobID: 1, Status: task.Processed}, false)
		r.Done(list[1], task.Task{JobID: 2, Status: task.Processed}, false)
		_, isTight = r.RunsEnded(list[4])
		require.False(t, isTight)
	})
}

func TestAnEarlierTaskWakesTheChecks(t *testing.T) {
	bubble(t, 10, func(t *testing.T, r *rig) {
		r.read(r.order(1, time.Minute))
		var list []*queue.Entry
		var wg sync.WaitGroup
		wg.Go(func() { list, _ = r.NextChecks(t.Context()) })
		r.after(time.Second)
		r.read(r.order(2, time.Second))
		wg.Wait()
		require.Len(t, list, 1)
		require.Equal(t, uint64(2), list[0].ID())
		require.Equal(t, 2*time.Second-ahead, time.Since(r.start))
	})
}

func TestNextChecksEndsWithItsContext(t *testing.T) {
	bubble(t, 10, func(t *testing.T, r *rig) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := r.NextChecks(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestACheckedTaskRunsWhenItIsDue(t *testing.T) {
	bubble(t, 10, func(t *testing.T, r *rig) {
		r.read(r.order(1, ahead))
		list := r.checks()
		require.Equal(t, queue.Stats{Depth: 1}, r.Stats(orders), "it is still in the queue")
		row := r.row(1)
		row.Attribute = "edited by hand"
		r.ApplyChecks(list, map[uint64]task.Task{1: row})
		require.Empty(t, r.ids(r.orders), "checked, but not due yet")
		r.after(ahead)
		require.Equal(t, row, r.one(r.orders).Task)
	})
}

func TestACheckThatTakesTooLongMakesATaskLateNotLost(t *testing.T) {
	bubble(t, 10, func(t *testing.T, r *rig) {
		r.read(r.order(1, ahead))
		list := r.checks()
		r.after(time.Minute)
		require.Empty(t, r.ids(r.orders))
		r.ApplyChecks(list, map[uint64]task.Task{1: r.row(1)})
		require.Empty(t, r.ids(r.orders), "the row may be a minute old")
		list = r.checks()
		r.after(time.Minute)
		r.ApplyChecks(list, map[uint64]task.Task{1: r.row(1)})
		require.Equal(t, []uint64{1}, r.ids(r.orders), "a slower database must not keep it for ever")
	})
}

// A row is as old as the read that brought it, whenever the answer came. Before, a cancel by SQL was ignored if
// it was made while the answer was on its way, for as long as that took.
func TestARowIsAsOldAsItsRead(t *testing.T) {
	bubble(t, 10, func(t *testing.T, r *rig) {
		read := r.BeginRead(0)
		r.after(3 * time.Second)
		r.Offer(read, r.order(4, -time.Second))
		read.End()
		require.Empty(t, r.ids(r.orders))
		list := r.checks()
		require.Len(t, list, 1)
		r.ApplyChecks(list, map[uint64]task.Task{})
		require.Empty(t, r.ids(r.orders), "it was cancelled meanwhile")
	})
}

// Rows of a database that hangs are read again for a long time. Those of the other databases come right after
// them and start meanwhile.
func TestChecksThatHangDoNotStopTheOthers(t *testing.T) {
	bubble(t, 1000, func(t *testing.T, r *rig) {
		for id := uint64(1); id <= 700; id++ { // older, and their checks are never answered
			r.read(r.order(4*id, -time.Minute))
		}
		fine := r.order(1, -time.Second)
		r.read(fine)
		r.after(3 * time.Second) // all are stale
		go func() {
			for {
				list, err := r.NextChecks(t.Context())
				if err != nil {
					return
				}
				for _, e := range list {
					if e.ID() == 1 {
						r.ApplyChecks([]*queue.Entry{e}, map[uint64]task.Task{1: r.row(1)})
					}
				}
			}
		}()
		start := time.Now()
		list, err := r.orders.Take(t.Context(), 10)
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.Equal(t, uint64(1), list[0].ID())
		require.Less(t, time.Since(start), time.Second)
	})
}

func TestACheckedTaskThatIsNotPendingLeaves(t *testing.T) {
	for _, status := range []task.Status{task.Processed, task.Cancelled, task.Dead} {
		t.Run(status.String(), func(t *testing.T) {
			bubble(t, 10, func(t *testing.T, r *rig) {
				r.read(r.order(1, ahead), r.order(2, ahead))
				list := r.checks()
				require.Len(t, list, 2)
				row := r.row(1)
				row.Status = status
				r.ApplyChecks(list, map[uint64]task.Task{1: row}) // and the row of 2 is gone
				require.Equal(t, queue.Stats{}, r.Stats(orders))
				require.Equal(t, []string{"released"}, r.receiptsOf(1))
				require.Equal(t, []string{"released"}, r.receiptsOf(2))
				r.after(time.Minute)
				require.Empty(t, r.ids(r.orders))
			})
		})
	}
}

func TestACheckedTaskThatWasMoved(t *testing.T) {
	for _, c := range []struct {
		name string
		to   time.Duration
	}{
		{"far", time.Hour},
		{"a little", 3 * ahead},
		{"within the check", ahead + 20*time.Millisecond},
		{"to earlier", 10 * time.Millisecond},
		{"to now", 0},
		{"to the past", -time.Hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, 10, func(t *testing.T, r *rig) {
				r.read(r.order(1, ahead))
				list := r.checks()
				row := r.row(1)
				row.ActionTime = r.start.Add(c.to)
				r.stored(row)
				r.ApplyChecks(list, map[uint64]task.Task{1: row})
				r.check() // answers what is checked once more
				taken, err := r.orders.Take(t.Context(), 1)
				require.NoError(t, err)
				require.Equal(t, row, taken[0].Task)
				require.Equal(t, max(0, c.to), time.Since(r.start))
			})
		})
	}
}

func TestATaskWhoseCheckFailedIsReadLater(t *testing.T) {
	bubble(t, 10, func(t *testing.T, r *rig) {
		r.read(r.order(1, ahead))
		found := make(chan queue.Refill, 1)
		go func() { // waits before there is anything: it must be woken
			if f, err := r.NextRefill(t.Context()); err == nil {
				found <- f
			}
		}()
		list := r.checks()
		r.FailChecks(list)
		require.Equal(t, []string{"released"}, r.receiptsOf(1))
		require.Equal(t, 0, r.Stats(orders).Depth)
		synctest.Wait()
		require.Len(t, found, 1)
		require.Equal(t, queue.Refill{BizType: orders, Partition: 1, From: task.KeyOf(&list[0].Task)}, <-found)
	})
}

func TestChecksSurviveWhateverHappensMeanwhile(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(r *rig)
	}{
		{"its type is removed", func(r *rig) { r.RemoveType(orders) }},
		{"the partition is lost", func(r *rig) { r.lose(1) }},
		{"the queue is closed", func(r *rig) { r.Close() }},
		{"somebody cancels", func(r *rig) { r.hold(1).Remove() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, 10, func(t *testing.T, r *rig) {
				r.read(r.order(1, ahead))
				list := r.checks()
				c.do(r)
				r.ApplyChecks(list, map[uint64]task.Task{1: r.row(1)})
				r.FailChecks(list)
				require.Equal(t, queue.Stats{}, r.Stats(orders))
				require.NoError(t, r.WaitIdle(t.Context()))
				require.Equal(t, []string{"released"}, r.receiptsOf(1))
			})
		})
	}
}

func TestARowThatBecameOldWhileItWaitedForAWorkerIsCheckedAgain(t *testing.T) {
	bubble(t, 10, func(t *testing.T, r *rig) {
		r.read(r.order(1, 0), r.order(2, 0), r.order(3, 0))
		r.after(2 * time.Second)
		require.Equal(t, uint64(1), r.due(r.orders, 1)[0].ID(), "two seconds are not too old")
		r.after(time.Millisecond)
		require.Empty(t, r.ids(r.orders))
		list := r.checks()
		require.Len(t, list, 2)
		row := r.row(2)
		row.Status = task.Cancelled
		r.ApplyChecks(list, map[uint64]task.Task{2: row, 3: r.row(3)})
		require.Equal(t, []uint64{3}, r.ids(r.orders))
	})
}

// A task that is checked again keeps its place: tasks that came meanwhile do not overtake it.
func TestACheckedTaskKeepsItsTurn(t *testing.T) {
	bubble(t, 10, func(t *testing.T, r *rig) {
		r.read(r.order(1, 0), r.order(2, 0))
		r.after(3 * time.Second)
		require.Empty(t, r.ids(r.orders))
		list := r.checks()
		r.read(r.order(3, -time.Hour))
		r.after(time.Millisecond)
		r.ApplyChecks(list, map[uint64]task.Task{1: r.row(1), 2: r.row(2)})
		require.Equal(t, []uint64{1, 2, 3}, r.ids(r.orders))
	})
}

// A business type with a long backlog and slow workers reads again what it is about to run, not its whole
// backlog every second.
func TestASlowTypeReadsAgainOnlyWhatItIsAboutToRun(t *testing.T) {
	const tasks, workers = 3000, 4
	bubble(t, tasks, func(t *testing.T, r *rig) {
		ctx, cancel := context.WithCancel(t.Context())
		var checked int
		var all sync.WaitGroup
		all.Go(func() {
			for {
				list, err := r.NextChecks(ctx)
				if err != nil {
					return
				}
				checked += len(list)
				rows := map[uint64]task.Task{}
				for _, e := range list {
					rows[e.ID()] = r.row(e.ID())
				}
				r.after(3 * time.Millisecond)
				r.ApplyChecks(list, rows)
			}
		})
		for id := range uint64(tasks) {
			r.read(r.order(id, -time.Minute))
		}
		var ran atomic.Int32
		for range workers {
			all.Go(func() {
				for {
					taken, err := r.orders.Take(ctx, 1)
					if err != nil {
						return
					}
					r.after(10 * time.Millisecond)
					r.processed(taken[0])
					ran.Add(1)
				}
			})
		}
		r.after(8 * time.Second) // 3000 tasks of 10 ms on 4 workers need 7.5 s
		synctest.Wait()
		cancel()
		all.Wait()
		require.EqualValues(t, tasks, ran.Load())
		require.Less(t, checked, 2*tasks)
	})
}

// When no row of a batch is pending any more, the next batch must be requested all the same.
func TestABacklogThatWasCancelledByHandDoesNotBlockTheRest(t *testing.T) {
	const cancelled, alive = 1000, 10
	for _, c := range []struct {
		name   string
		answer func(r *rig, list []*queue.Entry)
	}{
		{"checked", func(r *rig, list []*queue.Entry) {
			rows := map[uint64]task.Task{}
			for _, e := range list {
				if e.ID() >= cancelled {
					rows[e.ID()] = r.row(e.ID())
				}
			}
			r.ApplyChecks(list, rows)
		}},
		{"moved", func(r *rig, list []*queue.Entry) {
			rows := map[uint64]task.Task{}
			for _, e := range list {
				row := r.row(e.ID())
				if e.ID() < cancelled {
					row.ActionTime = row.ActionTime.Add(24 * time.Hour)
				}
				rows[e.ID()] = row
			}
			r.ApplyChecks(list, rows)
		}},
		{"dropped", func(r *rig, list []*queue.Entry) {
			r.lose(0)
			rows := map[uint64]task.Task{}
			for _, e := range list {
				if e.ID()%4 != 0 {
					rows[e.ID()] = r.row(e.ID())
				}
			}
			r.ApplyChecks(list, rows)
		}},
		{"held", func(r *rig, list []*queue.Entry) {
			rows := map[uint64]task.Task{}
			for _, e := range list {
				if e.ID() < cancelled {
					r.hold(e.ID()).Remove()
				}
				rows[e.ID()] = r.row(e.ID())
			}
			r.ApplyChecks(list, rows)
		}},
		{"unchecked", func(r *rig, list []*queue.Entry) {
			var down []*queue.Entry
			rows := map[uint64]task.Task{}
			for _, e := range list {
				if e.ID() < cancelled {
					down = append(down, e)
				} else {
					rows[e.ID()] = r.row(e.ID())
				}
			}
			r.FailChecks(down)
			r.ApplyChecks(list, rows)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, 2000, func(t *testing.T, r *rig) {
				for id := range uint64(cancelled) {
					r.read(r.order(4*id%cancelled, 0))
				}
				for id := range uint64(cancelled) {
					r.read(r.order(id, 0))
				}
				for id := range uint64(alive) {
					r.read(r.order(cancelled+4*id+1, 0))
				}
				r.after(2 * time.Second)
				ctx, cancel := context.WithCancel(t.Context())
				var all sync.WaitGroup
				all.Go(func() {
					for {
						list, err := r.NextChecks(ctx)
						if err != nil {
							return
						}
						c.answer(r, list)
					}
				})
				ran := 0
				all.Go(func() {
					for {
						taken, err := r.orders.Take(ctx, 1)
						if err != nil {
							return
						}
						if taken[0].ID() >= cancelled {
							ran++
						}
						r.processed(taken[0])
					}
				})
				synctest.Wait()
				cancel()
				all.Wait()
				require.Equal(t, alive, ran)
			})
		})
	}
}

// A caller that does not wait gets what is due, also if it has lain for so long that its row is read again first.
func TestTakeDueWaitsForRowsThatAreReadAgain(t *testing.T) {
	bubble(t, 1000, func(t *testing.T, r *rig) {
		takeDue := func() (n int, took time.Duration) {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			begun := time.Now()
			list, err := r.orders.TakeDue(ctx, 10)
			require.NoError(t, err)
			for _, e := range list {
				r.processed(e)
			}
			return len(list), time.Since(begun)
		}
		answer := func(found bool, after time.Duration) {
			go func() {
				list, err := r.NextChecks(t.Context())
				require.NoError(t, err)
				time.Sleep(after)
				rows := map[uint64]task.Task{}
				for _, e := range list {
					if found {
						rows[e.ID()] = r.row(e.ID())
					}
				}
				r.ApplyChecks(list, rows)
			}()
			synctest.Wait()
		}
		stale := func(ids ...uint64) {
			for _, id := range ids {
				r.read(r.order(id, -time.Second))
			}
			r.after(3 * time.Second)
		}
		is := func(n int, took time.Duration) {
			t.Helper()
			gotN, gotTook := takeDue()
			require.Equal(t, n, gotN)
			require.Equal(t, took, gotTook)
		}
		is(0, 0) // none is there
		stale(1, 2)
		answer(true, 30*time.Millisecond)
		is(2, 30*time.Millisecond)
		stale(3)
		answer(false, 30*time.Millisecond)
		is(0, 30*time.Millisecond) // it was cancelled
		stale(4)
		is(0, 200*time.Millisecond) // its database does not answer
		r.lose(0)
		is(0, 0)
		r.read(r.order(5, time.Hour))
		is(0, 0)
	})
}
