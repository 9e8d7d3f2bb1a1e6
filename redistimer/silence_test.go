package redistimer_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/redistimer"
	"github.com/timeoutcenter/toc/redistimer/slots"
	"github.com/timeoutcenter/toc/task"
)

// Redis becomes silent while the claims of slots just taken over are listed. These calls must not follow each
// other, each up to its time-out, before the silence is noticed. Before, that took 20 s.
func TestSilenceIsNoticedInTheMiddleOfRecovery(t *testing.T) {
	inBubble(t, func(t *testing.T, c *center) {
		n := c.start()
		look := "zrange"
		n.link.silenceAt.Store(&look)
		for p := range layout.Partitions { // recovery lists only slots with claims
			slot := slots.Slot{Topic: c.biz.Topic, Partition: p}
			require.NoError(t, c.redis.ZAdd(t.Context(), c.slots.PrepareKey(slot), redis.Z{Score: 1e15, Member: 1}).Err())
			n.owned.set(p, true)
		}
		c.eventually(n.link.silent.Load, "no claims are listed")
		began := time.Now()
		c.eventually(func() bool { return n.Degraded() != "" }, "the silence is not noticed")
		n.link.silenceAt.Store(nil)
		n.link.silent.Store(false)
		t.Log("noticed after", time.Since(began))
		require.Less(t, time.Since(began), 10*time.Second, "the silence of one look is waited for, and a call of the next round")
	})
}

// The connection of wake-ups falls silent, and new ones never work. A task that another node arms is found by the next read.
func TestTasksAreFoundWithoutWakeUps(t *testing.T) {
	inBubble(t, func(t *testing.T, c *center) {
		c.tick = 10 * time.Second
		n := c.start(allPartitions...)
		c.allRead()
		other := c.start()
		late := func(id uint64) time.Duration { return c.runsOf(id)[0].at.Sub(c.row(id).ActionTime) }
		heard := other.submit(1, 20*time.Millisecond).JobID
		c.settled(heard, task.Processed)
		require.Less(t, late(heard), 100*time.Millisecond, "a wake-up tells of it")

		n.link.silenceWakes()
		before := n.link.wakeUps.Load()
		var ids []uint64
		for biz := range uint64(8) {
			ids = append(ids, other.submit(biz, 20*time.Millisecond).JobID)
			time.Sleep(time.Second) // in a bubble
		}
		time.Sleep(10 * time.Second) // in a bubble
		for _, id := range ids {
			c.settled(id, task.Processed)
			require.LessOrEqual(t, late(id), 8*time.Second+100*time.Millisecond)
		}
		require.Equal(t, before, n.link.wakeUps.Load())
	})
}

// The name of the server gets a new one, while the old one still answers. Wake-ups of the new one are heard once the
// subscription is old.
func TestASubscriptionFollowsANewAddress(t *testing.T) {
	inBubble(t, func(t *testing.T, c *center) {
		n := c.start(allPartitions...)
		c.eventually(func() bool { return n.link.wakesFrom.Load() != nil }, "it does not listen")
		next := miniredis.NewMiniRedis()
		first, err := next.Dial() // starts it
		require.NoError(t, err)
		require.NoError(t, first.Close())
		n.link.lead(func(context.Context, string, string) (net.Conn, error) {
			ours, its := net.Pipe()
			next.Server().ServeConn(newLooseConn(its))
			return newLooseConn(ours), nil
		})
		moved := time.Now()
		for next.Publish(c.slots.WakeChannel(), "") == 0 {
			require.LessOrEqual(t, time.Since(moved), redistimer.MaxSubscription)
			time.Sleep(100 * time.Millisecond) // in a bubble
		}
		require.GreaterOrEqual(t, time.Since(moved), redistimer.MaxSubscription*2/3-time.Second)
		n.end()
		next.Close()
		time.Sleep(time.Second) // in a bubble: what was sent arrives
	})
}
