package store_test

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

func dedupGivesTheFirst(t *testing.T, p place) {
	f := p.open(t, small)
	first := f.put(t, task.Task{BizID: 9, BizType: 1, ActionTime: f.in(5), Attribute: "first", DedupKey: "k"})[0]
	before := f.everything(t)

	f.clock.advance(time.Second)
	again := task.Task{BizID: 9, BizType: 1, ActionTime: f.in(9), Attribute: "second", DedupKey: "k"}
	others := []task.Task{ // not the same identity
		{BizID: 9, BizType: 2, ActionTime: f.in(9), DedupKey: "k"},
		{BizID: 17, BizType: 1, ActionTime: f.in(9), DedupKey: "k"},
		{BizID: 9, BizType: 1, ActionTime: f.in(9), DedupKey: "l"},
		{BizID: 9, BizType: 1, ActionTime: f.in(9)},
		{BizID: 9, BizType: 1, ActionTime: f.in(9)},
	}
	got := f.Insert(t.Context(), []task.Task{again})[0]
	require.Equal(t, store.Inserted{Task: first, Duplicate: true}, got)
	require.Equal(t, before, f.everything(t), "unchanged")

	// The same in a batch, among new ones.
	results := f.Insert(t.Context(), append(others, again))
	require.Equal(t, store.Inserted{Task: first, Duplicate: true}, results[len(others)])
	for _, r := range results[:len(others)] {
		require.NoError(t, r.Err)
		require.False(t, r.Duplicate)
	}
	require.Len(t, f.everything(t), 1+len(others))
}

func dedupIsExact(t *testing.T, p place) {
	f := p.open(t, small)
	keys := []string{
		"a", "A", "a ", " a", "a  ", "a\x00", "á", "a\u0301", "ss", "ß", "i", "İ", "ı", "0", "00", "０",
		strings.Repeat("k", 64), strings.Repeat("k", 63), strings.Repeat("k", 63) + " ",
	}
	var batch []task.Task
	for _, k := range keys {
		batch = append(batch, task.Task{BizID: 9, BizType: 1, ActionTime: f.in(0), DedupKey: k})
	}
	stored := f.put(t, batch...)
	for i, r := range f.Insert(t.Context(), batch) {
		require.Equal(t, store.Inserted{Task: stored[i], Duplicate: true}, r)
	}
	require.Len(t, f.everything(t), len(keys))
}

func dedupWithinABatch(t *testing.T, p place) {
	f := p.open(t, small)
	// Enough keys that their look-up takes more than one statement.
	var batch []task.Task
	for i := range 300 {
		batch = append(batch, task.Task{BizID: uint64(8 * (i % 150)), BizType: 1, ActionTime: f.in(i), DedupKey: "k"})
	}
	results := f.Insert(t.Context(), batch)
	require.Len(t, f.everything(t), 150)
	for i, r := range results {
		require.NoError(t, r.Err)
		require.Equal(t, i >= 150, r.Duplicate)
		require.Equal(t, results[i%150].Task, r.Task, "the first one of the batch")
	}
}

func dedupUnderConcurrency(t *testing.T, p place) {
	f := p.open(t, small)
	cfg := f.cfg
	cfg.IDs = newIDs(t, f.layout, 2, f.clock)
	stores := []*store.Store{f.Store, f.another(t, cfg)}
	const callers, keys = 24, 10
	var stored atomic.Int32
	got := make([][]store.Inserted, callers)
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for k := range keys {
				// Half of the callers ask for all keys at once, in an order of their own.
				batch := []task.Task{{BizID: uint64(k), BizType: 1, ActionTime: f.in(c), DedupKey: "k"}}
				if c%2 == 0 {
					batch = append(batch, task.Task{BizID: uint64((k + c) % keys), BizType: 1, ActionTime: f.in(c), DedupKey: "k"})
				}
				got[c] = append(got[c], stores[c/2%2].Insert(t.Context(), batch)...)
			}
		})
	}
	wg.Wait()
	all := f.everything(t)
	require.Len(t, all, keys)
	for _, results := range got {
		for _, r := range results {
			require.NoError(t, r.Err)
			require.Equal(t, all[r.Task.JobID], r.Task)
			if !r.Duplicate {
				stored.Add(1)
			}
		}
	}
	require.EqualValues(t, keys, stored.Load(), "one caller a key stored it, and knows")
}

