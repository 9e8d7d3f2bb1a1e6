package intake

import (
	"context"
	"time"

	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/task"
)

// MaxWake is how many tasks one Wake is asked for at most.
const MaxWake = 1000

// Wake takes tasks that another node has just stored, so that they need not wait
// for the next tick: the other side of Peer.Offer. What is due soon is queued, what
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
		case d.cfg.Near(t.BizType, p, t.ActionTime):
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
	d.cfg.Timer.Arm(rest...) // may wait for Redis, so after what is about to be due
	return taken
}

// offerAway tells the owners of tasks that are due before they would find them
// by themselves.
func (d *Desk) offerAway(stored []task.Task) {
	if d.cfg.Soon != nil {
		d.offer(stored, d.cfg.Soon)
	}
}

// HandOn tells the owners of tasks that this node stored and could not arm.
func (d *Desk) HandOn(tasks []task.Task) {
	d.offer(tasks, func(uint64, int, time.Time) bool { return true })
}

// offer tells the owners of those tasks that are not ours and that they want.
func (d *Desk) offer(tasks []task.Task, want func(bizType uint64, partition int, due time.Time) bool) {
	var away map[int][]task.Task // by partition
	for _, t := range tasks {
		p := d.cfg.Layout.Partition(d.cfg.Layout.Shard(t.BizID))
		if d.owns(p) || !want(t.BizType, p, t.ActionTime) {
			continue
		}
		if away == nil {
			away = make(map[int][]task.Task)
		}
		away[p] = append(away[p], t)
	}
	for p, list := range away {
		if peer, err := d.cfg.Cluster.Owner(p); err == nil {
			peer.Offer(list...)
		}
	}
}
