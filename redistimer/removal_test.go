package redistimer_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/queue/dispatch"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// A task that is moved beyond the horizon, and back at once, is in its slot. Before, its removal could follow the arming, and a sweep
// found the task, late.
func TestARemovalDoesNotUndoALaterArming(t *testing.T) {
	c := open(t, sharedRedis)
	c.biz.Horizon = 30 * time.Second
	n := c.start(allPartitions...)
	c.allRead()
	move := func(row task.Task, by time.Duration) {
		at := task.CeilMilli(time.Now().Add(by))
		moved, err := c.store.Move(t.Context(), store.Move{JobID: row.JobID, From: task.Pending, To: task.Pending,
			Set: store.Set{ActionTime: &at}})
		require.NoError(t, err)
		require.True(t, moved)
		row.ActionTime = at
		n.moved(dispatch.Edited, row)
	}
	const movers, each = 12, 10
	var ids [movers * each]uint64
	var wg sync.WaitGroup
	for m := range movers {
		wg.Go(func() {
			for i := range each {
				row := n.submit(uint64(m*each+i+1), 20*time.Second)
				for range 2 {
					move(row, time.Hour)
					move(row, 20*time.Second)
				}
				ids[m*each+i] = row.JobID
			}
		})
	}
	wg.Wait()
	for _, id := range ids {
		c.eventually(func() bool { stored, prepared := c.has(id); return stored || prepared }, "task %d is not in its slot", id)
	}
	time.Sleep(100 * time.Millisecond) // real time: a removal may be under way at the server
	for _, id := range ids {
		stored, prepared := c.has(id)
		require.True(t, stored || prepared, "task %d is not in its slot any more", id)
	}
}
