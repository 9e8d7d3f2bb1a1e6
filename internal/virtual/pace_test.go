package virtual_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/virtual"
	"github.com/timeoutcenter/toc/internal/wait"
)

// Polls keep their interval, wait longer while they are slowed down, and are made at once when they are roused.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var pace virtual.Pace
		began := time.Now()
		took := func() time.Duration { defer func() { began = time.Now() }(); return time.Since(began) }
		for _, ctx := range []context.Context{t.Context(), wait.WithPace(t.Context(), &pace)} {
			require.NoError(t, wait.Poll(ctx, time.Second))
			require.Equal(t, time.Second, took())
		}
		ctx := wait.WithPace(t.Context(), &pace)
		pace.Slow(time.Minute)
		require.NoError(t, wait.Poll(ctx, time.Second))
		require.Equal(t, time.Minute, took())
		require.NoError(t, wait.Poll(ctx, time.Hour))
		require.Equal(t, time.Hour, took())
		go func() { time.Sleep(time.Second); pace.Rouse() }()
		require.NoError(t, wait.Poll(ctx, time.Second))
		require.Equal(t, time.Second, took())
		require.NoError(t, wait.Poll(ctx, time.Second))
		require.Equal(t, time.Second, took())

		ctx, cancel := context.WithCancel(ctx)
		pace.Slow(time.Minute)
		time.AfterFunc(time.Second, cancel)
		require.ErrorIs(t, wait.Poll(ctx, time.Second), context.Canceled)
		require.Equal(t, time.Second, took())
	})
}
