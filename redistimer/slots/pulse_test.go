package slots_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/redistimer/slots"
)

func (r *slotRig) pulse(t tester, id *slots.Identity) slots.Pulse {
	t.Helper()
	p, err := r.Pulse(t.Context(), id, "ours", time.Hour)
	require.NoError(t, err)
	return p
}

func (s slotSuite) pulses(t *testing.T) {
	r := s.open(t)
	for i := range 3 { // in a cluster, each at another server
		id := &slots.Identity{Process: "host:1:a", Tag: i}
		require.True(t, r.pulse(t, id).Lost, "it is asked for the first time")
		p := r.pulse(t, id)
		require.False(t, p.Lost)
		require.Equal(t, "ours", p.Store)
		require.WithinDuration(t, time.Now(), p.Now, time.Minute)
		require.NoError(t, r.client.Del(t.Context(), r.prefix+"toc:node:host:1:a{"+string(rune('0'+i))+"}").Err())
		require.True(t, r.pulse(t, id).Lost, "its keys are gone")
		require.False(t, r.pulse(t, id).Lost)
	}
	// Each server knows the script, or does not.
	id := &slots.Identity{Process: "host:1:a"}
	r.pulse(t, id)
	r.masters(t, func(ctx context.Context, client *redis.Client) error { return client.ScriptFlush(ctx).Err() })
	require.True(t, r.pulse(t, id).Lost, "it may be another server with the same keys")
	require.False(t, r.pulse(t, id).Lost)
}

// A server that has another store's id is theirs until they have not asked it for the TTL.
func (s slotSuite) pulsesForeign(t *testing.T) {
	r, ctx := s.open(t), t.Context()
	unsure := &slots.Identity{Process: "a"}
	for _, store := range []string{slots.UnknownStore, "theirs", slots.UnknownStore} { // who does not know its store takes each for its own
		p, err := r.Pulse(ctx, unsure, store, time.Hour)
		require.NoError(t, err)
		require.Contains(t, []string{store, "theirs"}, p.Store)
	}
	us := &slots.Identity{Process: "b"}
	for range 2 {
		require.Equal(t, "theirs", r.pulse(t, us).Store)
	}
	require.Equal(t, "theirs", r.client.Get(ctx, r.CenterKey(0)).Val())
	require.Zero(t, r.client.Exists(ctx, r.prefix+"toc:node:b{0}").Val())
	left := r.client.PTTL(ctx, r.CenterKey(0)).Val()
	require.InDelta(t, time.Hour, left, float64(time.Minute))

	require.NoError(t, r.client.Del(ctx, r.CenterKey(0)).Err()) // it expires
	require.Equal(t, "ours", r.pulse(t, us).Store)
	require.Equal(t, "ours", r.client.Get(ctx, r.CenterKey(0)).Val())
}
