package worker

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/queue/dispatch"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// Do is what a consumer does with a lease.
type Do string

// The values of Do.
const (
	Ack     Do = "ack"     // the task is processed
	Nack    Do = "nack"    // the run has failed: it is tried again, or dead
	Extend  Do = "extend"  // the lease ends later
	Reject  Do = "reject"  // nobody wants the task any more: it is cancelled
	Release Do = "release" // nobody has begun it: it is due again, and this was no attempt
)

// Settlement is what a consumer does with one lease.
type Settlement struct {
	JobID, Lease uint64
	Do           Do
	RetryAfter   *time.Duration // of Nack; nil: the back-off of the type
	TTR          time.Duration  // of Extend; 0: the task's Timeout, or else that of the type
	Error        string         // of Nack and Reject: why
}

// Settled is what became of a settlement.
type Settled string

// The values of Settled.
const (
	SettledOK   Settled = "ok"
	Lost        Settled = "lost"        // the lease is over, or was settled before: nothing was changed
	Unavailable Settled = "unavailable" // it cannot be decided now: it may have been settled or not
)

// settling is a settlement under way.
type settling struct {
	*Settlement
	result    *Settled
	partition int
	hold      *queue.Hold
	bizType   *task.BizType
	given     grantedLease // the lease
	outcome   Outcome
	row       task.Task // after it
	err       error     // of the run
}

// Settle ends or extends leases of tasks in this node's partitions. The results are in the order of the list.
func (r *Runner) Settle(ctx context.Context, list []Settlement) []Settled {
	results := make([]Settled, len(list))
	rest := make([]*settling, len(list))
	for i := range list {
		results[i] = Unavailable
		rest[i] = &settling{Settlement: &list[i], result: &results[i]}
		if list[i].Do == Release {
			r.pulls.returned(list[i].JobID, list[i].Lease, r.cfg.Now())
		}
	}
	// All callers hold tasks in the same order, so they do not wait for each other in a circle.
	slices.SortStableFunc(rest, func(a, b *settling) int { return cmp.Compare(a.JobID, b.JobID) })
	for len(rest) > 0 {
		var now, later []*settling // a second one for the same task comes after the first
		for _, s := range rest {
			if n := len(now); n > 0 && now[n-1].JobID == s.JobID {
				later = append(later, s)
			} else {
				now = append(now, s)
			}
		}
		r.settle(ctx, now)
		rest = later
	}
	return results
}

// settle settles leases of different tasks.
func (r *Runner) settle(ctx context.Context, list []*settling) {
	list = r.holdAll(ctx, list)
	list = r.findLeases(ctx, list)
	now := r.cfg.Now()
	moves := make([]store.Move, 0, len(list))
	open := list[:0]
	for _, s := range list {
		if s.bizType == nil {
			s.hold.Restore() // of no type that is configured: how it goes on is unknown
			continue
		}
		if !s.isGiven(&s.given.task, now) {
			s.end(Lost)
			continue
		}
		moves, open = append(moves, r.settlement(s, now)), append(open, s)
	}
	edited := r.record(ctx, open, moves, now)
	if len(edited) == 0 {
		return
	}
	open, moves = r.amendAll(ctx, edited, now)
	for _, s := range r.record(ctx, open, moves, now) {
		s.end(Unavailable) // and edited once more
	}
}

// isGiven reports whether a task has the lease of the settlement.
func (s *settling) isGiven(t *task.Task, now time.Time) bool {
	return task.IsSameLease(t.Lease, s.Lease) && t.IsLeased(now)
}

// record makes the moves of settlements. It returns those whose rows are not as they were read.
func (r *Runner) record(ctx context.Context, list []*settling, moves []store.Move, now time.Time) (edited []*settling) {
	for i, m := range r.cfg.Store.MoveAll(ctx, moves) {
		switch s := list[i]; {
		case m.Err != nil:
			s.end(Unavailable)
		case !m.Applied:
			edited = append(edited, s)
		default:
			*s.result = SettledOK
			r.completeSettled(ctx, s, now)
		}
	}
	return edited
}

// end ends a settlement that has changed nothing.
func (s *settling) end(result Settled) {
	*s.result = result
	s.hold.Restore()
}

// amendAll returns the moves of settlements whose rows were edited by hand. Who has set another action_time has ended the lease.
// Other edited columns stay as they are.
func (r *Runner) amendAll(ctx context.Context, list []*settling, now time.Time) (open []*settling, moves []store.Move) {
	rows, unread := r.load(ctx, list)
	for _, s := range list {
		row, there := rows[s.JobID]
		switch {
		case !there && unread != nil:
			s.end(Unavailable)
			continue
		case !there || !s.isGiven(&row, now):
			r.pulls.remove(s.JobID)
			s.end(Lost)
			continue
		}
		if s.outcome != Failed && s.outcome != Dead || row.Lease != s.given.task.Lease {
			s.given.task = row
			open, moves = append(open, s), append(moves, r.settlement(s, now))
			continue
		}
		_, failed, _ := decide(s.bizType, s.given.task, s.err, now)
		m, after, fences := amend(s.bizType, s.given.task, failed, row, now)
		s.outcome, s.row = Failed, after
		for _, why := range fences {
			r.cfg.Observer.Fenced(*s.bizType, why)
		}
		open, moves = append(open, s), append(moves, m)
	}
	return open, moves
}

