package store_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// foreignIDs are job_ids that this layout cannot have, or that do not exist.
func foreignIDs(t testing.TB, f *fixture) []uint64 {
	elsewhere, err := sharding.JobID(f.clock.Now(), f.layout.Shards(), 1)
	require.NoError(t, err)
	return []uint64{0, 1, elsewhere, 1 << 63, math.MaxUint64, f.NewID(3)}
}

func loads(t *testing.T, p place) {
	f := p.open(t, small)
	stored := f.spread(t, 200)
	f.setStatus(t, task.Processed, stored[0])
	f.setStatus(t, task.Cancelled, stored[1])
	f.setStatus(t, task.Dead, stored[2])
	all := f.everything(t)

	var ids []uint64
	var want []task.Task
	for _, i := range rand.Perm(len(stored))[:120] {
		ids = append(ids, stored[i].JobID)
		want = append(want, all[stored[i].JobID])
	}
	ids = append(ids, foreignIDs(t, f)...)
	got, err := f.Load(t.Context(), ids)
	require.NoError(t, err)
	requireSame(t, want, got)

	got, err = f.Load(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, got)
	got, err = f.Load(t.Context(), foreignIDs(t, f))
	require.NoError(t, err)
	require.Empty(t, got)
	got, err = f.Load(t.Context(), []uint64{stored[5].JobID, stored[5].JobID})
	require.NoError(t, err)
	require.Equal(t, stored[5:6], got, "asked for twice, given once")
}

// loadsMany asks for more ids of one table than a statement has parameters.
func loadsMany(t *testing.T, p place) {
	f := p.open(t, small)
	stored := f.put(t, task.Task{BizID: 9, BizType: 1, ActionTime: f.in(0)}, task.Task{BizID: 9, BizType: 1, ActionTime: f.in(0)})
	ids := []uint64{stored[0].JobID}
	for range 40_000 {
		ids = append(ids, f.NewID(9))
	}
	ids = append(ids, stored[1].JobID)
	got, err := f.Load(t.Context(), ids)
	require.NoError(t, err)
	requireSame(t, stored, got)
}

func getsOne(t *testing.T, p place) {
	f := p.open(t, small)
	for _, one := range f.spread(t, 20) {
		got, err := f.Get(t.Context(), one.JobID)
		require.NoError(t, err)
		require.Equal(t, one, got)
	}
	for _, id := range foreignIDs(t, f) {
		got, err := f.Get(t.Context(), id)
		require.ErrorIs(t, err, task.ErrNotFound, "%d", id)
		require.Zero(t, got)
	}
}

func lists(t *testing.T, p place) {
	f := p.open(t, small)
	// biz_ids 9 and 17 share a table with others.
	var nine []task.Task
	for i := range 30 {
		stored := f.put(t,
			task.Task{BizID: 9, BizType: uint64(i % 3), ActionTime: f.in(-i)},
			task.Task{BizID: 17, BizType: uint64(i % 3), ActionTime: f.in(-i)})
		nine = append(nine, stored[0])
	}
	f.setStatus(t, task.Processed, nine[3], nine[4])
	f.setStatus(t, task.Dead, nine[5])
	all := f.everything(t)
	for i := range nine {
		nine[i] = all[nine[i].JobID]
	}
	list := func(filter store.Filter) []task.Task {
		got, err := f.List(t.Context(), 9, filter)
		require.NoError(t, err)
		return got
	}
	where := func(keep func(task.Task) bool) (kept []task.Task) {
		for _, one := range nine {
			if keep(one) {
				kept = append(kept, one)
			}
		}
		return kept
	}
	require.Equal(t, nine, list(store.Filter{Limit: 100}), "in the order of submission")

	typ, pending, done, dead := uint64(1), task.Pending, task.Processed, task.Dead
	require.Equal(t, where(func(o task.Task) bool { return o.BizType == 1 }), list(store.Filter{BizType: &typ, Limit: 100}))
	require.Equal(t, nine[3:5], list(store.Filter{Status: &done, Limit: 100}))
	require.Equal(t, nine[5:6], list(store.Filter{Status: &dead, Limit: 100}))
	require.Equal(t, where(func(o task.Task) bool { return o.BizType == 1 && o.Status == task.Pending }),
		list(store.Filter{BizType: &typ, Status: &pending, Limit: 100}))
	zero := uint64(0)
	require.Equal(t, where(func(o task.Task) bool { return o.BizType == 0 }), list(store.Filter{BizType: &zero, Limit: 100}))

	var paged []task.Task
	for after := uint64(0); ; {
		page := list(store.Filter{After: after, Limit: 7})
		require.LessOrEqual(t, len(page), 7)
		if len(page) == 0 {
			break
		}
		paged = append(paged, page...)
		after = page[len(page)-1].JobID
	}
	require.Equal(t, nine, paged)
	require.Empty(t, list(store.Filter{After: math.MaxInt64, Limit: 7}))

	keyed := f.put(t, task.Task{BizID: 9, BizType: 1, ActionTime: f.in(0), DedupKey: "youzan"})[0]
	end := f.in(60)
	_, err := f.Move(t.Context(), store.Move{JobID: nine[7].JobID, From: task.Pending, To: task.Pending,
		Set: store.Set{ActionTime: &end, KeepDue: true, Lease: new(task.LeaseUntil(task.NewLease(end), end))}})
	require.NoError(t, err)
	idsOf := func(list []task.Task) (ids []uint64) {
		for _, one := range list {
			ids = append(ids, one.JobID)
		}
		return ids
	}
	require.Equal(t, []uint64{nine[7].JobID}, idsOf(list(store.Filter{Leased: true, Limit: 100})))
	require.Equal(t, []uint64{nine[7].JobID, keyed.JobID}, idsOf(list(store.Filter{Leased: true, LeasedOr: "youzan", Limit: 100})))

	got, err := f.List(t.Context(), 25, store.Filter{Limit: 100})
	require.NoError(t, err)
	require.Empty(t, got, "a biz_id of the same table without tasks")
}

