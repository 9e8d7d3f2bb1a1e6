package app

import (
	"context"
	"time"

	"github.com/timeoutcenter/toc/intake/why"
	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/queue/dispatch"
	"github.com/timeoutcenter/toc/task"
)

// whyFacts adds this node's facts about a task to its row.
func (a *App) whyFacts(f *why.Facts) {
	id, p := f.Task.JobID, f.Partition.Number
	f.Draining, f.Clock = a.draining.Load(), a.clock.Degraded()
	if owner, ok := a.cluster.Owner(p); ok {
		f.Partition.Owner = owner.Name
	}
	if !f.Partition.Owned {
		f.Partition.Lost = a.cluster.Lost()
	}
	d := a.layout.PartitionDatabase(p)
	now, holds := a.store.Condition(d), a.runner.Holds(id, d)
	f.Database = why.Database{
		Number: d, Down: now.Down, Refusing: now.Refusing, ReadOnly: now.IsReadOnly(), Since: now.Since, Slow: now.Slow,
		Unwritten: holds.Unwritten, Unmarked: holds.Unmarked, TableHolds: holds.TableFull,
	}
	f.Run.WaitsSince, f.Run.TableErr = holds.WaitsSince, holds.TableErr
	f.Queue.Seen = a.queue.Look(id)
	if f.Unread != nil {
		return
	}
	f.Place = a.dispatcher.Where(&f.Task)
	b, known := a.catalog.Load().ByID(f.Task.BizType)
	if !known {
		return
	}
	f.Type = &b
	if row, ok := a.control.Paused(b.ID); ok {
		f.Paused = &why.Pause{By: row.Actor, Reason: row.Reason, Since: row.Changed, Until: row.Until}
	}
	if !f.Partition.Owned {
		return // what follows is known to the owner
	}
	f.Scan.Next = a.scanner.NextTick()
	f.Scan.Until, f.Scan.Serves = a.scanner.Until(b.ID, p)
	f.Scan.UnreadSince, f.Scan.UnreadErr = a.scanner.UnreadSince(d)
	if slot, ok := a.timer.Slot(b.ID, p); ok {
		f.Slot = why.Slot(slot)
	}
	if f.Place == dispatch.Slot && f.Task.Status == task.Pending && f.Queue.Seen.State == queue.Absent {
		ctx, cancel := context.WithTimeout(context.Background(), findWithin)
		defer cancel()
		var there bool
		if there, f.Found.Lacks, f.Found.At, f.Found.Err = a.timer.Find(ctx, &f.Task); !there && !f.Found.Lacks && f.Found.Err == nil {
			f.Place = dispatch.Store // until a read finds its row
		}
	}
	load, stats := a.runner.Load(b.ID, id), a.queue.Stats(b.ID)
	f.Run.Timeout = load.Timeout
	f.Queue.Size, f.Queue.Capacity = stats.Depth+stats.Running, a.queue.Capacity(b.ID)
	_, f.Queue.Limit = a.limits.Throttled(b.ID)
	f.Queue.Workers, f.Queue.Busy, f.Queue.Oldest = b.Workers, load.Busy, load.Oldest
	if b.Pull {
		f.Queue.Busy = a.runner.InFlight(b.ID)
	}
}

// findWithin is how long Redis is waited for: another node that asks waits for little longer.
const findWithin = time.Second
