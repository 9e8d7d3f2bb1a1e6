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
		move := store.Move{JobID: one.JobID, To: to}
		if to == task.Dead {
			retried := one.ActionTime.Add(time.Minute)
			move.Set = store.Set{Attempts: ptr(1 + i%4), ActionTime: &retried, Promised: &one.ActionTime}
			dead = append(dead, one)
		}
		perDatabase[d] = append(perDatabase[d], move)
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
		got, next, err := f.ListDead(t.Context(), store.DeadFilter{BizType: typ}, after, limit)
		require.NoError(t, err)
		require.LessOrEqual(t, len(got), limit)
		if next != 0 {
			require.Equal(t, got[limit-1].JobID, next)
		}
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

			n, err := f.CountDead(t.Context(), store.DeadFilter{BizType: typ})
			require.NoError(t, err)
			if limit > 1 {
				require.Equal(t, len(want), n)
			}
		}
	}
	n, err := f.CountDead(t.Context(), store.DeadFilter{BizType: ptr(uint64(99))})
	require.NoError(t, err)
	require.Zero(t, n)
}

// filtersTheDead by their error, byte by byte, and by the time of their death.
func filtersTheDead(t *testing.T, p place) {
	f := p.open(t, small)
	stored := f.put(t, make([]task.Task, 4)...)
	for i, why := range []string{"100% of a_b", "100 of aXb", "A_B", ""} {
		shard, _ := f.layout.ShardOf(stored[i].JobID)
		f.hand(t, shard, "UPDATE %s SET status=4, last_error=?, gmt_modified=? WHERE job_id=?", why, f.at(f.in(1000*i)), f.id(stored[i].JobID))
	}
	for name, c := range map[string]struct {
		filter store.DeadFilter
		want   []int
	}{
		"all":              {store.DeadFilter{}, []int{0, 1, 2, 3}},
		"a part":           {store.DeadFilter{Error: "of a"}, []int{0, 1}},
		"no wildcards":     {store.DeadFilter{Error: "a_b"}, []int{0}},
		"nor this one":     {store.DeadFilter{Error: "0% "}, []int{0}},
		"nothing":          {store.DeadFilter{Error: "'; DROP"}, nil},
		"since is in":      {store.DeadFilter{Since: f.in(1000)}, []int{1, 2, 3}},
		"until is not":     {store.DeadFilter{Until: f.in(1000)}, []int{0}},
		"several":          {store.DeadFilter{Error: "100", Since: f.in(1), Until: f.in(2000)}, []int{1}},
		"another biz_type": {store.DeadFilter{BizType: ptr(uint64(77))}, nil},
	} {
		got, next, err := f.ListDead(t.Context(), c.filter, 0, 10)
		require.NoError(t, err, name)
		require.Zero(t, next)
		var want, ids []uint64
		for _, i := range c.want {
			want = append(want, stored[i].JobID)
		}
		for _, one := range got {
			ids = append(ids, one.JobID)
		}
		require.ElementsMatch(t, want, ids, name)
		n, err := f.CountDead(t.Context(), c.filter)
		require.NoError(t, err)
		require.Equal(t, len(want), n, name)
	}
}

// groupsTheDead: ids and numbers do not split a group.
func groupsTheDead(t *testing.T, p place) {
	f := p.open(t, small)
	whys := []string{"order 17 is gone", "order 4711 is gone", "other", `order 5 is gone`}
	stored := f.put(t, make([]task.Task, len(whys))...)
	for i, why := range whys {
		shard, _ := f.layout.ShardOf(stored[i].JobID)
		f.hand(t, shard, "UPDATE %s SET status=4, biz_type=?, last_error=?, gmt_modified=? WHERE job_id=?", 1+i/3, why, f.at(f.in(1000*i)), f.id(stored[i].JobID))
	}
	got, partial, err := f.DeadGroups(t.Context(), nil)
	require.NoError(t, err)
	require.False(t, partial)
	require.Equal(t, []store.DeadGroup{
		{BizType: 1, Error: "order # is gone", Count: 2, Oldest: f.in(0), Newest: f.in(1000), JobID: min(stored[0].JobID, stored[1].JobID)},
		{BizType: 1, Error: "other", Count: 1, Oldest: f.in(2000), Newest: f.in(2000), JobID: stored[2].JobID},
		{BizType: 2, Error: "order # is gone", Count: 1, Oldest: f.in(3000), Newest: f.in(3000), JobID: stored[3].JobID},
	}, got)
	got, _, err = f.DeadGroups(t.Context(), ptr(uint64(2)))
	require.NoError(t, err)
	require.Len(t, got, 1)
}

// In the largest layout a look-up takes few statements, each over a bounded number of tables, even
// if nothing matches.
// On MariaDB alone: SQLite takes a minute to make so many tables, and gets the same statements.
func TestLookingForTheDeadIsBounded(t *testing.T) {
	t.Parallel()
	f := onMySQL().open(t, sharding.Layout{Databases: 1, TablesPerDatabase: 512, Partitions: 4})
	f.die(t, 20)
	rec := store.Record(f.Store)
	for name, look := range map[string]func() error{
		"list": func() error {
			_, _, err := f.ListDead(t.Context(), store.DeadFilter{Error: "none"}, 0, 100)
			return err
		},
		"count":  func() error { _, err := f.CountDead(t.Context(), store.DeadFilter{Error: "none"}); return err },
		"groups": func() error { _, _, err := f.DeadGroups(t.Context(), nil); return err },
	} {
		rec.Clear()
		require.NoError(t, look(), name)
		statements := 512 / 256
		if name == "groups" {
			statements++ // how many dead there are, in some tables
		}
		require.True(t, len(rec.Queries()) == statements, "%s: %d statements", name, len(rec.Queries()))
		for _, q := range rec.Queries() {
			require.LessOrEqual(t, strings.Count(q.SQL, "timeout_task_"), 2*256, name) // with the name of the index
			if name != "count" {
				require.Equal(t, strings.Count(q.SQL, "FROM timeout_task_"), strings.Count(q.SQL, "LIMIT ?"), name)
			}
		}
	}
}

