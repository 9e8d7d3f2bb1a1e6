package redistimer

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/task"
)

// load reads the rows of claimed tasks, by one statement of each loader.
func (cl *claimer) load(claims []claim) {
	slices.SortStableFunc(claims, func(a, b claim) int { return cmp.Compare(cl.loader(a), cl.loader(b)) })
	for len(claims) > 0 {
		l := cl.loader(claims[0])
		n := 1
		for n < len(claims) && cl.loader(claims[n]) == l {
			n++
		}
		cl.loads[l].Add(claims[:n]...)
		claims = claims[n:]
	}
}

// loaders is how many groups of partitions a database has whose rows are loaded at the same time. The tasks of one slot are
// loaded one after the other, so that they come into the queue in the order of their claims.
const loaders = 2

func (cl *claimer) loader(c claim) int {
	p := cl.partitionOf(c.member.JobID)
	if c.slot != nil {
		p = c.slot.slot.Partition
	}
	return cl.cfg.Layout.PartitionDatabase(p)*loaders + p%loaders
}

// flushLoads reads the rows of claimed tasks of one database, and offers the tasks that are to run.
func (cl *claimer) flushLoads(batch []claim) {
	ctx := context.Background() // the store bounds the time
	// The reads are announced first, so that the queue can recognize rows that change from now on.
	type reading struct {
		*queue.Read
		claims int
		items  []queue.Item
	}
	reads := make(map[int]*reading)
	ids := make([]uint64, len(batch))
	for i, c := range batch {
		ids[i] = c.member.JobID
		if c.slot == nil {
			continue
		}
		r := reads[c.slot.slot.Partition]
		if r == nil {
			r = &reading{Read: cl.cfg.Queue.BeginRead(c.slot.slot.Partition)}
			reads[c.slot.slot.Partition] = r
			defer r.End()
		}
		r.claims++
	}
	found, err := cl.cfg.Store.Load(ctx, ids)
	if err != nil {
		cl.cfg.Logger.Warn("claimed tasks not read; they are claimed again soon", "tasks", len(batch)-len(found), "error", err)
	}
	rows := make(map[uint64]*task.Task, len(found))
	for i := range found {
		rows[found[i].JobID] = &found[i]
	}
	receipts := make([]receipt, len(batch))
	var again []task.Task // to be armed
	owned := cl.recordRead(batch)
	for i := range batch {
		receipts[i] = receipt{cl.writer, batch[i]}
		c := &receipts[i].claim
		row := rows[c.member.JobID]
		runs, arms := cl.sortOut(c, row, owned[c.slot], err)
		if arms {
			again = append(again, *row)
		}
		if runs {
			p := c.slot.slot.Partition
			r := reads[p]
			if r.items == nil {
				r.items = make([]queue.Item, 0, r.claims)
			}
			r.items = append(r.items, queue.Item{Task: *row, Partition: p, Receipt: &receipts[i], Claimed: true, Found: c.at})
		}
	}
	for _, r := range reads {
		cl.cfg.Queue.Offer(r.Read, r.items...)
	}
	cl.writer.arm(armed, again)
}

// sortOut settles a claim whose task does not run now, and reports whether the task runs, or is to be armed. err is why rows are
// missing.
func (cl *claimer) sortOut(c *claim, row *task.Task, owned bool, err error) (runs, arms bool) {
	now := cl.cfg.Now()
	switch {
	case c.slot == nil && row == nil && err != nil: // where it belongs is unknown; a read of its partition finds out
		cl.mu.Lock()
		cl.reader.request(cl.partitionOf(c.member.JobID), nearFirst)
		cl.mu.Unlock()
	case c.isRemoved:
		return false, row != nil && row.Status == task.Pending
	case c.slot == nil:
		return false, row != nil && !cl.writer.follow(row)
	case row == nil && err != nil:
		cl.writer.release(c, later(c.member.At, now.Add(releasePause)))
	case !owned:
		cl.writer.release(c, c.member.At)
	case cl.isMisplaced(c):
		// The partitions were different when it was armed, or it was added by hand.
		cl.writer.end(c, done, c.member)
		return false, row != nil && row.Status == task.Pending
	case row == nil || row.Status != task.Pending || row.BizType != c.biz.ID:
		if row == nil || now.Sub(row.Modified) > cl.cfg.Tick {
			cl.countGhost(c.slot)
		}
		if row != nil && row.BizType == c.biz.ID {
			cl.writer.endAs(c, row) // it may be dead, and have been armed after its death
		} else {
			cl.writer.end(c, done, c.member)
		}
	case row.ActionTime.Sub(now) > 2*claimAhead+turnEvery:
		cl.writer.endAs(c, row) // moved to a later time by SQL
	default:
		return true, false
	}
	return false, false
}

// countGhost counts a claimed task that was not pending for longer.
func (cl *claimer) countGhost(s *slotState) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	s.ghosts++
}

// isMisplaced reports whether a task was claimed from a slot that is not its own.
func (cl *claimer) isMisplaced(c *claim) bool {
	shard, ok := cl.cfg.Layout.ShardOf(c.member.JobID)
	return !ok || cl.cfg.Layout.Partition(shard) != c.slot.slot.Partition
}

// recordRead records that the rows of a batch are read, and returns which of its slots this node still owns.
func (cl *claimer) recordRead(batch []claim) map[*slotState]bool {
	owned := make(map[*slotState]bool)
	cl.mu.Lock()
	defer cl.mu.Unlock()
	for _, c := range batch {
		if c.slot == nil {
			continue
		}
		if h, ok := c.slot.inflight[c.member.JobID]; ok {
			h.unread = time.Time{}
			c.slot.inflight[c.member.JobID] = h
		}
		owned[c.slot] = c.slot.isOwned() && cl.cfg.Ownership.Owns(c.slot.slot.Partition)
	}
	return owned
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
