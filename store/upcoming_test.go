package store_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// Few tasks are counted one by one; of many, some tables stand for all.
func looksAhead(t *testing.T, p place) {
	f := p.open(t, small)
	shards := []int{0, 1, 2, 3, 4, 5, 6, 7}
	for i := range 40 {
		f.put(t, task.Task{BizID: uint64(i), BizType: uint64(1 + i%2), ActionTime: f.in(i * 100)})
	}
	f.setStatus(t, task.Cancelled, f.put(t, task.Task{BizID: 1, BizType: 1, ActionTime: f.in(500)})...)
	count := func(from, to int) map[uint64]int {
		list, scale, exact, err := f.Upcoming(t.Context(), shards, f.in(from), f.in(to), 1000)
		require.NoError(t, err)
		require.True(t, exact)
		require.EqualValues(t, 1, scale)
		got := map[uint64]int{}
		for _, u := range list {
			require.False(t, u.At.Before(f.in(from)) || !u.At.Before(f.in(to)))
			got[u.BizType]++
		}
		return got
	}
	require.Equal(t, map[uint64]int{1: 20, 2: 20}, count(0, 10_000))
	require.Equal(t, map[uint64]int{1: 1, 2: 2}, count(100, 400))
	require.Empty(t, count(10_000, 20_000))
	list, _, _, err := f.Upcoming(t.Context(), shards[3:4], f.in(0), f.in(10_000), 1000)
	require.NoError(t, err)
	require.Len(t, list, 5, "of one shard")

	// Too many in one table.
	var many []task.Task
	for i := range 600 {
		many = append(many, task.Task{BizID: 8, BizType: 3, ActionTime: f.in(i)})
	}
	f.put(t, many...)
	list, _, exact, err := f.Upcoming(t.Context(), shards, f.in(0), f.in(10_000), 1000)
	require.NoError(t, err)
	require.False(t, exact)
	require.Less(t, len(list), 640)
}

// Above the bound a sample is read, and its rows stand for more.
func TestUpcomingIsBounded(t *testing.T) {
	t.Parallel()
	// On MariaDB alone, as in TestLookingForTheDeadIsBounded.
	f := onMySQL().open(t, sharding.Layout{Databases: 1, TablesPerDatabase: 512, Partitions: 4})
	var shards []int
	for shard := range 512 {
		shards = append(shards, shard)
	}
	rec := store.Record(f.Store)
	look := func(rows int) (tables int) {
		rec.Clear()
		_, _, _, err := f.Upcoming(t.Context(), shards, f.in(0), f.in(10_000), rows)
		require.NoError(t, err)
		for _, q := range rec.Queries() {
			members := strings.Count(q.SQL, "FROM timeout_task_")
			require.LessOrEqual(t, members, 256)
			require.Equal(t, members, max(strings.Count(q.SQL, " LIMIT ?"), strings.Count(q.SQL, "MIN(action_time)")))
			tables += members
		}
		return tables
	}
	require.Equal(t, 128+512, look(1000), "of none: a sample, and one index entry of each table")
	var all []task.Task
	for i := range 512 * 8 {
		all = append(all, task.Task{BizID: uint64(i), BizType: 1, ActionTime: f.in(1 + i)})
	}
	f.put(t, all...)
	require.Equal(t, 128+512, look(10_000), "all of them")
	require.LessOrEqual(t, look(500), 128+500/8+16, "of many: some tables")

	list := make([]int, 8192)
	for i := range list {
		list[i] = i
	}
	picked := store.Spread(list, 128)
	require.Len(t, picked, 128)
	perDatabase := map[int]int{}
	for _, shard := range picked {
		perDatabase[shard/1024]++
	}
	for d := range 8 {
		require.Equal(t, 16, perDatabase[d])
	}
	require.Equal(t, list, store.Spread(list, 10_000))
}
