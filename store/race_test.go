package store_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// oneMoverWins lets the callers of two processes finish, cancel and bury the
// same tasks at the same time.
func oneMoverWins(t *testing.T, p place) {
	f := p.open(t, small)
	stores := []*store.Store{f.Store, f.elsewhere(t)}
	stored := f.spread(t, 60)
	ends := []task.Status{task.Processed, task.Cancelled, task.Dead}
	const callers = 12
	won := make([][]bool, callers)
	var wg sync.WaitGroup
	for c := range callers {
		won[c] = make([]bool, len(stored))
		wg.Go(func() {
			for i, one := range stored {
				applied, err := stores[c%2].Move(t.Context(), store.Move{JobID: one.JobID, To: ends[c%3]})
				if err != nil {
					t.Error(err)
				}
				won[c][i] = applied
			}
		})
	}
	wg.Wait()
	all := f.everything(t)
	for i, one := range stored {
		var winners []int
		for c := range callers {
			if won[c][i] {
				winners = append(winners, c)
			}
		}
		require.Len(t, winners, 1, "task %d", i)
		require.Equal(t, ends[winners[0]%3], all[one.JobID].Status)
	}
}

// batchesRace lets whole batches, in any order of their rows, meet single moves.
func batchesRace(t *testing.T, p place) {
	f := p.open(t, small)
	second := f.elsewhere(t)
	var tasks []task.Task
	for table := range f.layout.TablesPerDatabase {
		for _, biz := range bizIDs(f.layout, table, 50) {
			tasks = append(tasks, task.Task{BizID: biz, BizType: 1, ActionTime: f.in(0)})
		}
	}
	stored := f.put(t, tasks...)
	finish := make([]store.Move, len(stored))
	for i, one := range stored {
		finish[i] = store.Move{JobID: one.JobID, To: task.Processed}
	}
	backwards := slices.Clone(finish)
	slices.Reverse(backwards)

	answers := make([][]bool, 3)
	var wg sync.WaitGroup
	for i, batch := range [][]store.Move{finish, backwards} {
		s := []*store.Store{f.Store, second}[i]
		wg.Go(func() {
			var err error
			if answers[i], err = s.Apply(t.Context(), 0, s.Stamp(0), batch); err != nil {
				t.Error(err)
			}
		})
	}
	answers[2] = make([]bool, len(stored))
	for i, one := range stored {
		wg.Go(func() {
			var err error
			if answers[2][i], err = second.Move(t.Context(), store.Move{JobID: one.JobID, To: task.Cancelled}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	slices.Reverse(answers[1])
	all := f.everything(t)
	for i, one := range stored {
		n := 0
		for _, a := range answers {
			if a[i] {
				n++
			}
		}
		require.Equal(t, 1, n, "task %d", i)
		require.Equal(t, answers[2][i], all[one.JobID].Status == task.Cancelled)
	}
}

func movesShareCommits(t *testing.T, p place) {
	f := p.open(t, small)
	var tasks []task.Task
	for _, biz := range bizIDs(f.layout, 1, 400) {
		tasks = append(tasks, task.Task{BizID: biz, BizType: 1, ActionTime: f.in(0)})
	}
	stored := f.put(t, tasks...)
	rec := store.Record(f.Store)
	var wg sync.WaitGroup
	for part := range slices.Chunk(stored, 20) {
		wg.Go(func() {
			for _, one := range part {
				applied, err := f.Move(t.Context(), store.Move{JobID: one.JobID, To: task.Processed})
				if err != nil || !applied {
					t.Error(applied, err)
				}
			}
		})
	}
	wg.Wait()
	require.Less(t, len(rec.Transactions()), len(stored)/2)
	for _, one := range f.everything(t) {
		require.Equal(t, task.Processed, one.Status)
	}
}

func stampsRise(t *testing.T, p place) {
	f := p.open(t, small)
	const callers, each = 8, 200
	given := make([][]time.Time, callers)
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := range each {
				if i == each/2 && c == 0 {
					f.clock.advance(-time.Minute) // clocks do step back
				}
				given[c] = append(given[c], f.Stamp(0))
			}
		})
	}
	wg.Wait()
	seen := make(map[time.Time]bool)
	for _, list := range given {
		require.True(t, slices.IsSortedFunc(list, time.Time.Compare))
		for _, at := range list {
			require.False(t, seen[at], "%v twice", at)
			require.Zero(t, at.Nanosecond()%1e6)
			require.Equal(t, time.UTC, at.Location())
			seen[at] = true
		}
	}
	require.Equal(t, f.clock.Now(), f.Stamp(1), "each database by itself")
	last := f.Stamp(0)
	f.clock.advance(time.Hour)
	require.Equal(t, f.clock.Now(), f.Stamp(0), "the clock's time, once it is later than %v", last)

	// A row's first gmt_modified is no stamp either.
	stored := f.put(t, task.Task{BizID: 1, BizType: 1, ActionTime: f.in(0)})
	require.True(t, f.Stamp(1).After(stored[0].Modified))
}

// elsewhere is the store of another process, whose clock is a little ahead.
func (f *fixture) elsewhere(t testing.TB) *store.Store {
	cfg := f.cfg
	cfg.Now = func() time.Time { return f.clock.Now().Add(time.Minute) }
	return f.another(t, cfg)
}
