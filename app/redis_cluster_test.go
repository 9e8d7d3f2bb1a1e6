package app_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/sharding"
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

// One of three masters is away: tasks of the others are on time all the while, and
// its own are scanned once outage_after has passed. Before, with a master that was
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
			servers := testrig.StartRedisCluster(t)
			cfg := onRedis(embedded(t), servers.Addrs()...)
			cfg.Redis.Mode, cfg.Redis.OutageAfter = configs.RedisCluster, 3*time.Second
			fired := newLedger()
			center := run(t, cfg, app.WithProcessor("ledger", fired))
			awaitDegraded(t, center, "")
			end := submitSteadily(t, center, 50, 3*time.Second)
			fired.await(t, 100, 30*time.Second)

			c.leave(servers, leaves)
			gone := time.Now()
			crowd := submitSpread(t, center, 200, 0, 3*time.Second)
			require.Less(t, time.Since(gone), 5*time.Second, "submits hang") // if each waited for its time-out, it would be a minute
			awaitDegraded(t, center, "the scanner serves")
			scanned := time.Now()
			t.Log("the scanner serves after", scanned.Sub(gone).Round(time.Millisecond))
			<-time.After(8 * time.Second) // of load, all the while
			c.comeBack(servers, leaves)
			back := time.Now()
			awaitDegraded(t, center, "")
			t.Log("all is well again after", time.Since(back).Round(time.Millisecond))
			<-time.After(3 * time.Second)

			due := merged(end(), crowd)
			fired.awaitAll(t, due, 30*time.Second)
			layout := sharding.Layout{
				Databases: cfg.Store.Databases, TablesPerDatabase: cfg.Store.TablesPerDatabase, Partitions: cfg.Cluster.Partitions,
			}
			living, before, during := map[uint64]time.Time{}, map[uint64]time.Time{}, map[uint64]time.Time{}
			for id, at := range due {
				shard, _ := layout.ShardOf(id)
				key := fmt.Sprintf("order_close_%d", layout.Partition(shard))
				switch {
				case at.Before(gone):
				case servers.NodeOf(servers.SlotOf(key)) != leaves:
					living[id] = at
				case at.Before(scanned):
					before[id] = at
				case at.Before(back):
					during[id] = at
				}
			}
			away := back.Sub(gone) // who waits for the master to come back is late by most of it
			for _, one := range []struct {
				name  string
				tasks map[uint64]time.Time
				most  time.Duration
			}{
				{"of the living masters", living, away / 2},
				{"of the one away, until it is given up", before, 4 * cfg.Redis.OutageAfter},
				{"of the one away, from then on", during, away / 2},
			} {
				late, _ := fired.lateness(t, one.tasks)
				t.Log(one.name, percentiles(late))
				require.NotEmpty(t, late, one.name)
				require.Less(t, late[len(late)-1], one.most, one.name)
			}
			requireAllOnce(t, center, cfg, fired, due, 0)
		})
	}
}
