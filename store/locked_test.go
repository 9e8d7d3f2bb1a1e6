package store_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// forget begins a transaction by hand that changes something, and leaves its COMMIT out. release rolls it back.
func (f *fixture) forget(t testing.TB, database int, statement string, args ...any) (release func()) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	tx, err := f.hands[database].BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead}) // an admin's default
	require.NoError(t, err)
	_, err = tx.ExecContext(ctx, statement, args...)
	require.NoError(t, err)
	release = sync.OnceFunc(func() { require.NoError(t, tx.Rollback()) })
	t.Cleanup(release)
	return release
}

// forgetRow locks one task's row.
func (f *fixture) forgetRow(t testing.TB, one task.Task) (release func()) {
	t.Helper()
	shard, _ := f.layout.ShardOf(one.JobID)
	return f.forget(t, f.layout.Database(shard),
		"UPDATE "+sharding.TableName(f.layout.Table(shard))+" SET last_error='by hand' WHERE job_id=?", one.JobID)
}

// inEachTable gives n tasks of each table of database 0.
func (f *fixture) inEachTable(n int) (tasks []task.Task) {
	for shard := range f.layout.Shards() {
		if f.layout.Database(shard) == 0 {
			for _, biz := range bizIDs(f.layout, shard, n) {
				tasks = append(tasks, task.Task{BizID: biz, BizType: 1, ActionTime: f.in(0)})
			}
		}
	}
	return tasks
}

// A purge leaves locked rows, and deletes the ones beside them.
func TestMySQLPurgeLeavesLockedRows(t *testing.T) {
	t.Parallel()
	f := onMySQL().open(t, small)
	stored := f.put(t, f.inEachTable(50)...)
	moves := make([]store.Move, len(stored))
	for i, one := range stored {
		moves[i] = store.Move{JobID: one.JobID, To: task.Processed}
	}
	_, err := f.Apply(t.Context(), 0, f.Stamp(0), moves)
	require.NoError(t, err)
	locked := []int{7, 8, 120}
	var release []func()
	for _, i := range locked {
		release = append(release, f.forgetRow(t, stored[i]))
	}
	f.clock.advance(time.Hour)
	purge := func() (deleted, locked int) {
		for p, end := f.layout.DatabasePartitions(0); p < end; p++ {
			purged, err := f.Purge(t.Context(), p, f.in(0))
			require.NoError(t, err)
			deleted, locked = deleted+purged.Rows(), locked+purged.Locked
		}
		return deleted, locked
	}
	deleted, left := purge()
	require.Equal(t, len(stored)-len(locked), deleted)
	require.Equal(t, len(locked), left)
	for _, r := range release {
		r()
	}
	deleted, left = purge()
	require.Equal(t, len(locked), deleted)
	require.Zero(t, left)
}

// Before, a batch waited for one locked row, failed as a whole after 15 s and was tried again as a whole, for as long as the row was locked.
func TestMySQLLockedRowsHoldUpThemselves(t *testing.T) {
	t.Parallel()
	f := onMySQL().open(t, small)
	stored := f.put(t, f.inEachTable(50)...)
	locked := []int{7, 8, 120}
	var release []func()
	for _, i := range locked {
		release = append(release, f.forgetRow(t, stored[i]))
	}
	moves := make([]store.Move, len(stored))
	want := make([]bool, len(stored))
	for i, one := range stored {
		moves[i], want[i] = store.Move{JobID: one.JobID, To: task.Processed}, true
	}
	for _, i := range locked {
		want[i] = false
	}
	applied, err := f.Apply(t.Context(), 0, f.Stamp(0), moves)
	var names *store.LockedError
	require.ErrorAs(t, err, &names)
	require.ErrorIs(t, err, task.ErrUnavailable)
	require.ErrorContains(t, err, fmt.Sprint(stored[7].JobID))
	require.ElementsMatch(t, []uint64{stored[7].JobID, stored[8].JobID, stored[120].JobID}, slices.Collect(maps.Keys(names.Tasks)))
	require.Equal(t, want, applied)
	for _, r := range release {
		r()
	}
	now := f.everything(t)
	for i, one := range stored {
		if want[i] {
			require.Equal(t, task.Processed, now[one.JobID].Status)
		} else {
			require.Equal(t, one, now[one.JobID], "nothing is done later")
		}
	}
	again := []store.Move{moves[7], moves[8], moves[120]}
	applied, err = f.Apply(t.Context(), 0, f.Stamp(0), again)
	require.NoError(t, err)
	require.Equal(t, []bool{true, true, true}, applied)
}

