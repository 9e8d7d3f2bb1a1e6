package redistimer_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Redis falls silent while the claims of slots just taken over are looked at. Each
// look takes as long as the client's patience, twice: they must not follow each
// other before anybody notices.
func TestSilenceIsNoticedInTheMiddleOfRecovery(t *testing.T) {
	t.Parallel()
	c := open(t, ownRedis)
	n := c.start()
	look := "zrange"
	n.line.silenceAt.Store(&look)
	for p := range layout.Partitions {
		n.owned.set(p, true)
	}
	require.Eventually(t, n.line.silent.Load, 10*time.Second, time.Millisecond)
	began := time.Now()
	require.Eventually(t, func() bool { return n.Degraded() != "" }, time.Minute, 10*time.Millisecond)
	n.line.silenceAt.Store(nil)
	n.line.silent.Store(false)
	t.Log("noticed after", time.Since(began))
	require.Less(t, time.Since(began), 23*time.Second, "two slots or more were waited for, one after the other")
}
