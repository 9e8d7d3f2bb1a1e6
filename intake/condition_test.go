package intake_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// conditional are the changes that may have a condition.
var conditional = map[string]func(r *rig, id uint64, ifMatch []string) error{
	"cancel": func(r *rig, id uint64, ifMatch []string) error {
		return r.Cancel(r.t.Context(), id, api.IfMatch(ifMatch...))
	},
	"reschedule": func(r *rig, id uint64, ifMatch []string) error {
		mine := "mine"
		_, err := r.Reschedule(r.t.Context(), id, api.Change{Attribute: &mine}, api.IfMatch(ifMatch...))
		return err
	},
	"redrive": func(r *rig, id uint64, ifMatch []string) error {
		_, err := r.Redrive(r.t.Context(), id, api.IfMatch(ifMatch...))
		return err
	},
}

// An edit by plain SQL between the comparison and the change wins: the change is not made. A compare-and-set of
// the status alone would overwrite the edit.
func TestAHandBetweenLookAndChangeWins(t *testing.T) {
	for name, change := range conditional {
		for _, by := range []string{"attribute = 'by hand'", "action_time = '2056-01-02 03:04:05.678'", "timeout_ms = 77", "due_time = '2030-01-02 03:04:05.678'"} {
			t.Run(name+" "+by, func(t *testing.T) {
				bubble(t, func(t *testing.T, r *rig) {
					row := r.order(1, time.Hour)
					if name == "redrive" {
						r.become(row, task.Dead)
					}
					seen := r.row(row.JobID)
					r.fault.move = func(m *store.Move) (bool, error) {
						r.byHand(row.JobID, by)
						return r.store.Move(context.Background(), *m)
					}
					var changed *task.ChangedError
					require.ErrorAs(t, change(r, row.JobID, []string{seen.Tag()}), &changed)
					require.Equal(t, r.row(row.JobID), changed.Task, "as it stands")
					r.fault.move = nil
					require.Equal(t, seen.Status, changed.Task.Status)
					require.Equal(t, seen.Attempts, changed.Task.Attempts)
					require.NoError(t, change(r, row.JobID, []string{changed.Task.Tag()}))
				})
			})
		}
	}
}

// running is the run of a task, as a look-up shows it.
func (r *rig) running(ctx context.Context, id uint64) *api.Running {
	r.t.Helper()
	got, err := r.Service.Get(ctx, id)
	require.NoError(r.t, err)
	return got.Running
}

// byHand changes a row by plain SQL.
func (r *rig) byHand(jobID uint64, set string) {
	r.t.Helper()
	shard, _ := layout.ShardOf(jobID)
	db, err := sql.Open("sqlite", store.SQLiteDSN(r.dir, layout.Database(shard), false))
	require.NoError(r.t, err)
	defer db.Close()
	_, err = db.Exec(fmt.Sprintf("UPDATE timeout_task_%04d SET %s WHERE job_id = %d", layout.Table(shard), set, jobID))
	require.NoError(r.t, err)
}

// A task that is refused to a caller with an old tag stays where it was, and fires.
func TestARefusedChangeLeavesTheTaskInTheQueue(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		row := r.order(1, 5*time.Second)
		for _, name := range []string{"cancel", "reschedule"} {
			var changed *task.ChangedError
			require.ErrorAs(t, conditional[name](r, row.JobID, []string{"old"}), &changed)
			require.Equal(t, 1, r.queued(), name)
		}
		r.fault.get = func(uint64) error { return task.ErrUnavailable }
		require.ErrorIs(t, conditional["cancel"](r, row.JobID, []string{row.Tag()}), task.ErrUnavailable)
		require.Equal(t, 1, r.queued(), "what could not be compared is not changed")
		r.fault.get = nil
		r.work(3 * time.Second)
		r.after(6 * time.Second)
		require.Len(t, r.runs(row.JobID), 1)

		// It runs now. A caller with an old tag gets ChangedError, the others get that it runs.
		var changed *task.ChangedError
		var conflict *task.ConflictError
		require.ErrorAs(t, conditional["cancel"](r, row.JobID, []string{"old"}), &changed)
		require.Equal(t, row, changed.Task)
		require.ErrorAs(t, conditional["cancel"](r, row.JobID, []string{row.Tag()}), &conflict)
		require.Equal(t, task.ConflictRunning, conflict.Conflict)
		require.Equal(t, &api.Running{Node: "n1", Since: api.Time(r.runs(row.JobID)[0])}, r.running(t.Context(), row.JobID))
		r.after(3 * time.Second)
		require.Nil(t, r.running(t.Context(), row.JobID))
	})
}

