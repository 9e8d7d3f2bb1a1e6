package store_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// spread stores n tasks over all tables, some of them due at the same time.
func (f *fixture) spread(t testing.TB, n int) []task.Task {
	batch := make([]task.Task, n)
	for i := range batch {
		batch[i] = task.Task{BizID: rand.Uint64N(1000), BizType: rand.Uint64N(4), ActionTime: f.in(rand.IntN(n / 10))}
	}
	return f.put(t, batch...)
}

// requireInOrder checks that each table's tasks come by action_time, then job_id.
func (f *fixture) requireInOrder(t testing.TB, list []task.Task) {
	t.Helper()
	last := make(map[int]task.Key)
	for i := range list {
		shard, _ := f.layout.ShardOf(list[i].JobID)
		key := task.KeyOf(&list[i])
		if before, seen := last[shard]; seen {
			require.True(t, before.Before(key), "table %d: %v comes after %v", shard, key, before)
		}
		last[shard] = key
	}
}

func dueReadsAllOnce(t *testing.T, p place) {
	f := p.open(t, small)
	stored := f.spread(t, 200)
	for _, perPage := range []int{1, 2, 7, 16, 50, 199, 200, 201, 10_000} {
		got := f.due(t, store.Due{Until: f.in(30), PerPage: perPage})
		requireSame(t, stored, got, "%d a page", perPage)
		f.requireInOrder(t, got)
	}
}

func dueReadsItsPartition(t *testing.T, p place) {
	f := p.open(t, small)
	stored := f.spread(t, 200)
	for partition := range f.layout.Partitions {
		var want []task.Task
		for _, one := range stored {
			if f.layout.Partition(f.layout.Shard(one.BizID)) == partition {
				want = append(want, one)
			}
		}
		page, err := f.DuePages(partition, store.Due{Until: f.in(30), PerPage: 1000}).Next(t.Context())
		require.NoError(t, err)
		requireSame(t, want, page)
	}
}

func dueIsPendingAndInTime(t *testing.T, p place) {
	f := p.open(t, small)
	stored := f.put(t,
		task.Task{BizID: 1, BizType: 1, ActionTime: f.in(-1)},
		task.Task{BizID: 1, BizType: 1, ActionTime: f.in(0)},
		task.Task{BizID: 1, BizType: 1, ActionTime: f.in(1)},
		task.Task{BizID: 1, BizType: 1, ActionTime: f.in(0)},
		task.Task{BizID: 1, BizType: 1, ActionTime: f.in(0)},
		task.Task{BizID: 1, BizType: 1, ActionTime: f.in(0)},
	)
	f.setStatus(t, task.Processed, stored[3])
	f.setStatus(t, task.Cancelled, stored[4])
	f.setStatus(t, task.Dead, stored[5])

	jobs := func(until time.Time) (ids []uint64) {
		for _, one := range f.due(t, store.Due{Until: until, PerPage: 10}) {
			ids = append(ids, one.JobID)
		}
		return ids
	}
	require.Empty(t, jobs(f.in(-2)))
	require.Equal(t, []uint64{stored[0].JobID}, jobs(f.in(-1)))
	require.Equal(t, []uint64{stored[0].JobID, stored[1].JobID}, jobs(f.in(0)), "up to and with the time given")
	require.Equal(t, []uint64{stored[0].JobID, stored[1].JobID}, jobs(f.in(1).Add(-time.Microsecond)))
	require.Equal(t, []uint64{stored[0].JobID, stored[1].JobID, stored[2].JobID}, jobs(f.in(1)))
}

func dueGoesOnFromAPlace(t *testing.T, p place) {
	f := p.open(t, small)
	stored := f.spread(t, 150)
	slices.SortFunc(stored, func(a, b task.Task) int {
		if task.KeyOf(&a).Before(task.KeyOf(&b)) {
			return -1
		}
		return 1
	})
	for _, i := range []int{0, 1, 70, 149} {
		got := f.due(t, store.Due{Until: f.in(30), From: task.KeyOf(&stored[i]), PerPage: 5})
		requireSame(t, stored[i:], got, "with the place itself")
	}
	at := stored[75].ActionTime
	got := f.due(t, store.Due{Until: f.in(30), From: task.Key{ActionTime: at}, PerPage: 3})
	first := slices.IndexFunc(stored, func(one task.Task) bool { return one.ActionTime.Equal(at) })
	requireSame(t, stored[first:], got, "from a time on")
}

