package app_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/task"
)

// small is embedded on one table, with a business type of the processor log.
func small(t *testing.T) configs.Config {
	cfg := embedded(t)
	cfg.Store.Databases, cfg.Store.TablesPerDatabase = 1, 1
	cfg.BizTypes[0].ID, cfg.BizTypes[0].Name, cfg.BizTypes[0].Processor = 8, "logged", "log"
	return cfg
}

// receive waits for something that must come.
func receive[T any](t *testing.T, ch <-chan T) T {
	t.Helper()
	return await.Receive(t, ch, "something comes")
}

func submitNow(t *testing.T, c *center, bizType, attribute string) uint64 {
	t.Helper()
	s, err := c.Tasks().Submit(t.Context(), client.Submit{BizType: bizType, BizID: 1, Attribute: attribute, Now: true})
	require.NoError(t, err)
	return uint64(s.Task.JobID)
}

type traceKey struct{}

// trace is a middleware that adds its name to ctx.
func trace(name string) func(processor.Processor) processor.Processor {
	return func(next processor.Processor) processor.Processor {
		return processor.Func(func(ctx context.Context, t task.Task) error {
			before, _ := ctx.Value(traceKey{}).(string)
			return next.Process(context.WithValue(ctx, traceKey{}, before+name), t)
		})
	}
}

func TestMiddlewareIsCalledInItsOrder(t *testing.T) {
	t.Parallel()
	traces, ended := make(chan string, 1), make(chan error, 1)
	c := run(t, small(t), app.WithoutHTTP(),
		app.WithBizType(configs.BizType{ID: 1, Name: "ours"}, processor.Func(func(ctx context.Context, _ task.Task) error {
			traces <- ctx.Value(traceKey{}).(string)
			return processor.Discard(errors.New("not wanted"))
		})),
		app.WithMiddleware(func(next processor.Processor) processor.Processor {
			return processor.Func(func(ctx context.Context, t task.Task) error {
				err := next.Process(ctx, t)
				ended <- err
				return err
			})
		}, trace("a")), app.WithMiddleware(trace("b")))
	submitNow(t, c, "ours", "")
	require.Equal(t, "ab", receive(t, traces))
	require.True(t, processor.IsDiscard(receive(t, ended)))
	submitNow(t, c, "logged", "")
	require.NoError(t, receive(t, ended), "the processors that ship are wrapped, too")
}

// gatherer is a processor with the batch form.
type gatherer struct{ calls chan string }

func (g *gatherer) Process(context.Context, task.Task) error { g.calls <- "one"; return nil }

func (g *gatherer) ProcessBatch(_ context.Context, tasks []task.Task) []error {
	g.calls <- "batch"
	return nil
}

// counted is a middleware that has the batch form where the processor has it.
type counted struct {
	processor.Processor
	processor.Batch
	tasks *atomic.Int32
}

func (c counted) ProcessBatch(ctx context.Context, tasks []task.Task) []error {
	c.tasks.Add(int32(len(tasks)))
	return c.Batch.ProcessBatch(ctx, tasks)
}

func TestABatchIsLostInMiddlewareThatHasNone(t *testing.T) {
	t.Parallel()
	var tasks atomic.Int32
	for want, m := range map[string]func(processor.Processor) processor.Processor{
		"one":   trace("a"),
		"batch": func(p processor.Processor) processor.Processor { return counted{p, p.(processor.Batch), &tasks} },
	} {
		g := &gatherer{make(chan string, 1)}
		c := run(t, small(t), app.WithoutHTTP(), app.WithBizType(configs.BizType{ID: 1, Name: "ours"}, g),
			app.WithMiddleware(func(p processor.Processor) processor.Processor {
				if _, ok := p.(processor.Batch); !ok {
					return p
				}
				return m(p)
			}))
		submitNow(t, c, "ours", "")
		require.Equal(t, want, receive(t, g.calls))
	}
	require.EqualValues(t, 1, tasks.Load())
}

// closing is a processor that records its Close.
type closing struct {
	processor.Func
	closed *atomic.Int32
}

func (c closing) Close() error { c.closed.Add(1); return nil }

func TestAWrappedProcessorIsClosed(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]func(processor.Processor) processor.Processor{
		"a func":  trace("a"),
		"itself":  func(p processor.Processor) processor.Processor { return p },
		"its own": func(p processor.Processor) processor.Processor { return struct{ closing }{p.(closing)} },
		"with batch": func(p processor.Processor) processor.Processor {
			return counted{p, &gatherer{make(chan string, 1)}, new(atomic.Int32)}
		},
	} {
		var closed atomic.Int32
		cfg := small(t)
		cfg.BizTypes[0].Processor = "ours"
		c := run(t, cfg, app.WithoutHTTP(), app.WithMiddleware(m), app.WithConstructor("ours", func(task.BizType, any) (processor.Processor, error) {
			return closing{func(context.Context, task.Task) error { return nil }, &closed}, nil
		}))
		require.NoError(t, c.stop())
		require.EqualValues(t, 1, closed.Load(), name)
	}
}

