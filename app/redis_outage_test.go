package app_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/await"
)

// Redis is away for longer than outage_after. Submits continue, the center stays ready and reports it, and due
// tasks are scanned. When Redis is back tasks use it again, also those that were submitted meanwhile and are
// due much later.
func TestRedisIsAwayForLong(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		away, back func(*testrig.PrivateRedis, *testrig.Proxy)
		// far is when the last tasks are due: farther than what is filled in first.
		far time.Duration
	}{
		"killed": {
			away: func(r *testrig.PrivateRedis, _ *testrig.Proxy) { r.Kill() },
			back: func(r *testrig.PrivateRedis, _ *testrig.Proxy) { r.Start() },
			far:  15 * time.Second,
		},
		"cut off": {
			away: func(_ *testrig.PrivateRedis, line *testrig.Proxy) { line.Cut() },
			back: func(_ *testrig.PrivateRedis, line *testrig.Proxy) { line.Mend() },
			far:  38 * time.Second, // the server is the same, so its markers count
		},
		"silent": {
			away: func(_ *testrig.PrivateRedis, line *testrig.Proxy) { line.Stall() },
			back: func(_ *testrig.PrivateRedis, line *testrig.Proxy) { line.Mend() },
			far:  15 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name != "silent" {
				testrig.OnlyInAll(t, "silent")
			}
			r := testrig.StartRedis(t)
			line := testrig.StartProxy(t, r.Addr())
			cfg := fewSlots(t, line.Addr())
			cfg.Redis.OutageAfter = 2 * time.Second
			fired := newLedger()
			center := run(t, cfg, app.WithProcessor("ledger", fired))
			end := submitSteadily(t, center, 100, 2*time.Second)
			fired.await(t, 100, await.Patience) // through Redis
			awaitNoTrouble(t, center, "redis")
			requireWhy(t, center, "slot", " in Redis; node "+center.Node()+" claims it at its time")

			c.away(r, line)
			gone := time.Now()
			awaitTrouble(t, center, "the scanner serves")
			t.Log("the scanner serves after", time.Since(gone).Round(time.Millisecond))
			requireWhy(t, center, "store", "Redis is out of reach for its slot for ")
			far := submitSpread(t, center, 50, c.far, c.far+time.Second)
			scanned := submitSpread(t, center, 200, time.Second, 2*time.Second)
			fired.awaitAll(t, scanned, await.Patience) // Redis is still away

			c.back(r, line)
			back := time.Now()
			awaitNoTrouble(t, center, "redis")
			t.Log("all is well again after", time.Since(back).Round(time.Millisecond))
			through := submitSpread(t, center, 50, 6*time.Second, 7*time.Second)
			awaitWaiting(t, cfg, redisClient(t, r.Addr()), len(through)) // new tasks go through Redis again
			due := merged(end(), far, scanned, through)
			fired.awaitAll(t, due, await.Patience)
			for set, list := range map[string]map[uint64]time.Time{"scanned": scanned, "far": far, "through": through} {
				late, _ := fired.lateness(t, list)
				t.Log(set, "lateness", percentiles(late))
			}
			requireAllOnce(t, center, cfg, fired, due, await.Patience)
		})
	}
}

// The line to Redis is cut at random moments, also between a claim and what
// becomes of it: claims whose answer is lost are found again.
func TestLineToRedisIsCutAgainAndAgain(t *testing.T) {
	t.Parallel()
	r := testrig.StartRedis(t)
	line := testrig.StartProxy(t, r.Addr())
	cfg := fewSlots(t, line.Addr())
	fired := newLedger()
	c := run(t, cfg, app.WithProcessor("ledger", fired))
	end := submitSteadily(t, c, 200, 2*time.Second)
	cuts := 0
	for ; cuts < 15; cuts++ {
		fired.await(t, fired.count()+rand.IntN(40), await.Patience)
		if cuts%3 == 2 {
			// Data under way arrives, or is cut off as well.
			line.Stall()
			<-time.After(time.Duration(rand.IntN(20)) * time.Millisecond) // real time: a moment of the cuts
		}
		line.Cut()
		<-time.After(time.Duration(rand.IntN(100)) * time.Millisecond) // real time: a moment of the cuts
		line.Mend()
	}
	t.Logf("%d cuts", cuts)
	due := end()
	fired.awaitAll(t, due, await.Patience) // less than visibility: nobody waits for that
	awaitInSlots(t, cfg, redisClient(t, r.Addr()), 0)
	requireAllOnce(t, c, cfg, fired, due, await.Patience)
}

// A Redis answers and refuses writes: due tasks are scanned until it accepts them again. Before, claims of
// empty slots succeeded, so these slots counted as served: none of their tasks fired while it lasted.
func TestRedisRefusesWrites(t *testing.T) {
	t.Parallel()
	r := testrig.StartRedis(t)
	client := redisClient(t, r.Addr())
	cfg := fewSlots(t, r.Addr())
	cfg.Redis.OutageAfter = 2 * time.Second
	fired := newLedger()
	center := run(t, cfg, app.WithProcessor("ledger", fired))
	fired.awaitAll(t, submitSpread(t, center, 50, 0, time.Second), await.Patience)
	awaitNoTrouble(t, center, "redis")

	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", "100kb").Err())
	require.NoError(t, client.FlushAll(t.Context()).Err())
	awaitTrouble(t, center, "redis refuses writes")
	awaitTrouble(t, center, "the scanner serves")
	for range 2 {
		fired.awaitAll(t, submitSpread(t, center, 50, 0, time.Second), await.Patience)
		awaitTrouble(t, center, "the scanner serves")
	}
	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", "0").Err())
	awaitNoTrouble(t, center, "redis")
	submitSpread(t, center, 50, time.Minute, 2*time.Minute)
	await.That(t, func() bool {
		waiting, _ := inSlots(t, cfg, client)
		return waiting == 50
	}, "new tasks are in Redis")
}
