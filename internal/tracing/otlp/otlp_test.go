package otlp_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/internal/tracing/otlp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// inRealTime leaves out a test that waits for the exporter's intervals, and has it run beside others.
func inRealTime(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: the exporter works in real time")
	}
	t.Parallel()
}

// exporter is an Exporter under test.
type exporter struct {
	*otlp.Exporter
	dropped atomic.Int64
	log     safeBuffer
	stop    func() // waits until Run has returned
}

// SpansDropped makes the exporter its own otlp.Observer.
func (e *exporter) SpansDropped(n int) { e.dropped.Add(int64(n)) }

type safeBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// start starts an Exporter that has a minute for its last export: a busy machine may need more than two seconds.
func start(t *testing.T, address string) *exporter { return startFor(t, address, time.Minute) }

func startFor(t *testing.T, address string, flush time.Duration) *exporter {
	t.Helper()
	e := &exporter{}
	var err error
	e.Exporter, err = otlp.New(otlp.Config{
		Address: address, Flush: flush, Node: "node-1", Version: "v1", Observer: e,
		Logger: slog.New(slog.NewTextHandler(&e.log, nil)),
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	e.stop = sync.OnceFunc(func() { cancel(); require.NoError(t, <-ended) })
	t.Cleanup(e.stop)
	return e
}

// end ends n spans.
func (e *exporter) end(n int) {
	tracer := e.Tracer("test")
	for range n {
		_, span := tracer.Start(context.Background(), "one", trace.WithSpanKind(trace.SpanKindConsumer))
		span.End()
	}
}

func TestSpansAreExported(t *testing.T) {
	inRealTime(t)
	collector := testrig.StartCollector(t)
	for _, path := range []string{"", "/", "/v1/traces", "/v1/traces/"} {
		e := start(t, strings.Replace(collector.URL(), "http://", "http://shop:se%2Fsame@", 1)+path)
		before := len(collector.Spans())
		e.end(1)
		if path == "" { // once, as it takes the second for which a batch waits
			collector.Await(t, before+1)
		}
		e.end(1200) // more than two batches
		e.stop()
		require.Len(t, collector.Spans(), before+1201, "what is left is exported at the stop")
		require.Zero(t, e.dropped.Load())
		require.Empty(t, e.log.String())
	}
	for _, r := range collector.AwaitRequests(t, 1) {
		user, password, _ := r.BasicAuth()
		require.Equal(t, "shop se/same", user+" "+password)
	}
	has := map[string]string{}
	for _, a := range collector.Resource().Attributes {
		has[a.Key] = a.Value.GetStringValue()
	}
	require.Equal(t, "toc", has["service.name"])
	require.Equal(t, "node-1", has["service.instance.id"])
	require.Equal(t, "v1", has["service.version"])

	e := start(t, strings.TrimPrefix(collector.URL(), "http://"))
	before := len(collector.Spans())
	e.end(1)
	e.stop()
	require.Len(t, collector.Spans(), before+1)
}

// A collector that hangs costs spans, and no end of a span waits for it.
func TestCollectorHangs(t *testing.T) {
	inRealTime(t)
	collector := testrig.StartCollector(t)
	collector.Hang(true)
	e := startFor(t, collector.URL(), 0)
	e.end(1)
	collector.AwaitRequests(t, 1) // it hangs now
	const n = 20_000
	e.end(n)
	require.GreaterOrEqual(t, n-e.dropped.Load(), int64(4096), "the queue is used")
	require.Greater(t, e.dropped.Load(), int64(0), "and is not without end; an end that waited for an export would drop none")
	e.stop()
	require.Contains(t, e.log.String(), "before the stop", "the flush has a bound; without it, each batch would be tried")
	require.EqualValues(t, n+1, e.dropped.Load(), "all are counted")
	require.Empty(t, collector.Spans())
	require.Contains(t, e.log.String(), "spans are dropped")
}

// The log has one line, however many exports fail, and it shows no secret.
func TestCollectorRefuses(t *testing.T) {
	inRealTime(t)
	collector := testrig.StartCollector(t)
	collector.Answer(http.StatusServiceUnavailable)
	e := start(t, strings.Replace(collector.URL(), "http://", "http://shop:sesame@", 1)+"/t0ken-0123456789abc")
	for n := range 3 {
		e.end(1)
		collector.AwaitRequests(t, n+1)
		await.That(t, func() bool { return e.dropped.Load() == int64(n+1) }, "export %d is given up", n)
	}
	e.stop()
	log := e.log.String()
	require.Equal(t, 1, strings.Count(log, "\n"), log)
	require.Contains(t, log, "answers 400") // the path is not OTLP's
	require.NotContains(t, log, "t0ken")
	require.NotContains(t, log, "sesame")
}

func TestCollectorIsAway(t *testing.T) {
	inRealTime(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	require.NoError(t, l.Close())
	e := start(t, "http://shop:sesame@"+addr+"/t0ken-0123456789abc")
	e.end(1)
	await.That(t, func() bool { return e.dropped.Load() == 1 }, "the export is given up")
	e.stop()
	require.Contains(t, e.log.String(), "connection refused")
	require.NotContains(t, e.log.String(), "t0ken")
	require.NotContains(t, e.log.String(), "sesame")
}
