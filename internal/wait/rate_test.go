package wait_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/wait"
)

func TestRate(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var r wait.Rate
	require.True(t, r.Update(now, time.Second, 0), "the first window begins")
	after := func(d time.Duration, items, many int) bool {
		now = now.Add(d)
		r.Add(items)
		return r.Update(now, time.Second, many)
	}
	require.False(t, after(900*time.Millisecond, 100, 0))
	require.True(t, after(100*time.Millisecond, 100, 0))
	require.InDelta(t, 200, r.PerSecond, 1e-9)
	require.False(t, after(40*time.Millisecond, 30, 25))
	require.True(t, after(10*time.Millisecond, 0, 25), "so many show the rate")
	require.InDelta(t, 600, r.PerSecond, 1e-9)
	require.True(t, after(10*time.Second, 10, 25))
	require.InDelta(t, 1, r.PerSecond, 1e-9)
	require.True(t, after(-time.Hour, 5, 0), "the clock was set back")
	require.Zero(t, r.PerSecond)
}
