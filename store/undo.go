package store

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/task"
)

// OperationUndo is the kind of an Operation that takes another one back.
const OperationUndo = "undo"

// OperationTask is a task that an operation has changed, and the GORM model of toc_operation_task.
type OperationTask struct {
	JobID uint64 `gorm:"serializer:toc"`
	// As it was before.
	Attempts   int
	DueTime    time.Time `gorm:"serializer:toc"` // may be zero
	ActionTime time.Time `gorm:"serializer:toc"`
	// As it was after the change, and still is if nobody else has changed it.
	ToStatus     task.Status
	ToActionTime time.Time `gorm:"serializer:toc"`
	Stamp        time.Time `gorm:"serializer:toc"` // gmt_modified
}

// StartUndo writes an operation that takes another one back into all databases, and sets its ID, State and Matched: the
// tasks that the other one has changed.
func (s operations) StartUndo(ctx context.Context, o *Operation) error {
	return s.startOperation(ctx, o, func(ctx context.Context, d int) (int, error) {
		var n int64
		err := s.table(ctx, d, "toc_operation_task").Where("operation=?", s.backend.idArg(o.Undoes)).Count(&n).Error
		return int(n), err
	})
}

// OperationTasks reads the tasks that an operation has changed in a database and that are not taken back yet: those after
// a job_id, in that order, at most limit.
func (s operations) OperationTasks(ctx context.Context, database int, operation, after uint64,
	limit int) (list []OperationTask, err error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	err = s.table(ctx, database, "toc_operation_task").Where("operation=? AND job_id>?", s.backend.idArg(operation), s.backend.idArg(after)).
		Order("job_id").Limit(limit).Find(&list).Error
	return list, s.wrap(database, "read the tasks of an operation", err)
}

// UndoStep takes back tasks of a database that o.Undoes has changed: each is dead again, as it was, unless it has changed
// since. skip are tasks that run: these are counted only. The tasks and the counts are one transaction; a task is counted
// once, however often the step is made. If o was stopped, nothing is done.
func (s operations) UndoStep(ctx context.Context, database int, o *Operation, list, skip []OperationTask) error {
	stamp := s.backend.timeArg(s.Stamp(database))
	operation, undo, step := s.backend.idArg(o.Undoes), s.backend.idArg(o.ID), s.backend.idArg(rand.Uint64())
	statements := []statement{{ // take the step: the others apply only if that was done
		sql:  "UPDATE toc_operation SET step=? WHERE id=? AND state='running'",
		args: []any{step, undo},
	}}
	taken := " AND EXISTS (SELECT 1 FROM toc_operation WHERE id=? AND step=?)"
	known := " AND EXISTS (SELECT 1 FROM toc_operation_task WHERE operation=? AND job_id=?)"
	for i, t := range slices.Concat(list, skip) {
		id := s.backend.idArg(t.JobID)
		shard, _ := s.layout.ShardOf(t.JobID)
		done := "0"
		var counted []any
		if i < len(list) {
			statements = append(statements, statement{
				sql: "UPDATE " + s.indexed(shard, indexPrimary) + " SET status=4,lease=NULL,attempts=?,due_time=?,action_time=?,gmt_modified=?" +
					" WHERE job_id=? AND status=? AND action_time=? AND gmt_modified=?" + known + taken,
				args: []any{int64(t.Attempts), s.timeOrNull(t.DueTime), s.backend.timeArg(t.ActionTime), stamp, id, int64(t.ToStatus),
					s.backend.timeArg(t.ToActionTime),
					s.backend.timeArg(t.Stamp), operation, id, undo, step},
			})
			done = "(SELECT COUNT(*) FROM " + sharding.TableName(s.layout.Table(shard)) + s.backend.hint(indexPrimary, s.layout.Table(shard)) +
				" WHERE job_id=? AND status=4 AND gmt_modified=?)"
			counted = []any{id, stamp}
		}
		statements = append(statements, statement{
			sql:  "UPDATE toc_operation SET seen=seen+1,done=done+" + done + " WHERE id=? AND step=?" + known,
			args: slices.Concat(counted, []any{undo, step, operation, id}),
		}, statement{
			sql:  "DELETE FROM toc_operation_task WHERE operation=? AND job_id=?" + taken,
			args: []any{operation, id, undo, step},
		})
	}
	_, err := s.change(ctx, database, "take back tasks of an operation", statements...)
	return err
}

// EndUndo ends an undo in a database that has no task left to take back.
func (s operations) EndUndo(ctx context.Context, database int, o *Operation) error {
	end := s.endOperation(o.ID, OperationDone, s.cfg.Now())
	end.sql += " AND NOT EXISTS (SELECT 1 FROM toc_operation_task WHERE operation=?)"
	end.args = append(end.args, s.backend.idArg(o.Undoes))
	_, err := s.change(ctx, database, "end an undo", end)
	return err
}
