package otlp

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/timeoutcenter/toc/internal/httppool"
	"github.com/timeoutcenter/toc/internal/testrig/memnet"
)

// collector counts the spans that it takes.
type collector struct{ spans atomic.Int64 }

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var data tracepb.TracesData
	if err == nil {
		err = proto.Unmarshal(body, &data)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	for _, of := range data.ResourceSpans {
		for _, scope := range of.ScopeSpans {
			c.spans.Add(int64(len(scope.Spans)))
		}
	}
}

// bubble is an Exporter that runs, and its collector.
type bubble struct {
	*testing.T
	memnet.Net
	*Exporter
	protocol string
	old      collector
	dropped  atomic.Int64
}

// SpansDropped makes the bubble an Observer.
func (b *bubble) SpansDropped(n int) { b.dropped.Add(int64(n)) }

const collectorAt = "example.com:443"

// inNetwork runs a test in a bubble for each protocol.
func inNetwork(t *testing.T, f func(*bubble)) {
	for _, protocol := range memnet.Protocols {
		t.Run(protocol, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &bubble{T: t, protocol: protocol}
				url, stopCollector := b.Serve(t, collectorAt, protocol, &b.old)
				defer stopCollector()
				e, err := New(Config{Address: url, Observer: b, Logger: slog.New(slog.DiscardHandler)})
				require.NoError(t, err)
				c, err := newClient(url, nil)
				require.NoError(t, err)
				b.Enter(c.http.Transport.(*httppool.Pool).Template)
				e.exporter = otlptrace.NewUnstarted(c) // as New makes it
				b.Exporter = e
				ctx, stop := context.WithCancel(context.Background())
				ended := make(chan error, 1)
				go func() { ended <- e.Run(ctx) }()
				defer func() {
					stop()
					require.NoError(t, <-ended)
				}()
				f(b)
			})
		})
	}
}

// pace is that of the spans.
const pace = 100 * time.Millisecond

// until ends spans at a steady rate until holds returns true, and returns how long that took.
func (b *bubble) until(limit time.Duration, holds func() bool) time.Duration {
	b.Helper()
	began := time.Now()
	for !holds() {
		require.LessOrEqual(b, time.Since(began), limit)
		_, span := b.Tracer("test").Start(b.Context(), "one")
		span.End()
		time.Sleep(pace)
	}
	return time.Since(began)
}

// The connection falls silent, while new ones work: one export is lost, and the spans that wait meanwhile arrive.
func TestASilentCollectorIsLeft(t *testing.T) {
	inNetwork(t, func(b *bubble) {
		b.until(time.Minute, func() bool { return b.old.spans.Load() >= 20 })
		b.Silence()
		before := b.old.spans.Load()
		b.until(batchDelay+timeout+batchDelay, func() bool { return b.old.spans.Load() > before })
		require.NotZero(b, b.dropped.Load())
		require.LessOrEqual(b, b.dropped.Load(), int64(2*batchDelay/pace), "one batch")
	})
}

// The collector's name gets a new server while the old one still answers.
func TestACollectorWithANewAddressIsFollowed(t *testing.T) {
	inNetwork(t, func(b *bubble) {
		b.until(time.Minute, func() bool { return b.old.spans.Load() >= 20 })
		var next collector
		_, stop := b.Serve(b, collectorAt, b.protocol, &next)
		defer stop()
		b.until(httppool.MaxAge+2*batchDelay, func() bool { return next.spans.Load() > 0 })
		require.Zero(b, b.dropped.Load())
		require.Equal(b, 2, b.Dialed())
	})
}

// No span ends for a while.
func TestAnIdleConnectionIsClosed(t *testing.T) {
	inNetwork(t, func(b *bubble) {
		b.until(time.Minute, func() bool { return b.old.spans.Load() > 0 })
		time.Sleep(batchDelay) // the last batch
		require.Equal(b, 1, b.Open())
		time.Sleep(httppool.IdleTimeout + batchDelay)
		require.Zero(b, b.Open())
	})
}
