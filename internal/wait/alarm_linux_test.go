package wait

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/testrig/await"
)

func (a *Alarm) pending() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.times)
}

func TestAlarm(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var a Alarm
	a.At(time.Hour)
	require.Zero(t, a.pending(), "it does not run")
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	await.That(t, func() bool { a.At(time.Hour); return a.pending() > 0 }, "it runs")
	far := a.pending()

	for range 2 {
		for _, d := range []time.Duration{30, 10, 20} {
			a.At(d * time.Millisecond)
		}
		require.LessOrEqual(t, a.pending(), far+3)
		await.That(t, func() bool { return a.pending() == far }, "each wakes, and sets the next one")
	}
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	a.At(time.Second)
	require.Zero(t, a.pending())
	(*Alarm)(nil).At(time.Second)
}

func TestAlarmInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var a Alarm
		ended := make(chan error, 1)
		go func() { ended <- a.Run(ctx) }()
		synctest.Wait()
		a.At(time.Millisecond)
		require.Zero(t, a.pending(), "timers are exact there")
		require.ErrorIs(t, <-ended, context.DeadlineExceeded)
	})
}
