package app

import (
	"context"
	"math"
	"time"

	"github.com/timeoutcenter/toc/metrics"
)

// dueEvery is the interval at which the upcoming tasks of this node's partitions are counted for toc_due.
const dueEvery = time.Minute

// due is the number of upcoming tasks, by business type, within each of metrics.DueWithin.
type due map[uint64][len(metrics.DueWithin)]int

// watchDue counts what is due soon until ctx ends.
func (a *App) watchDue(ctx context.Context) error {
	first := time.NewTimer(dueFirst)
	defer first.Stop()
	for {
		select {
		case <-first.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		a.countDue(ctx)
		first.Reset(dueEvery)
	}
}

// dueFirst is the time of the first count after the start.
const dueFirst = 5 * time.Second

func (a *App) countDue(ctx context.Context) {
	owned := a.cluster.Ownership()
	var shards []int
	for p := range a.layout.Partitions {
		if owned.Owns(p) {
			first, end := a.layout.PartitionShards(p)
			for ; first < end; first++ {
				shards = append(shards, first)
			}
		}
	}
	counts := due{}
	if len(shards) > 0 {
		now := a.clock.Now()
		list, scale, _, err := a.store.Upcoming(ctx, shards, now, now.Add(metrics.DueWithin[len(metrics.DueWithin)-1].Span))
		if err != nil {
			return // whoever needs the database tells; the last count stands
		}
		for _, u := range list {
			n := counts[u.BizType]
			for i, within := range metrics.DueWithin {
				if u.At.Before(now.Add(within.Span)) {
					n[i]++
				}
			}
			counts[u.BizType] = n
		}
		for b, n := range counts {
			for i := range n {
				n[i] = int(math.Round(float64(n[i]) * scale))
			}
			counts[b] = n
		}
	}
	a.due.Store(&counts)
}
