package app

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/await"
)

// A pipeline that is longer than any buffer is answered while it is being sent.
func TestTheEmbeddedRedisTakesLongPipelines(t *testing.T) {
	t.Parallel()
	client := redisClient(configs.Default().Redis, nil, nil)
	defer client.Close()
	const count = 1_000
	value := strings.Repeat("v", 1<<10)
	var answers []redis.Cmder
	await.Success(t, func() (err error) { // on a busy machine it may take longer than the client waits
		answers, err = client.Pipelined(t.Context(), func(p redis.Pipeliner) error {
			for range count {
				p.Echo(t.Context(), value)
			}
			return nil
		})
		return err
	}, "a long pipeline is answered")
	require.Len(t, answers, count)
	require.Equal(t, value, answers[count-1].(*redis.StringCmd).Val())
	require.NoError(t, client.Close())
	require.ErrorIs(t, client.Ping(t.Context()).Err(), redis.ErrClosed)
}

// One silent master must not hold up the first command to another one. Before, the client asked some node for COMMAND
// first: tasks of the living masters were up to 4 s late.
func TestACommandAsksTheNodeOfItsKeyAlone(t *testing.T) {
	t.Parallel()
	servers := testrig.StartRedisCluster(t)
	cfg := configs.Default().Redis
	cfg.Mode, cfg.Addrs = configs.RedisCluster, servers.Addrs()
	client := redisClient(cfg, nil, nil)
	defer client.Close()
	require.NoError(t, client.ZRange(t.Context(), "key", 0, -1).Err())
	for _, addr := range servers.Addrs() {
		node := redis.NewClient(&redis.Options{Addr: addr})
		stats, err := node.Info(t.Context(), "commandstats").Result()
		require.NoError(t, err)
		require.NoError(t, node.Close())
		require.Contains(t, stats, "cmdstat_info")
		require.NotContains(t, stats, "cmdstat_command:", addr)
	}
}