// A move whose row is locked is made when the row is free, and not after its caller has given up.
func TestMySQLApplyLater(t *testing.T) {
	t.Parallel()
	f := onMySQL().open(t, small)
	stored := f.put(t, f.inEachTable(1)...)
	type result struct {
		applied bool
		err     error
	}
	later := func(ctx context.Context, m store.Move) chan result {
		done := make(chan result, 1)
		f.ApplyLater(ctx, 0, m, func(applied bool, err error) { done <- result{applied, err} })
		return done
	}
	release := f.forgetRow(t, stored[0])
	ctx, cancel := context.WithCancel(t.Context())
	first := later(t.Context(), store.Move{JobID: stored[0].JobID, To: task.Processed})
	given := later(ctx, store.Move{JobID: stored[0].JobID, To: task.Cancelled})
	require.Equal(t, result{true, nil}, <-later(t.Context(), store.Move{JobID: stored[1].JobID, To: task.Processed}), "of another row")
	require.Equal(t, result{false, nil}, <-later(t.Context(), store.Move{JobID: stored[1].JobID, To: task.Processed}), "its row has changed")
	cancel()
	require.Error(t, (<-given).err)
	require.Empty(t, first)
	release()
	require.Equal(t, result{true, nil}, <-first)
	require.Equal(t, task.Processed, f.everything(t)[stored[0].JobID].Status)

	// The answer is lost, and cannot be read at first: the next try finds what this one has done.
	rec := store.Record(f.Store)
	lost := errors.New("broken pipe")
	var tries atomic.Int32
	rec.OnTransaction = func(do func() error) error {
		if tries.Add(1) == 1 {
			return errors.Join(do(), lost)
		}
		return do()
	}
	require.Equal(t, result{true, nil}, <-later(t.Context(), store.Move{JobID: stored[2].JobID, To: task.Processed}))
	require.EqualValues(t, 2, tries.Load())
}

// One task moved by two callers, in a batch that is split: the moves stay in order, and one wins.
func TestMySQLLockedRowBesideOneMovedTwice(t *testing.T) {
	t.Parallel()
	f := onMySQL().open(t, small)
	stored := f.put(t, f.inEachTable(20)...)
	defer f.forgetRow(t, stored[3])()
	var moves []store.Move
	for _, one := range stored {
		moves = append(moves, store.Move{JobID: one.JobID, To: task.Processed}, store.Move{JobID: one.JobID, To: task.Cancelled})
	}
	applied, err := f.Apply(t.Context(), 0, f.Stamp(0), moves)
	var names *store.LockedError
	require.ErrorAs(t, err, &names)
	require.Equal(t, []uint64{stored[3].JobID}, slices.Collect(maps.Keys(names.Tasks)))
	for i := range stored {
		require.Equal(t, [2]bool{i != 3, false}, [2]bool(applied[2*i:2*i+2]), "task %d", i)
	}
}

// Cancels of many callers share a commit. Before, a locked row gave all of them 503 or a wait of 15 s, and was changed long after its
// own 503, when the lock was free.
func TestMySQLLockedRowIsItsOwnCallersAffair(t *testing.T) {
	t.Parallel()
	f := onMySQL().open(t, small)
	stored := f.put(t, f.inEachTable(4)...)
	release := f.forgetRow(t, stored[5])
	var wg sync.WaitGroup
	errs := make([]error, len(stored))
	for i, one := range stored {
		wg.Go(func() {
			applied, err := f.Move(t.Context(), store.Move{JobID: one.JobID, To: task.Cancelled})
			if err == nil && !applied {
				err = errors.New("not applied")
			}
			errs[i] = err
		})
	}
	wg.Wait() // all have an answer while the row is locked
	for i, err := range errs {
		if i != 5 {
			require.NoError(t, err)
			continue
		}
		var names *store.LockedError
		require.ErrorAs(t, err, &names)
		require.Equal(t, []uint64{stored[5].JobID}, slices.Collect(maps.Keys(names.Tasks)))
		require.ErrorIs(t, err, task.ErrUnavailable)
	}
	release()
	// The row is free: whatever still waited for it would be done before this one is.
	require.Equal(t, stored[5], f.everything(t)[stored[5].JobID])
	applied, err := f.Move(t.Context(), store.Move{JobID: stored[5].JobID, To: task.Processed})
	require.NoError(t, err)
	require.True(t, applied)
}

