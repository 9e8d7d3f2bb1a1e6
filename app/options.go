package app

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/timeoutcenter/toc/configs"
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
}

type namedProcessor struct {
	name  string
	build processor.Constructor
}

// WithBizType adds a business type and the Go processor that runs its tasks. Fields of b that are zero have the
// defaults of configs.DefaultBizType. A type of the configuration that has the same name is replaced.
func WithBizType(b configs.BizType, p processor.Processor) Option {
	return func(o *options) error {
		if b.Processor != "" && b.Processor != b.Name {
			return fmt.Errorf("business type %s: its processor is the one given, not %q: leave Processor empty", b.Name, b.Processor)
		}
		b.Processor = b.Name
		o.bizTypes = append(o.bizTypes, withDefaults(b))
		return WithProcessor(b.Name, p)(o)
	}
}

func withDefaults(b configs.BizType) configs.BizType {
	d := configs.DefaultBizType()
	b.Mode, b.Workers, b.Timeout = cmp.Or(b.Mode, d.Mode), cmp.Or(b.Workers, d.Workers), cmp.Or(b.Timeout, d.Timeout)
	b.MaxRetries, b.Cuts, b.Horizon = cmp.Or(b.MaxRetries, d.MaxRetries), cmp.Or(b.Cuts, d.Cuts), cmp.Or(b.Horizon, d.Horizon)
	b.Backoff.Min, b.Backoff.Max = cmp.Or(b.Backoff.Min, d.Backoff.Min), cmp.Or(b.Backoff.Max, d.Backoff.Max)
	return b
}

// WithProcessor registers a Go processor under the name that biz_types[].processor
// uses. All business types that name it share p. New fails if no business type names it, and
// if the name is taken, also by a shipped processor (log, webhook).
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

// configure is a configuration with the business types that the program adds to it.
func (o *options) configure(cfg configs.Config) (configs.Config, error) {
	types := slices.Clone(cfg.BizTypes)
	for _, b := range o.bizTypes {
		types = slices.DeleteFunc(types, func(other configs.BizType) bool { return other.Name == b.Name })
	}
	cfg.BizTypes = append(types, o.bizTypes...)
	cfg = cfg.WithDefaults()
	return cfg, cfg.Validate()
}

// register puts the program's processors into the registry.
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
