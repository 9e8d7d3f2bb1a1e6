package tracing_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/timeoutcenter/toc/internal/tracing"
)

const (
	traceID = "4bf92f3577b34da6a3ce929d0e0e4736"
	spanID  = "00f067aa0ba902b7"
	sampled = "00-" + traceID + "-" + spanID + "-01"
	unsaved = "00-" + traceID + "-" + spanID + "-00"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{ // as it is written again; empty: it is none
		sampled:                                        sampled,
		unsaved:                                        unsaved,
		"00-" + traceID + "-" + spanID + "-ff":         sampled, // other flags are not known
		"00-" + traceID + "-" + spanID + "-02":         unsaved,
		"01-" + traceID + "-" + spanID + "-01":         sampled, // a later version may have more
		"cc-" + traceID + "-" + spanID + "-01-what.is": sampled,

		"":                                     "",
		"junk":                                 "",
		sampled + "-":                          "", // version 00 has no more
		sampled + "0":                          "",
		sampled[:54]:                           "",
		" " + sampled:                          "",
		"cc" + sampled[2:] + "x":               "",
		"ff-" + traceID + "-" + spanID + "-01": "",
		"0x-" + traceID + "-" + spanID + "-01": "",
		"00-" + strings.ToUpper(traceID) + "-" + spanID + "-01": "",
		"00-" + strings.Repeat("0", 32) + "-" + spanID + "-01":  "",
		"00-" + traceID + "-" + strings.Repeat("0", 16) + "-01": "",
		"00-" + traceID + "-" + strings.Repeat("g", 16) + "-01": "",
		"00-" + traceID + "-" + spanID + "-0x":                  "",
		"00_" + traceID + "-" + spanID + "-01":                  "",
		"00-" + traceID + "_" + spanID + "-01":                  "",
		"00-" + traceID + "-" + spanID + "_01":                  "",
		"00-" + traceID + "-" + spanID[:14] + "\r\n" + "-01":    "",
		strings.Repeat("\x00", 55):                              "",
	} {
		sc, ok := tracing.Parse(text)
		require.Equal(t, want != "", ok, "%q", text)
		require.Equal(t, want, tracing.Format(sc), "%q", text)
		require.Equal(t, want, tracing.Valid(text), "%q", text)
		require.Equal(t, ok, sc.IsRemote())
		ctx, ok := tracing.WithRemote(t.Context(), text)
		require.Equal(t, want != "", ok)
		require.Equal(t, sc, trace.SpanContextFromContext(ctx))
	}
}

// What OpenTelemetry takes for a traceparent is one here, and the other way round, but for flags that are not defined: the
// specification has them ignored.
func FuzzParse(f *testing.F) {
	for _, text := range []string{sampled, unsaved, "cc" + sampled[2:] + "-x", "ff" + sampled[2:], strings.ToUpper(sampled), ""} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		carrier := propagation.MapCarrier{tracing.Header: text}
		theirs := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
		ours, ok := tracing.Parse(text)
		if ok && !theirs.IsValid() {
			require.Equal(t, "00", text[:2])
			require.NotContains(t, []string{"00", "01", "02"}, text[53:])
			return
		}
		require.Equal(t, theirs.IsValid(), ok, "%q", text)
		require.Equal(t, theirs.TraceID(), ours.TraceID())
		require.Equal(t, theirs.SpanID(), ours.SpanID())
		require.Equal(t, theirs.IsSampled(), ours.IsSampled())
		again, ok := tracing.Parse(tracing.Format(ours))
		require.Equal(t, theirs.IsValid(), ok)
		require.Equal(t, ours, again)
	})
}
