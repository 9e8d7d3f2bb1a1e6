package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/internal/httppool"
)

// topAnswerWithin bounds each reading: a node that hangs must not stop the picture.
const topAnswerWithin = 2 * time.Second

// reading is the answers of the nodes at a time.
type reading struct {
	at      time.Time
	cluster client.Cluster
	nodes   []nodeReading // as in cluster.Nodes
}

// nodeReading is one node's part of a reading.
type nodeReading struct {
	err     error // why it did not answer; the rest is then empty
	ready   api.Readiness
	metrics series
}

// series are the samples of a scrape, by the name of their metric.
type series map[string][]sample

type sample struct {
	labels  map[string]string
	value   float64
	buckets map[float64]float64 // of a histogram: cumulated counts by upper bound
}

// topReader reads all nodes of a center.
type topReader struct {
	server, token string
	http          *http.Client
	now           func() time.Time
}

func newTopReader(server string, now func() time.Time) *topReader {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	// A redirect would take the token elsewhere.
	return &topReader{server: server, token: os.Getenv("TOC_TOKEN"), now: now, http: &http.Client{
		Transport: httppool.New(transport), CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// read asks the server for the nodes, and each of them for its metrics.
func (t *topReader) read(ctx context.Context) (r reading, err error) {
	bounded, cancel := context.WithTimeout(ctx, topAnswerWithin)
	defer cancel()
	center := client.New(t.server, client.WithToken(t.token), client.WithHTTPClient(t.http))
	if r.cluster, err = center.Cluster(bounded); err != nil {
		return r, explain(t.server, err)
	}
	r.nodes = make([]nodeReading, len(r.cluster.Nodes))
	var asking sync.WaitGroup
	for i, n := range r.cluster.Nodes {
		base := n.Address
		switch {
		case len(r.cluster.Nodes) == 1:
			base = t.server // its own address may be behind a proxy
		case !strings.Contains(base, "://"):
			base = "http://" + base
		}
		asking.Go(func() { r.nodes[i] = t.readNode(ctx, strings.TrimRight(base, "/")) })
	}
	asking.Wait()
	r.at = t.now()
	return r, nil
}

func (t *topReader) readNode(ctx context.Context, base string) (n nodeReading) {
	ctx, cancel := context.WithTimeout(ctx, topAnswerWithin)
	defer cancel()
	n.err = t.get(ctx, base+"/readyz", func(body io.Reader) error { return json.NewDecoder(body).Decode(&n.ready) }, http.StatusServiceUnavailable)
	if n.err == nil {
		n.err = t.get(ctx, base+"/metrics", func(body io.Reader) (err error) { n.metrics, err = parseSeries(body); return err })
	}
	if noAnswer, is := errors.AsType[*url.Error](n.err); is { // the cause is enough in a line that names the node
		n.err = noAnswer.Err
	}
	return n
}

// get reads an answer with status 200, or one of the others.
func (t *topReader) get(ctx context.Context, address string, read func(io.Reader) error, others ...int) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	if t.token != "" {
		request.Header.Set("Authorization", "Bearer "+t.token)
	}
	answer, err := t.http.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	for _, status := range append(others, http.StatusOK) {
		if answer.StatusCode == status {
			return read(answer.Body)
		}
	}
	return fmt.Errorf("GET %s: %s", address, answer.Status)
}

// parseSeries reads the text format of Prometheus.
func parseSeries(text io.Reader) (series, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(text)
	if err != nil {
		return nil, err
	}
	all := make(series)
	for name, family := range families {
		for _, m := range family.GetMetric() {
			s := sample{labels: make(map[string]string), value: m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue()}
			for _, l := range m.GetLabel() {
				s.labels[l.GetName()] = l.GetValue()
			}
			if h := m.GetHistogram(); h != nil {
				s.buckets = map[float64]float64{math.Inf(1): float64(h.GetSampleCount())}
				for _, b := range h.GetBucket() {
					s.buckets[b.GetUpperBound()] = float64(b.GetCumulativeCount())
				}
			}
			all[name] = append(all[name], s)
		}
	}
	return all, nil
}
