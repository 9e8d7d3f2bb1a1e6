package bulk_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/intake/bulk"
	"github.com/timeoutcenter/toc/queue/dispatch"
	"github.com/timeoutcenter/toc/store"
)

// databases hold one operation, and dead tasks. A step takes a moment, and none is made from an old reading.
type databases struct {
	mu   sync.Mutex
	op   store.Operation
	dead []int // by database
	done []int // by database
	down map[int]bool
	// lost is the database whose next steps are made and not answered.
	lost map[int]bool
}

func newDatabases(rate float64, dead ...int) *databases {
	d := &databases{dead: dead, done: make([]int, len(dead)), down: map[int]bool{}, lost: map[int]bool{}}
	d.op = store.Operation{ID: 7, Kind: store.OperationRedrive, Rate: rate, State: store.OperationRunning}
	for range dead {
		d.op.Parts = append(d.op.Parts, store.OperationPart{State: store.OperationRunning})
	}
	return d
}

func (d *databases) read() store.Operation {
	d.mu.Lock()
	defer d.mu.Unlock()
	o := d.op
	o.Parts = append([]store.OperationPart(nil), d.op.Parts...)
	return o
}

func (d *databases) change(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
}

func (d *databases) Writable(database int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.down[database]
}

// RunningOperations returns the sum over the databases that answer.
func (d *databases) RunningOperations(context.Context, int) (list []store.Operation, err error) {
	o := d.read()
	d.change(func() {
		for database := range d.down {
			if d.down[database] {
				o.Parts[database], err = store.OperationPart{}, errors.New("a database is away")
				o.Done -= d.done[database]
			}
		}
	})
	if o.State == store.OperationRunning {
		list = append(list, o)
	}
	return list, err
}

func (d *databases) StopOperation(context.Context, uint64, time.Time) (bool, error) {
	d.change(func() { d.op.State = store.OperationStopped })
	return true, nil
}

func (d *databases) OperationTasks(context.Context, int, uint64, uint64, int) ([]store.OperationTask, error) {
	return nil, nil
}

func (d *databases) EndUndo(context.Context, int, *store.Operation) error { return nil }

func (d *databases) OperationStep(_ context.Context, database int, o *store.Operation, most int) ([]uint64, error) {
	time.Sleep(5 * time.Millisecond)
	d.mu.Lock()
	defer d.mu.Unlock()
	part := &d.op.Parts[database]
	if d.op.State != store.OperationRunning || *part != o.Parts[database] {
		return nil, nil
	}
	n := min(o.Left(most), d.dead[database])
	d.dead[database] -= n
	d.op.Done += n
	d.done[database] += n
	o.Done += n
	if part.Walked += uint64(n); n == 0 {
		part.State = store.OperationDone
		d.op.State = store.OperationDone
		for _, p := range d.op.Parts {
			if p.State == store.OperationRunning {
				d.op.State = store.OperationRunning
			}
		}
	}
	if d.lost[database] {
		o.Done -= n
		return nil, errors.New("the answer is lost")
	}
	o.Parts[database] = *part
	return make([]uint64, n), nil
}

// node runs operations while it owns them.
type node struct {
	owns     atomic.Bool
	redriven atomic.Int64
	kill     context.CancelFunc
}

func start(t *testing.T, d *databases) *node {
	n := &node{}
	n.run(t, bulk.Config{
		Store: d, Databases: len(d.dead), Ownership: n, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
		Dispatch: n,
	})
	return n
}

// OperationRuns makes the node a bulk.Control.
func (n *node) OperationRuns() bool { return true }

// Owns makes the node a dispatch.Ownership.
func (n *node) Owns(int) bool { return n.owns.Load() }

// Moved makes the node a bulk.Dispatcher.
func (n *node) Moved(changes ...dispatch.Change) int {
	n.redriven.Add(int64(len(changes)))
	return 0
}

