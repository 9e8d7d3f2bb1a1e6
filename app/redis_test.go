package app_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/await"
)

// Redis is killed twice, and empty when it is back, while 2,000 tasks wait in it and fire: it is filled again from the store.
func TestRedisForgets(t *testing.T) {
	t.Parallel()
	r := testrig.StartRedis(t, noFile...)
	cfg := fewSlots(t, r.Addr())
	fired := newLedger()
	center := run(t, cfg, app.WithProcessor("ledger", fired))
	due := submitSpread(t, center, 2000, 2*time.Second, 8*time.Second)
	for _, some := range []int{0, 500} {
		fired.await(t, some)
		r.Kill()
		r.Start()
	}
	requireAllOnce(t, center, cfg, fired, due)
}

// A Redis whose user may use neither INFO nor CONFIG is no fault: tasks wait in its slots, and fire.
func TestARedisWithoutInfo(t *testing.T) {
	t.Parallel()
	r := testrig.StartRedis(t, noFile...)
	client := redisClient(t, r.Addr())
	require.NoError(t, client.Do(t.Context(), "ACL", "SETUSER", "default", "-@dangerous").Err())
	require.ErrorContains(t, client.Info(t.Context()).Err(), "NOPERM")
	cfg := fewSlots(t, r.Addr())
	fired := newLedger()
	c := run(t, cfg, app.WithProcessor("ledger", fired))
	due := submitSpread(t, c, 50, time.Second, 3*time.Second)
	submitSpread(t, c, 50, time.Minute, 2*time.Minute)
	fired.awaitAll(t, due, await.Patience)
	await.That(t, func() bool {
		waiting, claims := inSlots(t, cfg, client)
		return waiting == 50 && claims == 0
	}, "later tasks are in Redis, and no claim")
	awaitNoTrouble(t, c, "redis")
}