func TestErrorsWithoutIDs(t *testing.T) {
	for text, want := range map[string]string{
		"order 17: 503 after 1.5s":                     "order #: # after #s",
		"no 6f1c0b6e-9a53-4a3f-8c6e-1d2f3a4b5c6d here": "no # here",
		"0xAB and deadbeef01 and 5d41402abc4b2a76":     "# and # and #",
		`no order "ab-12", no 'x9', no "shop"`:         `no order #, no #, no "shop"`,
		"connection refused":                           "connection refused",
		// What says which fault it is stays.
		"POST 127.0.0.1:9000: 503 Service Unavailable":                                    "POST 127.0.0.1:9000: 503 Service Unavailable",
		"POST shop-7.example:8443: 404 Not Found: order 42":                               "POST shop-7.example:8443: 404 Not Found: order #",
		"POST 10.0.0.9:80: dial tcp 10.0.0.9:80: connect: connection refused":             "POST 10.0.0.9:80: dial tcp 10.0.0.9:80: connect: connection refused",
		"POST shop: read tcp 10.0.0.1:43210->10.0.0.9:80: read: connection reset by peer": "POST shop: read tcp #->10.0.0.9:80: read: connection reset by peer",
		"POST shop: dial tcp: lookup shop-1.svc on 10.96.0.10:53: no such host":           "POST shop: dial tcp: lookup shop-1.svc on 10.96.0.10:53: no such host",
		"smtp: 10.0.0.1 refused the connection":                                           "smtp: # refused the connection",
		"status 502 for order:42":                                                         "status 502 for order:#",
		strings.Repeat("x", 150) + strings.Repeat("é", 50):                                strings.Repeat("x", 150) + strings.Repeat("é", 10),
	} {
		require.Equal(t, want, store.WithoutIDs(text))
	}
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
		n, err := rows(f.Purge(t.Context(), partition, before))
		require.NoError(t, err)
		require.Equal(t, 8, n, "four in each of two tables")
		n, err = rows(f.PurgeEarly(t.Context(), partition, before))
		require.NoError(t, err)
		require.Equal(t, 2, n, "one in each of two tables")
		n, err = rows(f.PurgeEarly(t.Context(), partition, before))
		require.NoError(t, err)
		require.Zero(t, n)
		n, err = rows(f.Purge(t.Context(), partition, before))
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

// purgesTheDead that died long enough ago, and only these.
func purgesTheDead(t *testing.T, p place) {
	f := p.open(t, small)
	before := f.in(100)
	var stored []task.Task
	for i := range 6 {
		stored = append(stored, f.put(t, task.Task{BizID: 0, BizType: uint64(i), ActionTime: f.in(0)})...)
	}
	for i, one := range stored {
		status, modified := 4, f.in(99)
		if i == 1 {
			modified = before
		} else if i > 2 {
			status = []int{0, 2, 3}[i-3]
		}
		f.hand(t, 0, "UPDATE %s SET status=?, gmt_modified=? WHERE job_id=?", status, f.at(modified), f.id(one.JobID))
	}
	rec := store.Record(f.Store)
	rec.OnTransaction = func(do func() error) error { // the third died again meanwhile
		f.hand(t, 0, "UPDATE %s SET gmt_modified=? WHERE job_id=?", f.at(before), f.id(stored[2].JobID))
		return do()
	}
	n, err := rows(f.PurgeDead(t.Context(), 0, before))
	require.NoError(t, err)
	require.Equal(t, 1, n)
	all := f.everything(t)
	require.Len(t, all, 5)
	require.NotContains(t, all, stored[0].JobID)
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
	n, err := rows(f.Purge(t.Context(), 0, time.Now().AddDate(100, 0, 0)))
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

// purgesInSmallBatches: a backlog is deleted in parts, the oldest first. Two tables of a partition share a batch.
func purgesInSmallBatches(t *testing.T, p place) {
	f := p.open(t, small)
	var batch []task.Task
	for i, biz := range bizIDs(f.layout, 0, 1650) {
		batch = append(batch, task.Task{BizID: biz, BizType: 1, ActionTime: f.in(-2000 + i)})
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
		purged, err := f.Purge(t.Context(), 0, f.in(0))
		require.NoError(t, err)
		n := purged.Rows()
		bites = append(bites, n)
		require.Equal(t, len(bites) < 3, purged.More)
		if n == 0 {
			break
		}
		after := f.everything(t)
		require.Len(t, after, len(before)-n)
		requireOldestGone(t, before, after)
		before = after
	}
	require.Equal(t, []int{1000, 550, 100, 0}, bites, "at most 500 of each status")
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

// rows is the number of rows that a batch has deleted.
func rows(p store.Purged, err error) (int, error) { return p.Rows(), err }
