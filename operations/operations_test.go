package operations_test

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/operations"
	"github.com/timeoutcenter/toc/store"
)

// databases hold one operation, and dead tasks. A step takes a moment, and none is made from an old reading.
type databases struct {
	mu   sync.Mutex
	op   store.Operation
	dead []int // by database
	down map[int]bool
}

func newDatabases(rate float64, dead ...int) *databases {
	d := &databases{dead: dead, down: map[int]bool{}}
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

func (d *databases) RunningOperations(context.Context, int) ([]store.Operation, error) {
	if o := d.read(); o.State == store.OperationRunning {
		return []store.Operation{o}, nil
	}
	return nil, nil
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
	r := operations.New(operations.Config{
		Store: d, Databases: len(d.dead), Runs: n.owns.Load, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
		Redriven: func(_ context.Context, jobIDs []uint64) { n.redriven.Add(int64(len(jobIDs))) },
	})
	ctx, cancel := context.WithCancel(t.Context())
	n.kill = cancel
	n.owns.Store(true)
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() { cancel(); require.ErrorIs(t, <-done, context.Canceled) })
	return n
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