func dueSelectsBizTypes(t *testing.T, p place) {
	f := p.open(t, small)
	byType := make(map[uint64][]task.Task)
	for _, one := range f.spread(t, 150) {
		byType[one.BizType] = append(byType[one.BizType], one)
	}
	requireSame(t, byType[2], f.due(t, store.Due{Until: f.in(30), Only: []uint64{2}, PerPage: 5}))
	require.Empty(t, f.due(t, store.Due{Until: f.in(30), Only: []uint64{99}, PerPage: 5}))
	requireSame(t, slices.Concat(byType[1], byType[3]),
		f.due(t, store.Due{Until: f.in(30), Except: []uint64{0, 2, 99}, PerPage: 5}))

	narrow := slices.Clone(byType[2])
	for i, one := range narrow {
		narrow[i] = task.Task{JobID: one.JobID, BizType: 2, ActionTime: one.ActionTime, Attempts: one.Attempts, Modified: one.Modified}
	}
	got := f.due(t, store.Due{Until: f.in(30), Only: []uint64{2}, PerPage: 5, Narrow: true})
	for i := range got {
		got[i].Created = time.Time{} // it has none of its own
	}
	requireSame(t, narrow, got)

	// A type left out on the way: what was read stays read, what comes is without it.
	pages := f.DuePages(0, store.Due{Until: f.in(30), PerPage: 4})
	first, err := pages.Next(t.Context())
	require.NoError(t, err)
	pages.Except(first[0].BizType)
	seen := slices.Clone(first)
	for {
		page, err := pages.Next(t.Context())
		require.NoError(t, err)
		if len(page) == 0 {
			break
		}
		for _, one := range page {
			require.NotEqual(t, first[0].BizType, one.BizType)
		}
		seen = append(seen, page...)
	}
	for typ := range uint64(4) {
		if typ == first[0].BizType {
			continue
		}
		for _, one := range byType[typ] {
			if f.layout.Partition(f.layout.Shard(one.BizID)) == 0 {
				require.Contains(t, seen, one)
			}
		}
	}
}

// dueUnderSkew: all tasks of a night are due at midnight and of one table.
func dueUnderSkew(t *testing.T, p place) {
	f := p.open(t, small)
	var batch []task.Task
	for _, biz := range bizIDs(f.layout, 5, 800) {
		batch = append(batch, task.Task{BizID: biz, BizType: 1, ActionTime: f.in(0)})
	}
	stored := f.put(t, batch...)
	for _, perPage := range []int{37, 300} {
		got := f.due(t, store.Due{Until: f.in(0), PerPage: perPage})
		require.Len(t, got, len(stored))
		f.requireInOrder(t, got)
	}
}

// dueByHand: an admin writes times as the database's own functions give them.
func dueByHand(t *testing.T, p place) {
	f := p.open(t, small)
	forms := []string{"2026-03-01 12:00:00", "2026-03-01 12:00:00.0", "2026-03-01 12:00:00.5", "2026-03-01 12:00:00.123", "2026-03-01 12:00:00.000"}
	shard, n := 3, 0
	want := make(map[uint64]bool)
	for i, biz := range bizIDs(f.layout, shard, 100) {
		job := f.NewID(biz)
		f.hand(t, shard, "INSERT INTO %s (job_id, biz_id, biz_type, action_time) VALUES (?, ?, 1, ?)", f.id(job), f.id(biz), forms[i%len(forms)])
		want[job] = true
		n++
	}
	for _, perPage := range []int{1, 3, 10, 1000} {
		got := make(map[uint64]bool)
		for _, one := range f.due(t, store.Due{Until: f.in(1000), PerPage: perPage}) {
			require.False(t, got[one.JobID], "%d twice", one.JobID)
			got[one.JobID] = true
		}
		require.Equal(t, want, got, "%d a page", perPage)
	}
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	require.Len(t, f.due(t, store.Due{Until: at, PerPage: 5}), 60, "due at the full second, however that is written")
	require.Len(t, f.due(t, store.Due{Until: f.in(1000), From: task.Key{ActionTime: at}, PerPage: 5}), n)
}

