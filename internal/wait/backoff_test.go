package wait_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/wait"
)

// The pauses double up to the longest, begin again after Reset, and end with their context.
func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := wait.Backoff{First: time.Second, Most: 5 * time.Second}
		began := time.Now()
		took := func() time.Duration { defer func() { began = time.Now() }(); return time.Since(began) }
		for _, seconds := range []time.Duration{1, 2, 4, 5, 5} {
			require.NoError(t, b.Wait(t.Context()))
			require.Equal(t, seconds*time.Second, took())
		}
		b.Reset()
		require.Equal(t, time.Second, b.Next())
		require.Equal(t, 2*time.Second, b.Next())
		require.Zero(t, took(), "Next does not wait")

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, b.Wait(ctx), context.DeadlineExceeded)
		require.Equal(t, time.Second, took())
	})
}
