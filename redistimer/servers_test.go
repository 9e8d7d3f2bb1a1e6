package redistimer_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

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
	})
}

// The owner receives the wake-ups of tasks that another node has armed while the master is silent through which
// they came. Before, wake-ups came from one master alone: while it was silent, none arrived, and each task was
// up to three seconds late.
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
	c.tick = 5 * time.Second
	n := c.start(allPartitions...)
	c.allRead()
	other := c.start()
	c.eventually(func() bool { return n.link.wakesFrom.Load() != nil }, "it does not listen")
	silent := slices.Index(cluster.Addrs(), *n.link.wakesFrom.Load())
	cluster.Freeze(silent)
	c.eventually(func() bool { return n.Degraded() != "" }, "the silence was not noticed")
	bizID, before := uint64(0), n.link.wakeUps.Load()
	c.eventually(func() bool { // a task that comes before the owner listens elsewhere is found without a wake-up
		for bizID++; masters[layout.Partition(layout.Shard(bizID))] == silent; bizID++ {
		}
		row, armed := other.submit(bizID, 20*time.Millisecond), true
		c.eventually(func() bool { // the client of the test would wait for the master, too
			select {
			case late := <-other.unarmed: // it still takes a master for silent; then a center notifies the owner in another way
				armed = armed && late.JobID != row.JobID
			default:
			}
			return !armed || c.row(row.JobID).Status == task.Processed
		}, "task %d is not processed", row.JobID)
		return n.link.wakeUps.Load() >= before+4
	}, "no wake-ups arrive")
	cluster.Thaw(silent)
	c.eventually(func() bool { return n.Degraded() == "" }, "it is not in reach again")
}