func (n *node) run(t *testing.T, cfg bulk.Config) {
	cfg.Control = n
	r := bulk.New(cfg)
	ctx, cancel := context.WithCancel(t.Context())
	n.kill = cancel
	n.owns.Store(true)
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() { cancel(); require.ErrorIs(t, <-done, context.Canceled) })
}

// The rate is that of all databases together, however unevenly the dead lie, also if it is less than one a second.
func TestRate(t *testing.T) {
	for _, rate := range []float64{0.32, 3, 100, 1234.5} {
		synctest.Test(t, func(t *testing.T) {
			d := newDatabases(rate, 10_000, 3, 0, 50_000)
			n := start(t, d)
			time.Sleep(20*time.Second + 500*time.Millisecond)
			require.InEpsilon(t, 20*rate, d.read().Done, 0.1)
			require.EqualValues(t, d.read().Done, n.redriven.Load(), "their engines know")
		})
	}
}

func TestItEnds(t *testing.T) {
	for limit, want := range map[int]int{0: 253, 120: 120, 7: 7} {
		synctest.Test(t, func(t *testing.T) {
			d := newDatabases(100, 200, 0, 53)
			d.op.Limit = limit
			start(t, d)
			time.Sleep(10 * time.Second)
			require.Equal(t, want, d.read().Done)
			require.Equal(t, store.OperationDone, d.read().State)
		})
	}
}

// The node that runs it dies; while nobody runs it nothing is done, and what was missed is not caught up with.
func TestAnotherNodeGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabases(100, 500, 500)
		one, two := start(t, d), start(t, d)
		two.owns.Store(false)
		time.Sleep(3500 * time.Millisecond)
		one.kill()
		time.Sleep(30 * time.Second)
		require.Equal(t, 300, d.read().Done)
		two.owns.Store(true)
		time.Sleep(2 * time.Second)
		require.InDelta(t, 500, d.read().Done, 10)
		time.Sleep(10 * time.Second)
		require.Equal(t, 1000, d.read().Done)
		require.EqualValues(t, 1000, one.redriven.Load()+two.redriven.Load())
	})
}

// During a hand-over two nodes may run it: no task counts twice.
func TestTwoNodesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabases(100, 500, 500)
		one, two := start(t, d), start(t, d)
		time.Sleep(20 * time.Second)
		require.Equal(t, 1000, d.read().Done)
		require.EqualValues(t, 1000, one.redriven.Load()+two.redriven.Load())
	})
}

func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabases(100, 500)
		start(t, d)
		time.Sleep(2500 * time.Millisecond)
		_, _ = d.StopOperation(t.Context(), 7, time.Now())
		time.Sleep(10 * time.Second)
		require.Equal(t, 200, d.read().Done)
	})
}

// A database that is down holds up only its own tasks, and they follow when it is back.
func TestADatabaseIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabases(100, 300, 300)
		d.change(func() { d.down[0] = true })
		start(t, d)
		time.Sleep(10 * time.Second)
		require.Equal(t, 300, d.read().Done)
		require.Equal(t, store.OperationRunning, d.read().State)
		d.change(func() { d.down[0] = false })
		time.Sleep(5 * time.Second)
		require.Equal(t, 600, d.read().Done)
		require.Equal(t, store.OperationDone, d.read().State)
	})
}

// A limit holds for all databases together, also while one is away that has done a part of it, or whose last step may have
// been made. At 799f0ec 150 and 110 were done.
func TestLimitWhileADatabaseIsAway(t *testing.T) {
	for name, lose := range map[string]func(d *databases, is bool){
		"it is down":              func(d *databases, is bool) { d.down[0] = is },
		"a step's answer is lost": func(d *databases, is bool) { d.lost[0] = is },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDatabases(10, 200, 200)
				d.op.Limit = 100
				start(t, d)
				time.Sleep(5500 * time.Millisecond)
				d.change(func() { lose(d, true) })
				time.Sleep(30 * time.Second)
				require.LessOrEqual(t, d.read().Done, 100)
				d.change(func() { lose(d, false) })
				time.Sleep(30 * time.Second)
				require.Equal(t, 100, d.read().Done)
				require.Equal(t, store.OperationDone, d.read().State)
			})
		})
	}
}

