package intake

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// Cancel makes a pending task cancelled. After a nil error it never fires. It
// answers task.ConflictError (already processed, already cancelled, dead, or
// running now), task.ErrNotFound, task.ErrNotBegun (the caller left before; nothing
// was changed) or task.ErrUnavailable; after the last one the task may or may not be
// cancelled.
func (d *Desk) Cancel(ctx context.Context, jobID uint64) error { return d.CancelIf(ctx, jobID, nil) }

// CancelIf is Cancel if one of the tags is the task's (task.Task.Tag) or
// task.MatchAny; otherwise it answers task.ChangedError. No tags ask for nothing.
func (d *Desk) CancelIf(ctx context.Context, jobID uint64, ifMatch []string) error {
	p, err := d.partition(jobID)
	if err != nil {
		return err
	}
	term := d.cfg.Cluster.Term(p)
	if term == 0 {
		peer, err := d.owner(ctx, p)
		if err != nil {
			return err
		}
		return peer.CancelIf(ctx, jobID, ifMatch)
	}
	h, err := d.hold(ctx, jobID, p, term, ifMatch)
	if err != nil {
		return err
	}
	err = d.move(ctx, store.Move{JobID: jobID, From: task.Pending, To: task.Cancelled}, ifMatch)
	if err != nil {
		d.end(h, p, task.Task{}, err)
		return err
	}
	h.Remove()
	d.cfg.Dispatch.Forget(jobID)
	return d.stillOurs(p, term, jobID)
}

// Change asks for a new time, a new attribute, a new time-out, or several of them.
type Change struct {
	When      *When
	Attribute *string
	Timeout   *time.Duration // task.MinTimeout to task.MaxTimeout
	IfMatch   []string       // tags; see CancelIf
}

