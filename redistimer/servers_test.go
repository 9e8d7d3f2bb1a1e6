package redistimer_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/task"
)

// TestTimerCluster runs TestTimerServer on three masters.
func TestTimerCluster(t *testing.T) {
	t.Parallel()
	cluster := testrig.StartRedisCluster(t)
	var tests atomic.Int64
	exerciseTimer(t, func(testing.TB) ([]string, string) {
		return cluster.Addrs(), fmt.Sprintf("t%d:", tests.Add(1))
	}, false)
}

// Whichever master of a cluster is silent, the owner receives the wake-ups of tasks that another node has armed
// on the others. Before, wake-ups came from one master alone: while it was silent, each task was up to three
// seconds late.
func TestWakeUpsArriveWhileAMasterIsSilent(t *testing.T) {
	t.Parallel()
	cluster := testrig.StartRedisCluster(t)
	prefix, masters := "", map[int]int{} // of each partition
	c := open(t, func(testing.TB) ([]string, string) {
		for i, used := 0, map[int]bool{}; len(used) < 3; i++ { // there are partitions on all of them
			prefix = fmt.Sprintf("p%d:", i)
			clear(used)
			for p := range layout.Partitions {
				masters[p] = cluster.NodeOf(cluster.SlotOf(fmt.Sprintf("%s%s_%d", prefix, closeOrders, p)))
				used[masters[p]] = true
			}
		}
		return cluster.Addrs(), prefix
	})
	c.pollEvery = time.Hour
	n := c.start(allPartitions...)
	c.filled()
	other := c.start()
	for silent := range 3 {
		cluster.Freeze(silent)
		for bizID := range uint64(1000) { // an arm notices it
			if masters[layout.Partition(layout.Shard(bizID))] == silent {
				n.submit(bizID, time.Hour/2)
				break
			}
		}
		c.eventually(func() bool { return n.Degraded() != "" }, "the silence was not noticed")
		bizID, tasks := uint64(0), 0
		for tasks < 12 {
			bizID++
			if masters[layout.Partition(layout.Shard(bizID))] == silent {
				continue
			}
			require.Less(t, bizID, uint64(1000), "the other node arms nothing")
			row, armed := other.submit(bizID, 20*time.Millisecond), true
			c.eventually(func() bool {
				select {
				case late := <-other.unarmed:
					armed = armed && late.JobID != row.JobID
				default:
				}
				return !armed || c.row(row.JobID).Status == task.Processed
			}, "task %d is not processed", row.JobID)
			if !armed { // it still takes a master for silent; then a center notifies the owner in another way
				continue
			}
			tasks++
			c.settled(row.JobID, task.Processed)
		}
		cluster.Thaw(silent)
		c.eventually(func() bool { return n.Degraded() == "" }, "it is not in reach again")
	}
}
