package intake

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// Cancel makes a pending task cancelled. After a nil error it never fires. The errors are task.ConflictError
// (already processed, already cancelled, dead, or running now), task.ErrNotFound, task.ErrNotBegun (the caller
// left first; nothing was changed) and task.ErrUnavailable: then the task may or may not be cancelled.
func (s *Service) Cancel(ctx context.Context, jobID uint64) error { return s.CancelIf(ctx, jobID, nil) }

// CancelIf is Cancel under a condition: one of the tags must be the task's (task.Task.Tag) or task.MatchAny.
// Otherwise it returns task.ChangedError. Without tags there is no condition.
func (s *Service) CancelIf(ctx context.Context, jobID uint64, ifMatch []string) error {
	p, err := s.partition(jobID)
	if err != nil {
		return err
	}
	term := s.cfg.Cluster.Term(p)
	if term == 0 {
		peer, err := s.owner(ctx, p)
		if err != nil {
			return err
		}
		return peer.CancelIf(ctx, jobID, ifMatch)
	}
	h, err := s.hold(ctx, jobID, p, term, ifMatch)
	if err != nil {
		return err
	}
	err = s.move(ctx, store.Move{JobID: jobID, From: task.Pending, To: task.Cancelled, HasLease: new(uint64)}, ifMatch)
	if err != nil {
		s.endHold(h, p, task.Task{}, err)
		return err
	}
	h.Remove()
	s.cfg.Dispatch.Forget(jobID)
	return s.checkTerm(p, term, jobID)
}

// Change asks for a new time, attribute or time-out, or several of them.
type Change struct {
	When      *When
	Attribute *string
	Timeout   *time.Duration // task.MinTimeout to task.MaxTimeout
	Past      Past           // what becomes of a When that has passed
	IfMatch   []string       // tags; see CancelIf
}

// Reschedule changes a pending task in one step and returns the changed task. A new time is a new promise. Its
// errors are those of CancelIf, and task.FieldError.
func (s *Service) Reschedule(ctx context.Context, jobID uint64, c Change) (task.Task, error) {
	m := store.Move{JobID: jobID, From: task.Pending, To: task.Pending, HasLease: new(uint64)}
	if c.When == nil && c.Attribute == nil && c.Timeout == nil {
		return task.Task{}, &task.FieldError{Field: "action_time", Message: "nothing to change; give action_time or delay, attribute, or timeout"}
	}
	if c.When != nil {
		due, err := c.When.resolve(s.cfg.Now(), c.Past)
		if err != nil {
			return task.Task{}, err
		}
		m.ActionTime, m.NewPromise = &due, true
	}
	if c.Attribute != nil {
		if err := checkText("attribute", *c.Attribute, task.MaxAttribute); err != nil {
			return task.Task{}, err
		}
		m.Attribute = c.Attribute
	}
	if c.Timeout != nil {
		timeout, err := checkTimeout(*c.Timeout)
		if err != nil {
			return task.Task{}, err
		}
		m.Timeout = &timeout
	}
	return s.change(ctx, m, c.IfMatch, func(p Peer) (task.Task, error) { return p.Reschedule(ctx, jobID, c) })
}

// Redrive gives a dead task a fresh start: pending, attempts 0, due and promised for now. Its errors are those
// of Cancel.
func (s *Service) Redrive(ctx context.Context, jobID uint64) (task.Task, error) {
	return s.RedriveIf(ctx, jobID, nil)
}

// RedriveIf is Redrive if one of the tags matches; see CancelIf.
func (s *Service) RedriveIf(ctx context.Context, jobID uint64, ifMatch []string) (task.Task, error) {
	t, err := s.redrive(ctx, jobID, ifMatch)
	if err == nil && !IsForwarded(ctx) {
		s.Record(ctx, store.AuditEntry{Actor: actorOf(ctx), Action: "redrive", Target: strconv.FormatUint(jobID, 10), Count: 1})
	}
	return t, err
}

func (s *Service) redrive(ctx context.Context, jobID uint64, ifMatch []string) (task.Task, error) {
	now, attempts := task.CeilMilli(s.cfg.Now()), 0
	m := store.Move{JobID: jobID, From: task.Dead, To: task.Pending,
		Set: store.Set{ActionTime: &now, Attempts: &attempts, NewPromise: true}}
	return s.change(ctx, m, ifMatch, func(p Peer) (task.Task, error) { return p.RedriveIf(ctx, jobID, ifMatch) })
}