func TestMiddlewareThatAnswersNilIsRefused(t *testing.T) {
	t.Parallel()
	center, err := app.New(small(t), app.WithoutHTTP(), app.WithLogger(slog.New(slog.DiscardHandler)),
		app.WithMiddleware(func(processor.Processor) processor.Processor { return nil }))
	require.NoError(t, err)
	require.EqualError(t, center.Start(t.Context()), "biz_type logged: a middleware answered nil for a processor")
}

func TestTheErrorHandlerIsCalled(t *testing.T) {
	t.Parallel()
	failed := make(chan string, 2)
	c := run(t, small(t), app.WithoutHTTP(),
		app.WithBizType(configs.BizType{ID: 1, Name: "ours", MaxRetries: 1, Backoff: configs.Backoff{Min: time.Millisecond, Max: time.Millisecond}},
			processor.Func(func(_ context.Context, t task.Task) error {
				if t.Attempts == 0 {
					return errors.New("no luck")
				}
				panic("boom")
			})),
		app.WithErrorHandler(func(_ context.Context, t task.Task, err error) {
			failed <- fmt.Sprint(t.Attribute, " ", t.Status, " ", t.Attempts, " ", err)
		}))
	submitNow(t, c, "ours", "x")
	require.Equal(t, "x pending 1 no luck", receive(t, failed))
	require.Equal(t, "x dead 2 panic: boom", receive(t, failed))
}

// A program registers the center's series beside its own, before the center starts, and reads them after its end, too.
func TestMetricsOfACenterWithoutHTTP(t *testing.T) {
	t.Parallel()
	ran := make(chan struct{}, 1)
	center, err := app.New(small(t), app.WithoutHTTP(), app.WithLogger(testLogger(t)),
		app.WithBizType(configs.BizType{ID: 1, Name: "ours"}, processor.Func(func(context.Context, task.Task) error {
			ran <- struct{}{}
			return nil
		})))
	require.NoError(t, err)
	own := prometheus.NewRegistry()
	own.MustRegister(collectors.NewGoCollector(), center.Metrics())
	scrape := func() string {
		w := httptest.NewRecorder()
		promhttp.HandlerFor(own, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
		require.Equal(t, 200, w.Code, w.Body.String())
		return w.Body.String()
	}
	has := func(series string) bool { return slices.Contains(strings.Split(scrape(), "\n"), series) }
	require.True(t, has(`toc_tasks_submitted_total{biz_type="ours"} 0`))
	require.NoError(t, center.Start(t.Context()))
	_, err = center.Tasks().Submit(t.Context(), client.Submit{BizType: "ours", BizID: 1, Now: true})
	require.NoError(t, err)
	receive(t, ran)
	require.True(t, has(`toc_tasks_submitted_total{biz_type="ours"} 1`))
	require.True(t, has(`toc_partitions_owned 1`))
	require.NoError(t, center.Stop(t.Context()))
	require.True(t, has(`toc_runs_total{biz_type="ours",mode="scan",outcome="processed"} 1`))
}

// solo is a processor that must not be called twice at a time.
type solo struct {
	running, most atomic.Int64
	over          atomic.Int64
	closed        atomic.Bool
	open          chan struct{} // runs wait for it
}

func (s *solo) Limits() (tasks, workers int) { return 0, 1 }

func (s *solo) Process(context.Context, task.Task) error {
	if n := s.running.Add(1); n > s.most.Load() {
		s.most.Store(n)
	}
	<-s.open
	s.running.Add(-1)
	s.over.Add(1)
	return nil
}

func (s *solo) Close() error { s.closed.Store(true); return nil }

// Middleware and a processor of the caller's keep the limits that a processor has.
func TestLimitsAreKept(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string]func(s *solo) []app.Option{
		"alone": func(s *solo) []app.Option { return []app.Option{app.WithProcessor("ledger", s)} },
		"middleware": func(s *solo) []app.Option {
			return []app.Option{app.WithProcessor("ledger", s), app.WithMiddleware(trace("a"))}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &solo{open: make(chan struct{})}
			c := run(t, fewTables(t), opts(s)...)
			for range 30 {
				submitNow(t, c, "order_close", "")
			}
			await.That(t, func() bool { return s.running.Load() == 1 && bizTypeNow(t, c, "order_close").QueueDepth == 29 }, "one runs, the others wait")
			close(s.open)
			await.That(t, func() bool { return s.over.Load() == 30 }, "all have run")
			require.EqualValues(t, 1, s.most.Load())
			require.NoError(t, c.stop())
			require.False(t, s.closed.Load(), "it is the caller's")
		})
	}
}