// load reads the rows of settlements.
func (r *Runner) load(ctx context.Context, list []*settling) (rows map[uint64]task.Task, err error) {
	rows = make(map[uint64]task.Task, len(list))
	if len(list) == 0 {
		return rows, nil
	}
	ids := make([]uint64, len(list))
	for i, s := range list {
		ids[i] = s.JobID
	}
	found, err := r.cfg.Store.Load(ctx, ids)
	for _, t := range found {
		rows[t.JobID] = t
	}
	return rows, err
}

// holdAll holds the tasks, and leaves out the ones that cannot be held.
func (r *Runner) holdAll(ctx context.Context, list []*settling) []*settling {
	held := list[:0]
	for _, s := range list {
		shard, ok := r.cfg.Layout.ShardOf(s.JobID)
		if !ok {
			*s.result = Lost
			continue
		}
		s.partition = r.cfg.Layout.Partition(shard)
		term := r.cfg.Ownership.Term(s.partition)
		if term == 0 {
			continue
		}
		hold, err := r.cfg.Queue.Hold(ctx, s.JobID, s.partition)
		if _, running := errors.AsType[*task.ConflictError](err); running {
			*s.result = Lost // its end is being recorded, or it is given to another consumer
		}
		if err != nil {
			continue
		}
		if s.hold = hold; r.cfg.Ownership.Term(s.partition) != term {
			hold.Restore()
			continue
		}
		held = append(held, s)
	}
	return held
}

// findLeases finds the leases, in memory or in the store, and leaves out the ones that cannot be read now.
func (r *Runner) findLeases(ctx context.Context, list []*settling) []*settling {
	var unknown []*settling
	now := r.cfg.Now()
	for _, s := range list {
		var known bool
		// Another node may have extended a lease that is over in this process's memory.
		if s.given, known = r.pulls.find(s.JobID, s.Lease); !known || !s.given.task.IsLeased(now) {
			s.given = grantedLease{}
			unknown = append(unknown, s)
		}
	}
	rows, unread := r.load(ctx, unknown)
	open := list[:0]
	for _, s := range list {
		if s.given.task.JobID == 0 {
			row, there := rows[s.JobID]
			if !there && unread != nil {
				s.hold.Restore()
				continue
			}
			s.given = grantedLease{task: row, since: row.Modified}
			if !there {
				*s.result = Lost
				s.hold.Restore()
				continue
			}
		}
		r.pulls.mu.Lock()
		s.bizType = r.pulls.bizType[s.given.task.BizType]
		r.pulls.mu.Unlock()
		if s.bizType == nil && s.Do != Nack && s.Do != Extend { // the type is out of the file: these need none of its policies
			s.bizType = &task.BizType{ID: s.given.task.BizType}
		}
		open = append(open, s)
	}
	return open
}

// settlement is the move of a settlement.
func (r *Runner) settlement(s *settling, now time.Time) (m store.Move) {
	t := s.given.task
	switch s.Do {
	case Extend:
		until := task.CeilMilli(now.Add(cmp.Or(s.TTR, t.Timeout, s.bizType.TTR)))
		r.pulls.extending(t.JobID, t.Lease, until)
		number := task.LeaseUntil(t.Lease, until)
		s.row = t
		s.row.ActionTime, s.row.Lease = until, number
		return store.Move{JobID: t.JobID, From: task.Pending, To: task.Pending, Read: &t, HasLease: &t.Lease,
			Set: store.Set{ActionTime: &until, Lease: &number}}
	case Release:
		at := task.CeilMilli(now)
		s.row = t
		s.row.ActionTime, s.row.Lease = at, 0
		return store.Move{JobID: t.JobID, From: task.Pending, To: task.Pending, Read: &t, HasLease: &t.Lease,
			Set: store.Set{ActionTime: &at, Lease: new(uint64)}}
	case Nack:
		s.err = errors.New(cmp.Or(s.Error, "its consumer has given it back (nack)"))
		if s.RetryAfter != nil {
			s.err = processor.RetryAfter(*s.RetryAfter, s.err)
		}
	case Reject:
		s.err = processor.Discard(errors.New(cmp.Or(s.Error, "its consumer has rejected it")))
	}
	s.outcome, m, s.row = r.decideSettled(s.bizType, t, s.err, now)
	return m
}

// completeSettled passes the change on, and reports the end of the run.
func (r *Runner) completeSettled(ctx context.Context, s *settling, now time.Time) {
	if s.Do == Extend {
		r.pulls.add(grantedLease{task: s.row, since: s.given.since}, false)
	} else {
		r.pulls.remove(s.JobID)
	}
	r.cfg.Dispatch.Moved(dispatch.Change{Row: &s.row, Hold: s.hold}) // not fresh: a hand may have changed other columns meanwhile
	if s.outcome == "" || s.bizType.Name == "" {
		return
	}
	r.cfg.Observer.Finished(*s.bizType, s.outcome, now.Sub(s.given.since), max(0, s.given.since.Sub(s.given.task.Promised())))
	if s.outcome == Failed || s.outcome == Dead {
		r.reportFailure(ctx, s.bizType.Name, failure{s.row, s.err})
	}
}
