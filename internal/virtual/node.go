package virtual

import (
	"context"
	"database/sql/driver"
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/outside"
	"github.com/timeoutcenter/toc/internal/testrig/memnet"
	"github.com/timeoutcenter/toc/internal/wait"
	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/task"
)

// Node is one process of a center, from its start to its end. A node that starts again is another Node.
type Node struct {
	Name string
	// App is the center. Its Tasks submit to this node, without a network.
	App *app.App

	world *World
	cfg   configs.Config
	host  *memnet.Host
	ahead atomic.Int64 // of its clock, in nanoseconds

	ready    chan struct{} // closed when it takes tasks, or cannot
	startErr error
	over     context.Context // ends when it has ended, or begins to end
	end      context.CancelFunc

	files   sync.RWMutex // held for writing by Crash: no statement is under way then
	crashed context.Context
	crash   context.CancelFunc
	conns   map[*conn]bool
	connsMu sync.Mutex
	runs    map[*context.CancelCauseFunc]bool // of the runs under way
	runsMu  sync.Mutex
}

// Launch starts a node without waiting for it: it may have to wait for its databases.
func (w *World) Launch(name string) *Node {
	w.t.Helper()
	w.rest.stir(recovers)
	n := &Node{Name: name, world: w, host: w.net.Host(name), ready: make(chan struct{}), conns: make(map[*conn]bool),
		runs: make(map[*context.CancelCauseFunc]bool)}
	n.over, n.end = context.WithCancel(wait.WithPace(context.Background(), &w.rest.pace))
	n.crashed, n.crash = context.WithCancel(context.Background())
	opts := []app.Option{
		app.WithLogger(w.logger().With("node", name)),
		app.WithMiddleware(n.stopAtCrash),
		app.WithOutside(outside.Outside{
			Dial: n.host.Dial, Listen: n.host.Listen, Connect: n.connect,
			Shared: w.consul != nil,
			Hold:   func(string) (func() error, error) { return w.hold(n) },
			Ahead:  func() time.Duration { return time.Duration(n.ahead.Load()) },
			Killed: n.crashed,
		}),
	}
	n.cfg = w.Config(name)
	if w.consul == nil && !w.cfg.HTTP {
		opts = append(opts, app.WithoutHTTP())
	}
	if w.cfg.Reloads {
		opts = append(opts, app.WithConfigFile(w.configFile(name), nil))
	}
	if w.cfg.Options != nil {
		opts = append(opts, w.cfg.Options(name)...)
	}
	var err error
	if n.App, err = app.New(n.cfg, opts...); err != nil {
		w.t.Fatalf("node %s: %v", name, err)
	}
	w.mu.Lock()
	w.nodes = append(w.nodes, n)
	w.mu.Unlock()
	if w.cfg.Reloads {
		w.writeConfig(name) // it may have changed since n.cfg: the node sees it when it starts
	}
	go func() {
		defer close(n.ready)
		n.startErr = n.App.Start(n.over)
		w.rest.stir(recovers)
	}()
	return n
}

func (w *World) configFile(node string) string { return filepath.Join(w.dir, node+".yaml") }

// Ready waits until the node takes tasks. It returns why the node cannot.
func (n *Node) Ready(ctx context.Context) error {
	select {
	case <-n.ready:
		return n.startErr
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Shutdown ends the node like SIGTERM does, and waits for its end. The outcomes of its runs are recorded if the error is nil.
// After a Crash it only waits.
func (n *Node) Shutdown() error {
	n.world.rest.stir(recovers)
	n.end()
	<-n.ready
	if n.startErr != nil {
		return n.startErr
	}
	return n.App.Stop(context.Background())
}

// Crash ends the node like the end of its process or machine: from now on nothing that it does reaches a database, a server or
// another node, and no processor is called. A transaction under way is rolled back. Files and rows stay, and another Node may
// start under the same name.
//
// The goroutines of the node end soon, and nothing of that is seen. The context of each run ends at once, but code of a processor
// that goes on all the same cannot be stopped.
func (n *Node) Crash() {
	n.world.rest.stir(recovers)
	n.files.Lock()
	n.runsMu.Lock()
	for cancel := range n.runs {
		(*cancel)(ErrCrashed) // before crash, by which the App ends them too
	}
	n.crash()
	n.runsMu.Unlock()
	n.connsMu.Lock()
	for c := range n.conns {
		c.abandon()
	}
	n.connsMu.Unlock()
	n.files.Unlock()
	n.host.Kill()
	n.end()
}

func (n *Node) isCrashed() bool { return n.crashed.Err() != nil }

// isOver reports whether the node has ended or is about to.
func (n *Node) isOver() bool { return n.over.Err() != nil }

// Crashed reports whether the node was ended by Crash.
func (n *Node) Crashed() bool { return n.isCrashed() }

// Stop makes all input and output of the node stand still until Resume: its statements, connections and answers. Its goroutines
// go on.
func (n *Node) Stop() { n.world.net.Stop(n.Name) }

// Resume ends a Stop: what stood still goes on.
func (n *Node) Resume() { n.world.net.Resume(n.Name) }

// Skew sets the node's wall clock, so that it is ahead of all others; behind them, if ahead is less than 0.
func (n *Node) Skew(ahead time.Duration) {
	n.world.rest.stir(recovers)
	n.ahead.Store(int64(ahead))
}

// ErrCrashed is of a node's call after its Crash, and the cause by which the contexts of its runs end.
var ErrCrashed = errors.New("this node has crashed")

// connect is outside.Outside.Connect.
func (n *Node) connect(database int, own driver.Connector) driver.Connector {
	return &connector{Connector: own, node: n, database: n.world.database(database)}
}

// stopAtCrash is a middleware: no run begins after a crash, and the contexts of those under way end.
func (n *Node) stopAtCrash(p processor.Processor) processor.Processor {
	m := mortal{p, n}
	if b, ok := p.(processor.Batch); ok {
		return mortalBatch{m, b}
	}
	return m
}

type mortal struct {
	processor.Processor
	node *Node
}

func (m mortal) Process(ctx context.Context, t task.Task) error {
	ctx, done := m.node.live(ctx)
	defer done()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return m.Processor.Process(ctx, t)
}

type mortalBatch struct {
	mortal
	batch processor.Batch
}

func (m mortalBatch) ProcessBatch(ctx context.Context, list []task.Task) []error {
	ctx, done := m.node.live(ctx)
	defer done()
	if err := ctx.Err(); err != nil {
		errs := make([]error, len(list))
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	return m.batch.ProcessBatch(ctx, list)
}

// live returns a context that a crash ends too.
func (n *Node) live(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	n.runsMu.Lock()
	defer n.runsMu.Unlock()
	if n.isCrashed() {
		cancel(ErrCrashed)
	}
	n.runs[&cancel] = true
	return ctx, func() {
		n.runsMu.Lock()
		delete(n.runs, &cancel)
		n.runsMu.Unlock()
		cancel(nil)
	}
}
