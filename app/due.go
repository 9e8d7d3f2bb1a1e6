package app

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/timeoutcenter/toc/app/metrics"
	"github.com/timeoutcenter/toc/internal/wait"
	"github.com/timeoutcenter/toc/store"
)

// dueEvery is the interval at which the upcoming tasks of this node's partitions are counted for toc_due.
const dueEvery = time.Minute

// due is the number of upcoming tasks, by business type, within each of metrics.DueWithin.
type due map[uint64][len(metrics.DueWithin)]float64

// dueFirst is the time of the first count after the start.
const dueFirst = 5 * time.Second

// Counting goes from database to database, with pauses, so that it delays nothing.
const (
	dueRows  = 2000 // of a database
	duePause = 100 * time.Millisecond
)

// dueCounter counts the upcoming tasks of this node's partitions.
type dueCounter struct {
	*App
	ofDatabase []due               // the last counts; for countDue alone
	sum        atomic.Pointer[due] // as of the last count; nil: none yet
}

// countDue counts database by database. Of a database that does not answer the last count stands.
func (c *dueCounter) countDue(ctx context.Context) {
	now, sum := c.clock.Now(), due{}
	for d, shards := range c.ownedShards() {
		list, scale, _, err := c.store.Upcoming(ctx, shards, now, now.Add(metrics.DueWithin[len(metrics.DueWithin)-1].Span), dueRows)
		if err == nil { // otherwise the callers that need the database report it
			c.ofDatabase[d] = due{}
			c.ofDatabase[d].add(list, scale, now)
		}
		for bizType, counts := range c.ofDatabase[d] {
			all := sum[bizType]
			for i, n := range counts {
				all[i] += n
			}
			sum[bizType] = all
		}
		if wait.For(ctx, duePause) != nil {
			return
		}
	}
	c.sum.Store(&sum)
}

// ownedShards lists the shards of this node's partitions, by database.
func (c *dueCounter) ownedShards() [][]int {
	owned := c.cluster.Ownership()
	list := make([][]int, c.layout.Databases)
	for p := range c.layout.Partitions {
		if first, end := c.layout.PartitionShards(p); owned.Owns(p) {
			for d := c.layout.PartitionDatabase(p); first < end; first++ {
				list[d] = append(list[d], first)
			}
		}
	}
	return list
}

// add adds tasks, each of which stands for scale tasks.
func (d due) add(list []store.Upcoming, scale float64, now time.Time) {
	for _, u := range list {
		n := d[u.BizType]
		for i, within := range metrics.DueWithin {
			if u.At.Before(now.Add(within.Span)) {
				n[i] += scale
			}
		}
		d[u.BizType] = n
	}
}