// A transaction by hand has locked a range of the index of one table, as an UPDATE of overdue tasks does. Before, all that was inserted
// with a task of that range failed with it.
func TestMySQLLockedRangeHoldsUpItsOwnInserts(t *testing.T) {
	t.Parallel()
	f := onMySQL().open(t, small)
	batch := f.inEachTable(30)
	for i := range batch {
		batch[i].DedupKey = []string{"", fmt.Sprint(i)}[i%2]
	}
	inTheRange := func(one task.Task) bool { return f.layout.Table(f.layout.Shard(one.BizID)) == 2 }
	table := sharding.TableName(2)
	release := f.forget(t, 0, "UPDATE "+table+" SET attempts=0 WHERE status=0 AND action_time<=?", f.in(1000))
	var refused []uint64
	for i, r := range f.Insert(t.Context(), batch) {
		if !inTheRange(batch[i]) {
			require.NoError(t, r.Err)
			continue
		}
		var names *store.LockedError
		require.ErrorAs(t, r.Err, &names)
		require.Equal(t, []uint64{r.Task.JobID}, slices.Collect(maps.Keys(names.Tasks)))
		require.ErrorIs(t, r.Err, task.ErrUnavailable)
		refused = append(refused, r.Task.JobID)
	}
	require.Len(t, refused, 30)
	release()
	all := f.everything(t)
	require.Len(t, all, len(batch)-len(refused), "what was refused is not stored later")
	for _, r := range f.Insert(t.Context(), batch[60:90]) {
		require.NoError(t, r.Err)
	}
}

// A first task that is locked by hand holds up the submit with its dedup_key, and no other.
func TestMySQLLockedFirstTask(t *testing.T) {
	t.Parallel()
	f := onMySQL().open(t, small)
	batch := f.inEachTable(5)
	for i := range batch {
		batch[i].DedupKey = "k"
	}
	first := f.put(t, batch[7])[0]
	release := f.forgetRow(t, first)
	for i, r := range f.Insert(t.Context(), batch) {
		if i != 7 {
			require.NoError(t, r.Err)
			continue
		}
		require.ErrorAs(t, r.Err, new(*store.LockedError))
	}
	release()
	again := f.Insert(t.Context(), batch[7:8])[0]
	require.Equal(t, store.Inserted{Task: first, Duplicate: true}, again)
}

// Before, the driver sent up to 64 MiB and a server that takes less refused all tasks of the batch (error 1153).
func TestMySQLSmallPackets(t *testing.T) {
	t.Parallel()
	own := testrig.StartMySQL(t, testrig.BufferPool("64M"), "--max-allowed-packet=1M")
	f := openFixture(t, store.Config{Driver: store.MySQL, Layout: small, DSN: own.DSN()})
	batch := f.inEachTable(250)
	for i := range batch {
		batch[i].Attribute = strings.Repeat("é", task.MaxAttribute/2)
	}
	stored := f.put(t, batch...)
	moves := make([]store.Move, len(stored))
	for i, one := range stored {
		text := strings.Repeat("x", task.MaxAttribute-4) + fmt.Sprintf("%04d", i)
		moves[i] = store.Move{JobID: one.JobID, Set: store.Set{Attribute: &text}}
	}
	applied, err := f.Apply(t.Context(), 0, f.Stamp(0), moves)
	require.NoError(t, err)
	require.NotContains(t, applied, false)
	now := f.everything(t)
	for i, one := range stored {
		require.Equal(t, *moves[i].Attribute, now[one.JobID].Attribute)
	}
}

