package intake

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/internal/wait"
	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/queue/dispatch"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// Bounds of the rate of an operation, in tasks a second.
const (
	MinRate = 0.01
	MaxRate = 100_000
)

// MaxOperations is the number of redrives and discards, and of undos, that may run at a time. Each costs statements in all
// databases each second.
const MaxOperations = 20

// ErrTooManyOperations answers the start of one more.
var ErrTooManyOperations = fmt.Errorf("%d operations of this kind run; wait for the end of one, or stop one", MaxOperations)

// checkRate checks the rate of a change of dead tasks; 0 is none.
func checkRate(rate float64) error {
	if rate != 0 && !(rate >= MinRate && rate <= MaxRate) {
		return task.Wrong("rate", "is %v; give at least %v tasks a second, at most %d", rate, MinRate, MaxRate)
	}
	return nil
}

// checkOperations returns ErrTooManyOperations if no further undo, or no further other operation, may start.
func (s *operations) checkOperations(ctx context.Context, undo bool) error {
	list, err := s.cfg.Store.RunningOperations(ctx, 3*MaxOperations)
	n := 0
	for i := range list {
		if list[i].State == store.OperationRunning && (list[i].Kind == store.OperationUndo) == undo {
			n++
		}
	}
	if n >= MaxOperations {
		return ErrTooManyOperations
	}
	return err
}

// startOperation starts a change of dead tasks at a rate.
func (s *operations) startOperation(ctx context.Context, kind string, r api.DeadRequest, f store.DeadFilter) (changedDead, error) {
	if err := s.checkOperations(ctx, false); err != nil {
		return changedDead{}, err
	}
	o := store.Operation{Kind: kind, Actor: actorOf(ctx), Filter: f, Limit: r.Limit, Rate: r.Rate, Started: task.CeilMilli(s.cfg.Now())}
	if err := s.cfg.Store.StartOperation(ctx, &o); err != nil {
		return changedDead{}, err
	}
	s.Record(ctx, store.AuditEntry{Actor: actorOf(ctx), Action: kind, Target: r.BizType, Count: o.Matched, Detail: detail(&r, o.ID)})
	return changedDead{matched: o.Matched, operation: api.ID(o.ID)}, nil
}

// Operations lists the latest operations, the latest first; limit as in List.
func (s *operations) Operations(ctx context.Context, limit int) ([]api.Operation, error) {
	limit, err := pageLimit(limit)
	if err != nil {
		return nil, err
	}
	list, err := s.cfg.Store.Operations(ctx, 0, limit)
	out := make([]api.Operation, len(list))
	for i := range list {
		out[i] = s.shownOperation(&list[i])
	}
	return out, err
}

// shownOperation is an operation as callers see it.
func (s *operations) shownOperation(o *store.Operation) api.Operation {
	out := api.Operation{ID: api.ID(o.ID), Kind: o.Kind, Undoes: api.ID(o.Undoes), By: o.Actor, Rate: o.Rate, State: o.State,
		Matched: o.Matched, Done: o.Done, Skipped: o.Skipped,
		Started: api.Time(o.Started), Ended: api.Time(o.Ended),
		Filter: api.OperationFilter{Error: o.Filter.Error, Since: api.Time(o.Filter.Since), Until: api.Time(o.Filter.Until), Limit: o.Limit}}
	if o.Filter.BizType != nil {
		out.Filter.BizType = s.Types().NameOf(*o.Filter.BizType)
	}
	if o.Kind == store.OperationRetry {
		out.Filter.Until = api.Time{} // of the next runs
	}
	return out
}

// Operation reads an operation; task.ErrNotFound if there is none.
func (s *operations) Operation(ctx context.Context, id uint64) (api.Operation, error) {
	o, err := s.operation(ctx, id)
	if err != nil {
		return api.Operation{}, err
	}
	return s.shownOperation(&o), nil
}