func dedupOutlivesTheTask(t *testing.T, p place) {
	f := p.open(t, small)
	var batch []task.Task
	for i := range 3 {
		batch = append(batch, task.Task{BizID: uint64(i), BizType: 1, ActionTime: f.in(0), DedupKey: "k"})
	}
	stored := f.put(t, batch...)
	for i, to := range []task.Status{task.Processed, task.Cancelled, task.Dead} {
		applied, err := f.Move(t.Context(), store.Move{JobID: stored[i].JobID, To: to})
		require.NoError(t, err)
		require.True(t, applied)
	}
	before := f.everything(t)
	for i, r := range f.Insert(t.Context(), batch) {
		require.Equal(t, store.Inserted{Task: before[stored[i].JobID], Duplicate: true}, r)
	}
	require.Equal(t, before, f.everything(t))
}

func isAgain(int) bool { return true }

func againTakesTheKey(t *testing.T, p place) {
	f := p.open(t, small)
	over := []task.Status{task.Processed, task.Cancelled, task.Dead}
	var batch []task.Task
	for i := range 4 { // the last one stays pending
		batch = append(batch, task.Task{BizID: uint64(i), BizType: 1, ActionTime: f.in(0), DedupKey: "k", Attribute: "first"})
	}
	stored := f.put(t, batch...)
	for i, to := range over {
		f.setStatus(t, to, stored[i])
	}
	before := f.everything(t)
	f.clock.advance(time.Hour)
	for i := range batch {
		batch[i].Attribute = "second"
	}
	results := f.InsertAgain(t.Context(), append(batch, batch...), isAgain, nil)
	all := f.everything(t)
	require.Len(t, all, 7)
	for i := range over {
		require.NoError(t, results[i].Err)
		require.False(t, results[i].Duplicate)
		now := results[i].Task
		require.Equal(t, "second", now.Attribute)
		require.Equal(t, "k", now.DedupKey)
		require.Equal(t, now, all[now.JobID])
		require.Equal(t, store.Inserted{Task: now, Duplicate: true}, results[4+i], "the same key again in the batch")
		old := before[stored[i].JobID]
		old.DedupKey = ""
		require.Equal(t, old, all[old.JobID], "the first one's row stays, with the time of its end")
		first, err := f.First(t.Context(), uint64(i), "", 1, "k")
		require.NoError(t, err)
		require.Equal(t, now, first)
	}
	require.Equal(t, store.Inserted{Task: stored[3], Duplicate: true}, results[3])

	// A task that was redriven in the meantime is pending: it keeps the key.
	f.setStatus(t, task.Dead, results[0].Task)
	applied, err := f.Move(t.Context(), store.Move{JobID: results[0].Task.JobID, From: task.Dead, To: task.Pending})
	require.NoError(t, err)
	require.True(t, applied)
	require.True(t, f.InsertAgain(t.Context(), batch[:1], isAgain, nil)[0].Duplicate)
}

// againUnderConcurrency: of ten callers in two processes one stores a task, round after round, and never two.
func againUnderConcurrency(t *testing.T, p place) {
	f := p.open(t, small)
	cfg := f.cfg
	cfg.IDs = newIDs(t, f.layout, 2, f.clock)
	stores := []*store.Store{f.Store, f.another(t, cfg)}
	const callers, rounds = 10, 5
	last := f.put(t, task.Task{BizID: 9, BizType: 1, ActionTime: f.in(0), DedupKey: "k"})[0]
	for range rounds {
		f.setStatus(t, task.Cancelled, last)
		got := make([]store.Inserted, callers)
		var wg sync.WaitGroup
		for c := range callers {
			wg.Go(func() {
				got[c] = stores[c%2].InsertAgain(t.Context(), []task.Task{{BizID: 9, BizType: 1, ActionTime: f.in(c), DedupKey: "k"}}, isAgain, nil)[0]
			})
		}
		wg.Wait()
		stored := 0
		for _, r := range got {
			require.NoError(t, r.Err)
			if !r.Duplicate {
				stored++
				last = r.Task
			}
		}
		require.Equal(t, 1, stored)
		for _, r := range got {
			require.Equal(t, last, r.Task, "the others get the task of the one")
		}
	}
	require.Len(t, f.everything(t), 1+rounds)
}
