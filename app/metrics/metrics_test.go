package metrics_test

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app/metrics"
	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/task"
	"github.com/timeoutcenter/toc/worker"
)

func scrape(t *testing.T, m *metrics.Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	require.Equal(t, 200, w.Code)
	return w.Body.String()
}

func TestRequests(t *testing.T) {
	m := metrics.New()
	m.Answered("POST /v1/tasks", 201, 3*time.Millisecond)
	m.Answered("POST /v1/tasks", 201, 3*time.Millisecond)
	for _, status := range []int{401, 404, 409, 412, 413, 415, 422, 500, 503} {
		m.Answered("POST /v1/tasks", status, time.Millisecond)
	}
	text := scrape(t, m)
	for _, series := range []string{
		`toc_http_requests_total{route="POST /v1/tasks",status="201"} 2`,
		`toc_http_requests_total{route="POST /v1/tasks",status="503"} 1`,
		`toc_http_request_seconds_count{route="POST /v1/tasks"} 11`,
		`toc_http_request_seconds_bucket{route="POST /v1/tasks",le="0.001"} 9`,
	} {
		require.Contains(t, text, series+"\n")
	}
	require.Contains(t, text, "\ngo_goroutines ")
	for _, reason := range []string{"not_allowed", "not_found", "conflict", "changed", "too_large", "415", "invalid", "internal", "unavailable"} {
		require.Contains(t, text, `toc_refused_total{reason="`+reason+`",route="POST /v1/tasks"} 1`+"\n")
	}
}

// The parts are told by their names, and add up.
func TestLatenessParts(t *testing.T) {
	m := metrics.New()
	b := task.BizType{ID: 1, Name: "a", Mode: task.ModeRedis}
	m.Started(b, queue.Lateness{Find: time.Second, Check: 2 * time.Second, Wait: 4 * time.Second, Start: 8 * time.Second})
	text := scrape(t, m)
	for part, sum := range map[string]string{"find": "1", "check": "2", "wait": "4", "start": "8"} {
		require.Contains(t, text, `toc_lateness_part_seconds_sum{biz_type="a",mode="redis",part="`+part+`"} `+sum+"\n")
		require.Contains(t, text, `toc_lateness_part_seconds_count{biz_type="a",mode="redis",part="`+part+`"} 1`+"\n")
	}
	require.Contains(t, text, `toc_lateness_seconds_sum{biz_type="a",mode="redis"} 15`+"\n")
}

func TestProduced(t *testing.T) {
	m := metrics.New()
	m.Produced("main", 3*time.Millisecond)
	require.Contains(t, scrape(t, m), `toc_kafka_produce_seconds_bucket{cluster="main",le="0.005"} 1`+"\n")
}

// Only the run that succeeds keeps the promise.
func TestPromiseLateness(t *testing.T) {
	m := metrics.New()
	b := task.BizType{ID: 1, Name: "a", Mode: task.ModeScan}
	m.Finished(b, worker.Failed, time.Millisecond, time.Second)
	m.Finished(b, worker.Processed, time.Millisecond, 7*time.Second)
	text := scrape(t, m)
	require.Contains(t, text, `toc_promise_lateness_seconds_sum{biz_type="a",mode="scan"} 7`+"\n")
	require.Contains(t, text, `toc_promise_lateness_seconds_count{biz_type="a",mode="scan"} 1`+"\n")
}

func TestGauges(t *testing.T) {
	m := metrics.New()
	m.Watch(func(set metrics.Set) {
		set(metrics.DatabaseUp, metrics.Bool(true), "0")
		set(metrics.DatabaseUp, metrics.Bool(false), "1")
		set(metrics.ClockSkew, -.25, "node", "n2")
		set(metrics.Throttled, 7, "a", "rate")
	})
	text := scrape(t, m)
	for _, series := range []string{
		`toc_database_up{database="0"} 1`, `toc_database_up{database="1"} 0`, `toc_clock_skew_seconds{name="n2",of="node"} -0.25`,
		`# TYPE toc_throttled_total counter`, `toc_throttled_total{biz_type="a",by="rate"} 7`,
	} {
		require.Contains(t, text, series+"\n")
	}
	require.NotContains(t, text, "toc_redis_up", "it was not set")
}
