package queue

import (
	"context"
	"time"

	"github.com/timeoutcenter/toc/task"
)

// While many rows are to be read again, each partition has its turn once in turnEvery, and the partitions of a database follow
// each other. So one statement reads the rows of a table.
const (
	manyChecks = 500                    // a second of a business type
	turnEvery  = 750 * time.Millisecond // all that is due until the next turn is read
	turnAhead  = 200 * time.Millisecond // so long before; a database that stalls for a moment delays no task
	maxChecks  = 1000                   // are returned at a time, so that the lock is not held for long
)

// checkTime is when the row of a waiting entry is read again: CheckAhead before it is due, or a little earlier together with others.
func (q *Queue) checkTime(e *Entry) time.Time {
	if e.bizQueue.hasManyChecks {
		turn := turnEvery * time.Duration(e.Partition) / time.Duration(q.cfg.Partitions)
		if at := e.runAt.Add(-turn).Truncate(turnEvery).Add(turn - turnAhead); at.After(q.cfg.Now()) {
			return at
		}
	}
	return e.runAt.Add(-q.cfg.CheckAhead).Truncate(q.cfg.CheckAhead)
}

// NextChecks waits until rows that were read before their time are to be read again, and returns them. The caller must pass each entry to
// ApplyChecks or FailChecks.
func (q *Queue) NextChecks(ctx context.Context) ([]*Entry, error) {
	for {
		list, wait := q.nextChecks()
		if len(list) > 0 {
			return list, nil
		}
		if err := await(ctx, q.checkSignal, wait, nil); err != nil {
			return nil, err
		}
	}
}

func (q *Queue) nextChecks() (list []*Entry, wait time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	wait = -1
	now := q.cfg.Now()
	for _, b := range q.bizQueues {
		before := len(list)
		for len(b.waiting) > 0 && len(list) < maxChecks {
			e := b.waiting[0]
			if d := time.Duration(e.at - now.UnixNano()); d > 0 {
				if wait < 0 || d < wait {
					wait = d
				}
				break
			}
			b.removeWaiting(e)
			e.state, e.checkBegan = checking, now // a read from now on is at most this old
			b.checking++
			list = append(list, e)
		}
		if b.checks.Add(len(list) - before); b.checks.Update(now, time.Second, 0) {
			b.hasManyChecks = b.checks.PerSecond >= manyChecks
		}
	}
	return list, wait
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
		mostAhead := q.cfg.StaleAfter / 2
		if e.Task.ActionTime.Equal(row.ActionTime) {
			e.checked += max(0, min(now.Sub(e.checkBegan), now.Sub(row.ActionTime)))
		} else {
			e.offeredAt, e.checked = now, 0
			e.bizQueue.clearLate(e)
			mostAhead = q.cfg.CheckAhead // an earlier task can displace it while it waits
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
			if row.ActionTime.Sub(now) > mostAhead {
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