// A task that may have ended a process can be moved and cancelled like others. Its starts still count after a move.
func TestAChangeOfATaskWhoseStartsHadNoEnd(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		row := r.order(1, 5*time.Second)
		r.byHand(row.JobID, "lease=2")
		_, err := r.Reschedule(t.Context(), row.JobID, api.Change{Delay: new(time.Hour)})
		require.NoError(t, err)
		row = r.row(row.JobID)
		require.EqualValues(t, 2, row.Lease)
		require.NoError(t, conditional["reschedule"](r, row.JobID, []string{row.Tag()}))
		require.EqualValues(t, 2, r.row(row.JobID).Lease)
		require.Nil(t, r.running(t.Context(), row.JobID), "no consumer has it")
		require.NoError(t, r.Service.Cancel(t.Context(), row.JobID))
		require.Zero(t, r.row(row.JobID).Lease)

		r.byHand(row.JobID, "status=0, lease=16777216") // a void lease of a consumer
		_, err = r.Reschedule(t.Context(), row.JobID, api.Change{Delay: new(time.Hour)})
		require.NoError(t, err)
		require.Zero(t, r.row(row.JobID).Lease)
	})
}

// Requests for another node's tasks go there with their conditions. A hung owner does not delay a look-up.
func TestAConditionGoesToTheOwner(t *testing.T) {
	clustered(t, func(t *testing.T, r *rig, f *fleet) {
		s, err := r.Submit(t.Context(), api.Submit{BizType: "order_close", BizID: foreign, Delay: time.Hour})
		require.NoError(t, err)
		for name, change := range conditional {
			f.peer.ifMatch, f.peer.change = nil, api.Change{}
			require.NoError(t, change(r, s.Task.JobID, []string{"a", "b"}), name)
			require.Equal(t, []string{`"a"`, `"b"`}, f.peer.ifMatch, name)
		}
		require.Equal(t, "theirs", r.running(t.Context(), s.Task.JobID).Node)
		f.peer.hangs = true
		start := time.Now()
		require.Nil(t, r.running(t.Context(), s.Task.JobID))
		require.Equal(t, time.Second, time.Since(start))
		require.Nil(t, r.running(intake.Forwarded(t.Context(), "n2", 0), s.Task.JobID), "not handed on a second time")
	})
}

// A reschedule and a redrive are new promises; a change of the attribute is not.
func TestANewTimeIsANewPromise(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		row := r.order(1, time.Hour)
		promised := row.ActionTime
		failed := func() {
			attempts, later := 1, r.row(row.JobID).ActionTime.Add(time.Minute)
			ok, err := r.store.Move(t.Context(), store.Move{JobID: row.JobID, From: task.Pending, To: task.Pending,
				Set: store.Set{Attempts: &attempts, ActionTime: &later, Promised: &promised}})
			require.NoError(t, err)
			require.True(t, ok)
		}
		failed()
		x := "x"
		got, err := r.Reschedule(t.Context(), row.JobID, api.Change{Attribute: &x})
		require.NoError(t, err)
		require.Equal(t, promised, got.Promised())
		later := 2 * time.Hour
		got, err = r.Reschedule(t.Context(), row.JobID, api.Change{Delay: &later})
		require.NoError(t, err)
		require.Equal(t, got.ActionTime, got.Promised())
		failed()
		r.become(row, task.Dead)
		require.Equal(t, promised, ref(r.row(row.JobID)).Promised())
		got, err = r.Redrive(t.Context(), row.JobID)
		require.NoError(t, err)
		require.Equal(t, got.ActionTime, got.Promised())
	})
}
