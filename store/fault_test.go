package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// errLost is a connection that broke.
var errLost = errors.New("the connection is lost")

// insertAnswerIsLost: the commit was made, but its answer was lost.
func insertAnswerIsLost(t *testing.T, p place) {
	f := p.open(t, small)
	rec := store.Record(f.Store)
	rec.OnTransaction = func(do func() error) error { return errors.Join(do(), errLost) }
	batch := []task.Task{{BizID: 0, BizType: 1, ActionTime: f.in(0), DedupKey: "k"}, {BizID: 2, BizType: 1, ActionTime: f.in(0), DedupKey: "k"}}
	for _, r := range f.Insert(t.Context(), batch) {
		require.ErrorIs(t, r.Err, errLost)
		require.ErrorIs(t, r.Err, task.ErrUnavailable)
	}
	rec.OnTransaction = nil
	all := f.everything(t)
	require.Len(t, all, len(batch))
	for _, r := range f.Insert(t.Context(), batch) {
		require.Equal(t, store.Inserted{Task: all[r.Task.JobID], Duplicate: true}, r, "a dedup_key makes it safe to ask again")
	}
	require.Equal(t, all, f.everything(t))
}

// moveAnswerIsLost: tried again with its stamp, a batch finds what it did.
func moveAnswerIsLost(t *testing.T, p place) {
	f := p.open(t, small)
	moves, want, _ := batchOf(t, f)
	rec := store.Record(f.Store)
	rec.OnTransaction = func(do func() error) error { return errors.Join(do(), errLost) }
	stamp := f.Stamp(0)
	_, err := f.Apply(t.Context(), 0, stamp, moves)
	require.ErrorIs(t, err, errLost)
	after := f.everything(t)
	rec.OnTransaction = nil
	applied, err := f.Apply(t.Context(), 0, stamp, moves)
	require.NoError(t, err)
	require.Equal(t, want, applied)
	require.Equal(t, after, f.everything(t))
}

// collisionThenOutage: a first round stored some of a batch, and the database goes
// away before the second round, for those whose job_id was taken.
func collisionThenOutage(t *testing.T, p place) {
	f := p.open(t, small)
	taken := f.put(t, task.Task{BizID: 0, BizType: 1, ActionTime: f.in(0)})[0]
	rec := store.Record(f.Store)
	round := 0
	rec.OnTransaction = func(do func() error) error {
		if round++; round > 1 {
			return errLost
		}
		return do()
	}
	batch := []task.Task{
		{BizID: 0, BizType: 2, ActionTime: f.in(0), DedupKey: "k"},
		{JobID: taken.JobID, BizID: 0, BizType: 3, ActionTime: f.in(0), DedupKey: "k"},
		{BizID: 2, BizType: 2, ActionTime: f.in(0)},
	}
	results := f.Insert(t.Context(), batch)
	require.Equal(t, 2, round)
	require.NoError(t, results[0].Err)
	require.ErrorIs(t, results[1].Err, errLost)
	require.NoError(t, results[2].Err)
	require.Equal(t, map[uint64]task.Task{
		taken.JobID: taken, results[0].Task.JobID: results[0].Task, results[2].Task.JobID: results[2].Task,
	}, f.everything(t))
}

// lookUpFails: the rows are stored, but it is unknown whether they are the callers' own.
func lookUpFails(t *testing.T, p place) {
	f := p.open(t, small)
	first := f.put(t, task.Task{BizID: 0, BizType: 1, ActionTime: f.in(0), DedupKey: "k"})[0]
	rec := store.Record(f.Store)
	rec.OnQuery = func() error { return errLost }
	batch := []task.Task{
		{BizID: 0, BizType: 1, ActionTime: f.in(0), DedupKey: "k"},
		{BizID: 0, BizType: 2, ActionTime: f.in(0), DedupKey: "k"}, // with the first in one statement
		{BizID: 2, BizType: 1, ActionTime: f.in(0), DedupKey: "k"}, // alone in its table: no need to ask
	}
	results := f.Insert(t.Context(), batch)
	require.ErrorIs(t, results[0].Err, task.ErrUnavailable)
	require.ErrorIs(t, results[1].Err, task.ErrUnavailable)
	require.NoError(t, results[2].Err)
	require.Len(t, f.everything(t), 3)

	_, err := f.Apply(t.Context(), 0, f.Stamp(0), []store.Move{{JobID: first.JobID, From: task.Dead, To: task.Pending}})
	require.ErrorIs(t, err, errLost)
	rec.OnQuery = nil
	again := f.Insert(t.Context(), batch)
	for i, r := range again {
		require.NoError(t, r.Err)
		require.True(t, r.Duplicate, "task %d", i)
	}
}

// TestConflictsAreTriedAgain: a caller does not see deadlocks, unless they do not end.
func TestConflictsAreTriedAgain(t *testing.T) {
	t.Parallel()
	f := onMySQL().open(t, small)
	rec := store.Record(f.Store)
	for _, number := range []uint16{1213, 1020} {
		conflict := &mysql.MySQLError{Number: number, Message: "conflict"}
		round := 0
		rec.OnTransaction = func(do func() error) error {
			if round++; round < 4 {
				return conflict
			}
			return do()
		}
		one := f.put(t, task.Task{BizID: 0, BizType: 1, ActionTime: f.in(0)})[0]
		require.Equal(t, 4, round)
		round = 0
		applied, err := f.Move(t.Context(), store.Move{JobID: one.JobID, To: task.Processed})
		require.NoError(t, err)
		require.True(t, applied)
		require.Equal(t, 4, round)

		f.clock.advance(time.Hour)
		round = 3
		n, err := rows(f.Purge(t.Context(), 0, f.in(0)))
		require.NoError(t, err)
		require.Equal(t, 1, n)
		rec.OnTransaction = nil
	}

	cfg := f.cfg
	cfg.Timeout = 100 * time.Millisecond
	impatient := f.another(t, cfg)
	store.Record(impatient).OnTransaction = func(func() error) error { return &mysql.MySQLError{Number: 1213} }
	_, err := impatient.Move(t.Context(), store.Move{JobID: f.NewID(0), To: task.Processed})
	require.ErrorIs(t, err, task.ErrUnavailable)
	r := impatient.Insert(t.Context(), []task.Task{{BizID: 0, BizType: 1, ActionTime: f.in(0)}})
	require.ErrorIs(t, r[0].Err, task.ErrUnavailable)
}
