package scanner_test

import (
	"bytes"
	"context"
	"database/sql"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/migrations"
	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/scanner"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	orders = uint64(1) // mode scan, with workers
	mails  = uint64(2) // mode scan, with workers
	pushes = uint64(3) // mode redis
	hidden = uint64(9) // not configured
)

// layout has two databases with two partitions of two tables each.
var layout = sharding.Layout{Databases: 2, TablesPerDatabase: 4, Partitions: 4}

// rig is a Scanner on a real SQLite store, on the clock of a bubble.
type rig struct {
	*testing.T
	cfg       scanner.Config
	scanner   *scanner.Scanner
	queue     *queue.Queue
	store     *store.Store
	faults    *faults
	timer     *timer
	owned     *owned
	passes    *passes
	log       *testLog
	start     time.Time
	consumers map[uint64]queue.Source

	mu  sync.Mutex
	ran map[uint64][]time.Time // by job_id
}

// now is the bubble's clock, moved to where job_ids can be made.
func now() time.Time { return time.Now().UTC().AddDate(30, 0, 0) }

// bubble runs a test in a synctest bubble. change may change the configuration.
func bubble(t *testing.T, layout sharding.Layout, capacity int, change func(*scanner.Config), f func(t *testing.T, r *rig)) {
	t.Helper()
	t.Parallel()
	dir := testrig.MemoryDir(t)
	migrate(t, dir, layout)
	synctest.Test(t, func(t *testing.T) {
		r := newRigIn(t, dir, layout, capacity, change)
		t.Cleanup(func() { require.NoError(t, r.store.Close()) })
		f(t, r)
	})
}

// inDatabase reports whether a partition of layout is in a database.
func inDatabase(d int) func(partition int) bool {
	return func(p int) bool { return layout.PartitionDatabase(p) == d }
}

// newRig makes a rig on the real clock.
func newRig(t *testing.T, layout sharding.Layout, capacity int, change func(*scanner.Config)) *rig {
	t.Helper()
	dir := testrig.MemoryDir(t)
	migrate(t, dir, layout)
	return newRigIn(t, dir, layout, capacity, change)
}

func newRigIn(t *testing.T, dir string, layout sharding.Layout, capacity int, change func(*scanner.Config)) *rig {
	ids, err := sharding.NewIDs(layout, 1, now)
	require.NoError(t, err)
	s, err := store.Open(store.Config{Driver: store.SQLite, Layout: layout, Dir: dir, IDs: ids, Now: now})
	require.NoError(t, err)
	types, err := task.NewTypes(
		task.BizType{ID: orders, Name: "orders", Mode: task.ModeScan, BackoffMax: 10 * time.Minute},
		task.BizType{ID: mails, Name: "mails", Mode: task.ModeScan},
		task.BizType{ID: pushes, Name: "pushes", Mode: task.ModeRedis},
	)
	require.NoError(t, err)
	r := &rig{
		T: t, store: s, start: now(),
		queue:  queue.New(queue.Config{Capacity: capacity, Partitions: layout.Partitions, Now: now}),
		faults: &faults{Store: s},
		owned:  &owned{mine: slices.Repeat([]bool{true}, layout.Partitions), rings: make(chan struct{}, 1)},
		timer:  &timer{}, passes: &passes{}, log: &testLog{}, consumers: map[uint64]queue.Source{}, ran: map[uint64][]time.Time{},
	}
	r.consumers[orders], r.consumers[mails] = r.queue.AddType(task.BizType{ID: orders}), r.queue.AddType(task.BizType{ID: mails})
	r.cfg = scanner.Config{
		Store: r.faults, Timer: r.timer, Queue: r.queue, Ownership: r.owned, Catalog: task.NewCatalog(types), Layout: layout,
		Observer: r.passes, Schedule: cron.Every(10 * time.Second), Lookahead: 10 * time.Second, Batch: 500,
		Now: now, Logger: slog.New(slog.NewTextHandler(r.log, nil)),
	}
	if change != nil {
		change(&r.cfg)
	}
	r.scanner = scanner.New(r.cfg)
	return r
}

func migrate(t *testing.T, dir string, layout sharding.Layout) {
	t.Helper()
	var list []migrations.Database
	for i := range layout.Databases {
		db, err := sql.Open("sqlite", store.SQLiteDSN(dir, i, false))
		require.NoError(t, err)
		defer db.Close()
		list = append(list, migrations.Database{Index: i, DB: db})
	}
	require.NoError(t, migrations.Up(t.Context(), migrations.Config{Dialect: migrations.SQLite, Layout: layout, Databases: list}))
}

// never is a schedule without ticks.
type never struct{}

func (never) Next(t time.Time) time.Time { return t.AddDate(1, 0, 0) }

