package intake

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// UndoOperation starts an operation that takes another one back: the tasks that it has redriven or discarded are dead
// again. Tasks that have started or changed since stay as they are. The other one is stopped first. It returns the new operation.
func (s *Service) UndoOperation(ctx context.Context, id uint64) (api.Operation, error) {
	other, err := s.operation(ctx, id)
	if err != nil {
		return api.Operation{}, err
	}
	if other.Kind == store.OperationUndo {
		return api.Operation{}, &task.FieldError{Field: "id",
			Message: fmt.Sprintf("operation %d is an undo itself; redrive or discard again instead", id)}
	}
	if other.Kind == store.OperationRetry {
		return api.Operation{}, &task.FieldError{Field: "id",
			Message: fmt.Sprintf("operation %d is a retry, which cannot be taken back: its tasks run sooner than they would have; stop it instead",
				id)}
	}
	if err := s.checkOperations(ctx, true); err != nil {
		return api.Operation{}, err
	}
	if other.State == store.OperationRunning {
		if _, err := s.StopOperation(ctx, id); err != nil {
			return api.Operation{}, err
		}
	}
	o := store.Operation{Kind: store.OperationUndo, Undoes: id, Actor: actorOf(ctx), Filter: other.Filter,
		Started: task.CeilMilli(s.cfg.Now())}
	if err := s.cfg.Store.StartUndo(ctx, &o); err != nil {
		return api.Operation{}, err
	}
	s.Record(ctx, store.AuditEntry{Actor: actorOf(ctx), Action: "undo", Target: strconv.FormatUint(id, 10), Count: o.Matched,
		Detail: strconv.FormatUint(o.ID, 10)})
	return s.shownOperation(&o), nil
}

// UndoTasks takes back those tasks of an operation that are in partitions of this node. Tasks that run are skipped.
func (s *Service) UndoTasks(ctx context.Context, database int, o *store.Operation, tasks []store.OperationTask) error {
	type held struct {
		*queue.Hold
		partition int
	}
	holds := make(map[uint64]held)
	var list, skip []store.OperationTask
	for _, t := range tasks {
		p, err := s.partition(t.JobID)
		term := s.cfg.Cluster.Term(p)
		if err != nil || term == 0 {
			continue
		}
		h, err := s.hold(ctx, t.JobID, p, term, nil)
		var runs *task.ConflictError
		switch {
		case errors.As(err, &runs):
			skip = append(skip, t)
		case err == nil:
			holds[t.JobID] = held{h, p}
			list = append(list, t)
		}
	}
	if len(list)+len(skip) == 0 {
		return nil
	}
	err := s.cfg.Store.UndoStep(ctx, database, o, list, skip)
	ids := make([]uint64, len(list))
	for i := range list {
		ids[i] = list[i].JobID
	}
	rows, _ := s.cfg.Store.Load(context.WithoutCancel(ctx), ids)
	byID := make(map[uint64]task.Task, len(rows))
	for _, t := range rows {
		byID[t.JobID] = t
	}
	for id, h := range holds {
		if t, ok := byID[id]; ok && t.Status == task.Pending {
			h.Restore()
			s.dropLost(h.partition)
			continue
		}
		h.Remove() // if its row could not be read, a scan finds it
		s.cfg.Dispatch.Forget(id)
	}
	return err
}