// changed are databases with tasks that an operation has changed; a redrive runs beside the undo.
type changed struct {
	*databases
	undo store.Operation
	left []map[uint64]bool // by database: job_ids
}

func newChanged(perDatabase ...int) *changed {
	c := &changed{databases: newDatabases(100, make([]int, len(perDatabase))...)}
	c.dead[0] = 100_000
	c.undo = store.Operation{ID: 8, Undoes: 6, Kind: store.OperationUndo, State: store.OperationRunning}
	for _, n := range perDatabase {
		c.undo.Parts = append(c.undo.Parts, store.OperationPart{State: store.OperationRunning})
		left := make(map[uint64]bool, n)
		for id := range n {
			left[uint64(id+1)] = true
		}
		c.left = append(c.left, left)
	}
	return c
}

func (c *changed) RunningOperations(ctx context.Context, limit int) ([]store.Operation, error) {
	list, _ := c.databases.RunningOperations(ctx, limit)
	c.change(func() {
		undo := c.undo
		undo.Parts = slices.Clone(c.undo.Parts)
		list = append(list, undo)
	})
	return list, nil
}

func (c *changed) OperationTasks(_ context.Context, database int, operation, after uint64, limit int) (list []store.OperationTask, err error) {
	time.Sleep(time.Millisecond)
	c.change(func() {
		for _, id := range slices.Sorted(maps.Keys(c.left[database])) {
			if operation == 6 && id > after && len(list) < limit {
				list = append(list, store.OperationTask{JobID: id})
			}
		}
	})
	return list, nil
}

func (c *changed) EndUndo(_ context.Context, database int, _ *store.Operation) error {
	c.change(func() {
		if len(c.left[database]) == 0 {
			c.undo.Parts[database].State = store.OperationDone
		}
	})
	return nil
}

func (c *changed) leftover() (n int) {
	c.change(func() {
		for _, left := range c.left {
			n += len(left)
		}
	})
	return n
}

// own starts a node that may take back the tasks that mine names.
func (c *changed) own(t *testing.T, mine func(jobID uint64) bool) *node {
	n := &node{}
	n.owns.Store(true)
	n.run(t, bulk.Config{
		Store: c, Databases: len(c.left), Ownership: n, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
		Dispatch: n,
		Undoer:   undoer{c, mine},
	})
	return n
}

// undoer is a bulk.Undoer that takes back the tasks that mine names.
type undoer struct {
	*changed
	mine func(jobID uint64) bool
}

func (u undoer) UndoTasks(_ context.Context, database int, _ *store.Operation, tasks []store.OperationTask) error {
	u.change(func() {
		for _, one := range tasks {
			if u.mine(one.JobID) {
				delete(u.left[database], one.JobID)
			}
		}
	})
	return nil
}

// Each node takes back its own tasks, a thousand of them a second at most, and a redrive keeps its rate beside that. While
// some have no owner the others do not wait for them.
func TestUndo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChanged(6000, 0, 3000)
		c.own(t, func(id uint64) bool { return id%3 == 0 })
		two := c.own(t, func(id uint64) bool { return id%3 == 1 })
		two.owns.Store(false)
		time.Sleep(1500 * time.Millisecond)
		require.Greater(t, c.leftover(), 9000-2000)
		time.Sleep(30 * time.Second)
		require.Equal(t, 3000, c.leftover(), "they have no owner")
		require.InEpsilon(t, 3100, c.read().Done, 0.1)
		require.True(t, c.undo.Runs(0))
		require.True(t, c.undo.Runs(2))
		require.False(t, c.undo.Runs(1))

		c.own(t, func(id uint64) bool { return id%3 == 2 })
		time.Sleep(30 * time.Second)
		require.Zero(t, c.leftover())
		require.False(t, c.undo.Runs(0))
		require.False(t, c.undo.Runs(2))
	})
}