func noTicks(c *scanner.Config) { c.Schedule = never{} }

// run starts the scanner; it ends with the test.
func (r *rig) run() {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.scanner.Run(ctx) }()
	r.Cleanup(func() {
		stop()
		require.ErrorIs(r, <-ended, context.Canceled)
	})
	synctest.Wait()
}

// work checks and runs what is due, with one worker a business type, until the test ends. A run takes as long
// as given.
func (r *rig) work(took time.Duration) {
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		for {
			entries, err := r.queue.NextChecks(ctx)
			if err != nil {
				return
			}
			ids := make([]uint64, len(entries))
			for i, e := range entries {
				ids[i] = e.ID()
			}
			found, err := r.store.Load(context.Background(), ids)
			if err != nil {
				r.Error(err)
			}
			rows := map[uint64]task.Task{}
			for _, t := range found {
				rows[t.JobID] = t
			}
			r.queue.ApplyChecks(entries, rows)
		}
	})
	for _, l := range r.consumers {
		all.Go(func() {
			for {
				entries, err := l.Take(ctx, 1)
				if err != nil {
					return
				}
				r.fire(entries[0], took)
			}
		})
	}
	r.Cleanup(func() {
		stop()
		all.Wait()
	})
}

func (r *rig) fire(e *queue.Entry, took time.Duration) {
	r.mu.Lock()
	r.ran[e.ID()] = append(r.ran[e.ID()], now())
	r.mu.Unlock()
	time.Sleep(took)
	applied, err := r.store.Move(context.Background(), store.Move{JobID: e.ID(), From: task.Pending, To: task.Processed})
	if err != nil || !applied {
		r.Errorf("task %d not recorded: %v", e.ID(), err)
	}
	row := e.Task
	row.Status = task.Processed
	r.queue.Done(e, row, false)
}

func (r *rig) runs(id uint64) []time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.ran[id])
}

// ranAll requires that tasks ran exactly once, and returns how late the latest was.
func (r *rig) ranAll(ids []uint64) (latest time.Duration) {
	r.Helper()
	rows, err := r.store.Load(r.Context(), ids)
	require.NoError(r, err)
	require.Len(r, rows, len(ids))
	for _, row := range rows {
		runs := r.runs(row.JobID)
		require.Len(r, runs, 1, "task %d of biz_id %d, due at %s", row.JobID, row.BizID, row.ActionTime.Sub(r.start))
		late := runs[0].Sub(row.ActionTime)
		require.GreaterOrEqual(r, late, time.Duration(0))
		latest = max(latest, late)
	}
	return latest
}

// insert stores a task of a biz_id, due in a while, as another process would do.
func (r *rig) insert(bizType, bizID uint64, in time.Duration) uint64 {
	r.Helper()
	got := r.store.Insert(context.Background(), []task.Task{{BizType: bizType, BizID: bizID, ActionTime: now().Add(in)}})
	require.NoError(r, got[0].Err)
	return got[0].Task.JobID
}

// move changes a pending task in the store alone.
func (r *rig) move(id uint64, to task.Status, set store.Set) {
	r.Helper()
	ok, err := r.store.Move(context.Background(), store.Move{JobID: id, From: task.Pending, To: to, Set: set})
	require.NoError(r, err)
	require.True(r, ok)
}

// insertFailed stores a task that was promised for now, has failed, and runs again.
func (r *rig) insertFailed(bizType, bizID uint64, in time.Duration) uint64 {
	r.Helper()
	id, at := r.insert(bizType, bizID, 0), now()
	r.move(id, task.Pending, store.Set{Attempts: new(1), ActionTime: new(at.Add(in)), Promised: &at})
	return id
}

// bizID returns a biz_id whose tasks live in a table of a partition.
func (r *rig) bizID(partition, table int) uint64 {
	first, _ := r.cfg.Layout.PartitionShards(partition)
	for id := uint64(0); ; id++ {
		if r.cfg.Layout.Shard(id) == first+table {
			return id
		}
	}
}

func (r *rig) after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// faults is a store whose calls can be delayed or made to fail. A nil hook does nothing.
type faults struct {
	*store.Store
	mu       sync.Mutex
	due      func(p int, q store.Due) // when rows that are due are about to be read
	reading  func(partition int)
	broken   func(partition int) bool // reads fail
	stores   map[int]*store.Store     // reads of a database go to this store instead
	failed   map[int]int              // reads of a database in a row, while all of it is broken
	overdue  func(partition int) error
	retrying func() // before each count
	purge    func(partition int) error
	batch    func() store.Purged // in place of one of the store
}

