package app

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestTheClock: a node's clock that is ahead fires nothing early. Before, a clock that was 90 minutes ahead for a second
// fired all tasks of those 90 minutes, and slots counted as filled that far.
func TestTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var set time.Duration // by how much somebody has set the wall clock
		c := newClock(slog.New(slog.DiscardHandler))
		c.raw = func() time.Time { return time.Now().Add(set) }
		c.drift = func(time.Time) time.Duration { return set }
		right := func() time.Time { return time.Now() }
		agrees := func(by time.Duration) {
			t.Helper()
			require.WithinDuration(t, right().Add(by), c.Now(), time.Millisecond)
		}
		agrees(0)

		set = 90 * time.Minute
		agrees(0) // not believed
		set = 0
		agrees(0)

		set = 90 * time.Minute
		agrees(0)
		c.observe([]time.Duration{0, 0, time.Millisecond}) // the others say so, too: this machine was asleep
		agrees(90 * time.Minute)
		require.Empty(t, c.Degraded())
		set = 0
		agrees(0) // set back is believed at once
		c.observe([]time.Duration{0})

		set = time.Hour
		agrees(0)
		c.observe([]time.Duration{time.Hour, time.Hour, -time.Hour}) // it is wrong, and so is one of the others
		agrees(0)
		require.Contains(t, c.Degraded(), "1h0m0s ahead")
		set = 0
		c.observe([]time.Duration{0, 0})
		agrees(0)
		require.Empty(t, c.Degraded())

		c.observe([]time.Duration{-3 * time.Second, -3 * time.Second})
		agrees(0)
		require.Contains(t, c.Degraded(), "3s behind")
		c.observe([]time.Duration{900 * time.Millisecond})
		agrees(0)

		set = time.Hour // and nobody to ask
		agrees(0)
		time.Sleep(unconfirmed)
		agrees(time.Hour)
	})
}
