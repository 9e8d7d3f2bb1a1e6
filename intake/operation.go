package intake

import (
	"context"
	"fmt"
	"strconv"

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
func (s *Service) startOperation(ctx context.Context, kind string, c ChangeDead, f store.DeadFilter) (ChangedDead, error) {
	if err := s.checkOperations(ctx, false); err != nil {
		return ChangedDead{}, err
	}
	o := store.Operation{Kind: kind, Actor: actorOf(ctx), Filter: f, Limit: c.Limit, Rate: c.Rate, Started: task.CeilMilli(s.cfg.Now())}
	if err := s.cfg.Store.StartOperation(ctx, &o); err != nil {
		return ChangedDead{}, err
	}
	s.Record(ctx, store.AuditEntry{Actor: actorOf(ctx), Action: kind, Target: c.BizType, Count: o.Matched, Detail: c.detail(o.ID)})
	return ChangedDead{Matched: o.Matched, Operation: o.ID}, nil
}

// Operations returns the latest operations, the latest first; limit as in List.
func (s *Service) Operations(ctx context.Context, limit int) ([]store.Operation, error) {
	limit, err := pageLimit(limit)
	if err != nil {
		return nil, err
	}
	return s.cfg.Store.Operations(ctx, 0, limit)
}

// Operation returns an operation; task.ErrNotFound if there is none.
func (s *Service) Operation(ctx context.Context, id uint64) (store.Operation, error) {
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
func (s *Service) StopOperation(ctx context.Context, id uint64) (store.Operation, error) {
	if _, err := s.Operation(ctx, id); err != nil {
		return store.Operation{}, err
	}
	stopped, err := s.cfg.Store.StopOperation(ctx, id, s.cfg.Now())
	if err != nil {
		return store.Operation{}, err
	}
	o, err := s.Operation(ctx, id)
	if stopped {
		s.Record(ctx, store.AuditEntry{Actor: actorOf(ctx), Action: "stop", Target: strconv.FormatUint(id, 10), Count: o.Done})
	}
	return o, err
}
