package dedup_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/client/dedup"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/await"
)

// on runs a test on memory alone, and on a Redis that others have, too.
func on(t *testing.T, test func(t *testing.T, open func(dedup.Config) *dedup.Dedup)) {
	t.Run("memory", func(t *testing.T) { test(t, dedup.New) })
	t.Run("redis", func(t *testing.T) {
		r := testrig.Redis(t)
		client := redis.NewClient(&redis.Options{Addr: r.Addr()})
		t.Cleanup(func() { require.NoError(t, client.Close()) })
		test(t, func(cfg dedup.Config) *dedup.Dedup {
			cfg.Redis, cfg.Prefix = client, r.Prefix()
			return dedup.New(cfg)
		})
	})
}

func TestWorkIsDoneOnce(t *testing.T) {
	on(t, func(t *testing.T, open func(dedup.Config) *dedup.Dedup) {
		d := open(dedup.Config{})
		n := 0
		work := func(context.Context) error { n++; return nil }
		for range 3 {
			require.NoError(t, d.Do(t.Context(), "1", work))
		}
		require.Equal(t, 1, n)
		require.NoError(t, d.Do(t.Context(), "2", work))
		require.Equal(t, 2, n)
	})
}

// Work that fails, or panics, was not done.
func TestFailedWorkIsDoneAgain(t *testing.T) {
	on(t, func(t *testing.T, open func(dedup.Config) *dedup.Dedup) {
		d := open(dedup.Config{})
		down := errors.New("down")
		require.ErrorIs(t, d.Do(t.Context(), "1", func(context.Context) error { return down }), down)
		require.Panics(t, func() { _ = d.Do(t.Context(), "1", func(context.Context) error { panic("oh") }) })
		ctx, cancel := context.WithCancel(t.Context())
		require.ErrorIs(t, d.Do(ctx, "1", func(ctx context.Context) error { cancel(); return ctx.Err() }), context.Canceled)
		n := 0
		require.NoError(t, d.Do(t.Context(), "1", func(context.Context) error { n++; return nil }))
		require.Equal(t, 1, n)
	})
}

// Of many calls at the same time one does the work; the others are told, or come later and find it done.
func TestCallsAtTheSameTime(t *testing.T) {
	on(t, func(t *testing.T, open func(dedup.Config) *dedup.Dedup) {
		d := open(dedup.Config{})
		var n, underWay atomic.Int64
		var calls sync.WaitGroup
		begun, finish := make(chan struct{}), make(chan struct{})
		calls.Go(func() {
			require.NoError(t, d.Do(t.Context(), "1", func(context.Context) error { close(begun); <-finish; n.Add(1); return nil }))
		})
		<-begun
		for range 20 {
			if errors.Is(d.Do(t.Context(), "1", func(context.Context) error { n.Add(1); return nil }), dedup.ErrUnderWay) {
				underWay.Add(1)
			}
		}
		require.EqualValues(t, 20, underWay.Load())
		close(finish)
		calls.Wait()
		require.NoError(t, d.Do(t.Context(), "1", func(context.Context) error { n.Add(1); return nil }))
		require.EqualValues(t, 1, n.Load())
	})
}

// Another process, or this one after a restart, knows what is done and what is under way.
func TestProcessesShareARedis(t *testing.T) {
	r := testrig.Redis(t)
	client := redis.NewClient(&redis.Options{Addr: r.Addr()})
	defer client.Close()
	open := func() *dedup.Dedup {
		return dedup.New(dedup.Config{Redis: client, Prefix: r.Prefix(), Timeout: time.Hour})
	}
	one, two := open(), open()
	n := 0
	work := func(context.Context) error { n++; return nil }
	require.NoError(t, one.Do(t.Context(), "1", func(ctx context.Context) error {
		require.ErrorIs(t, two.Do(ctx, "1", work), dedup.ErrUnderWay)
		left, err := client.PTTL(ctx, r.Prefix()+"1").Result()
		require.NoError(t, err)
		require.Positive(t, left, "the lock ends without its process")
		require.LessOrEqual(t, left, time.Hour)
		return nil
	}))
	require.NoError(t, two.Do(t.Context(), "1", work))
	require.Zero(t, n)

	// A process that died in its work is waited for, not for ever.
	require.NoError(t, client.Set(t.Context(), r.Prefix()+"2", "the token of a dead process", time.Minute).Err())
	require.ErrorIs(t, one.Do(t.Context(), "2", work), dedup.ErrUnderWay)
	require.NoError(t, client.PExpire(t.Context(), r.Prefix()+"2", time.Millisecond).Err())
	await.Success(t, func() error { return one.Do(t.Context(), "2", work) }, "the work of a dead process is done")
	require.Equal(t, 1, n)

	// One that took longer than its time-out does not take the lock of the next one.
	require.Error(t, one.Do(t.Context(), "3", func(ctx context.Context) error {
		require.NoError(t, client.Set(ctx, r.Prefix()+"3", "another process", time.Minute).Err())
		return errors.New("down")
	}))
	require.ErrorIs(t, two.Do(t.Context(), "3", work), dedup.ErrUnderWay)
}

// Without Redis nothing is known, so nothing is done.
func TestRedisIsAway(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	defer client.Close()
	d := dedup.New(dedup.Config{Redis: client})
	err := d.Do(t.Context(), "1", func(context.Context) error { t.Error("done"); return nil })
	require.ErrorContains(t, err, "connection refused")
}

func TestMemoryIsBounded(t *testing.T) {
	d := dedup.New(dedup.Config{Size: 10, Keep: time.Hour})
	n := 0
	for i := range 100 {
		require.NoError(t, d.Do(t.Context(), string(rune('a'+i)), func(context.Context) error { n++; return nil }))
	}
	require.NoError(t, d.Do(t.Context(), "a", func(context.Context) error { n++; return nil }))
	require.Equal(t, 101, n, "the first is forgotten")
}
