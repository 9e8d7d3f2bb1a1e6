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

func (r *rig) hold(id uint64) *queue.Hold {
	r.t.Helper()
	h, err := r.Hold(r.t.Context(), id, int(id%4))
	require.NoError(r.t, err)
	return h
}

// places are the states in which a task can be held.
var places = []struct {
	state string
	in    time.Duration // due
	reach func(r *rig)
}{
	{"waiting", time.Hour, func(r *rig) { r.read(r.order(1, time.Hour)) }},
	{"checking", time.Second, func(r *rig) {
		r.read(r.order(1, time.Second))
		r.after(950 * time.Millisecond)
		require.Len(r.t, r.checks(), 1)
	}},
	{"ready", 0, func(r *rig) { r.read(r.order(1, 0)) }},
}

func TestAHeldTaskIsNotStarted(t *testing.T) {
	for _, p := range places {
		t.Run(p.state, func(t *testing.T) {
			bubble(t, 10, func(t *testing.T, r *rig) {
				p.reach(r)
				h := r.hold(1)
				require.Equal(t, queue.Stats{}, r.Stats(orders))
				r.check()
				r.after(2 * time.Hour)
				require.Empty(t, r.ids(r.orders))
				require.Empty(t, r.receiptsOf(1), "nothing is decided yet")
				h.Restore()
				synctest.Wait()
				require.Equal(t, []uint64{1}, r.ids(r.orders))
			})
		})
	}
}

func TestRestoreBringsATaskBackAsItWas(t *testing.T) {
	for _, p := range places {
		t.Run(p.state, func(t *testing.T) {
			bubble(t, 10, func(t *testing.T, r *rig) {
				p.reach(r)
				r.hold(1).Restore()
				r.check()
				taken, err := r.orders.Take(t.Context(), 1)
				require.NoError(t, err)
				require.Equal(t, p.in, time.Since(r.start))
				require.Equal(t, r.row(1), taken[0].Task)
				r.processed(taken[0])
				require.Equal(t, []string{"acked"}, r.receiptsOf(1), "its receipt stayed with it")
			})
		})
	}
}

func TestRestoreDoesNotMakeARowFresh(t *testing.T) {
	bubble(t, 10, func(t *testing.T, r *rig) {
		r.read(r.order(1, 0))
		r.after(1200 * time.Millisecond)
		r.hold(1).Restore()
		r.after(1200 * time.Millisecond)
		require.Empty(t, r.ids(r.orders), "the row was read 2.4 s ago")
		require.Len(t, r.checks(), 1)
	})
}

// Nor does one that was held while its row was being read again: the row that comes back is the old one.
func TestRestoreDuringACheckDoesNotMakeARowFresh(t *testing.T) {
	bubble(t, 10, func(t *testing.T, r *rig) {
		r.read(r.order(1, 0))
		r.after(3 * time.Second)
		require.Empty(t, r.ids(r.orders))
		require.Len(t, r.checks(), 1)
		r.hold(1).Restore()
		require.Empty(t, r.ids(r.orders), "the row was read 3 s ago")
		require.Len(t, r.checks(), 1)
	})
}

func TestRestoreIntoAQueueThatFilledUpMeanwhile(t *testing.T) {
	bubble(t, 2, func(t *testing.T, r *rig) {
		r.read(r.order(1, 0), r.order(2, 0))
		h := r.hold(1)
		r.read(r.order(3, 0))
		h.Restore()
		require.Equal(t, []string{"released"}, r.receiptsOf(1))
		require.Equal(t, queue.Stats{Depth: 2, ResumePoints: 1}, r.Stats(orders), "read later, not lost")
	})
}

func TestRemoveEndsAHold(t *testing.T) {
	for _, p := range places {
		t.Run(p.state, func(t *testing.T) {
			bubble(t, 10, func(t *testing.T, r *rig) {
				p.reach(r)
				h := r.hold(1)
				h.Remove()
				require.Equal(t, []string{"released"}, r.receiptsOf(1))
				require.NoError(t, r.WaitIdle(t.Context()))
				r.check()
				r.after(2 * time.Hour)
				require.Empty(t, r.ids(r.orders))
			})
		})
	}
}

func TestRequeueOffersATaskAsItStandsNow(t *testing.T) {
	for _, p := range places {
		t.Run(p.state, func(t *testing.T) {
			bubble(t, 10, func(t *testing.T, r *rig) {
				p.reach(r)
				passed := time.Since(r.start)
				h := r.hold(1)
				it := r.order(1, 2*time.Second)
				it.Receipt = nil
				h.Requeue(it, true)
				require.Equal(t, []string{"released"}, r.receiptsOf(1), "the receipt of what was there before")
				r.check()
				taken, err := r.orders.Take(t.Context(), 1)
				require.NoError(t, err)
				require.Equal(t, it.Task, taken[0].Task)
				require.Equal(t, passed+2*time.Second, time.Since(r.start))
				r.processed(taken[0])
				require.Equal(t, []string{"released"}, r.receiptsOf(1))
			})
		})
	}
}

