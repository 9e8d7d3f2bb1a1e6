package forward

import (
	"context"

	"github.com/timeoutcenter/toc/task"
)

// maxWaiting is the maximum number of offers that wait for one node.
const maxWaiting = 10_000

// Notify implements dispatch.Nodes.
func (f *Forwarder) Notify(tasks ...task.Task) {
	var away map[int][]task.Task // by partition
	for _, t := range tasks {
		shard, ok := f.cfg.Layout.ShardOf(t.JobID)
		p := f.cfg.Layout.Partition(shard)
		if !ok || f.cfg.Cluster.Term(p) != 0 {
			continue
		}
		if away == nil {
			away = make(map[int][]task.Task)
		}
		away[p] = append(away[p], t)
	}
	for p, list := range away {
		if n, err := f.owner(p); err == nil {
			n.Offer(list...)
		}
	}
}

// Offer announces tasks that are due soon to the owner. It sends waiting offers together. It drops offers that fail, or
// are too many; the owner's scan finds the tasks.
func (n *node) Offer(tasks ...task.Task) {
	if !n.begin() {
		return
	}
	defer n.inflight.Done()
	before := int(n.waiting.Add(int64(len(tasks)))) - len(tasks)
	ids := make([]uint64, min(len(tasks), max(0, maxWaiting-before)))
	if excess := len(tasks) - len(ids); excess > 0 {
		n.waiting.Add(int64(-excess))
		n.dropped(excess, "too many wait")
	}
	for i := range ids {
		ids[i] = tasks[i].JobID
	}
	n.offers.Add(ids...)
}

// send sends offers.
func (n *node) send(jobIDs []uint64) {
	n.waiting.Add(int64(-len(jobIDs)))
	ctx, cancel := context.WithTimeout(context.Background(), n.offerTimeout())
	defer cancel()
	if _, err := n.owner.Wake(ctx, jobIDs); err != nil {
		n.dropped(len(jobIDs), reason(err))
	}
}

func (n *node) dropped(offers int, why string) {
	n.cfg.Logger.Debug("offers dropped; the owner's scan finds the tasks", "node", n.name, "tasks", offers, "reason", why)
}
