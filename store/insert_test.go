package store_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

func insertsOne(t *testing.T, p place) {
	f := p.open(t, small)
	shanghai := time.FixedZone("", 8*3600)
	due := time.Date(2026, 3, 1, 20, 30, 0, 1_000_001, shanghai) // 1 ns over the millisecond
	got := f.Insert(t.Context(), []task.Task{{
		BizID: 42, BizType: 7, ActionTime: due, Attribute: `{"order":42}`,
		Status: task.Dead, Created: due, Modified: due, // not the caller's to say
	}})

	require.Len(t, got, 1)
	require.NoError(t, got[0].Err)
	require.False(t, got[0].Duplicate)
	job := got[0].Task.JobID
	want := task.Task{
		JobID: job, BizID: 42, BizType: 7, Status: task.Pending, Attribute: `{"order":42}`,
		ActionTime: time.Date(2026, 3, 1, 12, 30, 0, 2_000_000, time.UTC), // never early
		Created:    f.clock.Now(), Modified: f.clock.Now(),
	}
	require.Equal(t, want, got[0].Task)
	require.Equal(t, map[uint64]task.Task{job: want}, f.everything(t))
	read, err := f.Get(t.Context(), job)
	require.NoError(t, err)
	require.Equal(t, want, read)

	shard, ok := f.layout.ShardOf(job)
	require.True(t, ok)
	require.Equal(t, f.layout.Shard(42), shard)
	require.Equal(t, 1, sharding.WorkerOf(job))
}

func insertsABatch(t *testing.T, p place) {
	f := p.open(t, small)
	// Over all tables, with and without keys.
	batch := make([]task.Task, 500)
	for i := range batch {
		batch[i] = task.Task{BizID: rand.Uint64(), BizType: uint64(i), ActionTime: f.in(i)}
		if i%3 == 0 {
			batch[i].DedupKey = "key"
		}
		if i%5 == 0 {
			batch[i].Trace = fmt.Sprintf("00-4bf92f3577b34da6a3ce929d0e0e4736-%016x-01", i+1)
		}
	}
	batch[17].JobID = f.NewID(batch[17].BizID)

	got := f.Insert(t.Context(), batch)
	all := f.everything(t)
	require.Len(t, all, len(batch))
	for i, r := range got {
		require.NoError(t, r.Err)
		want := batch[i]
		want.JobID, want.Created, want.Modified = r.Task.JobID, f.clock.Now(), f.clock.Now()
		require.Equal(t, want, r.Task, "the answer in the question's place")
		require.Equal(t, want, all[want.JobID])
	}
	read, err := f.Load(t.Context(), []uint64{got[0].Task.JobID})
	require.NoError(t, err)
	require.Equal(t, []task.Task{got[0].Task}, read, "with its trace")
	one, err := f.Get(t.Context(), got[0].Task.JobID)
	require.NoError(t, err)
	require.Equal(t, got[0].Task, one)
	require.Equal(t, batch[17].JobID, got[17].Task.JobID, "a job_id that the caller drew stays")
}

func insertsNothing(t *testing.T, p place) {
	f := p.open(t, small)
	require.Empty(t, f.Insert(t.Context(), nil))
	require.Empty(t, f.Insert(context.Background(), nil))
	require.Empty(t, f.everything(t))
}

func insertsEveryID(t *testing.T, p place) {
	f := p.open(t, small)
	edges := []uint64{0, 1, 7, 255, 256, math.MaxUint32, math.MaxInt64 - 1, math.MaxInt64, 1 << 63, 1<<63 + 5, math.MaxUint64 - 1, math.MaxUint64}
	var batch []task.Task
	for _, biz := range edges {
		for _, typ := range edges {
			batch = append(batch, task.Task{BizID: biz, BizType: typ, ActionTime: f.in(0), DedupKey: "k"})
		}
	}
	stored := f.put(t, batch...)
	all := f.everything(t)
	require.Len(t, all, len(batch))
	for i, s := range stored {
		require.Equal(t, s, all[s.JobID])
		again := f.Insert(t.Context(), batch[i:i+1])[0]
		require.NoError(t, again.Err)
		require.True(t, again.Duplicate)
		require.Equal(t, s, again.Task)
	}
	for _, id := range edges {
		list, err := f.List(t.Context(), id, store.Filter{BizType: &id, Limit: 10})
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.Equal(t, [2]uint64{id, id}, [2]uint64{list[0].BizID, list[0].BizType})

		require.Len(t, f.due(t, store.Due{Until: f.in(0), Only: []uint64{id}, PerPage: 50}), len(edges))
		require.Len(t, f.due(t, store.Due{Until: f.in(0), Except: []uint64{id}, PerPage: 50}), len(batch)-len(edges))
	}
}

