package intake

import (
	"context"

	"github.com/timeoutcenter/toc/dispatch"
	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/task"
)

// MaxWake is how many tasks one Wake is asked for at most.
const MaxWake = 1000

// Wake takes tasks that another node has just stored, so that they need not wait
// for the next tick: the other side of dispatch.Nodes. What is due soon is queued, what
// is the timer's is armed. It tells how many were queued; a task is ignored that is
// not pending, or not in a partition of this node.
func (d *Desk) Wake(ctx context.Context, jobIDs []uint64) (taken int) {
	reads := make(map[int]*queue.Read)
	defer func() {
		for _, r := range reads {
			r.End()
		}
	}()
	ours := make([]uint64, 0, len(jobIDs))
	for _, id := range jobIDs {
		p, err := d.partition(id)
		if err != nil || !d.owns(p) {
			continue
		}
		if reads[p] == nil {
			reads[p] = d.cfg.Queue.BeginRead(p)
		}
		ours = append(ours, id)
	}
	if len(ours) == 0 {
		return 0
	}
	rows, _ := d.cfg.Store.Load(ctx, ours) // the scanner finds what could not be read
	items := make(map[int][]queue.Item)
	var rest []task.Task
	for _, t := range rows {
		p, _ := d.partition(t.JobID)
		switch {
		case t.Status != task.Pending:
		case d.cfg.Dispatch.Where(&t) == dispatch.Queue:
			items[p] = append(items[p], queue.Item{Task: t, Partition: p})
		default:
			rest = append(rest, t)
		}
	}
	for p, list := range items {
		d.cfg.Queue.Offer(reads[p], list...)
		if !d.dropLost(p) {
			taken += len(list)
		}
	}
	d.cfg.Dispatch.Place(rest...) // may wait for Redis, so after what is about to be due
	return taken
}
