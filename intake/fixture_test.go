package intake_test

import (
	"context"
	"database/sql"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/migrations"
	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/queue/dispatch"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// layout has two databases with two partitions of two tables each. Partition 3
// is another node's.
var layout = sharding.Layout{Databases: 2, TablesPerDatabase: 4, Partitions: 4}

const foreign = uint64(5) // a biz_id in partition 3

// rig is a Service on a real SQLite store, with the clock of a bubble.
type rig struct {
	*intake.Service
	t     *testing.T
	dir   string // of the store
	store *store.Store
	fault *faults
	queue *queue.Queue
	lane  queue.Source // of orders
	start time.Time

	partitions atomic.Pointer[fleet] // nil: all are this node's

	mu        sync.Mutex
	armed     []uint64       // tasks that were passed to the redis engine
	submitted map[string]int // by biz_type
	ran       map[uint64][]time.Time
}

// now is the bubble's clock, moved to where job_ids can be made. It never stands
// at a whole millisecond.
func now() time.Time { return time.Now().AddDate(30, 0, 0).Add(400 * time.Microsecond) }

type ownership rig

func (o *ownership) Term(partition int) uint64 {
	if c := o.partitions.Load(); c != nil {
		return queued{c}.Term(partition)
	}
	return 1
}

func bubble(t *testing.T, f func(t *testing.T, r *rig)) {
	t.Helper()
	t.Parallel()
	dir := testrig.MemoryDir(t)
	migrate(t, dir)
	synctest.Test(t, func(t *testing.T) {
		ids, err := sharding.NewIDs(layout, 1, now)
		require.NoError(t, err)
		s, err := store.Open(store.Config{Driver: store.SQLite, Layout: layout, Dir: dir, IDs: ids, Now: now})
		require.NoError(t, err)
		types, err := task.NewTypes(
			task.BizType{ID: 1, Name: "order_close", Mode: task.ModeScan},
			task.BizType{ID: 2, Name: "mail", Mode: task.ModeScan},
			task.BizType{ID: 3, Name: "push", Mode: task.ModeRedis},
		)
		require.NoError(t, err)
		r := &rig{
			t: t, dir: dir, store: s, fault: &faults{Store: s}, start: now(),
			submitted: map[string]int{}, ran: map[uint64][]time.Time{},
		}
		r.queue = queue.New(queue.Config{Partitions: layout.Partitions, Ownership: (*ownership)(r), Now: now})
		r.lane = r.queue.AddType(task.BizType{ID: 1})
		r.queue.AddType(task.BizType{ID: 2})
		r.queue.AddType(task.BizType{ID: 3})
		r.Service = intake.New(intake.Config{
			Node: "n1", Store: r.fault, Queue: r.queue, Layout: layout, Catalog: task.NewCatalog(types), Observer: r,
			Dispatch: r.dispatcher(types, func(p int) bool { return p != 3 }, nil), Now: now,
		})
		t.Cleanup(func() {
			r.queue.Close()
			synctest.Wait()
			require.NoError(t, r.queue.WaitIdle(context.Background()), "something is held or runs still")
			require.NoError(t, s.Close())
		})
		f(t, r)
	})
}

func migrate(t *testing.T, dir string) {
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

// Submitted makes the rig an intake.Observer.
func (r *rig) Submitted(b task.BizType, tasks int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.submitted[b.Name] += tasks
}

func (r *rig) counts(bizType string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.submitted[bizType]
}

// result is what became of a submit: the row, or why there is none.
type result struct {
	Task      task.Task
	Duplicate bool
	Err       error
}

// Submit submits one task, and gives its row.
func (r *rig) Submit(ctx context.Context, s api.Submit) (result, error) {
	got, err := r.Service.Submit(ctx, s)
	row, err := rowOf(got.Task, err)
	return result{row, got.Duplicate, err}, err
}

// SubmitBatch submits many tasks, and gives their rows.
func (r *rig) SubmitBatch(ctx context.Context, list []api.Submit) []result {
	answers, err := r.Service.SubmitBatch(ctx, list)
	require.NoError(r.t, err)
	results := make([]result, len(answers))
	for i, a := range answers {
		if results[i].Duplicate = a.Duplicate; a.Err != nil {
			results[i].Err = a.Err.Cause
			continue
		}
		results[i].Task = r.row(uint64(a.JobID))
	}
	return results
}

// Get, Reschedule and Redrive give rows.
func (r *rig) Get(ctx context.Context, id uint64) (task.Task, error) {
	return rowOf(r.Service.Get(ctx, id))
}

func (r *rig) Reschedule(ctx context.Context, id uint64, c api.Change, opts ...api.ChangeOption) (task.Task, error) {
	return rowOf(r.Service.Reschedule(ctx, id, c, opts...))
}

func (r *rig) Redrive(ctx context.Context, id uint64, opts ...api.ChangeOption) (task.Task, error) {
	return rowOf(r.Service.Redrive(ctx, id, opts...))
}

// rowOf is the row that an answered task stands for.
func rowOf(t api.Task, err error) (task.Task, error) {
	if err != nil {
		return task.Task{}, err
	}
	return t.Task(map[string]uint64{"order_close": 1, "mail": 2, "push": 3}[t.BizType])
}

// order submits a task of biz_id that is due in a while, or was due (in < 0).
func (r *rig) order(bizID uint64, in time.Duration) task.Task {
	r.t.Helper()
	got, err := r.Submit(r.t.Context(), api.Submit{BizType: "order_close", BizID: bizID, ActionTime: now().Add(in)})
	require.NoError(r.t, err)
	return got.Task
}

// become changes the status of a stored task directly.
func (r *rig) become(t task.Task, to task.Status) {
	r.t.Helper()
	attempts, reason := 17, "the shop is down"
	ok, err := r.store.Move(r.t.Context(), store.Move{JobID: t.JobID, From: task.Pending, To: to, Set: store.Set{Attempts: &attempts, LastError: &reason}})
	require.NoError(r.t, err)
	require.True(r.t, ok)
}

func (r *rig) row(id uint64) task.Task {
	r.t.Helper()
	t, err := r.store.Get(r.t.Context(), id)
	require.NoError(r.t, err)
	return t
}

// queued is the number of tasks in the queue.
func (r *rig) queued() int { return r.queue.Stats(1).Depth }

// work runs due tasks until the test ends; each run takes the given time.
func (r *rig) work(took time.Duration) {
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		for {
			entries, err := r.queue.NextChecks(ctx)
			if err != nil {
				return
			}
			rows := map[uint64]task.Task{}
			for _, e := range entries {
				if row, err := r.store.Get(context.Background(), e.ID()); err == nil {
					rows[row.JobID] = row
				}
			}
			r.queue.ApplyChecks(entries, rows)
		}
	})
	for range 4 {
		all.Go(func() {
			for {
				entries, err := r.lane.Take(ctx, 1)
				if err != nil {
					return
				}
				r.fire(entries[0], took)
			}
		})
	}
	r.t.Cleanup(func() {
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
		r.t.Errorf("task %d not recorded: %v", e.ID(), err)
	}
	row := e.Task
	row.Status = task.Processed
	r.queue.Done(e, row, false)
}

func (r *rig) runs(id uint64) []time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]time.Time{}, r.ran[id]...)
}

