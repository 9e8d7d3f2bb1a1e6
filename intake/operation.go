package intake

import (
	"context"
	"fmt"
	"strconv"

	"github.com/timeoutcenter/toc/api"
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
		return &task.FieldError{Field: "rate", Message: fmt.Sprintf("is %v; give at least %v tasks a second, at most %d", rate, MinRate, MaxRate)}
	}
	return nil
}

// checkOperations returns ErrTooManyOperations if no further undo, or no further other operation, may start.
func (s *Service) checkOperations(ctx context.Context, undo bool) error {
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
func (s *Service) startOperation(ctx context.Context, kind string, r api.DeadRequest, f store.DeadFilter) (changedDead, error) {
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
func (s *Service) Operations(ctx context.Context, limit int) ([]api.Operation, error) {
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
func (s *Service) shownOperation(o *store.Operation) api.Operation {
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
func (s *Service) Operation(ctx context.Context, id uint64) (api.Operation, error) {
	o, err := s.operation(ctx, id)
	if err != nil {
		return api.Operation{}, err
	}
	return s.shownOperation(&o), nil
}

func (s *Service) operation(ctx context.Context, id uint64) (store.Operation, error) {
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
func (s *Service) StopOperation(ctx context.Context, id uint64) (api.Operation, error) {
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
