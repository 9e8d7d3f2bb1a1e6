package wait

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

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

	expired := func() bool {
		var expirations [8]byte
		n, _ := unix.Read(a.fd, expirations[:])
		return n > 0
	}
	for _, d := range []time.Duration{30, 10, 20} {
		a.At(d * time.Millisecond)
	}
	await.That(t, func() bool {
		if expired() {
			a.Passed()
		}
		return a.pending() == far
	}, "each expires, and the next one after Passed")
	require.False(t, expired(), "the far one has not")
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	a.At(time.Second)
	require.Zero(t, a.pending())
	a.Passed()
	(*Alarm)(nil).At(time.Second)
	(*Alarm)(nil).Passed()
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
