// Package tracing makes spans of submits and runs, by the API of OpenTelemetry, and hands their contexts on as W3C
// traceparents: a submit leaves one with its tasks, and the span of each run is linked to it. The two are far apart in time,
// so a run is not a child of its submit.
//
// Requests and tasks come in, spans go out to a trace.TracerProvider; package internal/tracing/otlp has one that exports them.
// A nil *Tracer makes no spans and still hands on the traceparents that came in.
package tracing

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/trace"
)

// Header is the name of the header that has a traceparent.
const Header = "traceparent"

// size is the length of a traceparent in bytes: 00-<32 digits of the trace>-<16 of the span>-<2 of flags>.
const size = 55

// Parse reads a traceparent. A text that is none, by https://www.w3.org/TR/trace-context/, is not ok. Of a later version of
// the format it reads what version 00 has.
func Parse(text string) (sc trace.SpanContext, ok bool) {
	if len(text) < size || text[2] != '-' || text[35] != '-' || text[52] != '-' {
		return sc, false
	}
	version, versionErr := strconv.ParseUint(text[:2], 16, 8)
	traceID, traceErr := trace.TraceIDFromHex(text[3:35])
	spanID, spanErr := trace.SpanIDFromHex(text[36:52])
	flags, flagsErr := strconv.ParseUint(text[53:size], 16, 8)
	switch {
	case errors.Join(versionErr, traceErr, spanErr, flagsErr) != nil, strings.ToLower(text[:size]) != text[:size]:
		return sc, false
	case version == 0xff, len(text) > size && (version == 0 || text[size] != '-'):
		return sc, false
	}
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: traceID, SpanID: spanID, TraceFlags: trace.TraceFlags(flags) & trace.FlagsSampled, Remote: true,
	}), true
}

// Format writes a traceparent; empty for a context that is not valid.
func Format(sc trace.SpanContext) string {
	if !sc.IsValid() {
		return ""
	}
	flags := "-00"
	if sc.IsSampled() {
		flags = "-01"
	}
	return "00-" + sc.TraceID().String() + "-" + sc.SpanID().String() + flags
}

// Valid returns a traceparent as Format writes it; empty if text is none.
func Valid(text string) string {
	if text == "" {
		return ""
	}
	sc, _ := Parse(text)
	return Format(sc)
}

// WithRemote returns ctx with the span of a traceparent that came from elsewhere. If it is none, ctx stays as it is and ok is
// false.
func WithRemote(ctx context.Context, traceparent string) (_ context.Context, ok bool) {
	sc, ok := Parse(traceparent)
	if ok {
		ctx = trace.ContextWithRemoteSpanContext(ctx, sc)
	}
	return ctx, ok
}
