package app

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/configs"
)

// A pipeline that is longer than any buffer is answered while it is being sent.
func TestTheEmbeddedRedisTakesLongPipelines(t *testing.T) {
	t.Parallel()
	client := redisClient(configs.Default().Redis)
	defer client.Close()
	const count = 5_000
	value := strings.Repeat("v", 1<<10)
	answers, err := client.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for range count {
			p.Echo(t.Context(), value)
		}
		return nil
	})
	require.NoError(t, err)
	require.Len(t, answers, count)
	require.Equal(t, value, answers[count-1].(*redis.StringCmd).Val())
	require.NoError(t, client.Close())
	require.ErrorIs(t, client.Ping(t.Context()).Err(), redis.ErrClosed)
}
