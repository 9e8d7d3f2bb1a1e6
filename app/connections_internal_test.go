package app

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig"
)

// The table of docs/production.md has the times of the clients, in each mode of Redis.
func TestTheTableOfConnectionsIsTrue(t *testing.T) {
	require.Equal(t, []string{"by a call, after " + redisTimeout.String(), redisIdle.String(), redisAge.String() + ", less up to a third"},
		testrig.DocsRow(t, "../docs/production.md", "Redis"))
	require.LessOrEqual(t, 2*redisAgeJitter, redisAge/3)
	for _, mode := range []string{configs.RedisSingle, configs.RedisSentinel, configs.RedisCluster} {
		client := redisClient(configs.Redis{Addrs: []string{"127.0.0.1:1"}, Mode: mode, Master: "mymaster"}, nil, nil)
		var o redis.Options
		switch c := client.(type) {
		case *redis.Client:
			o = *c.Options()
		case *redis.ClusterClient:
			of := c.Options()
			o = redis.Options{ReadTimeout: of.ReadTimeout, WriteTimeout: of.WriteTimeout, DialTimeout: of.DialTimeout,
				ConnMaxIdleTime: of.ConnMaxIdleTime, ConnMaxLifetime: of.ConnMaxLifetime, ConnMaxLifetimeJitter: of.ConnMaxLifetimeJitter}
		}
		require.Equal(t, redisTimeout, o.DialTimeout, mode)
		require.Equal(t, redisTimeout, o.ReadTimeout, mode)
		require.Equal(t, redisTimeout, o.WriteTimeout, mode)
		require.Equal(t, redisIdle, o.ConnMaxIdleTime, mode)
		require.Equal(t, redisAge, o.ConnMaxLifetime+o.ConnMaxLifetimeJitter, mode)
		require.NoError(t, client.Close())
	}
}