// The answer of a commit is lost. The store finds out the outcome: one result is true, and the caller need not
// repeat the call.
func TestMySQLLostAnswersAreFoundOut(t *testing.T) {
	t.Parallel()
	f := onMySQL().open(t, small)
	rec := store.Record(f.Store)
	lost := errors.New("broken pipe")
	rec.OnTransaction = func(do func() error) error { return store.Unanswered(errors.Join(do(), lost)) }
	batch := []task.Task{{BizID: 0, BizType: 1, ActionTime: f.in(0)}, {BizID: 2, BizType: 1, ActionTime: f.in(0), DedupKey: "k"}}
	stored := f.put(t, batch...)
	applied, err := f.Move(t.Context(), store.Move{JobID: stored[0].JobID, To: task.Cancelled})
	require.NoError(t, err)
	require.True(t, applied)

	rec.OnTransaction = func(func() error) error { return store.Unanswered(lost) }
	_, err = f.Move(t.Context(), store.Move{JobID: stored[1].JobID, To: task.Cancelled})
	require.ErrorIs(t, err, lost, "not done")
	r := f.Insert(t.Context(), []task.Task{{BizID: 0, BizType: 1, ActionTime: f.in(0)}})[0]
	require.ErrorIs(t, r.Err, lost)
	rec.OnTransaction = nil
	require.Len(t, f.everything(t), 2)
}

// The store's own time ends before the server's. Before, the statement continued to wait for the lock and was
// made when the lock was free, after the 503.
func TestMySQLStatementsEndWithOurPatience(t *testing.T) {
	t.Parallel()
	f := onMySQL().open(t, small)
	stored := f.put(t, f.inEachTable(1)...)
	cfg := f.cfg
	cfg.Timeout, cfg.MaxOpenConns = 4*time.Second, 1
	s := f.another(t, cfg)
	require.True(t, s.Probe(t.Context(), 0).Usable())
	_, err := store.Reader(s, 0).ExecContext(t.Context(), "SET innodb_lock_wait_timeout=50/*M!,max_statement_time=0*/") // the server would not decide
	require.NoError(t, err)
	release := f.forgetRow(t, stored[0])
	_, err = s.Move(t.Context(), store.Move{JobID: stored[0].JobID, To: task.Cancelled})
	require.ErrorIs(t, err, task.ErrUnavailable)
	var waiting int
	require.NoError(t, f.hands[0].QueryRowContext(t.Context(),
		"SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE DB=DATABASE() AND INFO LIKE 'UPDATE timeout_task%'").Scan(&waiting))
	require.Zero(t, waiting, "the statement is over when the answer is given")
	release()
	require.Equal(t, stored[0], f.everything(t)[stored[0].JobID])
}

// What a database has stored is passed on while another one takes long.
func TestInsertsOfOtherDatabasesArePassedOn(t *testing.T) {
	t.Parallel()
	f := onSQLite().open(t, small)
	batch := []task.Task{{BizID: 1, BizType: 1, ActionTime: f.in(0)}, {BizID: 0, BizType: 1, ActionTime: f.in(0)}}
	isCalled := false
	await.That(t, func() bool { // on a slow machine the lock may be given up first
		release := sync.OnceFunc(f.block(t, 1))
		defer release()
		results := f.InsertAgain(t.Context(), batch, func(int) bool { return false }, func(decided []int, results []store.Inserted) {
			require.False(t, isCalled, "each result once")
			isCalled = true
			require.Equal(t, []int{1}, decided)
			require.NoError(t, results[1].Err)
			require.Equal(t, uint64(0), results[1].Task.BizID)
			release()
		})
		return isCalled && results[0].Err == nil && results[1].Err == nil
	}, "the task of database 0 is passed on while database 1 is locked")
}

