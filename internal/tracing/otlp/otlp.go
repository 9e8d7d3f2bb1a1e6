// Package otlp exports spans to an OpenTelemetry collector, by OTLP over HTTP.
//
// Spans come in when they end, and go out in batches. Nothing waits for the collector: spans that it does not take in time
// are dropped and counted.
package otlp

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/timeoutcenter/toc/internal/outside"
)

// Observer counts spans that were dropped, for the metrics.
type Observer interface{ SpansDropped(n int) }

// Config is the configuration of an Exporter.
type Config struct {
	// Address is the collector's: an http or https URL to which /v1/traces is added, or host:port. A user and password in
	// it are sent as basic authentication.
	Address  string
	Node     string // service.instance.id
	Version  string // service.version
	Observer Observer
	// Flush is how long the export of what is left may take when the process stops. Defaults to two seconds.
	Flush  time.Duration
	Dial   outside.Dial // makes the connections; nil: that of package net
	Logger *slog.Logger
}

// The bounds of an export.
const (
	maxQueue   = 4096 // spans, about 1 KB each; above it they are dropped
	maxBatch   = 512
	batchDelay = time.Second // for a batch that is not full
	timeout    = 10 * time.Second
)

// Exporter is a trace.TracerProvider that records every span it is asked for, and exports them while Run runs.
type Exporter struct {
	trace.TracerProvider
	cfg      Config
	exporter *otlptrace.Exporter
	queue    chan sdk.ReadOnlySpan
	full     atomic.Int64 // spans dropped because the queue was full, since the last export
	trouble  trouble
}

// trouble is what Run has logged.
type trouble struct {
	is      bool
	last    time.Time // when spans were last dropped
	dropped int64     // since it began
}

// Try sends the collector at an address an export without spans.
func Try(ctx context.Context, address string) error {
	c, err := newClient(address, nil)
	if err != nil {
		return err
	}
	defer c.http.CloseIdleConnections()
	return c.UploadTraces(ctx, nil)
}

// New makes an Exporter. It connects to nothing.
func New(cfg Config) (*Exporter, error) {
	cfg.Flush = cmp.Or(cfg.Flush, 2*time.Second)
	c, err := newClient(cfg.Address, cfg.Dial)
	if err != nil {
		return nil, err
	}
	// What OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES say goes over the rest.
	r, err := resource.New(context.Background(), resource.WithAttributes(
		attribute.String("service.name", "toc"), attribute.String("service.instance.id", cfg.Node),
		attribute.String("service.version", cfg.Version),
	), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil && !errors.Is(err, resource.ErrPartialResource) { // part: those of the environment are malformed
		return nil, err
	}
	e := &Exporter{cfg: cfg, exporter: otlptrace.NewUnstarted(c), queue: make(chan sdk.ReadOnlySpan, maxQueue)}
	e.TracerProvider = sdk.NewTracerProvider(sdk.WithSampler(sdk.AlwaysSample()), sdk.WithResource(r), sdk.WithSpanProcessor((*queued)(e)))
	return e, nil
}

// queued makes an Exporter a span processor.
type queued Exporter

// OnStart implements sdk.SpanProcessor.
func (q *queued) OnStart(context.Context, sdk.ReadWriteSpan) {}

// OnEnd puts a span into the queue, or drops it. It never waits.
func (q *queued) OnEnd(s sdk.ReadOnlySpan) {
	select {
	case q.queue <- s:
	default:
		q.full.Add(1)
		q.cfg.Observer.SpansDropped(1)
	}
}

// Shutdown implements sdk.SpanProcessor.
func (q *queued) Shutdown(context.Context) error { return nil }

// ForceFlush implements sdk.SpanProcessor.
func (q *queued) ForceFlush(context.Context) error { return nil }

// Run exports until ctx ends; then it exports what is left, for Flush at most.
func (e *Exporter) Run(ctx context.Context) error {
	if err := e.exporter.Start(ctx); err != nil {
		return err
	}
	exporting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stopped := context.AfterFunc(ctx, func() { time.AfterFunc(e.cfg.Flush, cancel) })
	defer stopped()
	for ctx.Err() == nil {
		e.export(exporting, e.nextBatch(ctx))
	}
	for len(e.queue) > 0 && exporting.Err() == nil {
		e.export(exporting, e.nextBatch(ctx))
	}
	if left := len(e.queue); left > 0 {
		e.cfg.Observer.SpansDropped(left)
		e.cfg.Logger.Warn("spans are dropped: the collector did not take them before the stop", "spans", left)
	}
	return e.exporter.Shutdown(exporting)
}

// nextBatch waits for a full batch, for a second after its first span, or for the end of ctx.
func (e *Exporter) nextBatch(ctx context.Context) (batch []sdk.ReadOnlySpan) {
	var late <-chan time.Time
	for len(batch) < maxBatch {
		if ctx.Err() != nil { // take what there is
			select {
			case s := <-e.queue:
				batch = append(batch, s)
				continue
			default:
				return batch
			}
		}
		select {
		case s := <-e.queue:
			if batch = append(batch, s); late == nil {
				late = time.After(batchDelay)
			}
		case <-late:
			return batch
		case <-ctx.Done():
		}
	}
	return batch
}

// errFull is why spans are dropped while the queue is full.
var errFull = errors.New("more spans end than the collector takes")

// quiet is how long no span must have been dropped until that counts as over.
const quiet = time.Minute

// export exports a batch, or drops it.
func (e *Exporter) export(ctx context.Context, batch []sdk.ReadOnlySpan) {
	if len(batch) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	dropped, err := e.full.Swap(0), e.exporter.ExportSpans(ctx, batch)
	if err != nil {
		dropped += int64(len(batch))
		e.cfg.Observer.SpansDropped(len(batch))
	} else if dropped > 0 {
		err = errFull
	}
	e.trouble.log(e.cfg.Logger, time.Now(), dropped, err)
}

// log logs when spans begin to be dropped, and when that is over.
func (t *trouble) log(logger *slog.Logger, now time.Time, dropped int64, err error) {
	if err != nil {
		if !t.is {
			logger.Warn("spans are dropped; toc_trace_spans_dropped_total counts them", "error", err)
		}
		t.is, t.last, t.dropped = true, now, t.dropped+dropped
	} else if t.is && now.Sub(t.last) >= quiet {
		logger.Info("spans are exported again", "dropped", t.dropped)
		*t = trouble{}
	}
}
