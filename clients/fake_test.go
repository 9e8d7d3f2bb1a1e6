package clients

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fakes are servers that are not well, for all languages: /BEHAVIOUR/NAME is the URL of one, and /calls/NAME tells how many
// requests it got, /calls/NAME/PART how many to paths with that end. A behaviour that begins with held- is as the rest says, but no
// request is answered before one to /release/NAME.
type fakes struct {
	center http.Handler // of the behaviours center and old

	mu    sync.Mutex
	calls map[string][]string // their paths
	held  map[string]chan struct{}
}

// fake starts them, and returns their URL. center is the URL of a center.
func fake(t *testing.T, center string) string {
	at, err := url.Parse(center)
	require.NoError(t, err)
	f := &fakes{center: httputil.NewSingleHostReverseProxy(at), calls: make(map[string][]string), held: make(map[string]chan struct{})}
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	t.Cleanup(s.CloseClientConnections)
	return s.URL
}

// count is how many requests a server got to paths with that end.
func (f *fakes) count(name, end string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, path := range f.calls[name] {
		if strings.HasSuffix(path, end) {
			n++
		}
	}
	return n
}

// heldUntil is closed when the requests of a server are released.
func (f *fakes) heldUntil(name string) chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.held[name] == nil {
		f.held[name] = make(chan struct{})
	}
	return f.held[name]
}

// garbage is what is no answer of a center.
var garbage = map[string]string{
	"html": "<html>", "list": "[]", "deep": strings.Repeat("[", 200_000), "short": `{"job_id":`, "latin1": "{\"outcome\":\"\xe4\"}",
}

func (f *fakes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.SplitN(r.URL.Path, "/", 4)
	behaviour, name, rest := path[1], path[2], "/"
	if len(path) > 3 {
		rest += path[3]
	}
	switch behaviour {
	case "calls":
		_, _ = fmt.Fprint(w, f.count(name, strings.TrimSuffix(rest, "/")))
		return
	case "release":
		close(f.heldUntil(name))
		return
	}
	f.mu.Lock()
	f.calls[name] = append(f.calls[name], rest)
	f.mu.Unlock()
	if held, ok := strings.CutPrefix(behaviour, "held-"); ok {
		behaviour = held
		select {
		case <-f.heldUntil(name):
		case <-r.Context().Done():
		}
	}
	status := 0
	switch _, _ = fmt.Sscan(behaviour, &status); {
	case garbage[behaviour] != "":
		_, _ = w.Write([]byte(garbage[behaviour]))
	case behaviour == "old" && unknownTo(r, rest) != "":
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = fmt.Fprintf(w, `{"errors":[{"location":"body.%s","message":"is no field of this body"}]}`, unknownTo(r, rest))
	case behaviour == "center" || behaviour == "old":
		r.URL.Path, r.URL.RawPath = rest, ""
		f.center.ServeHTTP(w, r)
	case behaviour == "redirect":
		http.Redirect(w, r, "/200/"+name+"/stolen", http.StatusFound)
	case behaviour == "hang":
		<-r.Context().Done()
	case behaviour == "drip":
		drip(w, r)
	case status == 0:
		panic(http.ErrAbortHandler)
	default:
		w.WriteHeader(status)
		_, _ = w.Write([]byte(`{"job_id":"7","outcome":"cancelled","results":[]}`))
	}
}

// unknownTo is a field of a request that a center of an older build does not know.
func unknownTo(r *http.Request, path string) string {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	for end, field := range map[string]string{"/batch": "full", "/lease": "settle"} {
		if strings.HasSuffix(path, end) && bytes.Contains(body, []byte(`"`+field+`":`)) {
			return field
		}
	}
	return ""
}

// drip sends a byte now and then: each comes in time, and the answer does not.
func drip(w http.ResponseWriter, r *http.Request) {
	for r.Context().Err() == nil {
		_, _ = w.Write([]byte(" "))
		_ = http.NewResponseController(w).Flush()
		select {
		case <-r.Context().Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}