// nastyTexts are what SQL, a driver or a column might stumble over.
func nastyTexts() []string {
	return []string{
		"", " ", "  trailing  ", "\t\n\r", "null", "NULL", "'", "''", `"`, "`", `\`, `\\`, `\'`, `\0`, "\x00", "a\x00b", "\x1a",
		"?", "??", ":1", "$1", "@x", "%", "%s %d %%", "_", "--", "-- drop", "#", "/*", "*/", "/*! */", ";", "'; DROP TABLE timeout_task_0000; --",
		"START TRANSACTION", "COMMIT", "ä", "é", "日本語", "🙂", "\u200b", "\ufeff", "\u202e",
		strings.Repeat("a", 4096), strings.Repeat("?", 4096), strings.Repeat("'", 4096), strings.Repeat(`\`, 4096),
		strings.Repeat("\x00", 4096), strings.Repeat("ä", 2048), strings.Repeat("🙂", 1024),
	}
}

func insertsEveryAttribute(t *testing.T, p place) {
	f := p.open(t, small)
	var batch []task.Task
	for i, text := range nastyTexts() {
		batch = append(batch, task.Task{BizID: uint64(i), BizType: 1, ActionTime: f.in(0), Attribute: text})
		if len(text) <= task.MaxDedupKey {
			// The same texts as dedup_keys, on their way in and back.
			batch = append(batch, task.Task{BizID: 1000 + uint64(i), BizType: 1, ActionTime: f.in(0), Attribute: text, DedupKey: text})
		}
	}
	stored := f.put(t, batch...)
	all := f.everything(t)
	for i, s := range stored {
		require.Equal(t, batch[i].Attribute, all[s.JobID].Attribute)
		require.Equal(t, batch[i].DedupKey, all[s.JobID].DedupKey)
		read, err := f.Get(t.Context(), s.JobID)
		require.NoError(t, err)
		require.Equal(t, s, read)
		if s.DedupKey != "" {
			again := f.Insert(t.Context(), batch[i:i+1])[0]
			require.True(t, again.Duplicate)
			require.Equal(t, s, again.Task)
		}
	}
	requireSame(t, stored, f.due(t, store.Due{Until: f.in(0), PerPage: 10}))

	// As attribute and last_error of a move, over a connection that carries several statements.
	for i, text := range nastyTexts() {
		cut := text
		if len(cut) > task.MaxLastError {
			cut = ""
		}
		applied, err := f.Move(t.Context(), store.Move{JobID: stored[i].JobID, Set: store.Set{Attribute: &text, LastError: &cut}})
		require.NoError(t, err)
		require.True(t, applied)
		read, err := f.Get(t.Context(), stored[i].JobID)
		require.NoError(t, err)
		require.Equal(t, text, read.Attribute)
		require.Equal(t, cut, read.LastError)
	}
}

// insertsTheLargestBatch has more rows for one database than a transaction
// takes, and twice as many bytes on the wire as in the rows.
func insertsTheLargestBatch(t *testing.T, p place) {
	f := p.open(t, small)
	batch := make([]task.Task, 1100)
	for i := range batch {
		batch[i] = task.Task{BizID: uint64(2 * i), BizType: 1, ActionTime: f.in(0), Attribute: strings.Repeat("'", 4096)}
	}
	f.put(t, batch...)
	require.Len(t, f.everything(t), len(batch))
}

func insertsAllButBadRows(t *testing.T, p place) {
	f := p.open(t, small)
	batch := make([]task.Task, 200)
	for i := range batch {
		batch[i] = task.Task{BizID: uint64(i), BizType: 1, ActionTime: f.in(0)}
		if i%2 == 0 {
			batch[i].DedupKey = "k"
		}
	}
	bad := map[int]string{ // what the database's complaint names
		3:   "attribute",
		90:  "attribute",
		91:  "dedup_key",
		133: "job_id",
		199: "job_id",
	}
	batch[3].Attribute = strings.Repeat("ä", 4097)
	batch[90].Attribute = strings.Repeat("a", 5000)
	batch[91].DedupKey = strings.Repeat("k", 65)
	batch[133].JobID = f.NewID(132) // of another shard
	batch[199].JobID = 1 << 63

	results := f.Insert(t.Context(), batch)
	all := f.everything(t)
	require.Len(t, all, len(batch)-len(bad))
	for i, r := range results {
		field, isBad := bad[i]
		if !isBad {
			require.NoError(t, r.Err)
			require.Contains(t, all, r.Task.JobID)
			continue
		}
		var refused *task.FieldError
		require.ErrorAs(t, r.Err, &refused, "task %d", i)
		require.ErrorContains(t, r.Err, field)
		require.NotErrorIs(t, r.Err, task.ErrUnavailable, "to try again would not help")
		alone := f.Insert(t.Context(), batch[i:i+1])[0]
		require.ErrorAs(t, alone.Err, &refused, "the same alone")
	}
	require.Len(t, f.everything(t), len(batch)-len(bad))
}

// MySQL's columns hold text; SQLite's take any bytes. The intake lets neither
// see such an attribute.
func TestInvalidUTF8IsOneRowsFault(t *testing.T) {
	t.Parallel()
	f := onMySQL().open(t, small)
	batch := make([]task.Task, 50)
	for i := range batch {
		batch[i] = task.Task{BizID: uint64(i), BizType: 1, ActionTime: f.in(0)}
	}
	batch[20].Attribute = "ab\xff\xfecd"
	batch[40].DedupKey = "\xc3("
	for i, r := range f.Insert(t.Context(), batch) {
		if i == 20 || i == 40 {
			var refused *task.FieldError
			require.ErrorAs(t, r.Err, &refused, "task %d", i)
		} else {
			require.NoError(t, r.Err, "task %d", i)
		}
	}
	require.Len(t, f.everything(t), 48)
}

func refusesInsertsWithoutIDs(t *testing.T, p place) {
	f := p.open(t, small)
	cfg := f.cfg
	cfg.IDs = nil
	reader := f.another(t, cfg)
	for _, r := range reader.Insert(t.Context(), []task.Task{{BizID: 1, ActionTime: f.in(0)}, {BizID: 2, ActionTime: f.in(0)}}) {
		require.ErrorContains(t, r.Err, "job_id")
	}
	require.Empty(t, f.everything(t))
	stored := f.put(t, task.Task{BizID: 1, ActionTime: f.in(0)})
	got, err := reader.Load(t.Context(), []uint64{stored[0].JobID})
	require.NoError(t, err)
	require.Equal(t, stored, got, "it reads all the same")
}

// watched is a context that signals each time its state is read.
type watched struct {
	context.Context
	asked func()
}

func (w watched) Err() error {
	defer w.asked()
	return w.Context.Err()
}

// callersLeave: a write under way when its caller leaves is completed, a waiting one is not.
func callersLeave(t *testing.T, p place) {
	f := p.open(t, small)
	rows := f.put(t, task.Task{BizID: 0, BizType: 1, ActionTime: f.in(0)}, task.Task{BizID: 0, BizType: 1, ActionTime: f.in(1)})
	s := f.another(t, f.cfg)
	release := f.block(t, 0)
	ctx, cancel := context.WithCancel(t.Context())
	begun := make(chan struct{}, 3)
	tell := func() { begun <- struct{}{} } // each of two inserts and a move is asked once
	answers := make(chan []store.Inserted)
	batch := []task.Task{{BizID: 0, BizType: 2, ActionTime: f.in(0)}, {BizID: 1, BizType: 2, ActionTime: f.in(0)}}
	go func() { answers <- s.Insert(watched{ctx, tell}, batch) }()
	moved := make(chan error)
	go func() {
		_, err := s.Move(watched{ctx, tell}, store.Move{JobID: rows[0].JobID, To: task.Cancelled})
		moved <- err
	}()
	for range cap(begun) {
		<-begun
	}
	cancel()
	late, lateMove := make(chan []store.Inserted), make(chan error)
	go func() { late <- s.Insert(ctx, []task.Task{{BizID: 0, BizType: 3, ActionTime: f.in(0)}}) }()
	go func() {
		_, err := s.Move(ctx, store.Move{JobID: rows[1].JobID, To: task.Cancelled})
		lateMove <- err
	}()
	release()
	require.NoError(t, <-moved, "it was made, and its caller is told so")
	for _, r := range <-answers {
		require.NoError(t, r.Err)
	}
	for _, err := range []error{(<-late)[0].Err, <-lateMove} {
		require.ErrorIs(t, err, task.ErrNotBegun)
		require.ErrorIs(t, err, context.Canceled)
	}
	require.NoError(t, s.Close(), "it flushes what it began")
	all := f.everything(t)
	require.Len(t, all, 4)
	for _, row := range all {
		require.NotEqual(t, uint64(3), row.BizType)
	}
	require.Equal(t, task.Cancelled, all[rows[0].JobID].Status)
	require.Equal(t, task.Pending, all[rows[1].JobID].Status)
}

func insertsShareCommits(t *testing.T, p place) {
	f := p.open(t, small)
	rec := store.Record(f.Store)
	const callers, each = 32, 25
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := range each {
				r := f.Insert(t.Context(), []task.Task{{BizID: uint64(2 * (c*each + i)), BizType: 1, ActionTime: f.in(0)}})
				if r[0].Err != nil {
					t.Error(r[0].Err)
				}
			}
		})
	}
	wg.Wait()
	require.Len(t, f.everything(t), callers*each)
	require.Less(t, len(rec.Transactions()), callers*each/2, "all went to one database")
}
