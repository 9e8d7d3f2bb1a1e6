package redistimer_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/redistimer"
	"github.com/timeoutcenter/toc/task"
)

// The cost of idle types does not grow with their number: their slots are not polled. Before, each was polled
// every three seconds, and some tens of types used a whole core.
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
		types := c.types()
		for i := range uint64(200) {
			b := c.biz
			b.ID, b.Name, b.Topic = 100+i, fmt.Sprint("type", i), fmt.Sprint("topic", i)
			types = append(types, b)
		}
		n.SetTypes(types)
		c.filled()
		time.Sleep(10 * time.Second) // in a bubble: all slots are taken over
		scripts.Store(0)
		time.Sleep(time.Minute) // in a bubble
		require.LessOrEqual(t, scripts.Load(), int64(21*layout.Partitions), "the guards alone")
	})
}

// A slot that is not polled is filled again when Redis has lost allPartitions.
func TestAQuietSlotIsLost(t *testing.T) {
	inBubble(t, func(t *testing.T, c *center) {
		c.guarded = true
		n := c.start(allPartitions...)
		c.filled()
		ids := make([]uint64, 20)
		for i := range ids {
			ids[i] = n.submit(uint64(i), 13*time.Second).JobID
		}
		c.eventually(func() bool { return c.depth() == depth{Store: 20} }, "they are not armed")
		require.NoError(t, c.redis.FlushAll(t.Context()).Err())
		c.eventually(func() bool { return c.depth() == depth{Store: 20} }, "they are not armed again, though nothing of them is due")
		c.eventually(func() bool { return c.lost() == 20 }, "they were not armed again")
		time.Sleep(8 * time.Second) // in a bubble
		for _, id := range ids {
			c.settled(id, task.Processed)
			require.Len(t, c.runsOf(id), 1)
		}
	})
}

// lost is the number of tasks that were armed again because Redis had lost them.
func (c *center) lost() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rearmed[redistimer.ReasonLost]
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

// Redis lost the queue of a quiet slot, and an earlier task came before that was noticed. Before, only the
// sweep found the tasks that had been there.
func TestAQueueIsLostUnderAnEarlierTask(t *testing.T) {
	inBubble(t, func(t *testing.T, c *center) {
		c.guarded = true
		n := c.start(allPartitions...)
		c.filled()
		c.park(n, 8, time.Minute)
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

// Redis lost allPartitions, and another type's slots became the guards before that was noticed.
func TestALossBeforeTheGuardsChange(t *testing.T) {
	t.Parallel()
	for _, change := range []string{"the guard's type leaves", "a type comes before it"} {
		t.Run(change, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *center) {
				c.guarded = true
				n := c.start(allPartitions...)
				c.filled()
				c.park(n, 20, time.Minute)
				types := c.types()[1:]
				if change != "the guard's type leaves" {
					first := c.biz
					first.ID, first.Name, first.Topic = 1, "first", "first"
					types = append([]redistimer.BizType{first}, c.types()...)
				}
				require.NoError(t, c.redis.FlushAll(t.Context()).Err())
				n.SetTypes(types)
				c.eventually(func() bool { return c.depth() == depth{Store: 20} }, "they are not armed again")
			})
		})
	}
}

// Redis lost allPartitions right before a partition was handed over: its quiet slots are not handed over as complete.
func TestALossBeforeAHandOver(t *testing.T) {
	inBubble(t, func(t *testing.T, c *center) {
		c.guarded, c.storeID = true, "0123456789abcdef"
		a, b := c.start(allPartitions...), c.start()
		c.filled()
		move := func(from, to *node) {
			for p := range layout.Partitions {
				from.owned.set(p, false)
				require.NoError(t, from.WaitPartition(t.Context(), p))
				to.owned.set(p, true)
			}
		}
		c.park(a, 20, time.Minute)
		time.Sleep(500 * time.Millisecond) // in a bubble: the first fills are done
		before := c.lost()
		move(a, b)
		c.filled()
		require.Equal(t, before, c.lost(), "what was handed over is complete")

		require.NoError(t, c.redis.FlushAll(t.Context()).Err())
		move(b, a)
		c.eventually(func() bool { return c.depth() == depth{Store: 20} }, "they are not armed again")
	})
}
