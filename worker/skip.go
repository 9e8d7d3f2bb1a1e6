package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// coalesceAfter is how long after its time a task may be replaced by a later one of its biz_id. One that starts in
// time is never looked up.
const coalesceAfter = time.Second

// expire ends a task that is too late.
func (w *worker) expire(e *queue.Entry, late time.Duration) {
	if w.bizType.OnExpire == task.OnExpireSkip {
		w.skip(e, task.Cancelled, "expired")
		return
	}
	w.die(e, fmt.Sprintf("expired: %s late", late.Round(time.Millisecond)))
}

// die makes a task dead without a run.
func (w *worker) die(e *queue.Entry, why string) task.Task {
	row := w.skip(e, task.Dead, why)
	w.failed = append(w.failed, failure{row, errors.New(why)})
	return row
}

// skip ends a task without a run, unless its row is edited meanwhile. It returns the row.
func (w *worker) skip(e *queue.Entry, to task.Status, why string) task.Task {
	read, row, outcome := e.Task, e.Task, Discarded
	if row.Status, row.LastError = to, why; to == task.Dead {
		outcome = Dead
	}
	move := store.Move{JobID: read.JobID, From: task.Pending, To: to, Read: &read, Set: store.Set{LastError: &why}}
	w.finisher.add(&finish{entry: e, bizType: &w.bizType, outcome: outcome, move: move, row: row})
	return row
}

// isSkipped reports whether the outcome is that of a task that was not to run, or of a lease.
func (d *finish) isSkipped() bool {
	return d.move.HasLease != nil || d.move.Read != nil && d.move.Attempts == nil && d.move.To != task.Pending
}

// mayCoalesce reports whether a later task of its biz_id replaces an overdue one.
func (w *worker) mayCoalesce(e *queue.Entry, now time.Time) bool {
	return w.bizType.Coalesce && now.Sub(e.Task.Promised()) > coalesceAfter
}

// findSuperseded looks up the tasks that may coalesce. It leaves out those whose database does not answer.
func (w *worker) findSuperseded(ctx context.Context, entries []*queue.Entry, now time.Time) map[uint64]bool {
	var byDatabase map[int][]task.Task
	for _, e := range entries {
		if w.mayCoalesce(e, now) {
			if byDatabase == nil {
				byDatabase = make(map[int][]task.Task)
			}
			d := w.cfg.Layout.PartitionDatabase(e.Partition)
			byDatabase[d] = append(byDatabase[d], e.Task)
		}
	}
	if byDatabase == nil {
		return nil
	}
	superseded := make(map[uint64]bool)
	rivals := store.Rivals{Now: now, MaxRetries: w.bizType.MaxRetries}
	if b := &w.bizType; b.ExpireAfter > 0 && b.OnExpire != task.OnExpireRun {
		rivals.Expired = now.Add(-b.ExpireAfter)
	}
	for d, tasks := range byDatabase {
		found, err := w.cfg.Store.Superseded(ctx, d, tasks, rivals)
		if err != nil {
			w.cfg.Logger.Warn("tasks not compared with later ones of their biz_id; they stay in the store", "biz_type", w.bizType.Name, "database",
				d, "error", err)
			continue
		}
		for i := range tasks {
			superseded[tasks[i].JobID] = found[tasks[i].JobID]
		}
	}
	return superseded
}
