package store_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// requireDown makes all calls on a store whose database 1 is down: calls for it fail with its name, calls for
// database 0 work.
func requireDown(t *testing.T, f *fixture, here, there task.Task) {
	t.Helper()
	ctx := t.Context()
	down := func(err error, about string) {
		t.Helper()
		var failed *store.DatabaseError
		require.ErrorAs(t, err, &failed, about)
		require.Equal(t, 1, failed.Database, about)
		require.ErrorIs(t, err, task.ErrUnavailable, about)
		require.ErrorContains(t, err, "in database 1", about)
	}

	// One task for each: the answers do not wait for each other, nor mix.
	results := f.Insert(ctx, []task.Task{
		{BizID: here.BizID, BizType: 8, ActionTime: f.in(0)}, {BizID: there.BizID, BizType: 8, ActionTime: f.in(0)},
		{BizID: here.BizID, BizType: 8, ActionTime: f.in(0), DedupKey: "k"}, {BizID: there.BizID, BizType: 8, ActionTime: f.in(0), DedupKey: "k"},
	})
	require.NoError(t, results[0].Err)
	down(results[1].Err, "insert")
	require.NoError(t, results[2].Err)
	down(results[3].Err, "insert")

	got, err := f.Load(ctx, []uint64{here.JobID, there.JobID})
	down(err, "load")
	require.Len(t, got, 1, "the rows that can be had are given")
	require.Equal(t, here.JobID, got[0].JobID)

	read, err := f.Get(ctx, here.JobID)
	require.NoError(t, err)
	require.Equal(t, here.JobID, read.JobID)
	_, err = f.Get(ctx, there.JobID)
	down(err, "get")
	require.NotErrorIs(t, err, task.ErrNotFound)

	_, err = f.List(ctx, here.BizID, store.Filter{Limit: 10})
	require.NoError(t, err)
	_, err = f.List(ctx, there.BizID, store.Filter{Limit: 10})
	down(err, "list")

	mine, theirs := f.layout.Partition(f.layout.Shard(here.BizID)), f.layout.Partition(f.layout.Shard(there.BizID))
	page, err := f.DuePages(mine, store.Due{Until: f.in(0), PerPage: 10}).Next(ctx)
	require.NoError(t, err)
	require.NotEmpty(t, page)
	_, err = f.DuePages(theirs, store.Due{Until: f.in(0), PerPage: 10}).Next(ctx)
	down(err, "due")

	applied, err := f.Move(ctx, store.Move{JobID: here.JobID})
	require.NoError(t, err)
	require.True(t, applied)
	_, err = f.Move(ctx, store.Move{JobID: there.JobID})
	down(err, "move")
	_, err = f.Apply(ctx, 1, f.Stamp(1), []store.Move{{JobID: there.JobID}})
	down(err, "apply")

	_, err = f.Overdue(ctx, mine, f.in(0))
	require.NoError(t, err)
	_, err = f.Overdue(ctx, theirs, f.in(0))
	down(err, "overdue")
	_, err = f.Purge(ctx, mine, f.in(0))
	require.NoError(t, err)
	_, err = f.Purge(ctx, theirs, f.in(0))
	down(err, "purge")

	_, _, err = f.ListDead(ctx, store.DeadFilter{}, 0, 1000)
	down(err, "dead list")
	_, err = f.CountDead(ctx, store.DeadFilter{})
	down(err, "dead count")
	require.True(t, f.Probe(ctx, 0).Usable())
	require.Error(t, whyDown(t, f.Store, 1))
	l, err := f.Lock(ctx, 0, alone("me"))
	require.NoError(t, err)
	require.NoError(t, l.Release(true))
}

// requireUp asks for a round trip through every database.
func requireUp(t *testing.T, f *fixture) {
	t.Helper()
	for d := range small.Databases {
		require.True(t, f.Probe(t.Context(), d).Usable())
	}
	var batch []task.Task
	for biz := range uint64(8) {
		batch = append(batch, task.Task{BizID: biz, BizType: 9, ActionTime: f.in(0)})
	}
	for _, one := range f.put(t, batch...) {
		read, err := f.Get(t.Context(), one.JobID)
		require.NoError(t, err)
		require.Equal(t, one, read)
		applied, err := f.Move(t.Context(), store.Move{JobID: one.JobID, To: task.Processed})
		require.NoError(t, err)
		require.True(t, applied)
	}
}

// TestMySQLDatabaseDown has each database on a server of its own.
func TestMySQLDatabaseDown(t *testing.T) {
	t.Parallel()
	shared, own := testrig.MySQL(t), testrig.StartMySQL(t, testrig.BufferPool("64M"))
	f := openFixture(t, store.Config{
		Driver: store.MySQL, Layout: small, Timeout: 3 * time.Second,
		DSNs: []string{fmt.Sprintf(shared.DSN(), 0), fmt.Sprintf(own.DSN(), 1)},
	})
	stored := f.put(t, task.Task{BizID: 0, BizType: 1, ActionTime: f.in(0)}, task.Task{BizID: 1, BizType: 1, ActionTime: f.in(0)})
	requireUp(t, f)
	before := f.everything(t)

	own.Kill()
	requireDown(t, f, stored[0], stored[1])
	own.Start()
	requireUp(t, f)
	for job, one := range before {
		read, err := f.Get(t.Context(), job)
		require.NoError(t, err, "durable over the power cut")
		if job != stored[0].JobID { // moved meanwhile
			require.Equal(t, one, read)
		}
	}

	// It does not answer, and does not refuse either: the time limit ends every call.
	cfg := f.cfg
	cfg.Timeout = 2 * time.Second
	impatient := *f
	impatient.Store = f.another(t, cfg)
	require.True(t, impatient.Probe(t.Context(), 1).Usable())
	own.Freeze()
	requireDown(t, &impatient, stored[0], stored[1])
	own.Thaw()
	await.That(t, func() bool { return f.Probe(t.Context(), 1).Usable() && impatient.Probe(t.Context(), 1).Usable() }, "the server is up again")
	requireUp(t, f)
}

