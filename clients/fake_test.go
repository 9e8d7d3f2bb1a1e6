package clients

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// fakes are servers that are not well, for all languages: /BEHAVIOUR/NAME is the URL of one, and /calls/NAME tells how many
// requests it got.
type fakes struct {
	mu    sync.Mutex
	calls map[string]int
}

// fake starts them, and returns their URL.
func fake(t *testing.T) string {
	f := &fakes{calls: make(map[string]int)}
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	t.Cleanup(s.CloseClientConnections)
	return s.URL
}

// garbage is what is no answer of a center.
var garbage = map[string]string{
	"html": "<html>", "list": "[]", "deep": strings.Repeat("[", 200_000), "short": `{"job_id":`, "latin1": "{\"outcome\":\"\xe4\"}",
}

func (f *fakes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.SplitN(r.URL.Path, "/", 4)
	behaviour, name := path[1], path[2]
	if behaviour == "calls" {
		f.mu.Lock()
		defer f.mu.Unlock()
		_, _ = fmt.Fprint(w, f.calls[name])
		return
	}
	f.mu.Lock()
	f.calls[name]++
	f.mu.Unlock()
	status := 0
	switch _, _ = fmt.Sscan(behaviour, &status); {
	case garbage[behaviour] != "":
		_, _ = w.Write([]byte(garbage[behaviour]))
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
