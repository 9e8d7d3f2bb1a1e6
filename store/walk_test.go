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
	for _, one := range all[10:15] {
		_, err := f.Move(t.Context(), store.Move{JobID: one.JobID, Set: store.Set{Attempts: ptr(1)}})
		require.NoError(t, err)
	}
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
		failed := f.walkAll(t, store.WalkFilter{Failed: true}, limit)
		require.Len(t, failed, 5)
		require.Equal(t, want(func(o task.Task) bool { return o.Status == task.Pending && o.Attempts > 0 }), failed)
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

// walksWhileMoved: a walk ends and shows each task at most once, whatever its caller does to what a page shows; the tasks that
// nobody changes it shows exactly once.
func walksWhileMoved(t *testing.T, p place) {
	for name, change := range map[string]store.Move{
		"moved on":  {Set: store.Set{ActionTime: new(time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC)), NewPromise: true}},
		"moved up":  {Set: store.Set{ActionTime: new(time.Date(2021, 1, 1, 0, 0, 0, 0, time.UTC)), NewPromise: true}},
		"cancelled": {To: task.Cancelled},
	} {
		t.Run(name, func(t *testing.T) {
			f := p.open(t, small)
			for i := range 90 {
				f.put(t, task.Task{BizID: uint64(i % 30), BizType: uint64(i % 2), ActionTime: f.in(i * 7 % 30)})
			}
			f.clock.advance(time.Second)
			seen := make(map[uint64]int)
			var after store.Place
			for more := true; more; {
				require.Less(t, len(seen), 91)
				var page []task.Task
				var err error
				page, after, more, err = f.Walk(t.Context(), store.WalkFilter{}, after, 7)
				require.NoError(t, err)
				for _, one := range page {
					seen[one.JobID]++
					require.Equal(t, 1, seen[one.JobID], "shown again")
					if one.BizType == 1 {
						m := change
						m.JobID = one.JobID
						applied, err := f.Move(t.Context(), m)
						require.NoError(t, err)
						require.True(t, applied)
					}
				}
				f.clock.advance(time.Millisecond)
				f.put(t, task.Task{BizID: uint64(len(seen)), BizType: 9, ActionTime: f.in(1000)}) // submitted meanwhile
			}
			for _, one := range f.everything(t) {
				require.Equal(t, one.BizType != 9, seen[one.JobID] == 1, one)
			}
		})
	}
}

// A task whose gmt_modified was written by hand in another time zone, hours ahead, is on its page all the same.
func walksPastOtherZones(t *testing.T, p place) {
	f := p.open(t, small)
	tasks := f.put(t, task.Task{BizID: 1, BizType: 1, ActionTime: f.in(1)}, task.Task{BizID: 1, BizType: 1, ActionTime: f.in(2)})
	shard, _ := f.layout.ShardOf(tasks[1].JobID)
	f.hand(t, shard, "UPDATE %s SET gmt_modified='2099-01-01 08:00:00.000' WHERE job_id=?", f.id(tasks[1].JobID))
	require.Len(t, f.walkAll(t, store.WalkFilter{}, 1), 2)
}

// listsAsOf: the tasks that are submitted while somebody goes through those of a biz_id are left out of the later pages.
func listsAsOf(t *testing.T, p place) {
	f := p.open(t, small)
	first := f.put(t, task.Task{BizID: 1, BizType: 1, ActionTime: f.in(1)}, task.Task{BizID: 1, BizType: 1, ActionTime: f.in(1)})
	asOf := f.AsOf()
	f.clock.advance(time.Millisecond)
	f.put(t, task.Task{BizID: 1, BizType: 1, ActionTime: f.in(1)})
	list, err := f.List(t.Context(), 1, store.Filter{After: first[0].JobID, AsOf: asOf, Limit: 10})
	require.NoError(t, err)
	require.Equal(t, first[1:], list)
}
