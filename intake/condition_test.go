package intake_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// conditional are the changes that may have a condition.
var conditional = map[string]func(r *rig, id uint64, ifMatch []string) error{
	"cancel": func(r *rig, id uint64, ifMatch []string) error { return r.CancelIf(r.t.Context(), id, ifMatch) },
	"reschedule": func(r *rig, id uint64, ifMatch []string) error {
		mine := "mine"
		_, err := r.Reschedule(r.t.Context(), id, intake.Change{Attribute: &mine, IfMatch: ifMatch})
		return err
	},
	"redrive": func(r *rig, id uint64, ifMatch []string) error {
		_, err := r.RedriveIf(r.t.Context(), id, ifMatch)
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
		run, runs := r.Running(t.Context(), row)
		require.True(t, runs)
		require.Equal(t, intake.Running{Node: "n1", Since: r.runs(row.JobID)[0]}, run)
		r.after(3 * time.Second)
		_, runs = r.Running(t.Context(), row)
		require.False(t, runs)
	})
}

// Requests for another node's tasks go there with their conditions. A hung owner does not delay a look-up.
func TestAConditionGoesToTheOwner(t *testing.T) {
	clustered(t, func(t *testing.T, r *rig, f *fleet) {
		s, err := r.Submit(t.Context(), intake.Submit{BizType: "order_close", BizID: foreign, When: intake.In(time.Hour)})
		require.NoError(t, err)
		for name, change := range conditional {
			f.peer.ifMatch, f.peer.change = nil, intake.Change{}
			require.NoError(t, change(r, s.Task.JobID, []string{"a", "*"}), name)
			require.Equal(t, []string{"a", "*"}, append(f.peer.ifMatch, f.peer.change.IfMatch...), name)
		}
		run, runs := r.Running(t.Context(), s.Task)
		require.True(t, runs)
		require.Equal(t, "theirs", run.Node)
		f.peer.hangs = true
		start := time.Now()
		_, runs = r.Running(t.Context(), s.Task)
		require.False(t, runs)
		require.Equal(t, time.Second, time.Since(start))
		_, runs = r.Running(intake.Forwarded(t.Context(), "n2", 0), s.Task)
		require.False(t, runs, "not handed on a second time")
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
		got, err := r.Reschedule(t.Context(), row.JobID, intake.Change{Attribute: &x})
		require.NoError(t, err)
		require.Equal(t, promised, got.Promised())
		later := intake.In(2 * time.Hour)
		got, err = r.Reschedule(t.Context(), row.JobID, intake.Change{When: &later})
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
