package redistimer_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/redistimer/slots"
)

// Redis becomes silent while the claims of slots just taken over are listed. These calls must not follow each
// other, each up to its time-out, before the silence is noticed. Before, that took 20 s.
func TestSilenceIsNoticedInTheMiddleOfRecovery(t *testing.T) {
	t.Parallel()
	c := open(t, ownRedis)
	n := c.start()
	look := "zrange"
	n.link.silenceAt.Store(&look)
	for p := range layout.Partitions { // recovery lists only slots with claims
		slot := slots.Slot{Topic: c.biz.Topic, Partition: p}
		require.NoError(t, c.redis.ZAdd(t.Context(), c.slots.PrepareKey(slot), redis.Z{Score: 1e15, Member: 1}).Err())
		n.owned.set(p, true)
	}
	await.That(t, n.link.silent.Load, "recovery looks at a slot")
	await.That(t, func() bool { return n.Degraded() != "" }, "the silence is noticed")
	require.EqualValues(t, 1, n.link.looks.Load(), "the silence of one look is enough")
	n.link.silenceAt.Store(nil)
	n.link.silent.Store(false)
}