func (r *rig) after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// faults is a store whose calls can be made to fail or hung up. Hooks that are
// nil do nothing.
type faults struct {
	*store.Store
	insert func(t *task.Task) error // fails after the row is stored
	slow   chan struct{}            // for which inserts into database 1 wait; nil: they do not
	move   func(m *store.Move) (applied bool, err error)
	moved  func(m *store.Move) error // fails after the move is made
	get    func(id uint64) error
	loaded func() error // called, and fails, after the rows are read
	wide   func()       // called before a read of all tables
}

func (f *faults) reading() {
	if f.wide != nil {
		f.wide()
	}
}

func (f *faults) Walk(ctx context.Context, q store.WalkFilter, after store.Place, limit int) ([]task.Task, store.Place, bool, error) {
	f.reading()
	return f.Store.Walk(ctx, q, after, limit)
}

func (f *faults) Upcoming(ctx context.Context, shards []int, from, to time.Time, rows int) ([]store.Upcoming, float64, bool, error) {
	f.reading()
	return f.Store.Upcoming(ctx, shards, from, to, rows)
}

func (f *faults) ListDead(ctx context.Context, q store.DeadFilter, after uint64, limit int) ([]task.Task, uint64, error) {
	f.reading()
	return f.Store.ListDead(ctx, q, after, limit)
}

