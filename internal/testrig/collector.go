package testrig

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Collector takes spans by OTLP over HTTP, in this process.
type Collector struct {
	server *httptest.Server
	ended  chan struct{}

	mu       sync.Mutex
	spans    []*tracepb.Span
	resource *resourcepb.Resource
	requests []*http.Request
	came     chan struct{} // closed when the next request has come
	hangs    bool
	answer   int // status; 0: 200
}

// StartCollector starts a collector that ends with the test.
func StartCollector(t testing.TB) *Collector {
	t.Helper()
	c := &Collector{ended: make(chan struct{}), came: make(chan struct{})}
	c.server = httptest.NewServer(http.HandlerFunc(c.serve))
	t.Cleanup(func() { close(c.ended); c.server.Close() })
	return c
}

// URL is the address to export to.
func (c *Collector) URL() string { return c.server.URL }

// Hang makes the collector answer nothing more, or answer again.
func (c *Collector) Hang(hangs bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hangs = hangs
}

// Answer sets the status of all answers from now on. Spans are taken only with 200.
func (c *Collector) Answer(status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answer = status
}

func (c *Collector) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	c.mu.Lock()
	hangs, answer := c.hangs, c.answer
	c.requests = append(c.requests, r)
	close(c.came)
	c.came = make(chan struct{})
	c.mu.Unlock()
	if hangs {
		select {
		case <-r.Context().Done():
		case <-c.ended:
		}
		return
	}
	var data tracepb.TracesData // on the wire the same as an ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &data)
	}
	switch {
	case err != nil || r.Method != http.MethodPost || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf":
		http.Error(w, fmt.Sprintf("not OTLP: %s %s: %v", r.Method, r.URL.Path, err), http.StatusBadRequest)
		return
	case answer != 0 && answer != http.StatusOK:
		w.WriteHeader(answer)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range data.ResourceSpans {
		c.resource = of.Resource
		for _, scope := range of.ScopeSpans {
			c.spans = append(c.spans, scope.Spans...)
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// Spans returns the spans that have come.
func (c *Collector) Spans() []*tracepb.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.spans)
}

// Resource returns the resource of the spans that came last.
func (c *Collector) Resource() *resourcepb.Resource {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.resource
}

// Await waits until n spans have come.
func (c *Collector) Await(t testing.TB, n int) []*tracepb.Span {
	t.Helper()
	for deadline := time.After(60 * time.Second); ; {
		c.mu.Lock()
		spans, came := slices.Clone(c.spans), c.came
		c.mu.Unlock()
		if len(spans) >= n {
			return spans
		}
		select {
		case <-came:
		case <-time.After(50 * time.Millisecond): // its spans are read after it has come
		case <-deadline:
			t.Fatalf("testrig: %d of %d spans came", len(spans), n)
		}
	}
}

// AwaitRequests waits until n requests have come, and returns them.
func (c *Collector) AwaitRequests(t testing.TB, n int) []*http.Request {
	t.Helper()
	for deadline := time.After(60 * time.Second); ; {
		c.mu.Lock()
		requests, came := slices.Clone(c.requests), c.came
		c.mu.Unlock()
		if len(requests) >= n {
			return requests
		}
		select {
		case <-came:
		case <-deadline:
			t.Fatalf("testrig: %d of %d requests came", len(requests), n)
		}
	}
}
