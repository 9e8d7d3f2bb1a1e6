package main

import (
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/client"
)

// topMetrics is a scrape of a node; the runs and their lateness are those of the given number of rounds.
func topMetrics(t *testing.T, rounds int, rest string) series {
	text := strings.NewReplacer("N1", times(1, rounds), "N98", times(98, rounds), "N99", times(99, rounds), "N100", times(100, rounds)).Replace(`
# TYPE toc_queue_depth gauge
toc_queue_depth{biz_type="coupon"} 0
toc_queue_depth{biz_type="order_close"} 310
# TYPE toc_running gauge
toc_running{biz_type="coupon"} 0
toc_running{biz_type="order_close"} 8
# TYPE toc_pending_overdue gauge
toc_pending_overdue{biz_type="order_close"} 12
# TYPE toc_oldest_overdue_seconds gauge
toc_oldest_overdue_seconds{biz_type="order_close"} 3.25
# TYPE toc_retrying gauge
toc_retrying{biz_type="order_close"} 17
# TYPE toc_oldest_promise_seconds gauge
toc_oldest_promise_seconds{biz_type="order_close"} 301.5
# TYPE toc_runs_total counter
toc_runs_total{biz_type="order_close",mode="scan",outcome="processed"} N99
toc_runs_total{biz_type="order_close",mode="scan",outcome="dead"} N1
# TYPE toc_lateness_seconds histogram
toc_lateness_seconds_bucket{biz_type="order_close",mode="scan",le="0.01"} N98
toc_lateness_seconds_bucket{biz_type="order_close",mode="scan",le="0.02"} N100
toc_lateness_seconds_bucket{biz_type="order_close",mode="scan",le="+Inf"} N100
toc_lateness_seconds_sum{biz_type="order_close",mode="scan"} 1
toc_lateness_seconds_count{biz_type="order_close",mode="scan"} N100
`) + rest
	all, err := parseSeries(strings.NewReader(strings.TrimPrefix(text, "\n")))
	require.NoError(t, err)
	return all
}

func times(n, rounds int) string { return client.ID(n * rounds).String() }

// A node that is gone costs one line, with the cause alone.
func TestTopOfANodeThatIsGone(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	n := newTopReader(gone.URL, time.Now).readNode(t.Context(), gone.URL)
	require.EqualError(t, n.err, "dial tcp "+gone.Listener.Addr().String()+": connect: connection refused")
}

// Two readings of three nodes, of which one does not answer, and the picture of them.
func TestTopPicture(t *testing.T) {
	at := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	nodes := client.Cluster{Node: "n1", Partitions: 8, Nodes: []client.Node{
		{Name: "n1", Address: "10.0.0.5:8080", Partitions: []int{0, 1, 2}}, {Name: "n2", Address: "10.0.0.6:8080", Partitions: []int{3, 4, 5}},
		{Name: "n3\x1b[31m", Address: "10.0.0.7:8080", Partitions: []int{6}},
	}}
	const first = "# TYPE toc_database_up gauge\ntoc_database_up{database=\"0\"} 1\ntoc_database_up{database=\"1\"} 0\ntoc_database_up{database=\"10\"} 1\n" +
		"# TYPE toc_last_scan_timestamp_seconds gauge\ntoc_last_scan_timestamp_seconds{database=\"0\"} 1.767366243e+09\ntoc_last_scan_timestamp_seconds{database=\"1\"} 1.7673662e+09\n" +
		"# TYPE toc_clock_skew_seconds gauge\ntoc_clock_skew_seconds{of=\"node\",name=\"n2\"} -0.7\ntoc_clock_skew_seconds{of=\"database\",name=\"0\"} 0.001\n" +
		"# TYPE toc_paused gauge\ntoc_paused{biz_type=\"coupon\"} 1\ntoc_paused{biz_type=\"order_close\"} 0\n"
	const second = "# TYPE toc_database_up gauge\ntoc_database_up{database=\"0\"} 1\ntoc_database_up{database=\"1\"} 1\n# TYPE toc_clock_skew_seconds gauge\ntoc_clock_skew_seconds{of=\"node\",name=\"n1\"} 0.7\n"
	silent := nodeReading{err: errors.New("connection refused")}
	before := reading{at: at.Add(-2 * time.Second), cluster: nodes, nodes: []nodeReading{
		{metrics: topMetrics(t, 1, first)}, {metrics: topMetrics(t, 5, second)}, silent,
	}}
	now := reading{at: at, cluster: nodes, nodes: []nodeReading{
		{ready: api.Readiness{Ready: true, Degraded: []string{"database 1 is out of reach: no answer"}}, metrics: topMetrics(t, 3, first)},
		{metrics: topMetrics(t, 2, second)}, // it was restarted
		silent,
	}}
	picture := newTop(before, now)
	var text strings.Builder
	require.NoError(t, picture.write(&text, "http://10.0.0.5:8080"))
	golden(t, "top/text", text.String())
	asJSON, err := json.MarshalIndent(picture, "", "  ")
	require.NoError(t, err)
	golden(t, "top/json", string(asJSON)+"\n")

	require.Equal(t, []string{"toc t", "", "! 1 o"}, fit(text.String(), 5, 3))
}

// The quantile is linear in its bucket, and finite.
func TestTopQuantile(t *testing.T) {
	inf := math.Inf(1)
	require.InDelta(t, 0.015, quantile(0.99, map[float64]float64{.01: 98, .02: 100, inf: 100}), 1e-9)
	require.InDelta(t, 0.0099, quantile(0.99, map[float64]float64{.01: 100, .02: 100, inf: 100}), 1e-9)
	require.InDelta(t, 0.02, quantile(0.99, map[float64]float64{.01: 0, .02: 50, inf: 100}), 1e-9)
}

func TestTopEndsAtQ(t *testing.T) {
	for _, keys := range []string{"xq", "\x03", ""} {
		ended := 0
		awaitQuit(strings.NewReader(keys), func() { ended++ })
		require.Equal(t, 1, ended)
	}
}
