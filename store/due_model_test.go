package store_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// dueAgainstAModel reads a partition page by page while rows come, end, move and are excluded, and compares
// with a model in memory.
func dueAgainstAModel(t *testing.T, p place) {
	f := p.open(t, sharding.Layout{Databases: 1, TablesPerDatabase: 4, Partitions: 1})
	rapid.Check(t, func(t *rapid.T) { newReading(f, t).run() })
}

// reading is one partition read to its end.
type reading struct {
	*rapid.T
	f     *fixture
	query store.Due
	rows  map[uint64]task.Task // pending now
	still map[uint64]bool      // pending and untouched since the reading began
	seen  map[uint64]bool
	last  map[int]task.Key // by table
}

func newReading(f *fixture, t *rapid.T) *reading {
	for table := range f.layout.TablesPerDatabase {
		_, err := f.hands[0].Exec("DELETE FROM " + sharding.TableName(table))
		require.NoError(t, err)
	}
	r := &reading{T: t, f: f, rows: map[uint64]task.Task{}, still: map[uint64]bool{}, seen: map[uint64]bool{}, last: map[int]task.Key{}}
	r.insert(rapid.IntRange(0, 60).Draw(t, "rows"))
	for id := range r.rows {
		r.still[id] = true
	}
	r.query = store.Due{
		Until:   f.in(rapid.IntRange(-1, 6).Draw(t, "until")),
		PerPage: rapid.IntRange(1, 30).Draw(t, "per page"),
		Except:  rapid.SliceOfNDistinct(rapid.Uint64Range(0, 4), 0, 2, rapid.ID).Draw(t, "except"),
	}
	if rapid.Bool().Draw(t, "only some types") {
		r.query.Only = rapid.SliceOfNDistinct(rapid.Uint64Range(0, 4), 1, 3, rapid.ID).Draw(t, "only")
	}
	if ids := r.ids(); len(ids) > 0 && rapid.Bool().Draw(t, "from a place") {
		from := r.rows[rapid.SampledFrom(ids).Draw(t, "from")]
		r.query.From = task.KeyOf(&from)
	}
	return r
}

// ids gives the pending rows in an order that a run can repeat.
func (r *reading) ids() []uint64 {
	var ids []uint64
	for id := range r.rows {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func (r *reading) insert(n int) {
	batch := make([]task.Task, n)
	for i := range batch {
		batch[i] = task.Task{
			BizID:      rapid.Uint64Range(0, 5).Draw(r.T, "biz_id"),
			BizType:    rapid.Uint64Range(0, 3).Draw(r.T, "biz_type"),
			ActionTime: r.f.in(rapid.IntRange(0, 5).Draw(r.T, "due")),
		}
	}
	for _, one := range r.f.Insert(r.T.Context(), batch) {
		require.NoError(r, one.Err)
		r.rows[one.Task.JobID] = one.Task
	}
}

// finish ends a row, whether it was read or not.
func (r *reading) finish() {
	ids := r.ids()
	if len(ids) == 0 {
		return
	}
	id := rapid.SampledFrom(ids).Draw(r.T, "finish")
	applied, err := r.f.Move(r.T.Context(), store.Move{JobID: id, To: task.Processed})
	require.NoError(r, err)
	require.True(r, applied)
	delete(r.rows, id)
	delete(r.still, id)
}

func (r *reading) matches(one task.Task) bool {
	return !one.ActionTime.After(r.query.Until) && !task.KeyOf(&one).Before(r.query.From) &&
		(len(r.query.Only) == 0 || slices.Contains(r.query.Only, one.BizType)) && !slices.Contains(r.query.Except, one.BizType)
}

func (r *reading) run() {
	pages := r.f.DuePages(0, r.query)
	r.query.Except = slices.Clone(r.query.Except)
	for {
		page, err := pages.Next(r.T.Context())
		require.NoError(r, err)
		if len(page) == 0 {
			break
		}
		r.check(page)
		r.checkRest(pages)
		switch rapid.IntRange(0, 4).Draw(r.T, "between pages") {
		case 0:
			r.insert(rapid.IntRange(1, 5).Draw(r.T, "more rows"))
		case 1:
			r.finish()
		case 2:
			typ := rapid.Uint64Range(0, 4).Draw(r.T, "leave out")
			pages.Except(typ)
			r.query.Except = append(r.query.Except, typ)
		}
	}
	for id := range r.still {
		if r.matches(r.rows[id]) {
			require.True(r, r.seen[id], "row %v was there all the time and was not read", r.rows[id])
		}
	}
}

func (r *reading) check(page []task.Task) {
	for i := range page {
		one := &page[i]
		require.Equal(r, r.rows[one.JobID], *one, "pending, and as it stands")
		require.True(r, r.matches(*one), "%v does not match", one)
		require.False(r, r.seen[one.JobID], "%v was read twice", one)
		r.seen[one.JobID] = true
		shard, _ := r.f.layout.ShardOf(one.JobID)
		if before, ok := r.last[shard]; ok {
			require.True(r, before.Before(task.KeyOf(one)), "%v out of order", one)
		}
		r.last[shard] = task.KeyOf(one)
	}
}

// checkRest checks that reading on from Rest misses nothing.
func (r *reading) checkRest(pages *store.DuePages) {
	from, more := pages.Rest()
	for id := range r.still {
		if one := r.rows[id]; r.matches(one) && !r.seen[id] {
			require.True(r, more, "%v is left", one)
			require.False(r, task.KeyOf(&one).Before(from), "%v comes before the rest, %v", one, from)
		}
	}
}