// Another process keeps the file locked. Before, each call waited for it as long as it could, 15 s.
func TestSQLiteFileLockedByHand(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: a lock is waited for in real time")
	}
	t.Parallel()
	f := onSQLite().open(t, small)
	stored := f.put(t, task.Task{BizID: 0, BizType: 1, ActionTime: f.in(0)}, task.Task{BizID: 1, BizType: 1, ActionTime: f.in(0)})
	release := f.block(t, 0)
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := f.Move(t.Context(), store.Move{JobID: stored[0].JobID, To: task.Cancelled})
		if !errors.Is(err, task.ErrUnavailable) {
			t.Error(err)
		}
	})
	wg.Go(func() {
		r := f.Insert(t.Context(), []task.Task{{BizID: 0, BizType: 2, ActionTime: f.in(0)}})[0]
		if !errors.Is(r.Err, task.ErrUnavailable) {
			t.Error(r.Err)
		}
	})
	for range 3 {
		require.NoError(t, f.Insert(t.Context(), []task.Task{{BizID: 1, BizType: 2, ActionTime: f.in(0)}})[0].Err, "another file")
	}
	wg.Wait() // both have an answer while the file is locked
	release()
	all := f.everything(t)
	require.Equal(t, stored[0], all[stored[0].JobID])
	require.Len(t, all, 5, "nothing is done later")
	applied, err := f.Move(t.Context(), store.Move{JobID: stored[0].JobID, To: task.Cancelled})
	require.NoError(t, err)
	require.True(t, applied)
}

// forgetTable locks a table as mysqldump or an admin does.
func (f *fixture) forgetTable(t testing.TB, database, table int) (release func()) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	conn, err := f.hands[database].Conn(ctx)
	require.NoError(t, err)
	_, err = conn.ExecContext(ctx, "LOCK TABLES "+sharding.TableName(table)+" WRITE")
	require.NoError(t, err)
	release = sync.OnceFunc(func() {
		_, err := conn.ExecContext(ctx, "UNLOCK TABLES")
		require.NoError(t, errors.Join(err, conn.Close()))
	})
	t.Cleanup(release)
	return release
}

// Submits of many callers share a transaction, cancels too. Before, all waited two seconds for the lock of one, each time.
func TestMySQLLocksAreWaitedForApart(t *testing.T) {
	t.Parallel()
	f := onMySQL().open(t, small)
	batch := f.inEachTable(3)
	stored := f.put(t, batch...)
	locked := func(one task.Task) bool { return f.layout.Table(f.layout.Shard(one.BizID)) == 2 }
	release := f.forgetTable(t, 0, 2)
	var others, waiting sync.WaitGroup
	var inserted atomic.Int64
	note := func(one task.Task, call func() error) {
		wg := &others
		if locked(one) {
			wg = &waiting
		}
		wg.Go(func() {
			// The three rounds may take longer than a lock is waited for.
			if err := call(); err != nil && !(locked(one) && (errors.Is(err, task.ErrLocked) || errors.Is(err, task.ErrUnavailable))) {
				t.Error(err)
			}
		})
	}
	for range 3 { // the first ones find the lock, the next ones know of it
		for i, one := range batch {
			note(one, func() error {
				err := f.Insert(t.Context(), []task.Task{one})[0].Err
				if err == nil {
					inserted.Add(1)
				}
				return err
			})
			note(one, func() error {
				_, err := f.Move(t.Context(), store.Move{JobID: stored[i].JobID, To: task.Cancelled})
				return err
			})
			note(one, func() error { _, err := f.Get(t.Context(), stored[i].JobID); return err })
		}
		others.Wait() // none of them waits for the lock, which is there until
	}
	release()
	waiting.Wait()
	require.Len(t, f.everything(t), len(batch)+int(inserted.Load()), "what was refused is not made later")
}

