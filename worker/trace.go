package worker

import (
	"cmp"
	"context"
	"errors"

	"github.com/timeoutcenter/toc/internal/tracing"
	"github.com/timeoutcenter/toc/processor"
)

// beginSpans begins a span for each of w.tasks that is traced. The context of a batch has none of them, that of a single
// task has its own.
func (w *worker) beginSpans(ctx context.Context) context.Context {
	w.spans = w.spans[:0]
	for i := range w.tasks {
		own, span := w.cfg.Tracer.Run(ctx, w.bizType.Name, &w.tasks[i], w.start)
		if span != nil {
			for len(w.spans) < i {
				w.spans = append(w.spans, nil)
			}
			w.spans = append(w.spans, span)
		}
		if len(w.tasks) == 1 {
			return own
		}
	}
	return ctx
}

// endSpans ends the spans of beginSpans. errs are the results of the batch, or err is why it has none.
func (w *worker) endSpans(errs []error, err error) {
	for i, span := range w.spans {
		switch {
		case err != nil:
			endSpan(span, err)
		case errs == nil:
			endSpan(span, nil)
		case len(errs) != len(w.tasks):
			endSpan(span, errOtherNumber)
		default:
			endSpan(span, errs[i])
		}
	}
	clear(w.spans)
}

// errOtherNumber is why each task of a batch is run again, alone.
var errOtherNumber = errors.New("the processor answered another number of results")

// endSpan ends the span of a run. A discarded task has not failed.
func endSpan(span *tracing.Span, err error) {
	failure := ""
	if span != nil && err != nil && !processor.IsDiscard(err) {
		failure = cmp.Or(*reason(err), "failed")
	}
	span.End(failure)
}
