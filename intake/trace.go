package intake

import (
	"context"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/internal/tracing"
)

// submitTraces are the traces of the requests of a SubmitBatch. A request with a traceparent has its own span. The others
// share one, a child of the span in ctx.
type submitTraces struct {
	shared *tracing.Span
	kept   string // the traceparent of the tasks without an own one
	own    map[int]ownTrace
}

type ownTrace struct {
	span *tracing.Span
	kept string
}

func (s *Service) traceSubmits(ctx context.Context, requests []api.Submit) (t submitTraces) {
	for i := range requests {
		if came, ok := tracing.WithRemote(ctx, requests[i].Trace); ok {
			if t.own == nil {
				t.own = make(map[int]ownTrace)
			}
			span, kept := s.cfg.Tracer.Submit(came)
			t.own[i] = ownTrace{span, kept}
		}
	}
	if len(t.own) < len(requests) {
		t.shared, t.kept = s.cfg.Tracer.Submit(ctx)
	}
	return t
}

// of returns the traceparent that the task of a request keeps.
func (t *submitTraces) of(i int) string {
	if own, ok := t.own[i]; ok {
		return own.kept
	}
	return t.kept
}

// end ends the spans.
func (t *submitTraces) end(requests []api.Submit, results []submitted) {
	if t.shared == nil && len(t.own) == 0 {
		return
	}
	for i, own := range t.own {
		own.span.EndSubmit(requests[i].BizType, results[i].task.JobID, results[i].err)
	}
	if len(requests) == 1 {
		t.shared.EndSubmit(requests[0].BizType, results[0].task.JobID, results[0].err)
		return
	}
	var failed error
	for i := range results {
		if _, own := t.own[i]; !own && failed == nil {
			failed = results[i].err
		}
	}
	t.shared.EndBatch(len(requests)-len(t.own), failed)
}
