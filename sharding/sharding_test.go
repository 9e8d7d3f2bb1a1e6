package sharding_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/timeoutcenter/toc/sharding"
)

// layouts draws any layout that Validate accepts.
func layouts() *rapid.Generator[sharding.Layout] {
	return rapid.Custom(func(t *rapid.T) sharding.Layout {
		d := rapid.IntRange(0, 6).Draw(t, "log2 databases")
		tb := rapid.IntRange(0, 13-d).Draw(t, "log2 tables")
		p := rapid.IntRange(d, d+tb).Draw(t, "log2 partitions")
		return sharding.Layout{Databases: 1 << d, TablesPerDatabase: 1 << tb, Partitions: 1 << p}
	})
}

func TestEveryBizIDHasOnePlace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := layouts().Draw(t, "layout")
		require.NoError(t, l.Validate())
		biz := rapid.Uint64().Draw(t, "biz_id")

		shard := l.Shard(biz)
		require.GreaterOrEqual(t, shard, 0)
		require.Less(t, shard, l.Shards())
		// What an admin computes in the head.
		require.EqualValues(t, biz%uint64(l.Databases), l.Database(shard))
		require.EqualValues(t, biz/uint64(l.Databases)%uint64(l.TablesPerDatabase), l.Table(shard))
		require.Equal(t, shard, l.Database(shard)*l.TablesPerDatabase+l.Table(shard))

		p := l.Partition(shard)
		first, end := l.PartitionShards(p)
		require.True(t, first <= shard && shard < end)
		require.Equal(t, l.Database(shard), l.PartitionDatabase(p))
		require.Equal(t, l.Database(first), l.Database(end-1), "a partition lies in one database")
		lo, hi := l.DatabasePartitions(l.Database(shard))
		require.True(t, lo <= p && p < hi)
	})
}

func TestPartitionsCoverAllShardsOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := layouts().Draw(t, "layout")
		seen := 0
		for p := range l.Partitions {
			first, end := l.PartitionShards(p)
			require.Equal(t, seen, first)
			seen = end
		}
		require.Equal(t, l.Shards(), seen)
	})
}

func TestLayoutRefusals(t *testing.T) {
	for _, c := range []struct {
		layout sharding.Layout
		names  string
	}{
		{sharding.Layout{Databases: 3, TablesPerDatabase: 4, Partitions: 4}, "store.databases"},
		{sharding.Layout{Databases: 0, TablesPerDatabase: 4, Partitions: 4}, "store.databases"},
		{sharding.Layout{Databases: 2, TablesPerDatabase: 5, Partitions: 4}, "store.tables_per_database"},
		{sharding.Layout{Databases: 16, TablesPerDatabase: 1024, Partitions: 16}, "more than 8192"},
		{sharding.Layout{Databases: 8, TablesPerDatabase: 4, Partitions: 4}, "cluster.partitions"},
		{sharding.Layout{Databases: 8, TablesPerDatabase: 4, Partitions: 64}, "cluster.partitions"},
		{sharding.Layout{Databases: 8, TablesPerDatabase: 4, Partitions: 12}, "cluster.partitions"},
	} {
		require.ErrorContains(t, c.layout.Validate(), c.names)
	}
}

func TestJobIDRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := layouts().Draw(t, "layout")
		shard := l.Shard(rapid.Uint64().Draw(t, "biz_id"))
		worker := rapid.IntRange(0, sharding.HandWorker).Draw(t, "worker")
		at := sharding.Epoch.Add(time.Duration(rapid.Int64Range(0, 1<<40-1).Draw(t, "ms")) * time.Millisecond)

		id, err := sharding.JobID(at, shard, worker)
		require.NoError(t, err)
		require.Less(t, id, uint64(1)<<63, "fits a signed BIGINT")
		got, ok := l.ShardOf(id)
		require.True(t, ok)
		require.Equal(t, shard, got)
		require.Equal(t, worker, sharding.WorkerOf(id))
	})
}

func TestShardOfRefusesForeignIDs(t *testing.T) {
	l := sharding.Layout{Databases: 2, TablesPerDatabase: 4, Partitions: 8}
	id, err := sharding.JobID(time.Now(), 8, 1)
	require.NoError(t, err)
	_, ok := l.ShardOf(id)
	require.False(t, ok, "shard 8 of a layout with shards 0 to 7")
	_, ok = l.ShardOf(1 << 63)
	require.False(t, ok)
	_, err = sharding.JobID(sharding.Epoch.Add(-time.Second), 0, 0)
	require.ErrorContains(t, err, "2025")
	_, err = sharding.NewIDs(l, sharding.HandWorker, time.Now)
	require.ErrorContains(t, err, "1022")
}

// Ids stay unique and rising in their shard whatever the clock does.
func TestIDsSurviveAnyClock(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := layouts().Draw(t, "layout")
		clock := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		ids, err := sharding.NewIDs(l, 5, func() time.Time { return clock })
		require.NoError(t, err)
		last := map[int]uint64{}
		for range 200 {
			clock = clock.Add(time.Duration(rapid.Int64Range(-5000, 5000).Draw(t, "step ms")) * time.Millisecond)
			shard := l.Shard(rapid.Uint64Range(0, 3).Draw(t, "biz_id"))
			if rapid.IntRange(0, 9).Draw(t, "advance?") == 0 {
				far, err := sharding.JobID(clock.Add(time.Minute), shard, 7)
				require.NoError(t, err)
				ids.Advance(far)
				last[shard] = max(last[shard], far)
			}
			id := ids.Next(shard)
			require.Greater(t, id, last[shard])
			got, ok := l.ShardOf(id)
			require.True(t, ok)
			require.Equal(t, shard, got)
			last[shard] = id
		}
	})
}

// One hot biz_id, many callers, one second's worth at 50,000/s.
func TestIDsOfAHotShardAreUnique(t *testing.T) {
	l := sharding.Layout{Databases: 8, TablesPerDatabase: 1024, Partitions: 256}
	ids, err := sharding.NewIDs(l, 1, time.Now)
	require.NoError(t, err)
	const callers, each = 10, 5000
	made := make([][]uint64, callers)
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for range each {
				made[c] = append(made[c], ids.Next(42))
			}
		})
	}
	wg.Wait()
	seen := make(map[uint64]bool, callers*each)
	for _, list := range made {
		for _, id := range list {
			require.False(t, seen[id], "id %d twice", id)
			seen[id] = true
		}
	}
	require.Len(t, seen, callers*each)
}

func BenchmarkNext(b *testing.B) {
	l := sharding.Layout{Databases: 8, TablesPerDatabase: 1024, Partitions: 256}
	ids, err := sharding.NewIDs(l, 1, time.Now)
	require.NoError(b, err)
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			ids.Next(i & 8191)
		}
	})
}