// reader returns the store from which to read a partition.
func (f *faults) reader(p int) *store.Store {
	f.mu.Lock()
	reading, broken := f.reading, f.broken
	f.mu.Unlock()
	if reading != nil {
		reading(p)
	}
	if broken != nil && broken(p) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.failed == nil {
			f.failed = make(map[int]int)
		}
		f.failed[f.Layout().PartitionDatabase(p)]++
		return closedStore(f.Layout())
	}
	if s := f.stores[layout.PartitionDatabase(p)]; s != nil {
		return s
	}
	return f.Store
}

// Readable is false for a database of which everything is broken, once two reads have shown it.
func (f *faults) Readable(database int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	first, end := f.Layout().DatabasePartitions(database)
	for p := first; p < end; p++ {
		if f.broken == nil || !f.broken(p) {
			delete(f.failed, database)
			return true
		}
	}
	return f.failed[database] < 2
}

func (f *faults) DuePages(p int, q store.Due) *store.DuePages {
	f.mu.Lock()
	due := f.due
	f.mu.Unlock()
	if due != nil {
		due(p, q)
	}
	return f.reader(p).DuePages(p, q)
}

func (f *faults) NextDue(ctx context.Context, p int) (time.Time, bool, error) {
	return f.reader(p).NextDue(ctx, p)
}

// timer is the redis engine: it serves redis-mode types where Redis is in reach.
type timer struct {
	mu     sync.Mutex
	out    bool
	purged []purged
}

// purged is a call of PurgeDead.
type purged struct {
	partition int
	before    time.Time
}

func (f *timer) Serves(uint64, int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.out
}

func (*timer) Watch() <-chan struct{} { return nil }

func (f *timer) InFallback() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.out
}

func (f *timer) PurgeDead(_ context.Context, partition int, before time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.purged = append(f.purged, purged{partition, before})
}

func (f *timer) NextDue(int, time.Time, bool) {}

func (f *faults) Retrying(ctx context.Context, p int, now, until time.Time) (map[uint64]store.Retrying, error) {
	f.mu.Lock()
	retrying := f.retrying
	f.mu.Unlock()
	if retrying != nil {
		retrying()
	}
	return f.Store.Retrying(ctx, p, now, until)
}

func (f *faults) Overdue(ctx context.Context, p int, now time.Time) (map[uint64]store.Overdue, error) {
	f.mu.Lock()
	overdue := f.overdue
	f.mu.Unlock()
	if overdue != nil {
		if err := overdue(p); err != nil {
			return nil, err
		}
	}
	return f.Store.Overdue(ctx, p, now)
}

func (f *faults) Purge(ctx context.Context, p int, before time.Time) (store.Purged, error) {
	f.mu.Lock()
	purge, batch := f.purge, f.batch
	f.mu.Unlock()
	if batch != nil {
		return batch(), nil
	}
	if purge != nil {
		if err := purge(p); err != nil {
			return store.Purged{}, err
		}
	}
	return f.Store.Purge(ctx, p, before)
}

// set changes the hooks.
func (f *faults) set(change func(*faults)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// closedStore is a store in which every read fails.
func closedStore(layout sharding.Layout) *store.Store {
	s, err := store.Open(store.Config{Driver: store.SQLite, Layout: layout, Dir: "."})
	if err == nil {
		err = s.Close()
	}
	if err != nil {
		panic(err)
	}
	return s
}

// owned is an ownership that the test changes.
type owned struct {
	mu    sync.Mutex
	mine  []bool
	rings chan struct{}
}

func (o *owned) Owns(p int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mine[p]
}

func (o *owned) Watch() <-chan struct{} { return o.rings }

func (o *owned) set(p int, mine bool) {
	o.mu.Lock()
	o.mine[p] = mine
	o.mu.Unlock()
	select {
	case o.rings <- struct{}{}:
	default:
	}
}

// passes records the passes that were made.
type passes struct {
	purged store.Purged
	lags   map[int]time.Duration
	mu     sync.Mutex
	list   []pass
	ring   chan<- struct{} // may be nil
}

type pass struct {
	database int
	ended    time.Time
	took     time.Duration
	err      error
}

func (p *passes) Scanned(database int, took time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = append(p.list, pass{database, now(), took, err})
	if p.ring != nil {
		p.ring <- struct{}{}
	}
}

func (p *passes) Purged(one store.Purged) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.purged.Processed += one.Processed
	p.purged.Cancelled += one.Cancelled
	p.purged.Dead += one.Dead
}

func (p *passes) PurgeLag(database int, lag time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lags == nil {
		p.lags = map[int]time.Duration{}
	}
	p.lags[database] = lag
}

func (p *passes) of(database int) (list []pass) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.list {
		if one.database == database {
			list = append(list, one)
		}
	}
	return list
}

// testLog is the log of a test.
type testLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *testLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// count returns the number of lines with a message.
func (l *testLog) count(message string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), message)
}
