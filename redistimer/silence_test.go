package redistimer_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/redistimer/slots"
)

// Redis falls silent while the claims of slots just taken over are looked at. The
// looks must not follow each other, each up to its time-out, before anybody notices.
// Before, it took 20 s.
func TestSilenceIsNoticedInTheMiddleOfRecovery(t *testing.T) {
	t.Parallel()
	c := open(t, ownRedis)
	n := c.start()
	look := "zrange"
	n.line.silenceAt.Store(&look)
	for p := range layout.Partitions { // where nothing is claimed, nothing is looked at
		slot := slots.Slot{Topic: c.biz.Topic, Partition: p}
		require.NoError(t, c.redis.ZAdd(t.Context(), c.slots.PrepareKey(slot), redis.Z{Score: 1e15, Member: 1}).Err())
		n.owned.set(p, true)
	}
	require.Eventually(t, n.line.silent.Load, 10*time.Second, time.Millisecond)
	began := time.Now()
	require.Eventually(t, func() bool { return n.Degraded() != "" }, time.Minute, 10*time.Millisecond)
	n.line.silenceAt.Store(nil)
	n.line.silent.Store(false)
	t.Log("noticed after", time.Since(began))
	require.Less(t, time.Since(began), 10*time.Second, "the silence of one look is waited for, and a call of the next round")
}
