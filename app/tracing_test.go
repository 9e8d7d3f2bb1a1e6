package app_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	oteltrace "go.opentelemetry.io/otel/trace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/internal/tracing"
	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/task"
)

const (
	callerTrace  = "4bf92f3577b34da6a3ce929d0e0e4736"
	callerSpan   = "00f067aa0ba902b7"
	callerTraced = "00-" + callerTrace + "-" + callerSpan + "-01"
	callerPlain  = "00-" + callerTrace + "-" + callerSpan + "-00"
)

// called is a receiver of webhooks that answers its first calls with 500.
type called struct {
	mu    sync.Mutex
	fail  int
	calls chan http.Header
}

// toWebhook gives the business type of a configuration a receiver.
func toWebhook(t *testing.T, cfg configs.Config, fail int) (configs.Config, *called) {
	c := &called{fail: fail, calls: make(chan http.Header, 1000)}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.fail--; c.fail >= 0 {
			w.WriteHeader(http.StatusInternalServerError)
		}
		c.calls <- r.Header
	}))
	t.Cleanup(server.Close)
	b := &cfg.BizTypes[0]
	b.Processor, b.Webhook.URL = configs.ProcessorWebhook, server.URL
	b.Backoff.Min, b.Backoff.Max = 10*time.Millisecond, 20*time.Millisecond
	return cfg, c
}

