// Package app builds the timeout center from its rooms, and starts and drains
// them in a visible order.
//
// A configuration and the user's processors come in; a running center goes out.
// It is the only room that knows all others, and the only one that knows the
// configuration.
//
//	cfg, err := configs.Load("", os.Environ())
//	center, err := app.New(cfg, app.WithProcessor("order_close", closeOrder))
//	err = center.Run(ctx)
//
// Run works until ctx ends, then drains. Programs that embed the center submit
// through Desk.
package app

import (
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"

	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/metrics"
	"github.com/timeoutcenter/toc/peerproof"
	"github.com/timeoutcenter/toc/peers"
	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/processors"
	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/redistimer"
	"github.com/timeoutcenter/toc/scanner"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// App is a timeout center: one node. Make it with New, work it with Run.
type App struct {
	cfg      configs.Config
	node     string
	opts     options
	registry *processor.Registry

	clock   *clock
	layout  sharding.Layout
	ids     *sharding.IDs
	catalog *task.Catalog
	store   *store.Store
	cluster membership
	queue   *queue.Queue
	runner  *processor.Runner
	scanner *scanner.Scanner
	timer   *redistimer.Timer
	desk    *intake.Desk
	peers   *peers.Peers // nil: this node decides everything
	metrics *metrics.Metrics

	proof   *peerproof.Prover        // of this node, to the others
	tokens  atomic.Pointer[[]string] // http.tokens in force
	refused atomic.Pointer[string]   // why the configuration file is not in force; nil: it is
	// descriptorsGone tells that this process cannot open files and connections any more.
	descriptorsGone atomic.Bool
	lanes           map[uint64]builtLane // by biz_type id: what runs now
	inForce         []configs.BizType    // as they were read last; the watcher's
	pokes           chan struct{}        // asks for a look at the configuration file
	draining        atomic.Bool
	storeID         atomic.Value // string; see StoreID
	preparing       sync.Mutex   // one prepare of the embedded store at a time
	addr            atomic.Value // string: the address listened on
}

// Option changes how an App is built.
type Option func(*options) error

type options struct {
	logger     *slog.Logger
	version    string
	configPath string
	environ    []string
	processors []namedProcessor
	noHTTP     bool
	audit      func(partition int, owned bool)
	ready      func(addr string)
}

type namedProcessor struct {
	name  string
	build processor.Constructor
}

// WithProcessor registers a Go processor under the name that biz_types[].processor
// uses. All business types that name it share p. A name that is taken, also by a
// shipped processor (log, webhook), makes New fail.
func WithProcessor(name string, p processor.Processor) Option {
	return WithConstructor(name, func(task.BizType, any) (processor.Processor, error) { return keepOpen(p), nil })
}

// WithConstructor registers a processor that is built anew for each business type.
func WithConstructor(name string, c processor.Constructor) Option {
	return func(o *options) error {
		o.processors = append(o.processors, namedProcessor{name, c})
		return nil
	}
}

// WithLogger sets the logger. Defaults to slog.Default.
func WithLogger(l *slog.Logger) Option {
	return func(o *options) error { o.logger = l; return nil }
}

// WithVersion sets the version that the HTTP API tells.
func WithVersion(v string) Option {
	return func(o *options) error { o.version = v; return nil }
}

// WithConfigFile re-reads biz_types from this file, on SIGHUP (App.Reload) and
// when it changes. environ is what configs.Load was given.
func WithConfigFile(path string, environ []string) Option {
	return func(o *options) error { o.configPath, o.environ = path, environ; return nil }
}

// WithoutHTTP runs the center without a listener, for programs that embed it.
func WithoutHTTP() Option {
	return func(o *options) error { o.noHTTP = true; return nil }
}

// WithAudit tells f, each time that a part of this node asks before it works on a
// partition, whether it may: the answers of all nodes put together show whether a
// partition ever had two owners. f must be quick; many goroutines call it.
func WithAudit(f func(partition int, owned bool)) Option {
	return func(o *options) error { o.audit = f; return nil }
}

// WithReady calls f once the center works; addr is the real address of the
// HTTP API, empty without one.
func WithReady(f func(addr string)) Option {
	return func(o *options) error { o.ready = f; return nil }
}

// New builds a center. It connects to nothing and starts nothing. A
// configuration that is wrong gives an error that names the field.
func New(cfg configs.Config, opts ...Option) (*App, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	a := &App{cfg: cfg, node: nodeName(cfg), registry: processor.NewRegistry(), lanes: map[uint64]builtLane{}, pokes: make(chan struct{}, 1)}
	a.opts = options{logger: slog.Default(), version: "dev"}
	for _, o := range opts {
		if err := o(&a.opts); err != nil {
			return nil, err
		}
	}
	if err := processors.Register(a.registry, a.component("processors")); err != nil {
		return nil, err
	}
	for _, p := range a.opts.processors {
		if err := a.registry.Register(p.name, p.build); err != nil {
			return nil, err
		}
	}
	types, err := bizTypes(cfg)
	if err != nil {
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

// Desk takes submits, cancels, reschedules and look-ups in process. It works
// from the time that Run is ready until Run returns.
func (a *App) Desk() *intake.Desk { return a.desk }

// Node is this node's name.
func (a *App) Node() string { return a.node }

// component gives each part of the center a logger of its own.
func (a *App) component(name string) *slog.Logger { return a.opts.logger.With("component", name) }

func nodeName(cfg configs.Config) string {
	if cfg.Node.Name != "" {
		return cfg.Node.Name
	}
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	return fmt.Sprintf("%s-%d", host, os.Getpid())
}

// keepOpen hides the Close of a processor that is the caller's.
func keepOpen(p processor.Processor) processor.Processor {
	if b, ok := p.(processor.Batch); ok {
		return struct {
			processor.Processor
			processor.Batch
		}{p, b}
	}
	return struct{ processor.Processor }{p}
}
