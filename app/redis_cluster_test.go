package app_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig"
)

// A Redis Cluster of three masters under steady load: one of them is killed and
// comes back, hash slots move from one to another.
func TestRedisClusterUnderFaults(t *testing.T) {
	t.Parallel()
	servers := testrig.StartRedisCluster(t)
	cfg := onRedis(embedded(t), servers.Addrs()...)
	cfg.Redis.Mode, cfg.Redis.OutageAfter = configs.RedisCluster, 2*time.Second
	fired := newLedger()
	c := run(t, cfg, app.WithProcessor("ledger", fired))
	end := submitSteadily(t, c, 100, 3*time.Second)
	parked := submitSpread(t, c, 1000, time.Second, 20*time.Second)
	fired.await(t, 200, 30*time.Second)
	awaitDegraded(t, c, "") // all three serve
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: servers.Addrs()})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	waiting, _ := inSlots(t, cfg, client)
	require.NotZero(t, waiting)

	servers.Kill(1)
	awaitDegraded(t, c, "the scanner serves")
	servers.Start(1)
	awaitDegraded(t, c, "")
	t.Log("one master was away, and is back")

	for _, key := range []string{"order_close_5", "order_close_17", "order_close_42"} {
		slot := servers.SlotOf(key)
		from := servers.NodeOf(slot)
		servers.Migrate(t, slot, from, (from+1)%3)
	}
	t.Log("three hash slots have moved")
	<-time.After(2 * time.Second) // of load afterwards
	awaitDegraded(t, c, "")
	requireAllOnce(t, c, cfg, fired, merged(end(), parked), 60*time.Second)
}
