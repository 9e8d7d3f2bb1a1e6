package tracing

import (
	"context"
	"math/rand/v2"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/timeoutcenter/toc/task"
)

// scope is the name of the instrumentation.
const scope = "github.com/timeoutcenter/toc"

// Tracer begins spans.
type Tracer struct {
	tracer trace.Tracer
	sample float64
}

// New makes a Tracer. The provider must record every span that it is asked for, because the Tracer samples: sample, from 0
// to 1, is the share of the submits and runs without a trace that begin one. One with a trace is traced if it is sampled.
func New(p trace.TracerProvider, sample float64) *Tracer {
	return &Tracer{tracer: p.Tracer(scope), sample: sample}
}

// isSampled decides about a span before anything is made for it.
func (t *Tracer) isSampled(of trace.SpanContext) bool {
	switch {
	case t == nil:
		return false
	case of.IsValid():
		return of.IsSampled()
	}
	return t.sample > 0 && rand.Float64() < t.sample
}

// Span is the span of a submit or a run; nil: it is not traced.
type Span struct{ span trace.Span }

// attributes by the semantic conventions for messaging: a business type is a queue, a task a message in it.
func attributes(operation, operationType string, more ...attribute.KeyValue) trace.SpanStartEventOption {
	return trace.WithAttributes(append(more,
		attribute.String("messaging.system", "toc"),
		attribute.String("messaging.operation.name", operation),
		attribute.String("messaging.operation.type", operationType),
	)...)
}

func ofTask(bizType string, jobID uint64) []attribute.KeyValue {
	id := strconv.FormatUint(jobID, 10)
	return []attribute.KeyValue{
		attribute.String("messaging.destination.name", bizType), attribute.String("messaging.message.id", id),
		attribute.String("toc.biz_type", bizType), attribute.String("toc.job_id", id),
	}
}

// Submit begins the span of a submit, a child of the span in ctx if there is one, and returns the traceparent that its tasks
// keep: that of the span. Without one it is that of the span in ctx; empty: there is none. EndSubmit or EndBatch ends the span.
func (t *Tracer) Submit(ctx context.Context) (*Span, string) {
	parent := trace.SpanContextFromContext(ctx)
	if !t.isSampled(parent) {
		return nil, Format(parent)
	}
	_, span := t.tracer.Start(ctx, "submit", trace.WithSpanKind(trace.SpanKindProducer), attributes("submit", "send"))
	return &Span{span}, Format(span.SpanContext())
}

// EndSubmit ends the span of a submit of one task, which was stored unless there is an err.
func (s *Span) EndSubmit(bizType string, jobID uint64, err error) {
	if s == nil {
		return
	}
	if err == nil {
		s.span.SetName("submit " + bizType)
		s.span.SetAttributes(ofTask(bizType, jobID)...)
	}
	s.endSubmit(err)
}

// EndBatch ends the span of a submit of n tasks; err is the first error of one of them.
func (s *Span) EndBatch(n int, err error) {
	if s == nil {
		return
	}
	s.span.SetAttributes(attribute.Int("messaging.batch.message_count", n))
	s.endSubmit(err)
}

func (s *Span) endSubmit(err error) {
	if err != nil {
		s.span.SetStatus(codes.Error, err.Error())
	}
	s.span.End()
}

// Run begins the span of a run, linked to what the task's submit has left in Trace. It sets Trace to what the processor is
// to hand on: the traceparent of the span; without one that of the submit, if it is one. The context that it returns has the
// same. End ends the span.
func (t *Tracer) Run(ctx context.Context, bizType string, one *task.Task, start time.Time) (context.Context, *Span) {
	if t == nil && one.Trace == "" {
		return ctx, nil
	}
	submit, _ := Parse(one.Trace)
	if !t.isSampled(submit) {
		if one.Trace = Format(submit); submit.IsValid() {
			ctx = trace.ContextWithRemoteSpanContext(ctx, submit)
		}
		return ctx, nil
	}
	options := []trace.SpanStartOption{
		trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindConsumer), trace.WithTimestamp(start),
		attributes("process", "process", append(ofTask(bizType, one.JobID),
			attribute.Int("toc.attempt", one.Attempts+1),
			attribute.Int64("toc.lateness_ms", max(0, start.Sub(one.ActionTime)).Milliseconds()))...),
	}
	if submit.IsValid() {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: submit}))
	}
	ctx, span := t.tracer.Start(ctx, "process "+bizType, options...)
	one.Trace = Format(span.SpanContext())
	return ctx, &Span{span}
}

// End ends the span of a run. failure says why it has failed; empty: it has not.
func (s *Span) End(failure string) {
	if s == nil {
		return
	}
	if failure != "" {
		s.span.SetStatus(codes.Error, failure)
	}
	s.span.End()
}