// change makes a move if this node owns the task; otherwise it asks the owner.
func (s *Service) change(ctx context.Context, m store.Move, ifMatch []string, ask func(Peer) (task.Task, error)) (task.Task, error) {
	p, err := s.partition(m.JobID)
	if err != nil {
		return task.Task{}, err
	}
	if term := s.cfg.Cluster.Term(p); term != 0 {
		return s.moveHeld(ctx, m, ifMatch, p, term)
	}
	peer, err := s.owner(ctx, p)
	if err != nil {
		return task.Task{}, err
	}
	return ask(peer)
}

// moveHeld makes a move while it holds the task, and queues the changed task.
func (s *Service) moveHeld(ctx context.Context, m store.Move, ifMatch []string, partition int, term uint64) (task.Task, error) {
	h, err := s.hold(ctx, m.JobID, partition, term, ifMatch)
	if err != nil {
		return task.Task{}, err
	}
	var t task.Task
	if err = s.move(ctx, m, ifMatch); err == nil {
		// The caller may have left. A change that was made is queued all the same.
		t, err = s.cfg.Store.Get(context.WithoutCancel(ctx), m.JobID)
	}
	changed := err == nil
	if changed {
		err = s.checkTerm(partition, term, m.JobID)
	}
	s.endHold(h, partition, t, err)
	if changed {
		s.cfg.Dispatch.Forget(t.JobID) // it may now be due too late for this queue
		s.cfg.Dispatch.Place(t)
	}
	return t, err
}

// endHold ends the hold after a move. If nothing was changed, a pending task goes back where it was. After
// another error the scanner finds what the store has.
func (s *Service) endHold(h *queue.Hold, partition int, t task.Task, err error) {
	var conflict *task.ConflictError
	var changed *task.ChangedError
	if errors.Is(err, task.ErrNotBegun) || errors.As(err, &conflict) &&
		(conflict.Conflict == task.ConflictPending || conflict.Conflict == task.ConflictRunning) ||
		errors.As(err, &changed) && changed.Task.Status == task.Pending {
		h.Restore()
		s.dropLost(partition)
		return
	}
	if err != nil || t.Status != task.Pending {
		h.Remove()
		return
	}
	s.release(h, t)
}

// move makes a compare-and-set, or explains why it did not apply. With tags it applies only to a row that has
// one of them and has not changed since it was read.
func (s *Service) move(ctx context.Context, m store.Move, ifMatch []string) error {
	for range 3 {
		if len(ifMatch) > 0 {
			t, err := s.getMatching(ctx, m.JobID, ifMatch)
			if err != nil {
				return err
			}
			m.Read, m.Whole = &t, true
		}
		applied, err := s.cfg.Store.Move(ctx, m)
		if err != nil || applied {
			return err
		}
		t, err := s.cfg.Store.Get(context.WithoutCancel(ctx), m.JobID)
		if err != nil {
			return err
		}
		if t.Status != m.From && t.Matches(ifMatch) {
			return &task.ConflictError{JobID: m.JobID, Conflict: task.ConflictOf(t.Status)}
		}
		if t.Status == task.Pending && t.Matches(ifMatch) {
			if t.HasLease() { // a consumer has it
				return &task.ConflictError{JobID: m.JobID, Conflict: task.ConflictRunning, Until: t.ActionTime}
			}
			m.Read, m.HasLease, m.Lease = &t, &t.Lease, new(uint64) // the row's may be void
		}
		// The row has changed twice, or does not match any more: read it again.
	}
	return NotBegun("task %d keeps changing", m.JobID)
}

// getMatching reads a task that must have one of the tags. If the read fails, the change has not begun.
func (s *Service) getMatching(ctx context.Context, jobID uint64, ifMatch []string) (task.Task, error) {
	t, err := s.cfg.Store.Get(ctx, jobID)
	switch {
	case err != nil && !errors.Is(err, task.ErrNotFound):
		err = fmt.Errorf("%w: %w", task.ErrNotBegun, err)
	case err == nil && !t.Matches(ifMatch):
		err = &task.ChangedError{Task: t}
	}
	return t, err
}
