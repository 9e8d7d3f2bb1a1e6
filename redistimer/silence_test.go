package redistimer_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/redistimer/slots"
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
