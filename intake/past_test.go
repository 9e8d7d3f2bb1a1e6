package intake_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/task"
)

// With past: fire a time that has passed is due at once, and stays the time that was promised.
func TestATimeThatHasPassed(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.work(0)
		hour := task.CeilMilli(now().Add(-time.Hour))
		late := good()
		late.ActionTime, late.Past = hour, api.Fire
		refused, old, wrong := late, late, late
		refused.Past, refused.BizID = api.Refuse, 50
		old.ActionTime, old.BizID = time.Date(1, 1, 1, 0, 0, 0, 1, time.UTC), 44
		wrong.Past = "burn"

		got := r.SubmitBatch(t.Context(), []api.Submit{late, refused, old, wrong})
		requireField(t, got[1].Err, "action_time")
		requireField(t, got[3].Err, "past")
		r.after(time.Second)
		for i, promised := range map[int]time.Time{0: hour, 2: time.Unix(0, 0).UTC()} {
			require.NoError(t, got[i].Err)
			row := r.row(got[i].Task.JobID)
			require.Equal(t, promised, row.Promised())
			require.Equal(t, task.Processed, row.Status)
			require.Len(t, r.runs(row.JobID), 1)
			require.WithinDuration(t, now(), r.runs(row.JobID)[0], 1100*time.Millisecond, "at once")
		}

		// The same for a change, and for a repeated submit that moves its task.
		pending := r.order(48, time.Hour)
		_, err := r.Reschedule(t.Context(), pending.JobID, api.Change{ActionTime: hour})
		requireField(t, err, "action_time")
		_, err = r.Reschedule(t.Context(), pending.JobID, api.Change{ActionTime: hour, Past: "burn"})
		requireField(t, err, "past")
		moved, err := r.Reschedule(t.Context(), pending.JobID, api.Change{ActionTime: hour, Past: api.Fire})
		require.NoError(t, err)
		require.Equal(t, hour, moved.Promised())
		keyed := good()
		keyed.BizID, keyed.DedupKey = 46, "k"
		first, err := r.Submit(t.Context(), keyed)
		require.NoError(t, err)
		keyed.ActionTime, keyed.Past, keyed.OnDuplicate = hour, api.Fire, api.Move
		second, err := r.Submit(t.Context(), keyed)
		require.NoError(t, err)
		require.Equal(t, first.Task.JobID, second.Task.JobID)
		require.Equal(t, hour, second.Task.Promised())
		r.after(time.Second)
		for _, id := range []uint64{pending.JobID, first.Task.JobID} {
			require.Equal(t, task.Processed, r.row(id).Status)
		}
	})
}

func requireField(t *testing.T, err error, name string) {
	t.Helper()
	var field *task.FieldError
	require.ErrorAs(t, err, &field)
	require.Equal(t, name, field.Field)
}

// With on_duplicate: again the key of a task that has ended is free.
func TestAKeyIsTakenAgain(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		s := good()
		s.Delay, s.DedupKey, s.OnDuplicate = 5*time.Second, "k", api.Again
		last, err := r.Submit(t.Context(), s)
		require.NoError(t, err)
		require.False(t, last.Duplicate)
		key := api.Key{BizType: s.BizType, BizID: s.BizID, DedupKey: s.DedupKey}
		for _, end := range []task.Status{task.Processed, task.Cancelled, task.Dead} {
			pending := s
			pending.Attribute = "not yet"
			kept, err := r.Submit(t.Context(), pending)
			require.NoError(t, err)
			require.True(t, kept.Duplicate)
			require.Equal(t, last.Task, kept.Task, "as keep")

			r.become(last.Task, end)
			late := s
			late.ActionTime = now().Add(-time.Minute)
			_, err = r.Submit(t.Context(), late)
			requireField(t, err, "action_time")

			got := r.SubmitBatch(t.Context(), []api.Submit{s, s})
			require.NoError(t, got[0].Err)
			require.NoError(t, got[1].Err)
			require.False(t, got[0].Duplicate)
			require.True(t, got[1].Duplicate)
			require.NotEqual(t, last.Task.JobID, got[0].Task.JobID)
			old := r.row(last.Task.JobID)
			require.Equal(t, end, old.Status, "its row stays")
			require.Empty(t, old.DedupKey)
			found, err := rowOf(r.GetByKey(t.Context(), key))
			require.NoError(t, err)
			require.Equal(t, got[0].Task, found)
			last = got[0]
		}
		require.Equal(t, 4, r.counts("order_close"))

		// What took the key fires as any other task.
		r.work(0)
		r.after(2 * time.Minute)
		require.Len(t, r.runs(last.Task.JobID), 1)

		keyless := good()
		keyless.OnDuplicate = api.Again
		_, err = r.Submit(t.Context(), keyless)
		requireField(t, err, "on_duplicate")
	})
}

