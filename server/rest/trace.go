package rest

import (
	"net/http"

	"github.com/timeoutcenter/toc/internal/tracing"
)

// traceHeader is tracing.Header in the form that http.Header keeps.
const traceHeader = "Traceparent"

// continueTrace puts the span of the caller into the context of a request.
func continueTrace(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if came := r.Header[traceHeader]; len(came) == 1 {
			if ctx, ok := tracing.WithRemote(r.Context(), came[0]); ok {
				r = r.WithContext(ctx)
			}
		}
		next.ServeHTTP(w, r)
	})
}
