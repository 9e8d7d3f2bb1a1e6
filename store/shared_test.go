package store_test

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// ofBoth stores tasks of two databases of one server, in turns.
func (f *fixture) ofBoth(t testing.TB, n int) []task.Task {
	list := make([]task.Task, n)
	for i := range list {
		list[i] = task.Task{BizID: uint64(i), BizType: 1, ActionTime: f.in(0)}
	}
	stored := f.put(t, list...)
	first, _ := f.layout.ShardOf(stored[0].JobID)
	second, _ := f.layout.ShardOf(stored[1].JobID)
	require.NotEqual(t, f.layout.Database(first), f.layout.Database(second))
	return stored
}

func cancels(tasks []task.Task) []store.Move {
	moves := make([]store.Move, len(tasks))
	for i := range tasks {
		moves[i] = store.Move{JobID: tasks[i].JobID, From: task.Pending, To: task.Cancelled}
	}
	return moves
}

// Moves of a few tasks share one commit of their server, whatever their databases are.
func TestMySQLMovesShareACommit(t *testing.T) {
	t.Parallel()
	f := onMySQL().open(t, small)
	stored := f.ofBoth(t, 12)
	_, err := f.Move(t.Context(), store.Move{JobID: stored[3].JobID, From: task.Pending, To: task.Processed})
	require.NoError(t, err)
	rec := store.Record(f.Store)
	var commits atomic.Int32
	rec.OnTransaction = func(do func() error) error { commits.Add(1); return do() }
	for i, m := range f.MoveAll(t.Context(), cancels(stored)) {
		require.NoError(t, m.Err)
		require.Equal(t, i != 3, m.Applied, "task %d", i)
	}
	require.EqualValues(t, 1, commits.Load())
	now := f.everything(t)
	for i, one := range stored {
		want := task.Cancelled
		if i == 3 {
			want = task.Processed
		}
		require.Equal(t, want, now[one.JobID].Status, "task %d", i)
	}
}

// A row that is locked holds up nothing but its own move, in neither database.
func TestMySQLALockedRowAmongSharedMoves(t *testing.T) {
	t.Parallel()
	f := onMySQL().open(t, small)
	stored := f.ofBoth(t, 12)
	release := f.forgetRow(t, stored[4])
	for i, m := range f.MoveAll(t.Context(), cancels(stored)) {
		if i == 4 {
			require.ErrorIs(t, m.Err, task.ErrLocked)
			continue
		}
		require.NoError(t, m.Err, "task %d", i)
		require.True(t, m.Applied, "task %d", i)
	}
	release()
	require.Equal(t, stored[4], f.everything(t)[stored[4].JobID], "nothing is done later")
}

// The answer of a shared commit is lost: the store finds out what became of it, in each database.
func TestMySQLTheLostAnswerOfSharedMoves(t *testing.T) {
	t.Parallel()
	f := onMySQL().open(t, small)
	stored := f.ofBoth(t, 8)
	rec := store.Record(f.Store)
	lost := errors.New("broken pipe")
	once := true
	rec.OnTransaction = func(do func() error) error {
		if once {
			once = false
			return store.Unanswered(lost) // and not done
		}
		return do()
	}
	for i, m := range f.MoveAll(t.Context(), cancels(stored)) {
		require.ErrorIs(t, m.Err, lost, "task %d", i)
	}
	for _, one := range stored {
		require.Equal(t, one, f.everything(t)[one.JobID])
	}
	// The databases share no transaction until each has answered one of its own.
	rec.OnTransaction = nil
	for _, m := range f.MoveAll(t.Context(), cancels(stored[:2])) {
		require.NoError(t, m.Err)
	}
	var commits atomic.Int32
	rec.OnTransaction = func(do func() error) error { commits.Add(1); return store.Unanswered(errors.Join(do(), lost)) }
	for i, m := range f.MoveAll(t.Context(), cancels(stored[2:])) {
		require.NoError(t, m.Err, "task %d", i+2)
		require.True(t, m.Applied, "task %d", i+2)
	}
	require.EqualValues(t, 1, commits.Load())
}

// A database whose tables are locked refuses its own moves, and holds up no others.
func TestMySQLSharedMovesBesideLockedTables(t *testing.T) {
	t.Parallel()
	f := onMySQL().open(t, small)
	stored := f.ofBoth(t, 64)
	release := f.block(t, 1)
	for i, m := range f.MoveAll(t.Context(), cancels(stored[:4])) {
		require.Equal(t, i%2 == 0, m.Err == nil && m.Applied, "task %d: %v", i, m.Err)
	}
	var callers sync.WaitGroup
	took := make([]time.Duration, len(stored))
	for i := 4; i < len(stored); i++ {
		callers.Go(func() {
			start := time.Now()
			applied, err := f.Move(t.Context(), store.Move{JobID: stored[i].JobID, From: task.Pending, To: task.Cancelled})
			if i%2 == 0 != (err == nil && applied) {
				t.Errorf("task %d: %t, %v", i, applied, err)
			}
			if took[i] = time.Since(start); i%2 == 1 {
				took[i] = 0
			}
		})
	}
	callers.Wait()
	release()
	_, err := f.Move(t.Context(), store.Move{JobID: stored[1].JobID, From: task.Pending, To: task.Cancelled})
	require.NoError(t, err)
	t.Logf("the slowest of the others took %v", slices.Max(took))
}
