package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"slices"
	"strings"

	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/outside"
	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/task"
)

// Option changes how an App is built.
type Option func(*options) error

type options struct {
	logger     *slog.Logger
	version    string
	configPath string
	environ    []string
	processors []namedProcessor
	bizTypes   []configs.BizType
	noHTTP     bool
	audit      func(partition int, owned bool)
	ready      func(addr string)
	failed     func(ctx context.Context, t task.Task, err error)
	middleware []func(processor.Processor) processor.Processor
	outside    outside.Outside
}

type namedProcessor struct {
	name  string
	build processor.Constructor
}

// WithBizType adds a business type and the Go processor that runs its tasks. Zero fields of b get the defaults
// of configs.DefaultBizType, unless b was made by it: then zero is zero, and MaxRetries 0 runs a task once. It replaces
// a type of the configuration with the same name, and one of configs.Default with the same ID.
func WithBizType(b configs.BizType, p processor.Processor) Option {
	return func(o *options) error {
		if b.Processor != "" && b.Processor != b.Name {
			return fmt.Errorf("business type %s: its processor is the one given, not %q: leave Processor empty", b.Name, b.Processor)
		}
		if p == nil {
			return fmt.Errorf("business type %s: its processor is nil; give one, processor.Func for example", b.Name)
		}
		b.Processor = b.Name
		o.bizTypes = append(o.bizTypes, b.WithDefaults())
		return WithProcessor(b.Name, p)(o)
	}
}

// WithProcessor registers a Go processor under the name that biz_types[].processor uses. All business types
// with that name share p. New fails if no business type uses the name, and if the name is taken, also by a
// shipped processor (log, webhook).
func WithProcessor(name string, p processor.Processor) Option {
	return WithConstructor(name, func(task.BizType, any) (processor.Processor, error) { return withoutClose(p), nil })
}

// WithConstructor registers a processor that is built for each business type.
func WithConstructor(name string, c processor.Constructor) Option {
	return func(o *options) error {
		o.processors = append(o.processors, namedProcessor{name, c})
		return nil
	}
}

// WithLogger sets the logger. Defaults to slog.Default. Its handler is called by one goroutine, through a bounded queue: one
// that blocks does not hold up the center. Records that do not fit are dropped, counted by toc_log_dropped_total and reported
// by a record. Run writes what is left before it returns, for a second at most.
func WithLogger(l *slog.Logger) Option {
	return func(o *options) error { o.logger = l; return nil }
}

// WithVersion sets the version that the HTTP API shows.
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

// WithAudit calls f each time a part of this node asks whether it may work on a partition. The answers of all
// nodes together show whether a partition ever had two owners. f must be quick; many goroutines call it.
func WithAudit(f func(partition int, owned bool)) Option {
	return func(o *options) error { o.audit = f; return nil }
}

// WithOutside surrounds the center with another network, other databases or another clock. It is for tests of this
// module; those of a program have package toctest.
func WithOutside(out outside.Outside) Option {
	return func(o *options) error { o.outside = out; return nil }
}

// WithReady calls f when the center is ready; addr is the real address of the HTTP API, empty without one.
func WithReady(f func(addr string)) Option {
	return func(o *options) error { o.ready = f; return nil }
}

// WithErrorHandler calls f for each failed run, also if it will be tried again:
//
//   - the processor returned an error, as it should when ctx ends with the run's timeout. Only
//     processor.Discard is no failure
//   - it panicked, or ended its goroutine
//   - the task is dead without a run: too late (expire_after), or started too often without an end (cuts)
//
// t is the task as it will be recorded: dead, or pending with the time of the next run; its attempts count this
// one. A run that is cut off at the end of a graceful stop has not failed, and one that ignores its timeout is
// reported when it ends.
//
// Many goroutines call f, and each is a worker that waits for it. ctx is not the run's: it ends when a graceful
// stop runs out of time. f cannot change the outcome, not even by a panic.
func WithErrorHandler(f func(ctx context.Context, t task.Task, err error)) Option {
	return func(o *options) error { o.failed = f; return nil }
}