// postTraced submits by HTTP, with a traceparent.
func postTraced(t *testing.T, c *center, path, body, traceparent string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+c.Addr()+path, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	if traceparent != "" {
		r.Header.Set("traceparent", traceparent)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: await.Patience}
	answer, err := client.Do(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	text := new(bytes.Buffer)
	_, err = text.ReadFrom(answer.Body)
	require.NoError(t, err)
	require.Less(t, answer.StatusCode, 300, text)
}

// traceparentOf is the context of a span that was exported, or of a link of one.
func traceparentOf(s interface {
	GetTraceId() []byte
	GetSpanId() []byte
}) string {
	return "00-" + hex.EncodeToString(s.GetTraceId()) + "-" + hex.EncodeToString(s.GetSpanId()) + "-01"
}

// sorted are spans by what they are.
func sorted(spans []*tracepb.Span) (submits, runs []*tracepb.Span) {
	for _, s := range spans {
		if s.Kind == tracepb.Span_SPAN_KIND_PRODUCER {
			submits = append(submits, s)
		} else {
			runs = append(runs, s)
		}
	}
	return submits, runs
}

func attributes(s *tracepb.Span) map[string]string {
	all := map[string]string{}
	for _, a := range s.Attributes {
		if a.Value.GetStringValue() != "" {
			all[a.Key] = a.Value.GetStringValue()
		} else {
			all[a.Key] = strconv.FormatInt(a.Value.GetIntValue(), 10)
		}
	}
	return all
}

// The trace of the caller goes through the submit, over a restart, to two runs and their calls.
func TestTracing(t *testing.T) {
	onEngines(t, func(t *testing.T, cfg configs.Config) {
		collector := testrig.StartCollector(t)
		cfg.Tracing.OTLP = collector.URL()
		cfg, receiver := toWebhook(t, cfg, 1)
		c := run(t, cfg)
		postTraced(t, c, "/v1/tasks", `{"biz_type":"order_close","biz_id":42,"delay":"1h"}`, callerTraced)
		submits, _ := sorted(collector.Await(t, 1))
		require.Len(t, submits, 1)
		require.NoError(t, c.stop())
		submit := submits[0]
		require.Equal(t, "submit order_close", submit.Name)
		require.Equal(t, callerTrace, hex.EncodeToString(submit.TraceId))
		require.Equal(t, callerSpan, hex.EncodeToString(submit.ParentSpanId))

		c = run(t, cfg)
		p, err := c.Tasks().List(t.Context(), client.List{BizID: 42})
		require.NoError(t, err)
		id := uint64(p.Tasks[0].JobID)
		_, err = c.Tasks().Reschedule(t.Context(), id, client.Change{Delay: new(time.Duration(0))})
		require.NoError(t, err)
		first, second := receive(t, receiver.calls), receive(t, receiver.calls)
		collector.Await(t, 3)
		require.NoError(t, c.stop())
		_, runs := sorted(collector.Spans())
		require.Len(t, runs, 2)
		for i, call := range []http.Header{first, second} {
			s := runs[i]
			require.Equal(t, []string{traceparentOf(s)}, call["Traceparent"])
			require.Equal(t, "process order_close", s.Name)
			require.Equal(t, tracepb.Span_SPAN_KIND_CONSUMER, s.Kind)
			require.Empty(t, s.ParentSpanId, "linked, no child")
			require.NotEqual(t, submit.TraceId, s.TraceId)
			require.Len(t, s.Links, 1)
			require.Equal(t, traceparentOf(submit), traceparentOf(s.Links[0]))
			a := attributes(s)
			require.Equal(t, strconv.FormatUint(id, 10), a["toc.job_id"])
			require.Equal(t, "order_close", a["toc.biz_type"])
			require.Equal(t, strconv.Itoa(i+1), a["toc.attempt"])
			require.Contains(t, a, "toc.lateness_ms")
		}
		require.Equal(t, tracepb.Status_STATUS_CODE_ERROR, runs[0].Status.GetCode())
		require.Contains(t, runs[0].Status.GetMessage(), "500 Internal Server Error")
		require.Equal(t, tracepb.Status_STATUS_CODE_UNSET, runs[1].Status.GetCode())
	})
}

// Without a collector, and for what is not sampled, a trace is handed on as it came.
func TestTraceIsHandedOn(t *testing.T) {
	onSQLite(t, func(t *testing.T, cfg configs.Config) {
		collector := testrig.StartCollector(t)
		cfg, receiver := toWebhook(t, cfg, 0)
		const body = `{"biz_type":"order_close","biz_id":42,"delay":"0s"}`
		came := map[string][]string{
			callerTraced: {callerTraced}, callerPlain: {callerPlain}, "": nil, "00-junk": nil, "ff" + callerTraced[2:]: nil,
		}
		c := run(t, cfg)
		for traceparent, want := range came {
			postTraced(t, c, "/v1/tasks", body, traceparent)
			require.Equal(t, want, receive(t, receiver.calls)["Traceparent"], "off: %s", traceparent)
		}
		require.NoError(t, c.stop())

		cfg.Tracing.OTLP = collector.URL()
		c = run(t, cfg)
		delete(came, callerTraced)
		for traceparent, want := range came {
			postTraced(t, c, "/v1/tasks", body, traceparent)
			require.Equal(t, want, receive(t, receiver.calls)["Traceparent"], "not sampled: %s", traceparent)
		}
		require.NoError(t, c.stop())
		require.Empty(t, collector.Spans())
	})
}

// A batch has one span, whatever way it comes, and each of its runs one that is linked to it.
func TestTraceOfABatch(t *testing.T) {
	onSQLite(t, func(t *testing.T, cfg configs.Config) {
		collector := testrig.StartCollector(t)
		cfg.Tracing = configs.Tracing{OTLP: collector.URL(), Sample: 1}
		const n = 300
		ran := make(chan string, 2*n)
		c := run(t, cfg, app.WithProcessor("ledger", processor.Func(func(ctx context.Context, one task.Task) error {
			if one.Trace != tracing.Format(oteltrace.SpanContextFromContext(ctx)) {
				one.Trace = "not that of the context"
			}
			ran <- one.Trace
			return nil
		})))
		var list []string
		for i := range n {
			list = append(list, fmt.Sprintf(`{"biz_type":"order_close","biz_id":%d,"delay":"0s"}`, i))
		}
		postTraced(t, c, "/v1/tasks/batch", `{"tasks":[`+strings.Join(list, ",")+`]}`, callerTraced)

		other, _ := tracing.WithRemote(t.Context(), "00-11111111111111111111111111111111-2222222222222222-01")
		_, err := c.Tasks().SubmitBatch(other, []client.Submit{{BizType: "order_close", BizID: 1, Now: true}, {BizType: "unknown", BizID: 2, Now: true}})
		require.NoError(t, err)
		handedOn := map[string]bool{}
		for range n + 1 {
			handedOn[receive(t, ran)] = true
		}
		collector.Await(t, 2+n+1)
		require.NoError(t, c.stop())

		submits, runs := sorted(collector.Spans())
		require.Len(t, submits, 2)
		require.Equal(t, callerTrace, hex.EncodeToString(submits[0].TraceId))
		require.Equal(t, strconv.Itoa(n), attributes(submits[0])["messaging.batch.message_count"])
		require.Equal(t, "11111111111111111111111111111111", hex.EncodeToString(submits[1].TraceId))
		require.Equal(t, "2222222222222222", hex.EncodeToString(submits[1].ParentSpanId))
		require.Contains(t, submits[1].Status.GetMessage(), "is not configured")
		require.Len(t, runs, n+1)
		linked := map[string]int{}
		for _, s := range runs {
			require.True(t, handedOn[traceparentOf(s)], "the processor has got it")
			linked[traceparentOf(s.Links[0])]++
		}
		require.Equal(t, map[string]int{traceparentOf(submits[0]): n, traceparentOf(submits[1]): 1}, linked)
	})
}

// What people write into the column stops nothing, and goes nowhere.
func TestTraceByHand(t *testing.T) {
	onEngines(t, func(t *testing.T, cfg configs.Config) {
		collector := testrig.StartCollector(t)
		cfg.Tracing = configs.Tracing{OTLP: collector.URL(), Sample: 1}
		cfg, receiver := toWebhook(t, cfg, 0)
		c := run(t, cfg)
		byHand := []string{"junk", "", "\r\nHost: example.com", callerTraced[:54] + "é", "00-" + strings.Repeat("0", 32) + "-" + callerSpan + "-01", callerPlain}
		for i, text := range byHand {
			bizID := uint64(1000 + i)
			s, err := c.Tasks().Submit(t.Context(), client.Submit{BizType: "order_close", BizID: bizID, Delay: time.Hour})
			require.NoError(t, err)
			admin{t, cfg}.exec(bizID, "UPDATE %s SET trace = ? WHERE biz_id = ?", text, bizID)
			edited, err := c.Tasks().Get(t.Context(), uint64(s.Task.JobID))
			require.NoError(t, err)
			require.NotEqual(t, s.Task.ETag, edited.ETag)
			_, err = c.Tasks().Reschedule(t.Context(), uint64(s.Task.JobID), client.Change{Delay: new(time.Duration(0))}, client.IfMatch(edited.ETag))
			require.NoError(t, err, "%q", text)
			var call http.Header
			select {
			case call = <-receiver.calls:
			case <-time.After(await.Patience):
				said, err := c.Tasks().Why(t.Context(), uint64(s.Task.JobID))
				require.Failf(t, "it did not run", "%q: %+v, %v", text, said, err)
			}
			if text == callerPlain {
				require.Equal(t, []string{callerPlain}, call["Traceparent"])
			} else {
				require.Len(t, call["Traceparent"], 1)
				require.NotEqual(t, callerTrace, call.Get("Traceparent")[3:35])
			}
		}
		collector.Await(t, 2*len(byHand)-1) // also of the submits
		require.NoError(t, c.stop())
		_, runs := sorted(collector.Spans())
		require.Len(t, runs, len(byHand)-1)
		for _, s := range runs {
			require.Empty(t, s.Links)
		}
	})
}

// A collector that hangs, or is away, holds up no submit, no run and no stop.
func TestCollectorHangs(t *testing.T) {
	onSQLite(t, func(t *testing.T, cfg configs.Config) {
		collector := testrig.StartCollector(t)
		collector.Hang(true)
		cfg.Tracing = configs.Tracing{OTLP: collector.URL(), Sample: 1}
		fired := newLedger()
		c := run(t, cfg, app.WithProcessor("ledger", fired))
		_, err := c.Tasks().Submit(t.Context(), client.Submit{BizType: "order_close", BizID: 1, Now: true})
		require.NoError(t, err)
		fired.await(t, 1, await.Patience)
		collector.AwaitRequests(t, 1)
		const n = 5000 // more than are kept
		list := make([]client.Submit, n)
		for i := range list {
			list[i] = client.Submit{BizType: "order_close", BizID: uint64(i), Now: true}
		}
		_, err = c.Tasks().SubmitBatch(t.Context(), list)
		require.NoError(t, err)
		fired.await(t, n+1, await.Patience)
		awaitRows(t, cfg, task.Processed, n+1)
		await.That(t, func() bool {
			for line := range strings.Lines(scrape(t, c)) {
				if count, ok := strings.CutPrefix(line, "toc_trace_spans_dropped_total "); ok {
					return strings.TrimSpace(count) != "0"
				}
			}
			return false
		}, "spans are dropped")
		require.NoError(t, c.stop(), "within shutdown.drain")
		require.Empty(t, collector.Spans())
	})
}

// A record's trace goes through a task into another record.
func TestTraceThroughKafka(t *testing.T) {
	onSQLite(t, func(t *testing.T, cfg configs.Config) {
		collector := testrig.StartCollector(t)
		cfg.Tracing.OTLP = collector.URL()
		cfg, brokers := toKafka(t, cfg)
		in, producer := fromKafka(t, cfg)
		in.Kafka.Clusters[0].Name = "in"
		in.Intake[0].Cluster = "in"
		in.Kafka.Clusters = append(in.Kafka.Clusters, cfg.Kafka.Clusters...)
		run(t, in)
		list := timers(6, time.Now())
		for i, traceparent := range []string{callerTraced, callerTraced, callerPlain, "junk", "", ""} {
			if traceparent != "" {
				list[i].Headers = append(list[i].Headers, kgo.RecordHeader{Key: "traceparent", Value: []byte(traceparent)})
			}
		}
		require.NoError(t, producer.ProduceSync(t.Context(), list...).FirstErr())
		out := map[string]string{}
		for _, r := range consumed(t, brokers, 6) {
			for _, h := range r.Headers {
				if h.Key == "traceparent" {
					out[string(r.Value)] = string(h.Value)
				}
			}
		}
		require.Len(t, out, 3, "the others have none")
		require.Equal(t, callerPlain, out["2"])
		submits, runs := sorted(collector.Await(t, 4))
		require.Len(t, submits, 2, "one a record")
		require.Len(t, runs, 2)
		links := map[string]bool{}
		for _, s := range submits {
			require.Equal(t, callerTrace, hex.EncodeToString(s.TraceId))
			links[traceparentOf(s)] = true
		}
		for _, s := range runs {
			require.Contains(t, []string{out["0"], out["1"]}, traceparentOf(s))
			require.True(t, links[traceparentOf(s.Links[0])])
			delete(links, traceparentOf(s.Links[0]))
		}
	})
}

// A consumer gets the trace of the submit with the task, and makes the span of the run itself.
func TestTraceOfALease(t *testing.T) {
	onSQLite(t, func(t *testing.T, cfg configs.Config) {
		c := run(t, pulled(cfg, time.Minute))
		for _, traceparent := range []string{callerTraced, ""} {
			postTraced(t, c, "/v1/tasks", `{"biz_type":"order_close","biz_id":42,"delay":"0s"}`, traceparent)
			got := leaseOne(t, client.New(c.Addr()), client.AskLease{})
			require.Equal(t, traceparent, got.Traceparent)
			text, err := json.Marshal(got)
			require.NoError(t, err)
			require.JSONEq(t, string(text), string(got.AppendJSON(nil)))
		}
	})
}

// BenchmarkFireTraced is BenchmarkFire with shares of the runs traced.
func BenchmarkFireTraced(b *testing.B) {
	for _, sample := range []float64{0, 0.01, 1} {
		b.Run(fmt.Sprint(sample), func(b *testing.B) {
			collector := testrig.StartCollector(b)
			cfg := onMySQL(b, embedded(b))
			cfg.Tracing = configs.Tracing{OTLP: collector.URL(), Sample: sample}
			benchmarkFire(b, cfg)
		})
	}
}
