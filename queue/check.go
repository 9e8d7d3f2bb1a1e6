package queue

import (
	"context"
	"time"

	"github.com/timeoutcenter/toc/task"
)

// NextChecks waits until rows that were read before their time are about to be
// due (CheckAhead), and takes them out to be read again. Each must be answered
// by Checked or Unchecked.
func (q *Queue) NextChecks(ctx context.Context) ([]*Entry, error) {
	for {
		list, wait := q.nextChecks()
		if len(list) > 0 {
			return list, nil
		}
		if err := q.check.wait(ctx, wait); err != nil {
			return nil, err
		}
	}
}

func (q *Queue) nextChecks() (list []*Entry, wait time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	wait = -1
	now := q.cfg.Now()
	soon := now.Add(q.cfg.CheckAhead)
	for _, l := range q.lanes {
		for len(l.waiting) > 0 {
			e := l.waiting[0]
			if e.runAt.After(soon) {
				if d := e.runAt.Sub(soon); wait < 0 || d < wait {
					wait = d
				}
				break
			}
			l.removeWaiting(e)
			e.state, e.asked = checking, now // what is read from now on is no older
			l.checking++
			list = append(list, e)
		}
	}
	return list, wait
}

// Checked brings entries of NextChecks up to date with their rows. A task that
// is not pending any more, or whose row is gone (not in rows), leaves the queue;
// one that was moved to later goes back to waiting; the others are ready.
func (q *Queue) Checked(entries []*Entry, rows map[uint64]task.Task) {
	var back left
	q.mu.Lock()
	now := q.cfg.Now()
	for _, e := range entries {
		if e.state != checking {
			continue // held, or given back meanwhile
		}
		row, ok := rows[e.Task.JobID]
		if !ok || row.Status != task.Pending {
			q.bury(e)
			back = append(back, e)
			continue
		}
		e.lane.checking--
		e.Task, e.read = row, e.asked
		switch took := now.Sub(e.read); {
		case took <= q.cfg.StaleAfter:
			e.slow = false
		case e.slow: // newer than its database answers it cannot be had
			e.read = now
		default: // this process or the network may have stood still: once more
			e.slow = true
		}
		e.state = ready
		switch {
		case row.ActionTime.After(now):
			e.runAt = row.ActionTime
			if row.ActionTime.Sub(now) > 2*q.cfg.CheckAhead {
				e.state = waiting
			}
		case e.runAt.After(now): // moved to earlier
			e.runAt = now
		} // else it was due before, and keeps its turn
		q.enqueue(e)
		e.lane.wake.ring() // what comes back may be what the leader waits for
	}
	q.mu.Unlock()
	back.tell()
}

// Unchecked gives entries of NextChecks back, because their rows could not be
// read. They are left behind for NextRefill.
func (q *Queue) Unchecked(entries []*Entry) {
	var back left
	q.mu.Lock()
	for _, e := range entries {
		if e.state == checking {
			e.lane.leaveBehind(&e.Item)
			q.forget(e) // rings for a refill
			back = append(back, e)
		}
	}
	q.mu.Unlock()
	back.tell()
}
