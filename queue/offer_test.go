package queue_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/task"
)

func TestATaskIsThereOnlyOnce(t *testing.T) {
	for _, c := range []struct {
		state string
		in    time.Duration
		reach func(r *rig)
	}{
		{"waiting", time.Hour, func(*rig) {}},
		{"checking", time.Second, func(r *rig) {
			r.after(950 * time.Millisecond)
			require.Len(r.t, r.checks(), 1)
		}},
		{"ready", 0, func(*rig) {}},
		{"running", 0, func(r *rig) { r.one(r.orders) }},
	} {
		t.Run(c.state, func(t *testing.T) {
			bubble(t, 10, func(t *testing.T, r *rig) {
				first := r.order(1, c.in)
				r.read(first)
				c.reach(r)
				before := r.Stats(orders)

				require.Empty(t, r.read(first))
				require.Equal(t, before, r.Stats(orders))
				require.Equal(t, []string{"released"}, r.receiptsOf(1), "the second receipt; the first stays in force")
			})
		})
	}
}

func TestAHeldTaskIsNotOffered(t *testing.T) {
	bubble(t, 10, func(t *testing.T, r *rig) {
		it := r.order(1, 0)
		h, err := r.Hold(t.Context(), 1, it.Partition)
		require.NoError(t, err)
		require.Empty(t, r.read(it))
		require.Empty(t, r.ids(r.orders))
		require.Equal(t, []string{"released"}, r.receiptsOf(1))
		h.Restore()
		require.Equal(t, []uint64{1}, r.ids(r.orders), "what was offered meanwhile is not lost")
		require.Equal(t, []string{"released"}, r.receiptsOf(1))
	})
}

func TestARunningTaskDoesNotRunAgainHoweverOftenItIsRead(t *testing.T) {
	bubble(t, 10, func(t *testing.T, r *rig) {
		it := r.order(1, 0)
		r.read(it)
		e := r.one(r.orders)
		for range 3 {
			r.read(it)
			r.after(time.Minute)
			require.Empty(t, r.ids(r.orders))
		}
		require.Equal(t, it.Task, e.Task)
		r.processed(e)
		require.Empty(t, r.ids(r.orders))
	})
}

// A change by SQL takes effect when the row is read again.
func TestAnUpdatedRowIsTakenOver(t *testing.T) {
	moved := func(r *rig, in time.Duration) {
		row := r.row(1)
		row.ActionTime, row.Attribute = r.start.Add(in), "by hand"
		r.read(r.stored(row))
	}
	takenAt := func(r *rig) time.Duration {
		r.check()
		taken, err := r.orders.Take(r.t.Context(), 1)
		require.NoError(r.t, err)
		require.Equal(r.t, "by hand", taken[0].Task.Attribute)
		require.Empty(r.t, r.ids(r.orders))
		return time.Since(r.start)
	}
	t.Run("waiting, to earlier", func(t *testing.T) {
		bubble(t, 10, func(t *testing.T, r *rig) {
			r.read(r.order(1, 10*time.Second))
			moved(r, 3*time.Second)
			require.Equal(t, 3*time.Second, takenAt(r))
		})
	})
	t.Run("waiting, to the past", func(t *testing.T) {
		bubble(t, 10, func(t *testing.T, r *rig) {
			r.read(r.order(1, 10*time.Second))
			moved(r, -3*time.Second)
			require.Zero(t, takenAt(r))
		})
	})
	t.Run("waiting, to later", func(t *testing.T) {
		bubble(t, 10, func(t *testing.T, r *rig) {
			r.read(r.order(1, 3*time.Second))
			moved(r, 10*time.Second)
			require.Equal(t, 10*time.Second, takenAt(r))
		})
	})
	t.Run("ready, to later", func(t *testing.T) {
		bubble(t, 10, func(t *testing.T, r *rig) {
			r.read(r.order(1, -time.Second))
			moved(r, 5*time.Second)
			require.Equal(t, 5*time.Second, takenAt(r))
		})
	})
	t.Run("ready, only edited", func(t *testing.T) {
		bubble(t, 10, func(t *testing.T, r *rig) {
			r.read(r.order(1, -time.Second), r.order(2, -time.Second))
			r.after(time.Millisecond)
			moved(r, -time.Second)
			require.Equal(t, []uint64{1, 2}, r.ids(r.orders), "it keeps its turn")
		})
	})
	t.Run("ready, to the past", func(t *testing.T) {
		bubble(t, 10, func(t *testing.T, r *rig) {
			r.read(r.order(1, -time.Second))
			moved(r, -time.Hour)
			require.Zero(t, takenAt(r))
		})
	})
}

func TestATaskOfAnUnknownTypeIsReleased(t *testing.T) {
	bubble(t, 10, func(t *testing.T, r *rig) {
		it := r.stored(task.Task{JobID: 1, BizType: 99, ActionTime: r.start})
		require.Empty(t, r.read(it))
		require.Equal(t, []string{"released"}, r.receiptsOf(1))
		require.Equal(t, queue.Stats{}, r.Stats(99))
		_, more := r.refill()
		require.False(t, more)
	})
}

func TestARetryTakesItsPlaceInTheQueue(t *testing.T) {
	bubble(t, 10, func(t *testing.T, r *rig) {
		r.check()
		r.read(r.order(1, 0))
		e := r.one(r.orders)
		row := e.Task
		row.Attempts, row.ActionTime = 1, r.start.Add(4*time.Second)
		r.stored(row)
		r.Done(e, row, true)
		require.Equal(t, queue.Stats{Depth: 1}, r.Stats(orders))
		require.Equal(t, []string{"acked"}, r.receiptsOf(1))

		taken, err := r.orders.Take(t.Context(), 1)
		require.NoError(t, err)
		require.Equal(t, row, taken[0].Task)
		require.Equal(t, 4*time.Second, time.Since(r.start))
		r.processed(taken[0])
		require.Equal(t, []string{"acked"}, r.receiptsOf(1), "a receipt is called once")
	})
}

func TestAReturnedTaskIsUntouched(t *testing.T) {
	bubble(t, 10, func(t *testing.T, r *rig) {
		it := r.order(1, 0)
		read := r.BeginRead(it.Partition)
		r.Offer(read, it)
		r.Return(r.one(r.orders))
		require.Equal(t, []string{"released"}, r.receiptsOf(1))
		require.Equal(t, queue.Stats{}, r.Stats(orders))
		r.Offer(read, it)
		read.End()
		require.Equal(t, []uint64{1}, r.ids(r.orders))
	})
}