// Who has answered for a run may take the key of its task at once: the outcome is recorded a little later.
func TestAKeyIsTakenAgainWhenTheRunHasEnded(t *testing.T) {
	for name, ended := range map[string]bool{"it has ended": true, "it goes on": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				s := good()
				s.Delay, s.ActionTime, s.DedupKey, s.OnDuplicate = 0, now().Add(-time.Second), "k", api.Again
				first, err := r.Submit(t.Context(), s)
				require.NoError(t, err)
				taken, err := r.lane.Take(t.Context(), 1)
				require.NoError(t, err)
				if ended {
					r.queue.RunsEnded(taken...)
				}
				var all sync.WaitGroup
				all.Go(func() {
					time.Sleep(500 * time.Millisecond) // in a bubble
					r.become(first.Task, task.Processed)
					row := first.Task
					row.Status = task.Processed
					r.queue.Done(taken[0], row, false)
				})
				began := time.Now()
				s.Delay, s.ActionTime = time.Hour, time.Time{}
				other := s
				other.BizID, other.DedupKey = 99, "other"
				got := r.SubmitBatch(t.Context(), []api.Submit{other, s, s})
				for i := range got {
					require.NoError(t, got[i].Err)
				}
				require.Equal(t, !ended, got[1].Duplicate)
				require.Equal(t, !ended, got[1].Task.JobID == first.Task.JobID)
				require.True(t, got[2].Duplicate)
				require.Equal(t, got[1].Task.JobID, got[2].Task.JobID)
				if ended {
					require.Equal(t, 500*time.Millisecond, time.Since(began))
				} else {
					require.Equal(t, time.Duration(0), time.Since(began))
				}
				all.Wait()
			})
		})
	}
}

// The wait for an outcome that the database does not take ends.
func TestAKeyIsNotTakenAgainWhileTheDatabaseHangs(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		s := good()
		s.Delay, s.ActionTime, s.DedupKey, s.OnDuplicate = 0, now().Add(-time.Second), "k", api.Again
		first, err := r.Submit(t.Context(), s)
		require.NoError(t, err)
		taken, err := r.lane.Take(t.Context(), 1)
		require.NoError(t, err)
		r.queue.RunsEnded(taken...)
		began := time.Now()
		got, err := r.Submit(t.Context(), s)
		require.NoError(t, err)
		require.True(t, got.Duplicate)
		require.Equal(t, first.Task.JobID, got.Task.JobID)
		require.Equal(t, 2*time.Second, time.Since(began))
		r.queue.Done(taken[0], first.Task, false)
	})
}

// A repeated submit with again finds its task while that is pending, also if its time has passed meanwhile.
func TestAReplayOfAgain(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		s := good()
		s.ActionTime, s.DedupKey, s.OnDuplicate = now().Add(time.Second), "k", api.Again
		first, err := r.Submit(t.Context(), s)
		require.NoError(t, err)
		r.after(time.Minute) // nobody works
		got, err := r.Submit(t.Context(), s)
		require.NoError(t, err)
		require.True(t, got.Duplicate)
		require.Equal(t, first.Task.JobID, got.Task.JobID)
	})
}
