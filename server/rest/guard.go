package rest

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"runtime/debug"
	"strings"
	"time"

	"github.com/timeoutcenter/toc/internal/tracing"
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
func whileWaiting(next http.Handler, s Status) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/healthz", "/readyz", "/metrics":
		default:
			if what := s.Waiting(); what != "" {
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

// router is a ServeMux whose 404 and 405 are problems.
//
// A ServeMux answers 405 with the methods of a path only if no pattern matches the
// request. So there are two. The first serves, and its pattern / matches every other
// request; the handler of that pattern asks the second.
type router struct {
	serving *http.ServeMux
	routes  *http.ServeMux

	around func(http.HandlerFunc) http.HandlerFunc // of the routes that are added
}

func newRouter() *router {
	r := &router{serving: http.NewServeMux(), routes: http.NewServeMux()}
	r.serving.HandleFunc("/", r.unknown)
	return r
}

// HandleFunc adds a route.
func (r *router) HandleFunc(pattern string, h func(http.ResponseWriter, *http.Request)) {
	if r.around != nil {
		h = r.around(h)
	}
	r.serving.HandleFunc(pattern, h)
	r.routes.HandleFunc(pattern, h)
}

// ServeHTTP serves a request. A path that is not clean is no route; a ServeMux
// would redirect it.
func (r *router) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if p := req.URL.Path; p != path.Clean(p) {
		r.unknown(w, req)
		return
	}
	r.serving.ServeHTTP(w, req)
}

func (r *router) unknown(w http.ResponseWriter, req *http.Request) {
	p := newProblem(http.StatusNotFound, fmt.Sprintf("there is no %s; /docs lists what there is", clip(req.URL.Path)))
	if h, pattern := r.routes.Handler(req); pattern == "" {
		said := verdict{header: http.Header{}}
		h.ServeHTTP(&said, req)
		if said.status == http.StatusMethodNotAllowed {
			allowed := said.header["Allow"]
			p = newProblem(http.StatusMethodNotAllowed, fmt.Sprintf("%s does not know %s, only %s", clip(req.URL.Path), clip(req.Method),
				strings.Join(allowed, ", ")))
			p.headers = http.Header{"Allow": allowed}
		}
	}
	writeProblem(w, p)
}

// verdict takes down what a ServeMux says of a request that it does not serve.
type verdict struct {
	header http.Header
	status int
}

func (v *verdict) Header() http.Header         { return v.header }
func (v *verdict) WriteHeader(status int)      { v.status = status }
func (v *verdict) Write(p []byte) (int, error) { return len(p), nil }

// Server makes the server that a handler runs in. Its limits keep slow and
// broken clients from holding connections: 5 s for the headers, a minute for a
// body, a minute from then to the end of the answer, two minutes idle; 16 KiB
// of headers.
//
// A route that may take longer takes its own deadline.
func Server(addr string, h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Addr:              addr,
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       time.Minute,
		WriteTimeout:      2 * time.Minute,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// withConsole hands what is below /console to the console.
func withConsole(next, console http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/console" || strings.HasPrefix(r.URL.Path, "/console/") {
			console.ServeHTTP(w, r)
			return
		}
		if r.URL.Path == "/" && r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept"), "text/html") { // a browser
			http.Redirect(w, r, "/console/", http.StatusSeeOther)
			return
		}
		next.ServeHTTP(w, r)
	})
}

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
