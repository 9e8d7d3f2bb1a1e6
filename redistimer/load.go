package redistimer

import (
	"context"
	"fmt"
	"time"

	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// minCuts is how often a task must have been claimed without an outcome before
// that alone can make it dead: once or twice may be a crash that it has no part in.
const minCuts = 3

// flushLoads reads the rows of claimed tasks, all of one database, and offers
// those that are to run.
func (t *Timer) flushLoads(batch []claim) {
	ctx := context.Background() // the store bounds the time
	// A row that changes from now on is told from what is read here.
	type reading struct {
		*queue.Read
		claims int
		items  []queue.Item
	}
	reads := make(map[int]*reading)
	ids := make([]uint64, len(batch))
	for i, c := range batch {
		ids[i] = c.member.JobID
		r := reads[c.slot.slot.Partition]
		if r == nil {
			r = &reading{Read: t.cfg.Queue.BeginRead(c.slot.slot.Partition)}
			reads[c.slot.slot.Partition] = r
			defer r.End()
		}
		r.claims++
	}
	found, err := t.cfg.Store.Load(ctx, ids)
	if err != nil {
		t.cfg.Logger.Warn("claimed tasks not read; they are claimed again soon", "tasks", len(batch), "error", err)
		later := t.cfg.Now().Add(giveBack)
		for _, c := range batch {
			t.giveBack(c, latest(c.member.At, later))
		}
		return
	}
	rows := make(map[uint64]*task.Task, len(found))
	for i := range found {
		rows[found[i].JobID] = &found[i]
	}
	receipts := make([]receipt, len(batch))
	now := t.cfg.Now()
	mine := t.owned(batch)
	for i, c := range batch {
		row := rows[c.member.JobID]
		switch {
		case !mine[c.slot]:
			t.giveBack(c, c.member.At)
		case row == nil || !isPending(row, c.biz):
			// Armed once more when it had died already: it belongs to the dead.
			dead := row != nil && row.Status == task.Dead && row.BizType == c.biz.ID
			t.settle(settling{claim: c, dead: dead, done: !dead})
		case row.ActionTime.Sub(now) > 2*ahead:
			t.postpone(c, row, now) // moved to later by hand
		case c.member.Attempts > c.biz.MaxRetries && c.member.Attempts-row.Attempts >= minCuts:
			t.die(ctx, c, *row)
		default:
			row.Attempts = max(row.Attempts, c.member.Attempts)
			receipts[i] = receipt{t, c}
			p := c.slot.slot.Partition
			r := reads[p]
			if r.items == nil {
				r.items = make([]queue.Item, 0, r.claims)
			}
			r.items = append(r.items, queue.Item{Task: *row, Partition: p, Receipt: &receipts[i], Claimed: true})
		}
	}
	for _, r := range reads {
		t.cfg.Queue.Offer(r.Read, r.items...)
	}
}

// owned tells which slots of claims are still ours.
func (t *Timer) owned(batch []claim) map[*slotState]bool {
	mine := make(map[*slotState]bool)
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range batch {
		mine[c.slot] = c.slot.owned() && t.cfg.Ownership.Owns(c.slot.slot.Partition)
	}
	return mine
}

// postpone puts a task back whose row says later than its slot did. Claims that
// came to no outcome stay counted.
func (t *Timer) postpone(c claim, row *task.Task, now time.Time) {
	if row.ActionTime.After(c.biz.armUntil(now)) {
		t.settle(settling{claim: c, done: true})
		return
	}
	t.settle(settling{claim: c, back: Member{
		JobID: row.JobID, At: row.ActionTime, Attempts: max(row.Attempts, c.member.Attempts),
	}})
}

// die makes a task dead that was claimed once more than it may fail and never
// came to an outcome: most likely its run ends the process.
func (t *Timer) die(ctx context.Context, c claim, row task.Task) {
	t.background.Go(func() {
		attempts := c.member.Attempts
		reason := fmt.Sprintf("claimed %d times without an outcome: its run may end the process", attempts)
		applied, err := t.cfg.Store.Move(ctx, store.Move{
			JobID: row.JobID, From: task.Pending, To: task.Dead, Set: store.Set{Attempts: &attempts, LastError: &reason},
		})
		if err != nil {
			t.giveBack(c, t.cfg.Now().Add(giveBack))
			return
		}
		if applied {
			t.cfg.Logger.Warn("task is dead", "biz_type", c.biz.Name, "job_id", row.JobID, "attempts", attempts, "error", reason)
			t.cfg.Observer.Died(c.biz.BizType)
		}
		t.settle(settling{claim: c, dead: applied, done: !applied})
	})
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
