package intake_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/task"
)

// insert stores a task like another node: this node's queue does not know it.
func (r *rig) insert(bizType, bizID uint64, in time.Duration) uint64 {
	r.t.Helper()
	got := r.store.Insert(r.t.Context(), []task.Task{{
		JobID: r.store.NewID(bizID), BizID: bizID, BizType: bizType, ActionTime: task.CeilMilli(now().Add(in)),
	}})
	require.NoError(r.t, got[0].Err)
	return got[0].Task.JobID
}

func TestWakeQueuesWhatIsDueSoon(t *testing.T) {
	clustered(t, func(t *testing.T, r *rig, _ *fleet) {
		r.work(0)
		due, overdue, other := r.insert(1, 1, 3*time.Second), r.insert(1, 2, -time.Minute), r.insert(1, 0, 4*time.Second)
		processed, cancelled := r.insert(1, 1, time.Second), r.insert(1, 1, time.Second)
		r.become(r.row(processed), task.Processed)
		r.become(r.row(cancelled), task.Cancelled)
		unknown, err := sharding.JobID(sharding.Epoch, 0, 7)
		require.NoError(t, err)
		ids := []uint64{
			due, overdue, other, due, // twice
			processed, cancelled,
			r.insert(1, 1, time.Hour), r.insert(3, 1, time.Second), r.insert(99, 1, time.Second), // far, of the timer, not configured
			r.insert(1, foreign, time.Second), unknown, 1<<64 - 1,
		}
		require.Equal(t, 3, r.Wake(t.Context(), ids))
		r.after(time.Minute)
		for _, id := range ids {
			if id == due || id == overdue || id == other {
				require.Len(t, r.runs(id), 1)
			} else {
				require.Empty(t, r.runs(id), id)
			}
		}
		require.Equal(t, ceil(r.runs(due)), []time.Time{r.row(due).ActionTime}, "at its time")

		require.Zero(t, r.Wake(t.Context(), ids), "all of them are done")
		require.Zero(t, r.Wake(t.Context(), nil))
		require.NoError(t, r.queue.WaitIdle(t.Context()))
	})
}

func TestWakeArmsWhatIsTheTimers(t *testing.T) {
	clustered(t, func(t *testing.T, r *rig, _ *fleet) {
		mine, far := r.insert(3, 1, time.Second), r.insert(1, 1, time.Hour)
		others, done := r.insert(3, foreign, time.Second), r.insert(3, 1, time.Second)
		r.become(r.row(done), task.Processed)
		require.Zero(t, r.Wake(t.Context(), []uint64{mine, far, others, done}))
		slices.Sort(r.armed)
		require.Equal(t, []uint64{mine, far}, r.armed, "the timer knows which are its own")
	})
}

// A row that was read before a cancel must not bring the task back.
func TestACancelDuringAWakeIsHonoured(t *testing.T) {
	clustered(t, func(t *testing.T, r *rig, _ *fleet) {
		r.work(0)
		id := r.insert(1, 1, time.Second)
		r.fault.loaded = func() error { return r.Cancel(t.Context(), id) }
		r.Wake(t.Context(), []uint64{id})
		require.Zero(t, r.queued())
		r.after(time.Minute)
		require.Empty(t, r.runs(id))
	})
}

func TestAWakeThatLosesThePartition(t *testing.T) {
	clustered(t, func(t *testing.T, r *rig, c *fleet) {
		id := r.insert(1, 1, time.Second)
		r.fault.loaded = func() error { c.answers(false); return nil }
		require.Zero(t, r.Wake(t.Context(), []uint64{id}))
		require.Zero(t, r.queued())

		r.fault.loaded = nil
		c.answers(true, true, false) // first, near; lost when it is in the queue
		require.Zero(t, r.Wake(t.Context(), []uint64{id}))
		require.Zero(t, r.queued(), "nothing of a lost partition stays")
	})
}

// A database that fails does not keep the tasks of the others out of the queue.
func TestAWakeTakesWhatCouldBeRead(t *testing.T) {
	clustered(t, func(t *testing.T, r *rig, _ *fleet) {
		r.fault.loaded = func() error { return errors.New("database 0 is down") }
		require.Equal(t, 1, r.Wake(t.Context(), []uint64{r.insert(1, 1, time.Second)}))
		require.Equal(t, 1, r.queued())
	})
}

// A stored task of another node that is due soon is offered to that node; other tasks are not.
func TestSubmitOffersWhatIsDueSoon(t *testing.T) {
	clustered(t, func(t *testing.T, r *rig, c *fleet) {
		ask := func(bizType string, bizID uint64, in time.Duration, key string) api.Submit {
			return api.Submit{BizType: bizType, BizID: bizID, Delay: in, Now: true, DedupKey: key}
		}
		got := r.SubmitBatch(t.Context(), []api.Submit{
			ask("order_close", foreign, 3*time.Second, "k"), ask("mail", foreign, 0, ""), ask("order_close", foreign, time.Hour, ""),
			ask("push", foreign, time.Second, ""), ask("order_close", 1, time.Second, ""), ask("nobody", foreign, time.Second, ""),
		})
		want := []uint64{got[0].Task.JobID, got[1].Task.JobID}
		slices.Sort(want)
		require.Equal(t, want, c.peer.took())
		require.Equal(t, 1, r.queued(), "what is ours is queued here")

		again, err := r.Submit(t.Context(), ask("order_close", foreign, 3*time.Second, "k"))
		require.NoError(t, err)
		require.True(t, again.Duplicate)
		r.fault.insert = func(*task.Task) error { return down }
		_, err = r.Submit(t.Context(), ask("order_close", foreign, time.Second, ""))
		require.ErrorIs(t, err, task.ErrUnavailable)
		require.Equal(t, want, c.peer.took(), "neither a duplicate nor a failure is news")

		r.fault.insert, c.ownerErr = nil, task.ErrUnavailable
		_, err = r.Submit(t.Context(), ask("order_close", foreign, time.Second, ""))
		require.NoError(t, err, "any node takes tasks in, whoever owns them")
		require.Equal(t, want, c.peer.took())
	})
}

// A partition is lost while a row is written: its new owner is notified.
func TestSubmitOffersWhatItHasJustLost(t *testing.T) {
	clustered(t, func(t *testing.T, r *rig, c *fleet) {
		r.fault.insert = func(*task.Task) error { c.answers(false); return nil }
		row := r.order(1, 3*time.Second)
		require.Equal(t, []uint64{row.JobID}, c.peer.took())
		require.Zero(t, r.queued())
	})
}
