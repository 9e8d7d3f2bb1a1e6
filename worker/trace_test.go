package worker_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/timeoutcenter/toc/internal/tracing"
	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/task"
)

const (
	traced   = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	untraced = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
)

// submitTraced submits a task with a trace that is due in a second: what is due together is taken together.
func (r *rig) submitTraced(bizID uint64, trace string) task.Task {
	row := r.insert(1, bizID, time.Second)
	row.Trace = trace
	r.store.byHand(row.JobID, func(t *task.Task) { *t = row })
	r.offer(row)
	return row
}

// However a run ends, its span ends with it and says so.
func TestSpanOfARun(t *testing.T) {
	for name, row := range map[string]struct {
		f      func(ctx context.Context, t task.Task) error
		status sdk.Status
	}{
		"done":        {func(context.Context, task.Task) error { return nil }, sdk.Status{}},
		"not wanted":  {func(context.Context, task.Task) error { return processor.Discard(errDown) }, sdk.Status{}},
		"fails":       {func(context.Context, task.Task) error { return errDown }, sdk.Status{Code: codes.Error, Description: errDown.Error()}},
		"says little": {func(context.Context, task.Task) error { return errors.New("") }, sdk.Status{Code: codes.Error, Description: "failed"}},
		"panics":      {func(context.Context, task.Task) error { panic("out of cheese") }, sdk.Status{Code: codes.Error, Description: "panic: out of cheese"}},
		"exits":       {func(context.Context, task.Task) error { runtime.Goexit(); return nil }, sdk.Status{Code: codes.Error, Description: "the processor ended its goroutine"}},
	} {
		t.Run(name, func(t *testing.T) {
			var in trace.SpanContext
			p := &script{f: func(ctx context.Context, t task.Task) error {
				in = trace.SpanContextFromContext(ctx)
				time.Sleep(time.Second)
				return row.f(ctx, t)
			}}
			bubble(t, func(t *testing.T, r *rig) {
				r.submitTraced(1, traced)
				r.after(2100 * time.Millisecond)
				require.Equal(t, 1, p.runs())
				require.Len(t, r.spans.Ended(), 1)
				s := r.spans.Ended()[0]
				require.Equal(t, row.status, s.Status())
				require.Equal(t, time.Second, s.EndTime().Sub(s.StartTime()))
				require.Equal(t, s.SpanContext(), in, "the processor can begin children")
				require.Equal(t, tracing.Format(s.SpanContext()), p.tasks()[0].Trace)
				require.Equal(t, traced, tracing.Format(s.Links()[0].SpanContext))
				require.Equal(t, traced, r.store.row(p.tasks()[0].JobID).Trace, "what is stored stays")
			}, lane(p))
		})
	}
}

// Each task of a batch has a span of its own, if it is traced.
func TestSpansOfABatch(t *testing.T) {
	var got []task.Task
	p := &pack{batch: func(_ context.Context, tasks []task.Task) []error {
		got = slices.Clone(tasks)
		return []error{nil, nil, errDown, nil}
	}}
	bubble(t, func(t *testing.T, r *rig) {
		r.near = 0
		var rows []task.Task
		for i, trace := range []string{untraced, traced, traced, "00-written-by-hand"} {
			rows = append(rows, r.submitTraced(uint64(i), trace))
		}
		r.after(time.Second)
		require.Equal(t, []int{4}, p.calls())
		spans := r.spans.Ended()
		require.Len(t, spans, 3)
		require.Equal(t, untraced, got[0].Trace, "as it came")
		for i, s := range spans {
			require.Equal(t, tracing.Format(s.SpanContext()), got[i+1].Trace)
			require.Equal(t, rows[i+1].JobID, got[i+1].JobID)
		}
		require.Equal(t, codes.Unset, spans[0].Status().Code)
		require.Equal(t, sdk.Status{Code: codes.Error, Description: errDown.Error()}, spans[1].Status())
		require.Len(t, spans[1].Links(), 1)
		require.Empty(t, spans[2].Links(), "it begins a trace")
		require.Equal(t, task.Processed, r.store.row(rows[3].JobID).Status)
	}, lane(p, one))
}

// A batch that fails as a whole has failed for each of its tasks; the runs of these alone are others.
func TestSpansOfABatchThatFails(t *testing.T) {
	for name, batch := range map[string]func() []error{
		"panics":  func() []error { panic("out of cheese") },
		"exits":   func() []error { runtime.Goexit(); return nil },
		"too few": func() []error { return []error{nil} },
	} {
		t.Run(name, func(t *testing.T) {
			p := &pack{batch: func(context.Context, []task.Task) []error { return batch() }}
			bubble(t, func(t *testing.T, r *rig) {
				r.near = 0
				for id := range uint64(3) {
					r.submitTraced(id, traced)
				}
				r.after(time.Second)
				require.Equal(t, []int{3}, p.calls())
				require.Equal(t, 3, p.runs())
				require.Len(t, r.spans.Ended(), 6)
				for i, s := range r.spans.Ended() {
					require.Equal(t, map[bool]codes.Code{true: codes.Error, false: codes.Unset}[i < 3], s.Status().Code)
				}
			}, lane(p, one))
		})
	}
}