// Databases of one server share the commits of single inserts. One whose tables are
// locked takes the others with it once, and not as long as it hangs.
func TestMySQLDatabaseHangs(t *testing.T) {
	t.Parallel()
	f := onMySQL().open(t, small)
	cfg := f.cfg
	cfg.Timeout = 3 * time.Second
	s := f.another(t, cfg)
	insert := func(biz uint64) error {
		return s.Insert(t.Context(), []task.Task{{BizID: biz, BizType: 1, ActionTime: f.in(0)}})[0].Err
	}
	release := f.block(t, 1)
	var hung sync.WaitGroup
	for i := range uint64(16) {
		hung.Go(func() { _ = insert(i % 2) }) // in one transaction they fail together
	}
	hung.Wait()
	require.ErrorIs(t, insert(1), task.ErrUnavailable)

	var stop atomic.Bool
	for range 8 { // go on asking for what hangs
		hung.Go(func() {
			for !stop.Load() {
				if insert(1) == nil {
					t.Error("stored behind a lock")
				}
			}
		})
	}
	var healthy sync.WaitGroup
	for range 8 {
		healthy.Go(func() {
			for range 50 {
				if err := insert(0); err != nil {
					t.Errorf("of a database that works: %v", err)
					return
				}
			}
		})
	}
	healthy.Wait()
	stop.Store(true)
	hung.Wait()
	release()
	require.NoError(t, insert(1))
	require.NoError(t, insert(1))
}

// TestSQLiteDatabaseDown has a directory where a database's file should be.
func TestSQLiteDatabaseDown(t *testing.T) {
	t.Parallel()
	f := onSQLite().open(t, small)
	stored := f.put(t, task.Task{BizID: 0, BizType: 1, ActionTime: f.in(0)}, task.Task{BizID: 1, BizType: 1, ActionTime: f.in(0)})
	require.NoError(t, f.Close())
	require.NoError(t, f.hands[1].Close())
	file := store.SQLiteFile(f.cfg.Dir, 1)
	require.NoError(t, os.Rename(file, file+".away"))
	require.NoError(t, os.Mkdir(file, 0o700))

	f.Store = f.another(t, f.cfg)
	requireDown(t, f, stored[0], stored[1])
	require.NoError(t, os.Remove(file))
	require.NoError(t, os.Rename(file+".away", file))
	requireUp(t, f)
	read, err := f.Get(t.Context(), stored[1].JobID)
	require.NoError(t, err)
	require.Equal(t, stored[1], read)
}

// TestSQLiteIsNoDatabase: the file in the way is not a database.
func TestSQLiteIsNoDatabase(t *testing.T) {
	t.Parallel()
	cfg := onSQLite().config(t, small)
	require.NoError(t, os.WriteFile(store.SQLiteFile(cfg.Dir, 1), []byte("Dear diary, today I wanted to be a database."), 0o600))
	require.NoError(t, os.WriteFile(store.SQLiteFile(cfg.Dir, 0), nil, 0o600))
	s, err := store.Open(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.ErrorContains(t, whyDown(t, s, 1), "not a database")
	require.NoError(t, whyDown(t, s, 0))
	require.NoError(t, os.Remove(store.SQLiteFile(cfg.Dir, 1)))
	require.Error(t, whyDown(t, s, 1))
	require.NoFileExists(t, store.SQLiteFile(cfg.Dir, 1), "a file that is gone is not made anew")
}

// saysWhatIsMissing: an unmigrated database gives an error that says so, and no panic.
func saysWhatIsMissing(t *testing.T, p place) {
	f := &fixture{cfg: p.config(t, small), layout: small, clock: newClock()}
	for i := range small.Databases {
		f.hands = append(f.hands, byHand(t, f.cfg, i)) // the database, without tables
		require.NoError(t, f.hands[i].PingContext(t.Context()))
	}
	f.cfg.IDs = newIDs(t, small, 1, f.clock)
	f.cfg.Now = f.clock.Now
	f.Store = f.another(t, f.cfg)
	for _, r := range f.Insert(context.Background(), []task.Task{{BizID: 1}, {BizID: 2}}) {
		require.ErrorIs(t, r.Err, task.ErrUnavailable)
		require.ErrorContains(t, r.Err, "timeout_task_000")
	}
	f.migrate(t)
	requireUp(t, f)
}

// Single inserts of all databases share commits; a refusal by one database affects no other.
func singlesSufferNotFromOthers(t *testing.T, p place) {
	f := p.open(t, small)
	_, err := f.hands[1].ExecContext(t.Context(), "DROP TABLE "+sharding.TableName(0))
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 20 {
				shard := rand.IntN(small.Shards())
				biz := bizIDs(small, shard, 1)[0]
				r := f.Insert(context.Background(), []task.Task{{BizID: biz, BizType: 1, ActionTime: f.in(0)}})[0]
				gone := small.Database(shard) == 1 && small.Table(shard) == 0
				if broken := r.Err != nil; small.Database(shard) == 0 && broken || gone && !broken {
					t.Errorf("shard %d: %v", shard, r.Err)
				}
			}
		})
	}
	wg.Wait()
}
