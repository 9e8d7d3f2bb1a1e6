package app

import (
	"fmt"

	"github.com/timeoutcenter/toc/internal/tracing"
	"github.com/timeoutcenter/toc/internal/tracing/otlp"
)

// buildTracing makes the exporter of spans if there is a collector.
func (a *App) buildTracing() error {
	if a.cfg.Tracing.OTLP == "" {
		return nil
	}
	var err error
	a.spans, err = otlp.New(otlp.Config{
		Address: a.cfg.Tracing.OTLP, Node: a.node, Version: a.opts.version, Dropped: a.metrics.SpansDropped, Dial: a.opts.outside.Dial,
		Logger: a.component("tracing"),
	})
	if err != nil {
		return fmt.Errorf("tracing.otlp: %w", err)
	}
	a.tracer = tracing.New(a.spans, a.cfg.Tracing.Sample)
	return nil
}
