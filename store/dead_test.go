package store_test

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// die stores n tasks over all tables and lets all but every fifth one die. It
// gives the dead in the order that ListDead promises.
func (f *fixture) die(t testing.TB, n int) []task.Task {
	stored := f.spread(t, n)
	perDatabase := make([][]store.Move, f.layout.Databases)
	var dead []task.Task
	for i, one := range stored {
		to := task.Dead
		if i%5 == 0 {
			to = []task.Status{task.Pending, task.Processed, task.Cancelled}[i%3]
		}
		d := f.layout.Database(f.layout.Shard(one.BizID))
		perDatabase[d] = append(perDatabase[d], store.Move{JobID: one.JobID, To: to})
		if to == task.Dead {
			dead = append(dead, one)
		}
	}
	for d, moves := range perDatabase {
		_, err := f.Apply(t.Context(), d, f.Stamp(d), moves)
		require.NoError(t, err)
	}
	all := f.everything(t)
	for i := range dead {
		dead[i] = all[dead[i].JobID]
	}
	slices.SortFunc(dead, func(a, b task.Task) int {
		x, y := f.layout.Shard(a.BizID), f.layout.Shard(b.BizID)
		return cmp.Or(cmp.Compare(x, y), cmp.Compare(a.JobID, b.JobID))
	})
	return dead
}

func listsTheDead(t *testing.T, p place) {
	// More tables than one statement reads.
	f := p.open(t, sharding.Layout{Databases: 2, TablesPerDatabase: 64, Partitions: 4})
	dead := f.die(t, 400)
	list := func(typ *uint64, after uint64, limit int) []task.Task {
		got, err := f.ListDead(t.Context(), typ, after, limit)
		require.NoError(t, err)
		require.LessOrEqual(t, len(got), limit)
		return got
	}
	require.Equal(t, dead, list(nil, 0, 1000), "of all shards, by shard and job_id")
	require.Empty(t, list(nil, 0, 0))
	require.Empty(t, list(nil, dead[len(dead)-1].JobID, 10))
	require.Empty(t, list(nil, 1<<63, 10), "a place that is none")

	for _, limit := range []int{1, 37, 320} {
		for _, typ := range []*uint64{nil, ptr(uint64(2))} {
			var want, paged []task.Task
			for _, one := range dead {
				if typ == nil || one.BizType == *typ {
					want = append(want, one)
				}
			}
			if limit == 1 {
				want = want[:5]
			}
			for after := uint64(0); len(paged) < len(want); {
				page := list(typ, after, limit)
				require.NotEmpty(t, page)
				paged = append(paged, page...)
				after = page[len(page)-1].JobID
			}
			require.Equal(t, want, paged)

			n, err := f.CountDead(t.Context(), typ)
			require.NoError(t, err)
			if limit > 1 {
				require.Equal(t, len(want), n)
			}
		}
	}
	n, err := f.CountDead(t.Context(), ptr(uint64(99)))
	require.NoError(t, err)
	require.Zero(t, n)
}

func ptr[T any](v T) *T { return &v }

func purges(t *testing.T, p place) {
	f := p.open(t, small)
	before := f.in(100) // later than all job_ids
	type rowOf struct {
		status   task.Status
		due      int // milliseconds from before
		modified int
	}
	gone, kept := make(map[uint64]int), make(map[uint64]rowOf)
	for i, r := range []rowOf{
		{task.Processed, -1, -1}, {task.Cancelled, -1, -1}, {task.Processed, -1000, -5}, {task.Cancelled, -5, -1000}, {task.Cancelled, 5, -1},
		{task.Processed, 0, -1}, {task.Processed, -1, 0}, {task.Cancelled, 5, 5}, {task.Cancelled, -1, 5},
		{task.Dead, -1000, -1000}, {task.Pending, -1000, -1000},
	} {
		for biz := range uint64(8) { // one in each table
			one := f.put(t, task.Task{BizID: biz, BizType: uint64(i), ActionTime: f.in(100 + r.due)})[0]
			require.EqualValues(t, 1, f.hand(t, f.layout.Shard(biz), "UPDATE %s SET status=?, gmt_modified=? WHERE job_id=?",
				int(r.status), f.at(f.in(100+r.modified)), f.id(one.JobID)))
			if i < 5 {
				gone[one.JobID] = f.layout.Partition(f.layout.Shard(biz))
			} else {
				kept[one.JobID] = r
			}
		}
	}
	for partition := range f.layout.Partitions {
		n, err := f.Purge(t.Context(), partition, before)
		require.NoError(t, err)
		require.Equal(t, 8, n, "four in each of two tables")
		n, err = f.PurgeEarly(t.Context(), partition, before)
		require.NoError(t, err)
		require.Equal(t, 2, n, "one in each of two tables")
		n, err = f.PurgeEarly(t.Context(), partition, before)
		require.NoError(t, err)
		require.Zero(t, n)
		n, err = f.Purge(t.Context(), partition, before)
		require.NoError(t, err)
		require.Zero(t, n)
		for job, where := range gone {
			if where == partition {
				delete(gone, job)
			}
		}
		require.Len(t, f.everything(t), len(gone)+len(kept), "the other partitions are left alone")
	}
	for job := range f.everything(t) {
		require.Contains(t, kept, job)
	}
}