// worksBesideOwnColumns: a user has added a column and an index to each task table.
func worksBesideOwnColumns(t *testing.T, p place) {
	f := p.open(t, small)
	for shard := range f.layout.Shards() {
		f.hand(t, shard, "ALTER TABLE %s ADD COLUMN shop int NULL")
		f.hand(t, shard, fmt.Sprintf("CREATE INDEX idx_shop_%d ON %%s (shop, action_time)", shard))
	}
	one := f.put(t, task.Task{BizID: 9, BizType: 1, ActionTime: f.in(0), DedupKey: "k", Attribute: "a"})[0]
	require.EqualValues(t, 1, f.hand(t, f.layout.Shard(9), "UPDATE %s SET shop=7 WHERE job_id=?", f.id(one.JobID)))
	got, err := f.Get(t.Context(), one.JobID)
	require.NoError(t, err)
	require.Equal(t, one.Attribute, got.Attribute)
	page, err := f.DuePages(f.layout.Partition(f.layout.Shard(9)), store.Due{Until: f.in(1), PerPage: 10}).Next(t.Context())
	require.NoError(t, err)
	require.Len(t, page, 1)
	f.setStatus(t, task.Dead, one)
	list, _, err := f.ListDead(t.Context(), store.DeadFilter{}, 0, 10)
	require.NoError(t, err)
	require.Len(t, list, 1)
}

func sumsUpOverdue(t *testing.T, p place) {
	f := p.open(t, small)
	now := f.in(0)
	shards := bizIDs(f.layout, 2, 4) // shards 2 and 3 are partition 1
	other := bizIDs(f.layout, 3, 2)
	stored := f.put(t,
		task.Task{BizID: shards[0], BizType: 1, ActionTime: f.in(-5)},
		task.Task{BizID: shards[1], BizType: 1, ActionTime: f.in(-9)},
		task.Task{BizID: other[0], BizType: 1, ActionTime: f.in(-7)},
		task.Task{BizID: other[1], BizType: math.MaxUint64, ActionTime: f.in(0)},
		task.Task{BizID: shards[2], BizType: 1, ActionTime: f.in(1)},
		task.Task{BizID: shards[3], BizType: 2, ActionTime: f.in(-99)},
	)
	f.setStatus(t, task.Processed, stored[5])

	sums, err := f.Overdue(t.Context(), 1, now)
	require.NoError(t, err)
	require.Equal(t, map[uint64]store.Overdue{
		1:              {Count: 3, Oldest: f.in(-9), Promised: f.in(-9)},
		math.MaxUint64: {Count: 1, Oldest: f.in(0), Promised: f.in(0)},
	}, sums)
	for _, partition := range []int{0, 2, 3} {
		sums, err := f.Overdue(t.Context(), partition, now)
		require.NoError(t, err)
		require.Empty(t, sums)
	}
}

