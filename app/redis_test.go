package app_test

import (
	"maps"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/await"
)

// The Redis inside the process serves as any other, and ends with the center.
func TestRedisInsideTheProcess(t *testing.T) {
	t.Parallel()
	cfg := fewSlots(t, configs.RedisEmbedded)
	fired := newLedger()
	c := run(t, cfg, app.WithProcessor("ledger", fired))
	due := submitSpread(t, c, 1000, 500*time.Millisecond, 3*time.Second)
	requireAllOnce(t, c, cfg, fired, due, await.Patience)
}

// A center without types of mode redis calls no Redis, whatever is configured.
func TestScanModeCallsNoRedis(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	calls := make(chan error, 1)
	go func() {
		_, err := l.Accept()
		calls <- err
	}()
	cfg := fewSlots(t, l.Addr().String())
	cfg.BizTypes[0].Mode = configs.ModeScan
	fired := newLedger()
	c := run(t, cfg, app.WithProcessor("ledger", fired))
	due := submitSpread(t, c, 10, time.Second, 2*time.Second)
	requireAllOnce(t, c, cfg, fired, due, await.Patience)
	require.NoError(t, l.Close())
	require.ErrorIs(t, <-calls, net.ErrClosed, "Redis was called")
}

// A center that is stopped and started again and again in the middle of firing
// leaves no claim behind, runs nothing twice and loses nothing.
func TestGracefulStopsDoubleNothingOnRedis(t *testing.T) {
	t.Parallel()
	r := testrig.StartRedis(t)
	cfg := fewSlots(t, r.Addr())
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
	cfg := fewSlots(t, testrig.StartRedis(t).Addr())
	cfg.Redis.SweepAfter = time.Second
	sqlByHand(t, cfg)
}

// Redis holds the tasks that are due within the horizon and no others; all of them fire.
func TestRedisHoldsTheNearFuture(t *testing.T) {
	t.Parallel()
	r := testrig.StartRedis(t)
	cfg := fewSlots(t, r.Addr())
	cfg.BizTypes[0].Horizon = 10 * time.Second
	fired := newLedger()
	c := run(t, cfg, app.WithProcessor("ledger", fired))
	const far = 1000
	submitSpread(t, c, far, time.Hour, 2*time.Hour)
	due := submitSpread(t, c, 200, time.Second, 3*time.Second)
	maps.Copy(due, submitSpread(t, c, 200, 11*time.Second, 13*time.Second)) // their time comes into the horizon
	client := redisClient(t, r.Addr())
	most := 0
	await.That(t, func() bool {
		waiting, claims := inSlots(t, cfg, client)
		require.LessOrEqual(t, waiting+claims, len(due), "tasks beyond the horizon are in Redis")
		most = max(most, waiting+claims)
		return fired.count() == len(due)
	}, "all that is near has fired")
	t.Logf("of %d tasks at most %d were in Redis", far+len(due), most)
	require.NotZero(t, most)
	awaitInSlots(t, cfg, client, 0)
	requireAllOnce(t, c, cfg, fired, due, await.Patience)
}