// Reschedule changes a pending task in one step and gives it as it stands
// then. A new time is a new promise. Its errors are those of CancelIf, and
// task.FieldError.
func (d *Desk) Reschedule(ctx context.Context, jobID uint64, c Change) (task.Task, error) {
	m := store.Move{JobID: jobID, From: task.Pending, To: task.Pending}
	if c.When == nil && c.Attribute == nil && c.Timeout == nil {
		return task.Task{}, &task.FieldError{Field: "action_time", Message: "nothing to change; give action_time or delay, attribute, or timeout"}
	}
	if c.When != nil {
		due, err := c.When.resolve(d.cfg.Now())
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
	return d.change(ctx, m, c.IfMatch, func(p Peer) (task.Task, error) { return p.Reschedule(ctx, jobID, c) })
}

// Redrive gives a dead task a fresh start: pending, attempts 0, due now, and
// promised for now. Its errors are those of Cancel.
func (d *Desk) Redrive(ctx context.Context, jobID uint64) (task.Task, error) {
	return d.RedriveIf(ctx, jobID, nil)
}

// RedriveIf is Redrive if one of the tags matches; see CancelIf.
func (d *Desk) RedriveIf(ctx context.Context, jobID uint64, ifMatch []string) (task.Task, error) {
	now, attempts := task.CeilMilli(d.cfg.Now()), 0
	m := store.Move{JobID: jobID, From: task.Dead, To: task.Pending,
		Set: store.Set{ActionTime: &now, Attempts: &attempts, NewPromise: true}}
	return d.change(ctx, m, ifMatch, func(p Peer) (task.Task, error) { return p.RedriveIf(ctx, jobID, ifMatch) })
}

// change makes a move if the task is ours; otherwise its owner is asked.
func (d *Desk) change(ctx context.Context, m store.Move, ifMatch []string, ask func(Peer) (task.Task, error)) (task.Task, error) {
	p, err := d.partition(m.JobID)
	if err != nil {
		return task.Task{}, err
	}
	if term := d.cfg.Cluster.Term(p); term != 0 {
		return d.moveHeld(ctx, m, ifMatch, p, term)
	}
	peer, err := d.owner(ctx, p)
	if err != nil {
		return task.Task{}, err
	}
	return ask(peer)
}

// moveHeld makes a move while the task is held, and queues it as it stands then.
func (d *Desk) moveHeld(ctx context.Context, m store.Move, ifMatch []string, partition int, term uint64) (task.Task, error) {
	h, err := d.hold(ctx, m.JobID, partition, term, ifMatch)
	if err != nil {
		return task.Task{}, err
	}
	var t task.Task
	if err = d.move(ctx, m, ifMatch); err == nil {
		// The caller may have left: a change that is made is also queued.
		t, err = d.cfg.Store.Get(context.WithoutCancel(ctx), m.JobID)
	}
	changed := err == nil
	if changed {
		err = d.stillOurs(partition, term, m.JobID)
	}
	d.end(h, partition, t, err)
	if changed {
		d.cfg.Dispatch.Forget(t.JobID) // should it have moved out of reach
		d.cfg.Dispatch.Place(t)
	}
	return t, err
}

// end lets go of a task. A pending one that was only asked about, or not even
// that, goes back to where it was; after another error the scanner finds what there is.
func (d *Desk) end(h *queue.Hold, partition int, t task.Task, err error) {
	var conflict *task.ConflictError
	var changed *task.ChangedError
	if errors.Is(err, task.ErrNotBegun) || errors.As(err, &conflict) && conflict.Conflict == task.ConflictPending ||
		errors.As(err, &changed) && changed.Task.Status == task.Pending {
		h.Restore()
		d.dropLost(partition)
		return
	}
	if err != nil || t.Status != task.Pending {
		h.Remove()
		return
	}
	d.letGo(h, t)
}

// move makes a compare-and-set, or says why it did not apply. With tags it applies
// only to a row that has one of them, and that nobody has changed in between.
func (d *Desk) move(ctx context.Context, m store.Move, ifMatch []string) error {
	for range 3 {
		if len(ifMatch) > 0 {
			t, err := d.matching(ctx, m.JobID, ifMatch)
			if err != nil {
				return err
			}
			m.Read, m.Whole = &t, true
		}
		applied, err := d.cfg.Store.Move(ctx, m)
		if err != nil || applied {
			return err
		}
		t, err := d.cfg.Store.Get(context.WithoutCancel(ctx), m.JobID)
		if err != nil {
			return err
		}
		if t.Status != m.From && t.Matches(ifMatch) {
			return &task.ConflictError{JobID: m.JobID, Conflict: task.ConflictOf(t.Status)}
		}
		// It came back to where it was in between, or was changed: once more.
	}
	return fmt.Errorf("%w: task %d keeps changing", task.ErrUnavailable, m.JobID)
}

// matching reads a task that must have one of the tags. If it cannot be read the
// change is not begun.
func (d *Desk) matching(ctx context.Context, jobID uint64, ifMatch []string) (task.Task, error) {
	t, err := d.cfg.Store.Get(ctx, jobID)
	switch {
	case err != nil && !errors.Is(err, task.ErrNotFound):
		err = fmt.Errorf("%w: %w", task.ErrNotBegun, err)
	case err == nil && !t.Matches(ifMatch):
		err = &task.ChangedError{Task: t}
	}
	return t, err
}

// RedriveDead asks to redrive many dead tasks.
type RedriveDead struct {
	BizType string // name; empty: all
	Limit   int    // at most this many; 0: all
	DryRun  bool   // count only
}

// Redriven answers RedriveDead.
type Redriven struct {
	Matched  int // dead tasks that match
	Redriven int // of those, put back to pending
}

// redrivePage is how many dead tasks are read and redriven at a time.
const redrivePage = 500

// RedriveDead redrives the dead tasks that match. After an error the answer
// says how many were redriven before it.
func (d *Desk) RedriveDead(ctx context.Context, r RedriveDead) (Redriven, error) {
	bizType, err := d.typeFilter(r.BizType)
	if err != nil {
		return Redriven{}, err
	}
	if r.Limit < 0 {
		return Redriven{}, &task.FieldError{Field: "limit", Message: "must not be negative; 0 is all"}
	}
	var answer Redriven
	if answer.Matched, err = d.cfg.Store.CountDead(ctx, bizType); err != nil || r.DryRun {
		return answer, err
	}
	left := answer.Matched // tasks that die meanwhile are for another call
	if r.Limit > 0 {
		left = min(left, r.Limit)
	}
	for after := uint64(0); left > 0; {
		page, err := d.cfg.Store.ListDead(ctx, bizType, after, min(left, redrivePage))
		if err != nil || len(page) == 0 {
			return answer, err
		}
		n, err := d.redriveAll(ctx, page)
		answer.Redriven += n
		if err != nil {
			return answer, err
		}
		left -= len(page)
		after = page[len(page)-1].JobID
	}
	return answer, nil
}

// redriveAll redrives a page; its moves share commits.
func (d *Desk) redriveAll(ctx context.Context, page []task.Task) (n int, err error) {
	results := make(chan error, len(page))
	for _, t := range page {
		go func() {
			_, err := d.Redrive(ctx, t.JobID)
			results <- err
		}()
	}
	for range page {
		var conflict *task.ConflictError
		switch e := <-results; {
		case e == nil:
			n++
		case errors.As(e, &conflict), errors.Is(e, task.ErrNotFound):
			// Somebody else was faster.
		default:
			err = e
		}
	}
	return n, err
}