func TestHoldOfATaskThatIsNotThere(t *testing.T) {
	bubble(t, 10, func(t *testing.T, r *rig) {
		r.hold(1).Restore()
		r.hold(1).Remove()
		require.NoError(t, r.WaitIdle(t.Context()))
		h := r.hold(1)
		h.Requeue(r.order(1, 0), true)
		require.Equal(t, []uint64{1}, r.ids(r.orders))
		require.Empty(t, r.receiptsOf(1))
	})
}

func TestARunningTaskCannotBeHeld(t *testing.T) {
	bubble(t, 10, func(t *testing.T, r *rig) {
		r.read(r.order(1, 0))
		e := r.one(r.orders)
		_, err := r.Hold(t.Context(), 1, 1)
		var conflict *task.ConflictError
		require.ErrorAs(t, err, &conflict)
		require.Equal(t, task.ConflictError{JobID: 1, Conflict: task.ConflictRunning}, *conflict)
		r.processed(e)
		r.hold(1).Remove()
	})
}

func TestATaskThatWasCheckedWhileHeldStaysHeld(t *testing.T) {
	bubble(t, 10, func(t *testing.T, r *rig) {
		r.read(r.order(1, 10*time.Millisecond))
		checking := r.checks()
		h := r.hold(1)
		rows := map[uint64]task.Task{1: r.row(1)}
		r.ApplyChecks(checking, rows)
		r.FailChecks(checking)
		r.after(time.Second)
		require.Empty(t, r.ids(r.orders))
		h.Restore()
		r.ApplyChecks(checking, nil) // a late answer changes nothing
		require.Equal(t, queue.Stats{Depth: 1}, r.Stats(orders))
	})
}

func TestHoldersWaitTheirTurn(t *testing.T) {
	bubble(t, 10, func(t *testing.T, r *rig) {
		r.read(r.order(1, time.Hour))
		const holders = 20
		inside, most, done := 0, 0, 0
		var mu sync.Mutex
		var all sync.WaitGroup
		for i := range holders {
			all.Go(func() {
				h, err := r.Hold(t.Context(), 1, 1)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				inside++
				most = max(most, inside)
				mu.Unlock()
				r.after(time.Second)
				mu.Lock()
				inside--
				done++
				mu.Unlock()
				switch i % 3 {
				case 0:
					h.Restore()
				case 1:
					h.Remove()
				default:
					it := r.order(1, time.Hour)
					it.Receipt = nil
					h.Requeue(it, true)
				}
			})
		}
		all.Wait()
		require.Equal(t, 1, most)
		require.Equal(t, holders, done)
		require.Equal(t, holders*time.Second, time.Since(r.start))
	})
}

func TestAHolderStopsWaitingWithItsContext(t *testing.T) {
	bubble(t, 10, func(t *testing.T, r *rig) {
		h := r.hold(1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := r.Hold(ctx, 1, 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(r.start))
		h.Remove()
		r.hold(1).Remove()
		require.NoError(t, r.WaitIdle(t.Context()))
	})
}

func TestHoldsTakeNoRoom(t *testing.T) {
	bubble(t, 1, func(t *testing.T, r *rig) {
		h := r.hold(5)
		require.Empty(t, r.read(r.order(1, 0)))
		h.Requeue(r.order(5, 0), true)
		require.Equal(t, []string{"released"}, r.receiptsOf(5))
		require.Equal(t, queue.Stats{Depth: 1, ResumePoints: 1}, r.Stats(orders))
	})
}

// Look tells in which state a task is, and since when.
func TestLook(t *testing.T) {
	for _, p := range places {
		bubble(t, 10, func(t *testing.T, r *rig) {
			require.Equal(t, queue.Sight{}, r.Look(1))
			p.reach(r)
			want := queue.Waiting
			if p.state == "checking" {
				want = queue.Checking
			}
			require.Equal(t, want, r.Look(1).State)
			h := r.hold(1)
			require.Equal(t, queue.Sight{State: queue.Held}, r.Look(1))
			h.Remove()
			require.Equal(t, queue.Sight{}, r.Look(1))
		})
	}
	bubble(t, 10, func(t *testing.T, r *rig) {
		r.read(r.order(1, 0))
		began := time.Now()
		e := r.one(r.orders)
		require.Equal(t, queue.Sight{State: queue.Running, Since: began}, r.Look(1))
		require.NotNil(t, r.Postpone(e))
		require.Equal(t, queue.Sight{State: queue.Alone, Since: began}, r.Look(1))
		r.Return(e)
	})
}
