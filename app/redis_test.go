package app_test

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig"
)

// The Redis inside the process serves as any other, and ends with the center.
func TestRedisInsideTheProcess(t *testing.T) {
	t.Parallel()
	cfg := onRedis(embedded(t), configs.RedisEmbedded)
	fired := newLedger()
	c := run(t, cfg, app.WithProcessor("ledger", fired))
	due := submitSpread(t, c, 1000, 500*time.Millisecond, 3*time.Second)
	requireAllOnce(t, c, cfg, fired, due, 30*time.Second)
}

// A center without types of mode redis calls no Redis, whatever is configured.
func TestScanModeCallsNoRedis(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	calls := make(chan error, 1)
	go func() {
		_, err := l.Accept()
		calls <- err
	}()
	cfg := onRedis(embedded(t), l.Addr().String())
	cfg.BizTypes[0].Mode = configs.ModeScan
	fired := newLedger()
	c := run(t, cfg, app.WithProcessor("ledger", fired))
	due := submitSpread(t, c, 10, time.Second, 2*time.Second)
	requireAllOnce(t, c, cfg, fired, due, 30*time.Second)
	require.NoError(t, l.Close())
	require.ErrorIs(t, <-calls, net.ErrClosed, "Redis was called")
}

// A center that is stopped and started again and again in the middle of firing
// leaves no claim behind, runs nothing twice and loses nothing.
func TestGracefulStopsDoubleNothingOnRedis(t *testing.T) {
	t.Parallel()
	r := testrig.StartRedis(t)
	cfg := onRedis(embedded(t), r.Addr())
	client := redisClient(t, r.Addr())
	gracefulStops(t, cfg, func() {
		_, claims := inSlots(t, cfg, client)
		require.Zero(t, claims, "claims stayed behind")
	})
}

// Everything that an admin does by plain SQL is honoured within sweep_after and
// a tick.
func TestSQLByHandIsHonouredOnRedis(t *testing.T) {
	t.Parallel()
	cfg := onRedis(embedded(t), testrig.StartRedis(t).Addr())
	cfg.Redis.SweepAfter = time.Second
	sqlByHand(t, cfg)
}

// Redis holds the tasks that are due within the horizon and no others; all fire on time.
func TestRedisHoldsTheNearFuture(t *testing.T) {
	t.Parallel()
	r := testrig.StartRedis(t)
	cfg := onRedis(embedded(t), r.Addr())
	cfg.BizTypes[0].Horizon = 10 * time.Second
	fired := newLedger()
	c := run(t, cfg, app.WithProcessor("ledger", fired))
	const n = 3000
	due := submitSpread(t, c, n, time.Second, 25*time.Second)
	client := redisClient(t, r.Addr())
	most := 0
	for fired.count() < n {
		before := fired.count()
		waiting, claims := inSlots(t, cfg, client)
		near := -before
		for _, at := range due {
			if time.Until(at) <= cfg.BizTypes[0].Horizon {
				near++
			}
		}
		const settling = 1000 // have fired, and their removal from Redis is under way; without a horizon 1,800 more were there
		require.LessOrEqual(t, waiting+claims, near+settling, "tasks beyond the horizon are in Redis")
		most = max(most, waiting+claims)
		select {
		case <-time.After(100 * time.Millisecond): // the pace of the looks
		case <-t.Context().Done():
		}
	}
	t.Logf("of %d tasks at most %d were in Redis", n, most)
	requireAllOnce(t, c, cfg, fired, due, 30*time.Second)
}
