package tracing_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/timeoutcenter/toc/internal/tracing"
	"github.com/timeoutcenter/toc/task"
)

// recorded makes a tracer, and a list of the spans that have ended.
func recorded(sample float64) (*tracing.Tracer, *tracetest.SpanRecorder) {
	r := tracetest.NewSpanRecorder()
	return tracing.New(sdk.NewTracerProvider(sdk.WithSpanProcessor(r)), sample), r
}

func attributesOf(s sdk.ReadOnlySpan) map[string]any {
	all := map[string]any{}
	for _, a := range s.Attributes() {
		all[string(a.Key)] = a.Value.AsInterface()
	}
	return all
}

func TestSubmitContinuesATrace(t *testing.T) {
	t.Parallel()
	tracer, spans := recorded(0)
	ctx, _ := tracing.WithRemote(t.Context(), sampled)
	span, kept := tracer.Submit(ctx)
	span.EndSubmit("order_close", 7, nil)

	require.Len(t, spans.Ended(), 1)
	s := spans.Ended()[0]
	require.Equal(t, "submit order_close", s.Name())
	require.Equal(t, trace.SpanKindProducer, s.SpanKind())
	require.Equal(t, traceID, s.SpanContext().TraceID().String())
	require.Equal(t, spanID, s.Parent().SpanID().String())
	require.Equal(t, tracing.Format(s.SpanContext()), kept)
	require.Equal(t, codes.Unset, s.Status().Code)
	require.Equal(t, map[string]any{
		"messaging.system": "toc", "messaging.operation.name": "submit", "messaging.operation.type": "send",
		"messaging.destination.name": "order_close", "messaging.message.id": "7", "toc.biz_type": "order_close", "toc.job_id": "7",
	}, attributesOf(s))

	span, _ = tracer.Submit(ctx)
	span.EndBatch(3, errors.New("biz_type: is missing"))
	s = spans.Ended()[1]
	require.Equal(t, "submit", s.Name())
	require.EqualValues(t, 3, attributesOf(s)["messaging.batch.message_count"])
	require.Equal(t, sdk.Status{Code: codes.Error, Description: "biz_type: is missing"}, s.Status())
}

func TestRunIsLinkedToItsSubmit(t *testing.T) {
	t.Parallel()
	tracer, spans := recorded(0)
	start := time.Now()
	one := task.Task{JobID: 7, Attempts: 2, ActionTime: start.Add(-1500 * time.Millisecond), Trace: sampled}
	program, _ := tracing.WithRemote(t.Context(), "00-"+traceID+"-1111111111111111-01") // that embeds the center
	ctx, span := tracer.Run(program, "order_close", &one, start)
	require.Equal(t, one.Trace, tracing.Format(trace.SpanContextFromContext(ctx)))
	span.End("no answer")

	require.Len(t, spans.Ended(), 1)
	s := spans.Ended()[0]
	require.Equal(t, tracing.Format(s.SpanContext()), one.Trace)
	require.Equal(t, "process order_close", s.Name())
	require.Equal(t, trace.SpanKindConsumer, s.SpanKind())
	require.True(t, start.Equal(s.StartTime()))
	require.False(t, s.Parent().IsValid(), "the run is no child")
	require.NotEqual(t, traceID, s.SpanContext().TraceID().String())
	require.Len(t, s.Links(), 1)
	require.Equal(t, sampled, tracing.Format(s.Links()[0].SpanContext))
	require.Equal(t, sdk.Status{Code: codes.Error, Description: "no answer"}, s.Status())
	require.Equal(t, map[string]any{
		"messaging.system": "toc", "messaging.operation.name": "process", "messaging.operation.type": "process",
		"messaging.destination.name": "order_close", "messaging.message.id": "7",
		"toc.biz_type": "order_close", "toc.job_id": "7", "toc.attempt": int64(3), "toc.lateness_ms": int64(1500),
	}, attributesOf(s))
}

// What is not traced is handed on as it came, and what is no traceparent is not handed on.
func TestHandedOn(t *testing.T) {
	t.Parallel()
	never, spans := recorded(0)
	always, _ := recorded(1)
	for name, row := range map[string]struct {
		tracer     *tracing.Tracer
		came, kept string
		traced     bool
	}{
		"off, sampled":        {nil, sampled, sampled, false},
		"off, not sampled":    {nil, unsaved, unsaved, false},
		"off, none":           {nil, "", "", false},
		"off, malformed":      {nil, "00-junk\r\nHost: x", "", false},
		"never, not sampled":  {never, unsaved, unsaved, false},
		"never, none":         {never, "", "", false},
		"never, malformed":    {never, "junk", "", false},
		"always, not sampled": {always, unsaved, unsaved, false},
		"always, sampled":     {always, sampled, "", true},
		"always, none":        {always, "", "", true},
		"always, malformed":   {always, "junk", "", true},
	} {
		ctx, _ := tracing.WithRemote(t.Context(), row.came)
		span, kept := row.tracer.Submit(ctx)
		require.Equal(t, row.traced, span != nil, name)
		one := task.Task{JobID: 1, Trace: row.came}
		ran, run := row.tracer.Run(context.Background(), "order_close", &one, time.Now())
		require.Equal(t, row.traced, run != nil, name)
		require.Equal(t, one.Trace, tracing.Format(trace.SpanContextFromContext(ran)), name)
		if !row.traced {
			require.Equal(t, row.kept, kept, name)
			require.Equal(t, row.kept, one.Trace, name)
		}
		span.EndSubmit("order_close", 1, nil)
		run.End("")
	}
	require.Empty(t, spans.Ended())
}

func TestSampleIsAShare(t *testing.T) {
	t.Parallel()
	tracer, _ := recorded(0.25)
	const n = 20_000
	traced := 0
	for range n {
		if span, _ := tracer.Submit(t.Context()); span != nil {
			traced++
		}
	}
	require.InDelta(t, n/4, traced, 600) // ten standard deviations
}

// A run that is not traced costs no allocation.
func TestNothingIsAllocated(t *testing.T) {
	never, _ := recorded(1e-12)
	for name, tracer := range map[string]*tracing.Tracer{"off": nil, "not sampled": never} {
		one, ctx, start := task.Task{JobID: 1}, t.Context(), time.Now()
		require.Zero(t, testing.AllocsPerRun(100, func() {
			_, run := tracer.Run(ctx, "order_close", &one, start)
			run.End("")
			span, _ := tracer.Submit(ctx)
			span.EndSubmit("order_close", 1, nil)
		}), name)
	}
}

func BenchmarkRun(b *testing.B) {
	never, _ := recorded(0)
	seldom := tracing.New(sdk.NewTracerProvider(), 0.01)
	always := tracing.New(sdk.NewTracerProvider(), 1)
	for name, tracer := range map[string]*tracing.Tracer{"off": nil, "0": never, "0.01": seldom, "1": always} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			ctx, start := b.Context(), time.Now()
			for b.Loop() {
				one := task.Task{JobID: 1}
				_, run := tracer.Run(ctx, "order_close", &one, start)
				run.End("")
			}
		})
	}
}
