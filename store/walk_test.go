package store_test

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// walkAll reads all pages.
func (f *fixture) walkAll(t *testing.T, q store.WalkFilter, limit int) (list []task.Task) {
	t.Helper()
	var after store.Place
	for range 10_000 {
		page, next, more, err := f.Walk(t.Context(), q, after, limit)
		require.NoError(t, err)
		require.LessOrEqual(t, len(page), limit)
		if list = append(list, page...); !more {
			return list
		}
		require.NotEqual(t, after, next)
		after = next
	}
	require.Fail(t, "the walk does not end")
	return nil
}

func walks(t *testing.T, p place) {
	f := p.open(t, small)
	var all []task.Task
	for i := range 200 {
		all = append(all, f.put(t, task.Task{BizID: uint64(i % 50), BizType: uint64(1 + i%3), ActionTime: f.in(i * 7 % 30)})...)
	}
	f.setStatus(t, task.Processed, all[5], all[6])
	order := func(a, b task.Task) int {
		x, _ := f.layout.ShardOf(a.JobID)
		y, _ := f.layout.ShardOf(b.JobID)
		return cmp.Or(x-y, a.ActionTime.Compare(b.ActionTime), cmp.Compare(a.JobID, b.JobID))
	}
	want := func(match func(task.Task) bool) (list []task.Task) {
		for _, one := range f.everything(t) {
			if match(one) {
				list = append(list, one)
			}
		}
		slices.SortFunc(list, order)
		return list
	}
	two := uint64(2)
	for _, limit := range []int{1, 7, 100, 1000} {
		require.Equal(t, want(func(o task.Task) bool { return o.Status == task.Pending }), f.walkAll(t, store.WalkFilter{}, limit))
		require.Equal(t, want(func(o task.Task) bool { return o.Status == task.Processed }), f.walkAll(t, store.WalkFilter{Status: task.Processed}, limit))
		require.Equal(t, want(func(o task.Task) bool { return o.Status == task.Pending && o.BizType == 2 }), f.walkAll(t, store.WalkFilter{BizType: &two}, limit))
		require.Equal(t, want(func(o task.Task) bool {
			return o.Status == task.Pending && !o.ActionTime.Before(f.in(10)) && o.ActionTime.Before(f.in(20))
		}), f.walkAll(t, store.WalkFilter{From: f.in(10), To: f.in(20)}, limit))
	}
	require.Empty(t, f.walkAll(t, store.WalkFilter{Status: task.Dead}, 10))
	far := uint64(9)
	require.Empty(t, f.walkAll(t, store.WalkFilter{BizType: &far, From: f.in(0).Add(-time.Hour)}, 10))
}

// A page has bounds, whatever it finds.
func TestWalkIsBounded(t *testing.T) {
	f := openFixture(t, store.Config{Driver: store.SQLite, Dir: t.TempDir(), Layout: sharding.Layout{Databases: 1, TablesPerDatabase: 32, Partitions: 8}})
	rec := store.Record(f.Store)
	_, next, more, err := f.Walk(t.Context(), store.WalkFilter{}, store.Place{}, 100)
	require.NoError(t, err)
	require.False(t, more)
	require.Equal(t, 32, next.Shard)
	require.Len(t, rec.Queries(), 3, "of 4, 16 and 12 tables")
	for _, q := range rec.Queries() {
		require.Equal(t, strings.Count(q.SQL, "SELECT job_id"), strings.Count(q.SQL, " LIMIT ?"))
	}
}
