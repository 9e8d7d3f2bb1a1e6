package app_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/await"
)

// A Redis Cluster of three masters under steady load: one of them is killed and
// comes back, hash slots move from one to another.
func TestRedisClusterUnderFaults(t *testing.T) {
	t.Parallel()
	testrig.OnlyInAll(t, "TestOneMasterOfARedisClusterIsAway for a master that is away")
	servers := testrig.StartRedisCluster(t)
	cfg := onRedis(embedded(t), servers.Addrs()...)
	cfg.Redis.Mode, cfg.Redis.OutageAfter = configs.RedisCluster, 2*time.Second
	fired := newLedger()
	c := run(t, cfg, app.WithProcessor("ledger", fired))
	end := submitSteadily(t, c, 100, 3*time.Second)
	parked := submitSpread(t, c, 1000, time.Second, 20*time.Second)
	fired.await(t, 200, await.Patience)
	awaitNoTrouble(t, c, "redis") // all three serve
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: servers.Addrs()})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	waiting, _ := inSlots(t, cfg, client)
	require.NotZero(t, waiting)

	servers.Kill(1)
	awaitTrouble(t, c, "the scanner serves")
	servers.Start(1)
	awaitNoTrouble(t, c, "redis")
	t.Log("one master was away, and is back")

	for _, key := range []string{"order_close_5", "order_close_17", "order_close_42"} {
		slot := servers.SlotOf(key)
		from := servers.NodeOf(slot)
		servers.Migrate(t, slot, from, (from+1)%3)
	}
	t.Log("three hash slots have moved")
	afterwards := submitSpread(t, c, 200, 0, 2*time.Second)
	fired.awaitAll(t, afterwards, await.Patience)
	awaitNoTrouble(t, c, "redis")
	requireAllOnce(t, c, cfg, fired, merged(end(), parked, afterwards), await.Patience)
}

// One of three masters is away: tasks of the others fire all the while, and its own are scanned once outage_after
// has passed. Before, with a master that was
// silent rather than dead, tasks of the others were up to 49 s late, and its own
// were scanned after 16 s.
func TestOneMasterOfARedisClusterIsAway(t *testing.T) {
	t.Parallel()
	const leaves = 1
	for name, c := range map[string]struct {
		leave, comeBack func(*testrig.RedisCluster, int)
	}{
		"silent":   {(*testrig.RedisCluster).Freeze, (*testrig.RedisCluster).Thaw},
		"refusing": {(*testrig.RedisCluster).Kill, (*testrig.RedisCluster).Start},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name != "silent" {
				testrig.OnlyInAll(t, "silent")
			}
			servers := testrig.StartRedisCluster(t)
			cfg := onRedis(embedded(t), servers.Addrs()...)
			cfg.Redis.Mode, cfg.Redis.OutageAfter = configs.RedisCluster, 3*time.Second
			fired := newLedger()
			center := run(t, cfg, app.WithProcessor("ledger", fired))
			awaitNoTrouble(t, center, "redis")
			end := submitSteadily(t, center, 50, 3*time.Second)
			fired.await(t, 100, await.Patience)

			c.leave(servers, leaves)
			gone := time.Now()
			crowd := submitSpread(t, center, 200, 0, 3*time.Second)
			awaitTrouble(t, center, "the scanner serves")
			t.Log("the scanner serves after", time.Since(gone).Round(time.Millisecond))
			during := submitSpread(t, center, 200, 0, 3*time.Second)
			fired.awaitAll(t, merged(crowd, during), await.Patience) // none waits for the master to come back
			c.comeBack(servers, leaves)
			awaitNoTrouble(t, center, "redis")
			due := merged(end(), crowd, during)
			requireAllOnce(t, center, cfg, fired, due, await.Patience)
		})
	}
}
