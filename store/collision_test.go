package store_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

func collisionOfOne(t *testing.T, p place) {
	f := p.open(t, small)
	taken := f.put(t, task.Task{BizID: 9, BizType: 1, ActionTime: f.in(0), Attribute: "first"})[0]
	for _, key := range []string{"", "k"} {
		results := f.Insert(t.Context(), []task.Task{
			{BizID: 1, BizType: 1, ActionTime: f.in(0), DedupKey: key},
			{JobID: taken.JobID, BizID: 9, BizType: 1, ActionTime: f.in(0), Attribute: "second", DedupKey: key},
			{BizID: 9, BizType: 2, ActionTime: f.in(0), DedupKey: key},
		})
		all := f.everything(t)
		require.Equal(t, taken, all[taken.JobID], "the row that was there is not touched")
		for _, r := range results {
			require.NoError(t, r.Err)
			require.False(t, r.Duplicate, "same job_id, another task")
			require.Equal(t, all[r.Task.JobID], r.Task)
			require.NotEqual(t, taken.JobID, r.Task.JobID)
		}
	}
	require.Len(t, f.everything(t), 7)
}

// collisionOfProcesses: a process borrowed milliseconds from the future, ended,
// and another one has its worker number.
func collisionOfProcesses(t *testing.T, p place) {
	f := p.open(t, small)
	batch := func(typ uint64, key string) (list []task.Task) {
		for i := range 100 {
			list = append(list, task.Task{BizID: uint64(i % 20), BizType: typ + uint64(100*i), ActionTime: f.in(0), DedupKey: key})
		}
		return list
	}
	f.put(t, batch(1, "")...)
	f.put(t, batch(2, "k")...)

	cfg := f.cfg
	cfg.IDs = newIDs(t, f.layout, 1, f.clock)
	next := f.another(t, cfg)
	for _, list := range [][]task.Task{batch(3, ""), batch(4, "k"), append(batch(5, ""), batch(6, "k")...)} {
		for _, r := range next.Insert(t.Context(), list) {
			require.NoError(t, r.Err)
			require.False(t, r.Duplicate)
		}
	}
	require.Len(t, f.everything(t), 600)

	// A duplicate differs from a collision.
	cfg.IDs = newIDs(t, f.layout, 1, f.clock)
	for _, r := range f.another(t, cfg).Insert(t.Context(), batch(2, "k")) {
		require.NoError(t, r.Err)
		require.True(t, r.Duplicate)
	}
	require.Len(t, f.everything(t), 600)
}

func collisionUnderConcurrency(t *testing.T, p place) {
	f := p.open(t, small)
	cfg := f.cfg
	cfg.IDs = newIDs(t, f.layout, 1, f.clock)
	stores := []*store.Store{f.Store, f.another(t, cfg)}
	const callers, each = 8, 25
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := range each {
				one := task.Task{BizID: uint64(i), BizType: uint64(c), ActionTime: f.in(0)}
				if i%2 == 0 {
					one.DedupKey = "k"
				}
				r := stores[c%2].Insert(t.Context(), []task.Task{one})[0]
				if r.Err != nil || r.Duplicate {
					t.Errorf("caller %d, task %d: %+v", c, i, r)
				}
			}
		})
	}
	wg.Wait()
	require.Len(t, f.everything(t), callers*each)
}
