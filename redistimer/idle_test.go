package redistimer_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/redistimer"
	"github.com/timeoutcenter/toc/task"
)

// The cost of idle types does not grow with their number: their slots are not polled.
func TestIdleTypesCostNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, c *center) {
		var scripts atomic.Int64
		c.server.Server().SetPreHook(func(_ *server.Peer, command string, _ ...string) bool {
			if command == "EVALSHA" {
				scripts.Add(1)
			}
			return false
		})
		n := c.start(allPartitions...)
		types := []redistimer.BizType{c.biz}
		for i := range uint64(200) {
			b := c.biz
			b.ID, b.Name, b.Topic = 100+i, fmt.Sprint("type", i), fmt.Sprint("topic", i)
			types = append(types, b)
		}
		n.SetTypes(types)
		c.allRead()
		time.Sleep(10 * time.Second) // in a bubble: all slots are taken over
		scripts.Store(0)
		time.Sleep(time.Minute) // in a bubble
		require.LessOrEqual(t, scripts.Load(), int64(61), "the pulse alone")
	})
}

// A server that has lost everything is noticed, although nothing is due.
func TestALossIsNoticed(t *testing.T) {
	inBubble(t, func(t *testing.T, c *center) {
		n := c.start(allPartitions...)
		c.allRead()
		c.park(n, 20, later)
		time.Sleep(2 * time.Second) // in a bubble
		require.NoError(t, c.redis.FlushAll(t.Context()).Err())
		lost := time.Now()
		c.eventually(func() bool { return c.depth() == depth{Store: 20} }, "they are not armed again")
		require.Less(t, time.Since(lost), 1100*time.Millisecond)
		require.Equal(t, 20, c.rearmedFor(redistimer.ReasonLost))
	})
}

// park stores tasks that are due after a delay, and waits until they are armed.
func (c *center) park(n *node, tasks int, delay time.Duration) (ids []uint64) {
	before := c.depth().Store
	for i := range tasks {
		ids = append(ids, n.submit(uint64(i), delay).JobID)
	}
	c.eventually(func() bool { return c.depth() == depth{Store: before + int64(tasks)} }, "they are not armed")
	return ids
}

// Redis lost the queue of a slot, and an earlier task came before that was noticed: the next read finds the others.
func TestAQueueIsLostUnderAnEarlierTask(t *testing.T) {
	inBubble(t, func(t *testing.T, c *center) {
		n := c.start(allPartitions...)
		c.allRead()
		c.park(n, 8, later+20*time.Second)
		for p := range layout.Partitions {
			require.NoError(t, c.redis.Del(t.Context(), c.slots.StoreKey(c.slotOf(p))).Err())
		}
		require.Zero(t, c.depth())
		for _, id := range c.park(n, 8, 500*time.Millisecond) {
			c.settled(id, task.Processed)
		}
		c.eventually(func() bool { return c.depth() == depth{Store: 8} }, "those that were there are not armed again")
	})
}

// A head that Redis has lost alone is missed when it is claimed. A head that was cancelled is not.
func TestAHeadIsLost(t *testing.T) {
	inBubble(t, func(t *testing.T, c *center) {
		n := c.start(allPartitions...)
		c.allRead()
		ids := c.park(n, 12, 5*time.Second)
		for _, id := range ids[:6] {
			require.NoError(t, c.redis.ZRem(t.Context(), c.slots.StoreKey(c.slot(id)), fmt.Sprint(id)).Err())
		}
		for _, id := range ids[6:] {
			require.NoError(t, n.desk.Cancel(t.Context(), id))
		}
		for _, id := range ids[:6] {
			c.settled(id, task.Processed)
			require.Less(t, c.runsOf(id)[0].at.Sub(c.row(id).ActionTime), time.Second)
		}
	})
}

// A task that was given back waits a moment, later than its row says: its slot is not asked again and again meanwhile.
func TestATaskThatWaitsAMomentIsNoLostHead(t *testing.T) {
	inBubble(t, func(t *testing.T, c *center) {
		n := c.start(allPartitions...)
		c.allRead()
		one := n.submit(1, 5*time.Second)
		key := c.slots.StoreKey(c.slot(one.JobID))
		at := one.ActionTime.Add(700 * time.Millisecond)
		require.NoError(t, c.redis.ZAdd(t.Context(), key, redis.Z{Score: float64(at.UnixMilli() * 1000), Member: fmt.Sprint(one.JobID)}).Err())
		var scripts atomic.Int64
		c.server.Server().SetPreHook(func(_ *server.Peer, command string, _ ...string) bool {
			if command == "EVALSHA" {
				scripts.Add(1)
			}
			return false
		})
		c.settled(one.JobID, task.Processed)
		require.Less(t, c.runsOf(one.JobID)[0].at.Sub(at), 100*time.Millisecond)
		require.Less(t, scripts.Load(), int64(20), "the pulse has six of them")
	})
}

// Redis lost everything right before a partition was handed over.
func TestALossBeforeAHandOver(t *testing.T) {
	inBubble(t, func(t *testing.T, c *center) {
		a, b := c.start(allPartitions...), c.start()
		c.allRead()
		move := func(from, to *node) {
			for p := range layout.Partitions {
				from.owned.set(p, false)
				require.NoError(t, from.WaitPartition(t.Context(), p))
				to.owned.set(p, true)
			}
		}
		c.park(a, 20, later)
		move(a, b)
		c.allRead()
		require.Zero(t, c.rearmedFor(redistimer.ReasonLost), "none was lost")

		require.NoError(t, c.redis.FlushAll(t.Context()).Err())
		move(b, a)
		c.eventually(func() bool { return c.depth() == depth{Store: 20} }, "they are not armed again")
	})
}
