package rest

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"
)

// guard is outermost. It reports each request to the observer and, at debug level, to the log.
// It logs a panic below it and answers 500: the process and the connection go on. If an answer
// has begun, it cuts that off instead, and the observer gets no report.
type guard struct {
	next     http.Handler
	log      *slog.Logger
	observer Observer
	routes   *http.ServeMux
}

// longAnswer is what the kernel may not take at once, in bytes.
const longAnswer = 64 << 10

// nosniff is shared by all answers, which do not change it.
var nosniff = []string{"nosniff"}

func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header()["X-Content-Type-Options"] = nosniff
	answer := &response{ResponseWriter: w}
	start := time.Now()
	defer func() {
		if p := recover(); p != nil {
			g.panicked(answer, r, p)
		}
		g.observer.Answered(g.route(r), cmp.Or(answer.status, http.StatusOK), time.Since(start))
		if g.log.Enabled(r.Context(), slog.LevelDebug) {
			g.log.Debug("request", "method", r.Method, "path", r.URL.Path, "status", answer.status, "took", time.Since(start))
		}
	}()
	if lines := countLines(r.Header); lines > maxHeaders {
		p := newProblem(http.StatusRequestHeaderFieldsTooLarge,
			fmt.Sprintf("the request has %d header lines; send at most %d", lines, maxHeaders))
		writeProblem(answer, p)
		return
	}
	g.next.ServeHTTP(answer, r)
}

// maxHeaders bounds the lines of a header: each takes many times its size in memory.
const maxHeaders = 100

func countLines(h http.Header) (n int) {
	for _, values := range h {
		n += len(values)
	}
	return n
}

// whileWaiting answers 503 until the node takes requests. Health and metrics are answered from the beginning.
func whileWaiting(next http.Handler, waiting func() string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/healthz", "/readyz", "/metrics":
		default:
			if what := waiting(); what != "" {
				p := newProblem(http.StatusServiceUnavailable, "this node does not take requests yet: it waits for "+what+"; see /readyz")
				p.headers = retryAfter
				writeProblem(w, p)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// route is the route that a request has taken, or would have.
func (g *guard) route(r *http.Request) string {
	pattern := r.Pattern
	if pattern == "" { // it was refused before
		_, pattern = g.routes.Handler(r)
	}
	if pattern == "" || pattern == "/" {
		return "unknown"
	}
	return pattern
}

// panicked answers 500. If an answer has begun already there is no way but to
// cut it off.
func (g *guard) panicked(w *response, r *http.Request, p any) {
	if p == http.ErrAbortHandler {
		panic(p)
	}
	g.log.Error("request panicked", "method", r.Method, "path", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
	if w.status != 0 {
		panic(http.ErrAbortHandler)
	}
	writeProblem(w, newProblem(http.StatusInternalServerError, detailInternal))
}

// response remembers whether an answer has begun, and with which status.
type response struct {
	http.ResponseWriter
	status int
}

// WriteHeader begins the answer; a second call does nothing. Who is not let in loses the connection: the server would wait
// for the rest of the request.
func (a *response) WriteHeader(status int) {
	if a.status != 0 {
		return
	}
	a.status = status
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestHeaderFieldsTooLarge:
		a.Header().Set("Connection", "close")
		_ = http.NewResponseController(a.ResponseWriter).SetReadDeadline(time.Now())
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write gives a client that does not take a long answer less time than the server would.
func (a *response) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	if len(p) > longAnswer {
		_ = http.NewResponseController(a.ResponseWriter).SetWriteDeadline(time.Now().Add(bodyPatience(int64(len(p)))))
	}
	return a.ResponseWriter.Write(p)
}

// Unwrap serves http.ResponseController.
func (a *response) Unwrap() http.ResponseWriter { return a.ResponseWriter }
