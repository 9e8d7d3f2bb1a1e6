package intake

import (
	"context"

	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/task"
)

// MaxWake is how many tasks one Wake is asked for at most.
const MaxWake = 1000

// Wake queues tasks that another node has just stored, so that they need not
// wait for the next tick: the other side of Peer.Offer. It tells how many of them
// it took; a task is ignored that is not pending, not due soon, or not in a
// partition of this node.
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
		if err != nil || !d.cfg.Cluster.Owns(p) {
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
	for _, t := range rows {
		p, _ := d.partition(t.JobID)
		if t.Status == task.Pending && d.cfg.Near(t.BizType, p, t.ActionTime) {
			items[p] = append(items[p], queue.Item{Task: t, Partition: p})
		}
	}
	for p, list := range items {
		d.cfg.Queue.Offer(reads[p], list...)
		if !d.dropLost(p) {
			taken += len(list)
		}
	}
	return taken
}

// offerAway tells the owners of tasks that are due before they would find them
// by themselves.
func (d *Desk) offerAway(stored []task.Task) {
	if d.cfg.Soon == nil {
		return
	}
	var away map[int][]task.Task // by partition
	for _, t := range stored {
		p := d.cfg.Layout.Partition(d.cfg.Layout.Shard(t.BizID))
		if d.cfg.Cluster.Owns(p) || !d.cfg.Soon(t.BizType, p, t.ActionTime) {
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
