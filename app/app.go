// Package app builds the timeout center from its packages, and starts and drains them in a visible order.
//
// It turns a configuration and the user's processors into a running center. It is the only package that
// imports all others, and the only one that reads the configuration.
//
// Run works until its context ends, then drains. Start and Stop are its two halves. Programs that embed the
// center submit through Tasks.
package app

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/app/metrics"
	"github.com/timeoutcenter/toc/cluster/forward"
	"github.com/timeoutcenter/toc/cluster/peerproof"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/intake/bulk"
	"github.com/timeoutcenter/toc/intake/pause"
	"github.com/timeoutcenter/toc/internal/logqueue"
	"github.com/timeoutcenter/toc/internal/tlsclient"
	"github.com/timeoutcenter/toc/internal/tracing"
	"github.com/timeoutcenter/toc/internal/tracing/otlp"
	"github.com/timeoutcenter/toc/internal/wait"
	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/queue/dispatch"
	"github.com/timeoutcenter/toc/queue/limits"
	"github.com/timeoutcenter/toc/redistimer"
	"github.com/timeoutcenter/toc/scanner"
	"github.com/timeoutcenter/toc/server/console"
	intakekafka "github.com/timeoutcenter/toc/server/kafka"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
	"github.com/timeoutcenter/toc/worker"
)

// App is one node of a timeout center. New makes it, Run runs it.
type App struct {
	cfg      configs.Config
	node     string
	opts     options
	registry *processor.Registry

	clock      *clock
	layout     sharding.Layout
	ids        *sharding.IDs
	catalog    *task.Catalog
	store      *store.Store
	cluster    membership
	limits     *limits.Limits
	tls        tlsClients
	faults     []*fault
	faultLog   faultLog
	due        *dueCounter
	queue      *queue.Queue
	alarm      wait.Alarm
	runner     *worker.Runner
	scanner    *scanner.Scanner
	timer      *redistimer.Timer
	dispatcher *dispatch.Dispatcher
	control    *pause.Control
	operations *bulk.Runner
	service    *intake.Service
	readers    []*intakekafka.Reader
	forward    *forward.Forwarder // nil: this node decides everything
	console    *console.Console   // nil: there is none
	metrics    *metrics.Metrics
	spans      *otlp.Exporter  // nil: there is no collector
	tracer     *tracing.Tracer // nil: the same
	log        logqueue.Queue

	proof          *peerproof.Prover // of this node's identity, for the other nodes
	secrets        secrets
	refused        atomic.Value         // string: why the configuration file is not in force; empty: it is
	lanes          map[uint64]builtLane // by biz_type id: the running ones
	inForce        []configs.BizType    // as last read; for the watcher alone
	laneChanges    chan []*worker.Lane  // for the runner, after a change of the configuration; the drain closes it
	reloadRequests wait.Signal          // asks for a check of the configuration file
	draining       atomic.Bool
	storeID        atomic.Value // string; see StoreID
	addr           atomic.Value // string: the address listened on
	web            *webServer   // nil: there is no HTTP API

	started   atomic.Bool        // by Start
	stop      context.CancelFunc // of Start
	ended     chan struct{}      // closed once its Run has ended, with failure
	failure   error
	waitEnded error       // ctx ended during the wait for servers at the start
	giveUp    func()      // instead of that wait; nil: the node waits
	open      atomic.Bool // it takes requests
	announced atomic.Bool // the log has the address
}

// New builds a center. It connects to nothing and starts nothing; on SQLite it makes the directory of the
// store. The error of a wrong configuration names the field.
func New(cfg configs.Config, opts ...Option) (*App, error) {
	a := &App{registry: processor.NewRegistry(), lanes: map[uint64]builtLane{}, laneChanges: make(chan []*worker.Lane, 1),
		reloadRequests: wait.NewSignal(), tls: tlsClients{list: map[tlsKey]*tlsclient.Client{}}}
	a.opts = options{logger: slog.Default(), version: "dev"}
	for _, o := range opts {
		if err := o(&a.opts); err != nil {
			return nil, err
		}
	}
	var handler slog.Handler
	handler, a.log = logqueue.Wrap(a.opts.logger.Handler()) // a handler that blocks must not hold up the center
	a.opts.logger = slog.New(handler)
	var err error
	if a.cfg, err = a.opts.configure(cfg); err != nil {
		return nil, err
	}
	a.node = a.cfg.Node.Name
	types, err := bizTypes(a.cfg)
	if err != nil {
		return nil, err
	}
	a.registerShipped()
	if err := a.opts.register(a.registry, types.All()); err != nil {
		return nil, err
	}
	for _, b := range types.All() {
		if !a.registry.Has(b.Processor) {
			_, err := a.registry.Build(b, nil)
			return nil, err
		}
	}
	a.catalog = task.NewCatalog(types)
	if err := a.build(); err != nil {
		return nil, err
	}
	return a, nil
}

// Metrics returns the series toc_*, for a registry of the program: prometheus.MustRegister(center.Metrics()).
// With HTTP the center itself serves them at /metrics.
func (a *App) Metrics() prometheus.Collector { return a.metrics.Collector() }

// Node is this node's name.
func (a *App) Node() string { return a.node }

// component returns the logger of a part of the center.
func (a *App) component(name string) *slog.Logger { return a.opts.logger.With("component", name) }

// Tasks submits, changes and looks up the tasks of a center in the same process. Its methods are those of
// client.Client, with the same requests and answers, so one interface of a program fits both. errors.Is and
// errors.As find the same errors of package task; those of a Client are also a *client.Error.
type Tasks struct{ api.Center }

// Tasks returns the tasks of the center. They can be used between Start and Stop.
func (a *App) Tasks() *Tasks { return &Tasks{a.service} }

// SubmitBatch stores up to 10,000 tasks and returns a result for each of them, in order. A refused one does not
// affect the others, but one that lacks a field does. After an error none is stored.
func (t *Tasks) SubmitBatch(ctx context.Context, list []api.Submit) ([]api.BatchResult, error) {
	for i := range list {
		if _, err := list[i].Request(); err != nil {
			return nil, fmt.Errorf("task %d: %w", i, err)
		}
	}
	return t.Center.SubmitBatch(ctx, list)
}
