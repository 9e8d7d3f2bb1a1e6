package sharding

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLastID(t *testing.T) {
	layout := Layout{Databases: 8, TablesPerDatabase: 1024, Partitions: 256}
	for _, shard := range []int{0, 1, 1023, 8191} {
		last := LastID(shard)
		got, ok := layout.ShardOf(last)
		require.True(t, ok)
		require.Equal(t, shard, got)
		id, err := JobID(time.Date(2058, 1, 1, 0, 0, 0, 0, time.UTC), shard, HandWorker)
		require.NoError(t, err)
		require.Greater(t, last, id)
	}
}