func (s *operations) operation(ctx context.Context, id uint64) (store.Operation, error) {
	if id == 0 {
		return store.Operation{}, task.ErrNotFound
	}
	list, err := s.cfg.Store.Operations(ctx, id, 1)
	switch {
	case err != nil:
		return store.Operation{}, err
	case len(list) == 0:
		return store.Operation{}, task.ErrNotFound
	}
	return list[0], nil
}

// StopOperation stops an operation, and returns it. One that has ended stays as it is. The node that runs it may be in
// the middle of a step: nothing is changed after that.
func (s *operations) StopOperation(ctx context.Context, id uint64) (api.Operation, error) {
	if _, err := s.operation(ctx, id); err != nil {
		return api.Operation{}, err
	}
	stopped, err := s.cfg.Store.StopOperation(ctx, id, s.cfg.Now())
	if err != nil {
		return api.Operation{}, err
	}
	o, err := s.Operation(ctx, id)
	if stopped {
		s.Record(ctx, store.AuditEntry{Actor: actorOf(ctx), Action: "stop", Target: strconv.FormatUint(id, 10), Count: o.Done})
	}
	return o, err
}

// UndoOperation starts an operation that takes another one back: the tasks that it has redriven or discarded are dead
// again. Tasks that have started or changed since stay as they are. The other one is stopped first. It returns the new operation.
func (s *operations) UndoOperation(ctx context.Context, id uint64) (api.Operation, error) {
	other, err := s.operation(ctx, id)
	if err != nil {
		return api.Operation{}, err
	}
	if other.Kind == store.OperationUndo {
		return api.Operation{}, task.Wrong("id", "operation %d is an undo itself; redrive or discard again instead", id)
	}
	if other.Kind == store.OperationRetry {
		return api.Operation{}, task.Wrong("id", "operation %d is a retry, which cannot be taken back: its tasks run sooner than they would have; stop it instead", id)
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
func (s *operations) UndoTasks(ctx context.Context, database int, o *store.Operation, tasks []store.OperationTask) error {
	holds := make(map[uint64]*queue.Hold)
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
			holds[t.JobID] = h
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
	for i := range rows {
		if rows[i].Status == task.Pending { // it was not taken back
			holds[rows[i].JobID].Restore()
			delete(holds, rows[i].JobID)
		}
	}
	changes := make([]dispatch.Change, 0, len(holds))
	for id, h := range holds { // if its row could not be read and is pending, a scan finds it
		changes = append(changes, dispatch.Change{JobID: id, Status: task.Dead, Hold: h})
	}
	s.cfg.Dispatch.Moved(changes...)
	return err
}

const (
	retryWait  = 20 * time.Second       // a retry of all at once is waited for no longer
	retryLook  = 100 * time.Millisecond // between two looks at it
	retryLeast = time.Hour              // what a Go processor may ask for, beyond the longest pause of its business type
)

// Retry makes the pending tasks of a business type run now that have failed and would run again later. It is an operation, at a
// rate or (0) at the highest. Without a rate its end is waited for; an Operation in the answer goes on. The error of an unknown name is
// a task.UnknownTypeError.
func (s *operations) Retry(ctx context.Context, bizType string, rate float64) (answer api.Retried, err error) {
	b, err := s.Types().Find(bizType)
	if err != nil {
		return answer, err
	}
	if err := checkRate(rate); err != nil {
		return answer, err
	}
	started, err := s.startOperation(ctx, store.OperationRetry, api.DeadRequest{BizType: b.Name, Rate: cmp.Or(rate, MaxRate)},
		store.DeadFilter{BizType: &b.ID, Until: s.lastRetry(&b.ID)})
	answer = api.Retried{Matched: started.matched, Operation: started.operation}
	if err != nil || rate > 0 {
		return answer, err
	}
	for end := time.Now().Add(retryWait); time.Now().Before(end); {
		if err := wait.For(ctx, retryLook); err != nil {
			return answer, err
		}
		o, err := s.operation(ctx, uint64(answer.Operation))
		if err != nil {
			return answer, err
		}
		if answer.Retried = o.Done; o.State != store.OperationRunning {
			answer.Operation = 0
			return answer, nil
		}
	}
	return answer, nil
}