// dueGoesOnAfterAnError: the page that failed is read again.
func dueGoesOnAfterAnError(t *testing.T, p place) {
	f := p.open(t, small)
	stored := f.spread(t, 150)
	var got []task.Task
	failures := 0
	for partition := range f.layout.Partitions {
		pages := f.DuePages(partition, store.Due{Until: f.in(30), PerPage: 10})
		for {
			page, err := pages.Next(cancelled(t))
			if err == nil {
				require.Empty(t, page, "at the end there is nothing left that could fail")
				break
			}
			require.ErrorIs(t, err, task.ErrUnavailable)
			failures++
			page, err = pages.Next(t.Context())
			require.NoError(t, err)
			got = append(got, page...)
		}
	}
	requireSame(t, stored, got)
	require.Greater(t, failures, 2*f.layout.Partitions)
}

// SQLite takes any text for the two times that only inform.
func TestSQLiteReadsRowsWithBadInformation(t *testing.T) {
	t.Parallel()
	f := onSQLite().open(t, small)
	stored := f.put(t, task.Task{BizID: 9, BizType: 1, ActionTime: f.in(0)}, task.Task{BizID: 17, BizType: 1, ActionTime: f.in(0)})
	shard := f.layout.Shard(9)
	for i, text := range []string{"2026-03-01T12:00:00Z", "now", "", "2026-03-01 12:00:00", "1772366400"} {
		f.hand(t, shard, "UPDATE %s SET gmt_modified=?, gmt_create=? WHERE job_id=?", text, text, f.id(stored[0].JobID))
		require.Len(t, f.due(t, store.Due{Until: f.in(0), PerPage: 10}), 2, fmt.Sprint(i, text))
		one, err := f.Get(t.Context(), stored[0].JobID)
		require.NoError(t, err, text)
		require.Equal(t, f.in(0), one.ActionTime)
	}
}

// SQLite keeps the digits that an admin gave; a task is never early by them.
func TestSQLiteRoundsTimesUp(t *testing.T) {
	t.Parallel()
	f := onSQLite().open(t, small)
	one := f.put(t, task.Task{BizID: 9, BizType: 1, ActionTime: f.in(0)})[0]
	f.hand(t, f.layout.Shard(9), "UPDATE %s SET action_time='2026-03-01 12:00:00.1230001' WHERE job_id=?", f.id(one.JobID))
	require.Empty(t, f.due(t, store.Due{Until: f.in(0), PerPage: 10}))
	due := f.due(t, store.Due{Until: f.in(1), PerPage: 10})
	require.Len(t, due, 1)
	require.Equal(t, f.in(1), due[0].ActionTime)
	require.Len(t, f.due(t, store.Due{Until: f.in(1), From: task.KeyOf(&due[0]), PerPage: 10}), 1)
}

func nextDue(t *testing.T, p place) {
	f := p.open(t, small)
	for partition := range f.layout.Partitions {
		_, none, err := f.NextDue(t.Context(), partition)
		require.NoError(t, err)
		require.True(t, none, "partition %d", partition)
	}
	want := make(map[int]time.Time)
	var over []store.Move
	for _, one := range f.spread(t, 60) {
		if rand.IntN(3) == 0 {
			over = append(over, store.Move{JobID: one.JobID, To: task.Cancelled})
			continue
		}
		partition := f.layout.Partition(f.layout.Shard(one.BizID))
		if at, ok := want[partition]; !ok || one.ActionTime.Before(at) {
			want[partition] = one.ActionTime
		}
	}
	for _, m := range over {
		applied, err := f.Move(t.Context(), m)
		require.NoError(t, err)
		require.True(t, applied)
	}
	for partition := range f.layout.Partitions {
		at, none, err := f.NextDue(t.Context(), partition)
		require.NoError(t, err)
		require.Equal(t, want[partition].IsZero(), none, "partition %d", partition)
		require.True(t, at.Equal(want[partition]), "partition %d: %s, not %s", partition, at, want[partition])
	}
}