// purgesNoRevived: an admin revives a finished task between a purge's SELECT and its DELETE.
func purgesNoRevived(t *testing.T, p place) {
	f := p.open(t, small)
	stored := f.put(t, make([]task.Task, 3)...)
	f.setStatus(t, task.Processed, stored...)
	rec := store.Record(f.Store)
	rec.OnTransaction = func(do func() error) error {
		f.setStatus(t, task.Dead, stored[1])
		f.hand(t, 0, "UPDATE %s SET status=0 WHERE job_id=?", f.id(stored[2].JobID))
		return do()
	}
	n, err := f.Purge(t.Context(), 0, time.Now().AddDate(100, 0, 0))
	require.NoError(t, err)
	require.Equal(t, 1, n)
	all := f.everything(t)
	require.Len(t, all, 2)
	require.NotContains(t, all, stored[0].JobID)
}

// tellsTheTime: not this machine's wall clock.
func tellsTheTime(t *testing.T, p place) {
	f := p.open(t, small)
	first, err := f.Clock(t.Context(), 1)
	require.NoError(t, err)
	f.clock.advance(24 * time.Hour)
	second, err := f.Clock(t.Context(), 1)
	require.NoError(t, err)
	require.Less(t, second.Sub(first).Abs(), time.Hour)
	want := f.in(0).Add(-24 * time.Hour)
	if p.driver == store.MySQL {
		want = time.Now() // the server's machine is ours
	}
	require.WithinDuration(t, want, second, time.Hour)
}

// purgesInSmallBatches: a backlog is deleted in parts, the oldest first.
func purgesInSmallBatches(t *testing.T, p place) {
	f := p.open(t, small)
	var batch []task.Task
	for i, biz := range bizIDs(f.layout, 0, 450) {
		batch = append(batch, task.Task{BizID: biz, BizType: 1, ActionTime: f.in(-1000 + i)})
	}
	moves := make([]store.Move, len(batch))
	for i, one := range f.put(t, batch...) {
		moves[i] = store.Move{JobID: one.JobID, To: []task.Status{task.Processed, task.Cancelled, task.Cancelled}[i%3]}
	}
	_, err := f.Apply(t.Context(), 0, f.Stamp(0), moves)
	require.NoError(t, err)

	f.clock.advance(10 * time.Second)
	var bites []int
	for before := f.everything(t); ; {
		n, err := f.Purge(t.Context(), 0, f.in(0))
		require.NoError(t, err)
		bites = append(bites, n)
		if n == 0 {
			break
		}
		after := f.everything(t)
		require.Len(t, after, len(before)-n)
		requireOldestGone(t, before, after)
		before = after
	}
	require.Equal(t, []int{200, 150, 100, 0}, bites, "at most 100 of each status")
}

// requireOldestGone checks that no task of a status is left that is older than the deleted ones.
func requireOldestGone(t testing.TB, before, after map[uint64]task.Task) {
	t.Helper()
	newest := make(map[task.Status]time.Time)
	for job, one := range before {
		if _, left := after[job]; !left && one.ActionTime.After(newest[one.Status]) {
			newest[one.Status] = one.ActionTime
		}
	}
	for _, one := range after {
		require.False(t, one.ActionTime.Before(newest[one.Status]), "%v is left", one)
	}
}
