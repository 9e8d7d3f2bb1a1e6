package rest

import (
	"fmt"
	"net/http"
	"path"
	"strings"
)

// router is a ServeMux whose 404 and 405 are problems.
//
// A ServeMux answers 405 with the methods of a path only if no pattern matches the
// request. So there are two. The first serves, and its pattern / matches every other
// request; the handler of that pattern asks the second.
type router struct {
	serving *http.ServeMux
	routes  *http.ServeMux
}

func newRouter() *router {
	r := &router{serving: http.NewServeMux(), routes: http.NewServeMux()}
	r.serving.HandleFunc("/", r.unknown)
	return r
}

// HandleFunc adds a route.
func (r *router) HandleFunc(pattern string, h func(http.ResponseWriter, *http.Request)) {
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
