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
	var far time.Duration
	await.That(t, func() bool { far = a.At(time.Hour); return far > 0 }, "it runs")

	expired := func() bool {
		var expirations [8]byte
		n, _ := unix.Read(a.fd, expirations[:])
		return n > 0
	}
	third, first, second := a.At(30*time.Millisecond), a.At(10*time.Millisecond), a.At(20*time.Millisecond)
	for _, at := range []time.Duration{first, second, third} {
		await.That(t, expired, "each expires, once the one before has passed")
		a.Passed(at)
	}
	require.False(t, expired(), "the far one has not")

	left := func() time.Duration {
		var spec unix.ItimerSpec
		require.NoError(t, unix.TimerfdGettime(a.fd, &spec))
		return time.Duration(spec.Value.Nano()).Round(time.Minute)
	}
	next, gone := a.At(20*time.Minute), a.At(10*time.Minute)
	require.Equal(t, 10*time.Minute, left())
	a.Passed(gone)
	require.Equal(t, 20*time.Minute, left(), "whoever wanted the first one wants it no more: the next one comes all the same")
	again := a.At(30 * time.Minute)
	a.Passed(next)
	require.Equal(t, 30*time.Minute, left())
	a.Passed(again)
	a.Passed(far)
	require.Zero(t, a.pending())
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	a.At(time.Second)
	require.Zero(t, a.pending())
	a.Passed(far)
	(*Alarm)(nil).Passed((*Alarm)(nil).At(time.Second))
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