// Reads of several tables do without the locked ones. Before, the other tables' tasks were not read, and late.
func TestMySQLReadsAroundALockedTable(t *testing.T) {
	t.Parallel()
	f := onMySQL().open(t, small)
	stored := f.put(t, f.inEachTable(20)...)
	var ids []uint64
	var want []task.Task
	for _, one := range stored {
		ids = append(ids, one.JobID)
		if shard, _ := f.layout.ShardOf(one.JobID); f.layout.Table(shard) != 1 {
			want = append(want, one)
		}
	}
	first, end := f.layout.PartitionShards(0)
	require.True(t, first <= 0 && end > 1, "the partition has more tables than the locked one")
	inPartition := func(one task.Task) bool { shard, _ := f.layout.ShardOf(one.JobID); return shard < end }
	defer f.forgetTable(t, 0, 1)()
	found, err := f.Load(t.Context(), ids)
	require.ErrorIs(t, err, task.ErrUnavailable)
	require.ElementsMatch(t, want, found)

	var read []task.Task
	pages := f.DuePages(0, store.Due{Until: f.in(3_600_000), PerPage: 10})
	for {
		page, err := pages.Next(t.Context())
		read = append(read, page...)
		if len(page) == 0 {
			require.ErrorIs(t, err, task.ErrUnavailable, "there is more")
			break
		}
		require.NoError(t, err)
	}
	require.ElementsMatch(t, slices.DeleteFunc(want, func(one task.Task) bool { return !inPartition(one) }), read)

	at, none, err := f.NextDue(t.Context(), 0)
	require.NoError(t, err)
	require.False(t, none)
	require.True(t, at.IsZero(), "nobody knows")
}

// A move is made, and the look-up of its outcome meets the lock of a table. It is not reported as not made.
func TestMySQLLookUpMeetsALock(t *testing.T) {
	t.Parallel()
	f := onMySQL().open(t, small)
	one := f.put(t, task.Task{BizID: 0, BizType: 1, ActionTime: f.in(0)})[0]
	store.Record(f.Store).OnQuery = func() error { return &mysql.MySQLError{Number: 1205} }
	// Two movers want the same: which of them it was is looked up.
	moves := []store.Move{{JobID: one.JobID, To: task.Cancelled}, {JobID: one.JobID, To: task.Cancelled}}
	_, err := f.Apply(t.Context(), 0, f.Stamp(0), moves)
	require.ErrorIs(t, err, task.ErrUnavailable)
	require.False(t, errors.As(err, new(*store.LockedError)))
	require.Equal(t, task.Cancelled, f.everything(t)[one.JobID].Status)
}

// A table that is gone holds up its own tasks only. Before, a batch with one of them was refused whole, and no row of the
// others was read beside it.
func TestMySQLAMissingTableHoldsUpItself(t *testing.T) {
	t.Parallel()
	f := onMySQL().open(t, small)
	stored := f.put(t, f.inEachTable(20)...)
	ofGone := func(one task.Task) bool { shard, _ := f.layout.ShardOf(one.JobID); return shard == 1 }
	gone := sharding.TableName(1)
	_, err := f.hands[0].Exec("RENAME TABLE " + gone + " TO elsewhere")
	require.NoError(t, err)

	moves, want, its := make([]store.Move, len(stored)), make([]bool, len(stored)), []uint64(nil)
	for i, one := range stored {
		moves[i], want[i] = store.Move{JobID: one.JobID, To: task.Processed}, !ofGone(one)
		if ofGone(one) {
			its = append(its, one.JobID)
		}
	}
	page, err := f.DuePages(0, store.Due{Until: f.in(3_600_000), PerPage: 1000}).Next(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, page)
	applied, err := f.Apply(t.Context(), 0, f.Stamp(0), moves)
	var names *store.LockedError
	require.ErrorAs(t, err, &names)
	require.ErrorContains(t, names.Tasks[its[0]], gone)
	require.NotErrorIs(t, err, task.ErrLocked)
	require.ElementsMatch(t, its, slices.Collect(maps.Keys(names.Tasks)))
	require.Equal(t, want, applied)
	_, err = f.Move(t.Context(), moves[slices.Index(want, false)])
	require.ErrorIs(t, err, task.ErrUnavailable)
	require.NotErrorIs(t, err, task.ErrLocked, "there is no lock to wait for")

	var batch []task.Task
	for biz := range uint64(2 * f.layout.Shards()) {
		batch = append(batch, task.Task{BizID: biz, BizType: 1, ActionTime: f.in(0)})
	}
	for _, r := range f.Insert(t.Context(), batch) {
		if ofGone(r.Task) {
			require.ErrorIs(t, r.Err, task.ErrUnavailable)
		} else {
			require.NoError(t, r.Err)
		}
	}
	require.True(t, f.Condition(0).Usable())
	_, err = f.hands[0].Exec("RENAME TABLE elsewhere TO " + gone)
	require.NoError(t, err)
}
