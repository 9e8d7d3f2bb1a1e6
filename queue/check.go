package queue

import (
	"context"
	"time"

	"github.com/timeoutcenter/toc/task"
)

// NextChecks waits until rows that were read before their time are due within CheckAhead, and returns them to
// be read again. The caller must pass each entry to ApplyChecks or FailChecks.
func (q *Queue) NextChecks(ctx context.Context) ([]*Entry, error) {
	for {
		list, wait := q.nextChecks()
		if len(list) > 0 {
			return list, nil
		}
		if err := await(ctx, q.checkSignal, wait); err != nil {
			return nil, err
		}
	}
}

// While many tasks are due, the rows of a table are read together: of all tasks that are due within farAhead.
const (
	denseChecks = 500 // tasks that are due within a second are many
	farAhead    = 950 * time.Millisecond
	maxChecks   = 1000 // that are returned at a time
)

func (q *Queue) nextChecks() (list []*Entry, wait time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	wait = -1
	now := q.cfg.Now()
	for _, b := range q.bizQueues {
		if b.checkUntil.IsZero() && b.isCheckDue(now, q.cfg.CheckAhead) {
			b.checksFar = b.waiting.count(now.Add(time.Second), denseChecks) == denseChecks
			b.checkUntil = now.Add(2 * q.cfg.CheckAhead)
			if b.checksFar {
				b.checkUntil = now.Add(farAhead)
			}
		}
		for len(b.waiting) > 0 && len(list) < maxChecks && !b.waiting[0].runAt.After(b.checkUntil) {
			e := b.waiting[0]
			b.removeWaiting(e)
			e.state, e.checkBegan = checking, now // a read from now on is at most this old
			b.checking++
			list = append(list, e)
		}
		if len(list) == maxChecks {
			break
		}
		b.checkUntil = time.Time{}
		if len(b.waiting) > 0 {
			if d := b.waiting[0].runAt.Sub(now) - b.checkAhead(q.cfg.CheckAhead); wait < 0 || d < wait {
				wait = max(0, d)
			}
		}
	}
	return list, wait
}

// checkAhead is how long before its time the next row is read again, at the latest.
func (b *bizQueue) checkAhead(least time.Duration) time.Duration {
	if b.checksFar {
		return 4 * least // a database that stalls for a moment delays no task
	}
	return least
}

func (b *bizQueue) isCheckDue(now time.Time, least time.Duration) bool {
	return len(b.waiting) > 0 && b.waiting[0].runAt.Sub(now) <= b.checkAhead(least)
}

// ApplyChecks updates entries of NextChecks with their rows. An entry leaves the queue if its task is not
// pending any more or has no row. A task that was moved to a later time waits again. The others become ready.
func (q *Queue) ApplyChecks(entries []*Entry, rows map[uint64]task.Task) {
	var back released
	q.mu.Lock()
	now := q.cfg.Now()
	for _, e := range entries {
		if e.state != checking {
			continue // held or released meanwhile
		}
		row, ok := rows[e.Task.JobID]
		if !ok || row.Status != task.Pending {
			q.removeWithTombstone(e)
			back = append(back, e)
			continue
		}
		e.bizQueue.checking--
		e.bizQueue.setReread(e, false)
		if e.Task.ActionTime.Equal(row.ActionTime) {
			e.checked += max(0, min(now.Sub(e.checkBegan), now.Sub(row.ActionTime)))
		} else {
			e.offeredAt, e.checked = now, 0
		}
		e.Task, e.readAt = row, e.checkBegan
		switch took := now.Sub(e.readAt); {
		case took <= q.cfg.StaleAfter:
			e.slowCheck = false
		case e.slowCheck: // this database cannot deliver a newer row
			e.readAt = now
		default: // perhaps this process or the network stood still: check once more
			e.slowCheck = true
		}
		e.state = ready
		switch {
		case row.ActionTime.After(now):
			e.runAt = row.ActionTime
			if row.ActionTime.Sub(now) > q.cfg.StaleAfter/2 {
				e.state = waiting
			}
		case e.runAt.After(now): // moved to an earlier time
			e.runAt = now
		} // otherwise it was due before, and keeps its place
		q.enqueue(e)
		e.bizQueue.wakeLeaders() // one of them may wait for this entry
	}
	q.mu.Unlock()
	back.notify()
}

// FailChecks releases entries of NextChecks whose rows could not be read. NextRefill will return where to read
// them.
func (q *Queue) FailChecks(entries []*Entry) {
	var back released
	q.mu.Lock()
	for _, e := range entries {
		if e.state == checking {
			e.bizQueue.setResumeAfter(&e.Item)
			q.remove(e) // sets the refill signal
			back = append(back, e)
		}
	}
	q.mu.Unlock()
	back.notify()
}
