package queue_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/task"
)

// A page that was read before a task left the queue may still show it as pending. Each way out of the queue
// leaves a tombstone for such pages. A read that begins later is believed.
func TestAStaleRowIsNoNewTask(t *testing.T) {
	finished := func(r *rig, status task.Status) {
		e := r.one(r.orders)
		row := e.Task
		row.Status = status
		r.stored(row)
		r.Done(e, row, false)
	}
	for _, c := range []struct {
		name  string
		leave func(r *rig)
	}{
		{"processed", func(r *rig) { finished(r, task.Processed) }},
		{"dead", func(r *rig) { finished(r, task.Dead) }},
		{"retried later", func(r *rig) { finished(r, task.Pending) }},
		{"cancelled", func(r *rig) {
			h, err := r.Hold(r.t.Context(), 1, 1)
			require.NoError(r.t, err)
			h.Remove()
		}},
		{"cancelled while away", func(r *rig) {
			r.lose(1)
			h, err := r.Hold(r.t.Context(), 1, 1)
			require.NoError(r.t, err)
			h.Remove()
		}},
		{"found gone", func(r *rig) {
			r.after(3 * time.Second)
			require.Empty(r.t, r.ids(r.orders)) // its row is too old
			r.ApplyChecks(r.checks(), nil)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, 10, func(t *testing.T, r *rig) {
				it := r.order(1, 0)
				r.read(it)
				before := r.BeginRead(1) // its page shows task 1 as pending
				other := r.BeginRead(2)
				require.Len(t, before.Unheld([]task.Task{it.Task}), 1)
				c.leave(r)
				require.Empty(t, before.Unheld([]task.Task{it.Task}))
				require.Empty(t, r.Offer(before, it))
				require.Empty(t, r.ids(r.orders))
				require.Contains(t, r.receiptsOf(1), "released")

				after := r.BeginRead(1)
				require.Len(t, after.Unheld([]task.Task{it.Task}), 1)
				require.Empty(t, r.Offer(before, it))
				require.Empty(t, r.ids(r.orders), "still stale")
				r.Offer(after, it)
				require.Equal(t, []uint64{1}, r.ids(r.orders), "a later read is believed, also while the older one goes on")
				after.End()
				before.End()
				other.End()
			})
		})
	}
}

func TestAStaleRowDoesNotBringARescheduledTaskBack(t *testing.T) {
	bubble(t, 10, func(t *testing.T, r *rig) {
		r.check()
		stale := r.order(1, 0)
		r.read(stale)
		read := r.BeginRead(1)
		h, err := r.Hold(t.Context(), 1, 1)
		require.NoError(t, err)
		h.Requeue(r.order(1, 3*time.Second), true)
		r.Offer(read, stale)
		require.Empty(t, r.ids(r.orders))
		taken, err := r.orders.Take(t.Context(), 1)
		require.NoError(t, err)
		require.Equal(t, 3*time.Second, time.Since(r.start))
		r.Offer(read, stale)
		r.processed(taken[0])
		r.Offer(read, stale)
		read.End()
		require.Empty(t, r.ids(r.orders))
	})
}

func TestWithoutAnOpenReadNothingIsRemembered(t *testing.T) {
	bubble(t, 10, func(t *testing.T, r *rig) {
		it := r.order(1, 0)
		r.read(it)
		r.processed(r.one(r.orders))
		r.read(it) // redriven by SQL, for example
		require.Equal(t, []uint64{1}, r.ids(r.orders))
	})
}

// Reads that overlap without end must not keep tombstones for ever.
func TestTombstonesEndWithTheReadsThatNeedThem(t *testing.T) {
	bubble(t, 10, func(t *testing.T, r *rig) {
		stale := make(map[uint64]bool)
		open := r.BeginRead(0)
		for id := uint64(4); id < 400; id += 4 {
			it := r.order(id, 0)
			r.Offer(open, it)
			r.processed(r.one(r.orders))
			next := r.BeginRead(0)
			r.Offer(open, it)
			stale[id] = len(r.ids(r.orders)) == 0
			open.End()
			open = next
		}
		open.End()
		for id, was := range stale {
			require.True(t, was, "task %d ran twice", id)
		}
	})
}
