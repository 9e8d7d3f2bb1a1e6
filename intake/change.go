package intake

import (
	"context"
	"errors"
	"strconv"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/queue/dispatch"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// Cancel makes a pending task cancelled. After a nil error it never fires. The errors are task.ConflictError
// (already processed, already cancelled, dead, or running now), task.ErrNotFound, task.ChangedError (no tag of the condition is the
// task's), task.ErrNotBegun (the caller left first; nothing was changed) and task.ErrUnavailable: then the task may or may not be
// cancelled.
func (s *changes) Cancel(ctx context.Context, jobID uint64, opts ...api.ChangeOption) error {
	m := store.Move{JobID: jobID, From: task.Pending, To: task.Cancelled, HasLease: new(uint64)}
	_, err := s.change(ctx, m, opts, func(p Peer) (api.Task, error) { return api.Task{}, p.Cancel(ctx, jobID, opts...) })
	return err
}

// tagsOf returns the tags of a condition, one of which must be the task's (task.Task.Tag) or task.MatchAny; none: there is no condition.
func tagsOf(opts []api.ChangeOption) (ifMatch []string, err error) {
	lines := api.ConditionOf(opts).IfMatch
	if lines == nil {
		return nil, nil
	}
	if ifMatch, err = api.ParseIfMatch(lines); err != nil {
		err = &task.FieldError{Field: "If-Match", Message: err.Error()}
	}
	return ifMatch, err
}

// CancelByKey is Cancel by the caller's own key.
func (s *changes) CancelByKey(ctx context.Context, k api.Key, opts ...api.ChangeOption) error {
	t, err := s.byKey(ctx, k)
	if err != nil {
		return err
	}
	return s.Cancel(ctx, t.JobID, opts...)
}

// Reschedule changes a pending task in one step and returns the changed task. A new time is a new promise. Its
// errors are those of Cancel, and task.FieldError.
func (s *changes) Reschedule(ctx context.Context, jobID uint64, c api.Change, opts ...api.ChangeOption) (api.Task, error) {
	m, err := s.moveOf(jobID, &c)
	if err != nil {
		return api.Task{}, err
	}
	return s.change(ctx, m, opts, func(p Peer) (api.Task, error) { return p.Reschedule(ctx, jobID, c, opts...) })
}

// moveOf checks a change.
func (s *changes) moveOf(jobID uint64, c *api.Change) (m store.Move, err error) {
	m = store.Move{JobID: jobID, From: task.Pending, To: task.Pending, HasLease: new(uint64)}
	isMoved := !c.ActionTime.IsZero() || c.Delay != nil
	if !isMoved && c.Attribute == nil && c.Timeout == 0 {
		return m, task.Wrong("action_time", "nothing to change; give action_time or delay, attribute, or timeout")
	}
	if isMoved {
		due, err := resolve(s.cfg.Now(), c.ActionTime, c.Delay, c.Past)
		if err != nil {
			return m, err
		}
		m.ActionTime, m.NewPromise = &due, true
	}
	if c.Attribute != nil {
		if err := checkText("attribute", *c.Attribute, task.MaxAttribute); err != nil {
			return m, err
		}
		m.Attribute = c.Attribute
	}
	if c.Timeout != 0 {
		timeout, err := checkTimeout(c.Timeout)
		if err != nil {
			return m, err
		}
		m.Timeout = &timeout
	}
	return m, nil
}

// RescheduleByKey is Reschedule by the caller's own key.
func (s *changes) RescheduleByKey(ctx context.Context, k api.Key, c api.Change, opts ...api.ChangeOption) (api.Task, error) {
	t, err := s.byKey(ctx, k)
	if err != nil {
		return api.Task{}, err
	}
	return s.Reschedule(ctx, t.JobID, c, opts...)
}

// Redrive gives a dead task a fresh start: pending, attempts 0, due and promised for now. Its errors are those
// of Cancel.
func (s *changes) Redrive(ctx context.Context, jobID uint64, opts ...api.ChangeOption) (api.Task, error) {
	t, err := s.change(ctx, moveOfDead(store.OperationRedrive, jobID, s.cfg.Now()), opts, func(p Peer) (api.Task, error) {
		return p.Redrive(ctx, jobID, opts...)
	})
	if err == nil && !IsForwarded(ctx) {
		s.Record(ctx, store.AuditEntry{Actor: actorOf(ctx), Action: "redrive", Target: strconv.FormatUint(jobID, 10), Count: 1})
	}
	return t, err
}

// change makes a move if this node owns the task; otherwise it asks the owner.
func (s *changes) change(ctx context.Context, m store.Move, opts []api.ChangeOption, ask func(Peer) (api.Task, error)) (api.Task, error) {
	ifMatch, err := tagsOf(opts)
	if err != nil {
		return api.Task{}, err
	}
	p, err := s.partition(m.JobID)
	if err != nil {
		return api.Task{}, err
	}
	if term := s.cfg.Cluster.Term(p); term != 0 {
		return s.moveHeld(ctx, m, ifMatch, p, term)
	}
	peer, err := s.owner(ctx, p)
	if err != nil {
		return api.Task{}, err
	}
	return ask(peer)
}

// moveHeld makes a move while it holds the task, and queues the changed task. It returns the task, unless that was cancelled.
func (s *changes) moveHeld(ctx context.Context, m store.Move, ifMatch []string, partition int, term uint64) (api.Task, error) {
	h, err := s.hold(ctx, m.JobID, partition, term, ifMatch)
	if err != nil {
		return api.Task{}, err
	}
	err = s.move(ctx, m, ifMatch)
	moved := dispatch.Change{JobID: m.JobID, Status: m.To, Hold: h}
	if err == nil && m.To == task.Pending {
		var t task.Task // the caller may have left; a change that was made is queued all the same
		t, err = s.cfg.Store.Get(context.WithoutCancel(ctx), m.JobID)
		moved = dispatch.Change{Row: &t, Fresh: true, Hold: h}
	}
	if err != nil {
		endHold(h, err)
		return api.Task{}, err
	}
	err = s.checkTerm(partition, term, m.JobID)
	s.cfg.Dispatch.Moved(moved)
	if moved.Row == nil {
		return api.Task{}, err
	}
	return s.shown(*moved.Row, err)
}

// endHold ends the hold after a move that failed. If nothing was changed, a pending task goes back where it was. After
// another error the scanner finds what the store has.
func endHold(h *queue.Hold, err error) {
	var conflict *task.ConflictError
	var changed *task.ChangedError
	if errors.Is(err, task.ErrNotBegun) || errors.As(err, &conflict) &&
		(conflict.Conflict == task.ConflictPending || conflict.Conflict == task.ConflictRunning) ||
		errors.As(err, &changed) && changed.Task.Status == task.Pending {
		h.Restore()
	} else {
		h.Remove()
	}
}

// move makes a compare-and-set, or explains why it did not apply. With tags it applies only to a row that has
// one of them and has not changed since it was read.
func (s *changes) move(ctx context.Context, m store.Move, ifMatch []string) error {
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
			if m.Read, m.HasLease, m.Lease = &t, &t.Lease, nil; t.Cuts() == 0 {
				m.Lease = new(uint64) // the row's may be void; a count of starts stays
			}
		}
		// The row has changed twice, or does not match any more: read it again.
	}
	return NotBegun("task %d keeps changing", m.JobID)
}