func sumsUpRetrying(t *testing.T, p place) {
	f := p.open(t, small)
	shards := bizIDs(f.layout, 2, 5)
	stored := f.put(t,
		task.Task{BizID: shards[0], BizType: 1, ActionTime: f.in(-90)},
		task.Task{BizID: shards[1], BizType: 1, ActionTime: f.in(-99)},
		task.Task{BizID: shards[2], BizType: 1, ActionTime: f.in(-5)},
		task.Task{BizID: shards[3], BizType: 2, ActionTime: f.in(-7)},
		task.Task{BizID: shards[4], BizType: 2, ActionTime: f.in(5)},
	)
	fails := func(stored task.Task, next int) {
		ok, err := f.Move(t.Context(), store.Move{JobID: stored.JobID, From: task.Pending, To: task.Pending,
			Set: store.Set{Attempts: new(1), ActionTime: new(f.in(next)), Promised: &stored.ActionTime}})
		require.NoError(t, err)
		require.True(t, ok)
	}
	fails(stored[0], 300_000)
	fails(stored[1], 9)
	fails(stored[3], -1)
	sums, err := f.Retrying(t.Context(), 1, f.in(0), f.in(60))
	require.NoError(t, err)
	require.Equal(t, map[uint64]store.Retrying{
		1: {Count: 1, Promised: f.in(-99), Last: f.in(9)},
		2: {Count: 1, Promised: f.in(-7), Last: f.in(-1)},
	}, sums)
	sums, err = f.Retrying(t.Context(), 1, f.in(0), f.in(300_000))
	require.NoError(t, err)
	require.Equal(t, store.Retrying{Count: 2, Later: 1, Promised: f.in(-99), Last: f.in(300_000)}, sums[1])
	// A consumer has one of them until its next time: nothing makes it run sooner.
	lease := task.NewLease(f.in(300_000))
	ok, err := f.Move(t.Context(), store.Move{JobID: stored[0].JobID, From: task.Pending, To: task.Pending, Set: store.Set{ActionTime: new(f.in(300_000)), Lease: &lease}})
	require.NoError(t, err)
	require.True(t, ok)
	sums, err = f.Retrying(t.Context(), 1, f.in(0), f.in(300_000))
	require.NoError(t, err)
	require.Equal(t, store.Retrying{Count: 2, Promised: f.in(-99), Last: f.in(300_000)}, sums[1])
	// One that was moved has a new promise.
	ok, err = f.Move(t.Context(), store.Move{JobID: stored[1].JobID, From: task.Pending, To: task.Pending, Set: store.Set{ActionTime: new(f.in(50)), NewPromise: true}})
	require.NoError(t, err)
	require.True(t, ok)
	sums, err = f.Retrying(t.Context(), 1, f.in(0), f.in(300_000))
	require.NoError(t, err)
	require.Equal(t, store.Retrying{Count: 1, Promised: f.in(-90), Last: f.in(300_000)}, sums[1])
	overdue, err := f.Overdue(t.Context(), 1, f.in(0))
	require.NoError(t, err)
	require.Equal(t, store.Overdue{Count: 1, Oldest: f.in(-1), Promised: f.in(-7)}, overdue[2])
}

func TestOverdueAddsUp(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	a, b := store.Overdue{Count: 2, Oldest: noon}, store.Overdue{Count: 3, Oldest: noon.Add(-time.Second)}
	both := store.Overdue{Count: 5, Oldest: noon.Add(-time.Second)}
	require.Equal(t, both, a.Add(b))
	require.Equal(t, both, b.Add(a))
	require.Equal(t, a, a.Add(store.Overdue{}))
	require.Equal(t, a, store.Overdue{}.Add(a))

	c, d := store.Retrying{Count: 2, Later: 1, Promised: noon, Last: noon.Add(time.Minute)}, store.Retrying{Count: 1, Promised: noon.Add(-time.Second), Last: noon}
	sum := store.Retrying{Count: 3, Later: 1, Promised: noon.Add(-time.Second), Last: noon.Add(time.Minute)}
	require.Equal(t, sum, c.Add(d))
	require.Equal(t, sum, d.Add(c))
	require.Equal(t, c, store.Retrying{}.Add(c))
}

func pings(t *testing.T, p place) {
	f := p.open(t, small)
	for d := range f.layout.Databases {
		require.Equal(t, store.Condition{}, f.Probe(t.Context(), d))
		for range 3 {
			require.Equal(t, store.Condition{}, f.Probe(cancelled(t), d), "who gave up does not know")
		}
	}
}