func (f *faults) CountDead(ctx context.Context, q store.DeadFilter) (int, error) {
	f.reading()
	return f.Store.CountDead(ctx, q)
}

func (f *faults) DeadGroups(ctx context.Context, bizType *uint64) ([]store.DeadGroup, bool, error) {
	f.reading()
	return f.Store.DeadGroups(ctx, bizType)
}

func (f *faults) InsertAgain(ctx context.Context, tasks []task.Task, again func(i int) bool,
	early func([]int, []store.Inserted)) []store.Inserted {
	results := f.Store.InsertAgain(ctx, tasks, again, nil)
	if f.slow != nil {
		var decided []int
		for i := range tasks {
			if layout.Database(layout.Shard(tasks[i].BizID)) == 0 {
				decided = append(decided, i)
			}
		}
		early(decided, results)
		<-f.slow
	}
	for i := range results {
		if f.insert != nil {
			if err := f.insert(&results[i].Task); err != nil {
				results[i].Err = err
			}
		}
	}
	return results
}

func (f *faults) Move(ctx context.Context, m store.Move) (bool, error) {
	if f.move != nil {
		return f.move(&m)
	}
	applied, err := f.Store.Move(ctx, m)
	if f.moved != nil {
		err = f.moved(&m)
	}
	return applied, err
}

func (f *faults) MoveAll(ctx context.Context, moves []store.Move) []store.Moved {
	if f.move == nil {
		return f.Store.MoveAll(ctx, moves)
	}
	results := make([]store.Moved, len(moves))
	for i := range moves {
		results[i].Applied, results[i].Err = f.move(&moves[i])
	}
	return results
}

func (f *faults) Get(ctx context.Context, id uint64) (task.Task, error) {
	if f.get != nil {
		if err := f.get(id); err != nil {
			return task.Task{}, err
		}
	}
	return f.Store.Get(ctx, id)
}

func (f *faults) Load(ctx context.Context, ids []uint64) ([]task.Task, error) {
	rows, err := f.Store.Load(ctx, ids)
	if f.loaded != nil {
		err = f.loaded()
	}
	return rows, err
}

// engines are those of a node: the scan engine looks 10 s ahead, and tasks for the redis engine are recorded.
type engines struct {
	*rig
	types *task.Types
	mode  task.Mode // of the types that it serves
}

func (e engines) Until(bizType uint64, _ int) (until time.Time, serves bool) {
	b, known := e.types.ByID(bizType)
	return now().Add(10 * time.Second), known && b.Mode == e.mode
}

func (engines) Tick() {}

func (e engines) Moved(changes []dispatch.Change) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range changes {
		if c.Status == task.Pending {
			e.armed = append(e.armed, c.JobID)
		}
	}
}

// owns tells which partitions are a node's.
type owns func(partition int) bool

func (o owns) Owns(partition int) bool { return o(partition) }

// dispatcher passes changes to the engines of the rig, and to other nodes.
func (r *rig) dispatcher(types *task.Types, o owns, nodes dispatch.Nodes) *dispatch.Dispatcher {
	return dispatch.New(dispatch.Config{
		Layout: layout, Queue: r.queue, Store: r.fault, Ownership: o, Nodes: nodes,
		Scanner: engines{r, types, task.ModeScan}, Timer: engines{r, types, task.ModeRedis},
	})
}