// WithMiddleware wraps the processor of each business type, also the shipped ones (webhook, log). The first
// middleware is the outermost: it is called first, and sees the results of the others. A second WithMiddleware
// adds to the first.
//
// A processor that is also a processor.Batch gets many tasks at once only if its wrapper is a processor.Batch,
// too. Otherwise its Process is called with one task at a time, so that a middleware sees every run.
func WithMiddleware(middleware ...func(processor.Processor) processor.Processor) Option {
	return func(o *options) error {
		if slices.ContainsFunc(middleware, func(m func(processor.Processor) processor.Processor) bool { return m == nil }) {
			return errors.New("WithMiddleware: a middleware is nil")
		}
		o.middleware = append(o.middleware, middleware...)
		return nil
	}
}

// configure adds the program's business types to a configuration.
func (o *options) configure(cfg configs.Config) (configs.Config, error) {
	types, shipped := slices.Clone(cfg.BizTypes), configs.Default().BizTypes
	for _, b := range o.bizTypes {
		types = slices.DeleteFunc(types, func(other configs.BizType) bool {
			return other.Name == b.Name || other.ID == b.ID &&
				slices.ContainsFunc(shipped, func(s configs.BizType) bool { return reflect.DeepEqual(s, other) })
		})
	}
	cfg.BizTypes = append(types, o.bizTypes...)
	cfg = cfg.WithDefaults()
	checked := cfg
	if o.outside.Shared {
		checked.Store.Driver = configs.DriverMySQL // a cluster on SQLite is refused
	}
	return cfg, checked.Validate()
}

// register adds the program's processors to the registry.
func (o *options) register(r *processor.Registry, types []task.BizType) error {
	for _, p := range o.processors {
		if err := r.Register(p.name, p.build); err != nil {
			return err
		}
		if !slices.ContainsFunc(types, func(b task.BizType) bool { return b.Processor == p.name }) {
			var has []string
			for _, b := range types {
				has = append(has, fmt.Sprintf("%s has %s", b.Name, b.Processor))
			}
			return fmt.Errorf("processor %q would never be called: no business type names it (%s): set processor of one of them in biz_types, or use WithBizType",
				p.name, strings.Join(has, ", "))
		}
	}
	return nil
}

// wrap puts the middleware around a processor, and keeps its Close.
func (o *options) wrap(p processor.Processor) (processor.Processor, error) {
	if len(o.middleware) == 0 {
		return p, nil
	}
	outer := p
	for _, m := range slices.Backward(o.middleware) {
		if outer = m(outer); outer == nil {
			return nil, errors.New("a middleware answered nil for a processor")
		}
	}
	closer, _ := p.(io.Closer)
	limited, ok := outer.(processor.Limited)
	if !ok {
		limited, _ = p.(processor.Limited)
	}
	return keep(outer, limited, closer), nil
}

// withoutClose hides the Close of a processor that belongs to the caller.
func withoutClose(p processor.Processor) processor.Processor {
	limited, _ := p.(processor.Limited)
	return keep(p, limited, nil)
}

// keep makes a processor of p with these limits and this Close, which may be nil. It has the batch form if p has it.
func keep(p processor.Processor, limited processor.Limited, closer io.Closer) processor.Processor {
	k := kept{p, limited, closer}
	if batch, ok := p.(processor.Batch); ok {
		return struct {
			kept
			processor.Batch
		}{k, batch}
	}
	return k
}

type kept struct {
	processor.Processor
	limited processor.Limited
	closer  io.Closer
}

// Limits implements processor.Limited.
func (k kept) Limits() (tasks, workers int) {
	if k.limited == nil {
		return 0, 0
	}
	return k.limited.Limits()
}

// Close implements io.Closer.
func (k kept) Close() error {
	if k.closer == nil {
		return nil
	}
	return k.closer.Close()
}
