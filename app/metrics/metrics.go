// Package metrics counts what happens, for Prometheus.
//
// Packages report observations through their small Observer interfaces, and
// Prometheus scrapes them. Every series of a configured business type exists from the
// start, at 0, so that an alert can be written before the first failure.
package metrics

import (
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/redistimer"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
	"github.com/timeoutcenter/toc/worker"
)

// latenessBuckets reach from half a millisecond to an hour.
var latenessBuckets = []float64{
	.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60, 300, 900, 3600,
}

// latenessParts are the parts of lateness, label values of toc_lateness_part_seconds.
var latenessParts = [...]string{"find", "check", "wait", "start"}

// Metrics holds the series. It implements the Observers of intake, processor,
// scanner and redistimer.
type Metrics struct {
	registry  *prometheus.Registry // of the center's own series
	process   *prometheus.Registry // of Go and the process
	submitted *prometheus.CounterVec
	runs      *prometheus.CounterVec
	lateness  *prometheus.HistogramVec
	part      *prometheus.HistogramVec
	promise   *prometheus.HistogramVec
	run       *prometheus.HistogramVec
	fenced    *prometheus.CounterVec
	scans     prometheus.Observer
	scanFails *prometheus.CounterVec
	lastScan  *prometheus.GaugeVec
	purged    *prometheus.CounterVec
	purgeLag  *prometheus.GaugeVec
	rearmed   *prometheus.CounterVec
	unarmed   *prometheus.CounterVec
	expired   *prometheus.CounterVec
	roundTrip prometheus.Observer
	produced  *prometheus.HistogramVec
	unstored  *prometheus.CounterVec
	requests  *prometheus.CounterVec
	refused   *prometheus.CounterVec
	answering *prometheus.HistogramVec
	spans     prometheus.Counter

	recent *Recent

	mu      sync.Mutex
	answers map[answerKey]answers
	types   atomic.Pointer[map[uint64]*series]
}

// series are the curried metrics of one business type: the hot path looks
// nothing up but these.
type series struct {
	bizType   task.BizType
	submitted prometheus.Counter
	lateness  func() prometheus.Observer // made by its first run, as promise and run are: a histogram of an idle type would cost each scrape
	parts     func() [4]prometheus.Observer
	promise   func() prometheus.Observer
	run       func() prometheus.Observer
	fenced    map[worker.Fence]prometheus.Counter
	runs      map[worker.Outcome]prometheus.Counter
}

// New makes the metrics of a process.
func New() *Metrics {
	m := &Metrics{recent: newRecent(), registry: prometheus.NewRegistry(), process: prometheus.NewRegistry()}
	m.submitted = m.counterVec("toc_tasks_submitted_total", "Tasks stored by submits; known dedup_keys do not count.", "biz_type")
	m.runs = m.counterVec("toc_runs_total", "Ended runs by outcome, counted when the outcome is durable.", "biz_type", "mode", "outcome")
	m.lateness = m.histogramVec("toc_lateness_seconds",
		"The moment the processor starts minus action_time.", latenessBuckets, "biz_type", "mode")
	m.part = m.histogramVec("toc_lateness_part_seconds",
		"The parts of toc_lateness_seconds: until the task was in memory (find), its row was read again (check), a worker took it (wait) and called the processor (start).",
		latenessBuckets, "biz_type", "mode", "part")
	m.promise = m.histogramVec("toc_promise_lateness_seconds",
		"The start of the run that succeeded minus due_time, the time promised before any retry.", latenessBuckets, "biz_type", "mode")
	m.run = m.histogramVec("toc_run_seconds",
		"Time that a run took in the processor.",
		[]float64{.0001, .0005, .001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60, 300}, "biz_type")
	m.fenced = m.counterVec("toc_finish_fenced_total",
		"Outcomes of which something was not written, because it had been edited while the task ran: its status, its attempts, or its action_time (moved).",
		"biz_type", "reason")
	m.scans = m.histogramVec("toc_scan_seconds",
		"Time of one pass of the scanner over the owned partitions of one database.",
		[]float64{.001, .005, .01, .05, .1, .5, 1, 5, 10, 60}).WithLabelValues()
	m.scanFails = m.counterVec("toc_scan_failures_total", "Passes over a database that did not read all of it.", "database")
	m.lastScan = m.gaugeVec("toc_last_scan_timestamp_seconds", "When the last complete pass over a database ended, Unix time.", "database")
	m.purged = m.counterVec("toc_purged_total", "Tasks deleted after their retention.", "status")
	m.purgeLag = m.gaugeVec("toc_purge_lag_seconds",
		"For how long the oldest row of this node's partitions of a database should be gone, as of the last round of the purge, or of this one while it falls behind; 0: none is left.",
		"database")
	m.rearmed = m.counterVec("toc_rearmed_total",
		"Tasks put into Redis from the store: lost there, near enough now (horizon), or read soon before or after their time and unknown there (sweep).",
		"biz_type", "reason")
	m.unarmed = m.counterVec("toc_arm_failures_total",
		"Tasks stored while Redis could not be told; the sweep or the scanner finds them.", "biz_type")
	m.expired = m.counterVec("toc_claims_expired_total", "Claims that nobody settled and that were rolled back.", "biz_type")
	m.roundTrip = m.histogramVec("toc_redis_round_trip_seconds",
		"Time of one claim of all slots of a Redis server that were due.",
		[]float64{.0001, .0002, .0005, .001, .002, .005, .01, .05, .1, .5, 1, 5}).WithLabelValues()
	m.produced = m.histogramVec("toc_kafka_produce_seconds",
		"Time until the brokers of a Kafka cluster acknowledged a record.",
		[]float64{.0005, .001, .002, .005, .01, .02, .05, .1, .5, 1, 5, 10, 30}, "cluster")
	m.unstored = m.counterVec("toc_intake_refused_total", "Records of a topic that were refused as tasks.", "name")
	m.requests = m.counterVec("toc_http_requests_total",
		"Requests to the HTTP API by route and the status that they were answered with.", "route", "status")
	m.refused = m.counterVec("toc_refused_total", "Requests to the HTTP API that were answered with 4xx or 5xx.", "route", "reason")
	m.answering = m.histogramVec("toc_http_request_seconds",
		"Time from a request's headers to the end of its answer.",
		[]float64{.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 15, 30, 60}, "route")
	m.spans = m.counterVec("toc_trace_spans_dropped_total", "Spans that the collector has not taken.").WithLabelValues()
	m.types.Store(&map[uint64]*series{})
	m.answers = make(map[answerKey]answers)
	m.process.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *Metrics) counterVec(name, help string, labels ...string) *prometheus.CounterVec {
	return promauto.With(m.registry).NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func (m *Metrics) gaugeVec(name, help string, labels ...string) *prometheus.GaugeVec {
	return promauto.With(m.registry).NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
}

func (m *Metrics) histogramVec(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return promauto.With(m.registry).NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
}

// Collector gives the center's own series, without those of Go and the process, which a program's registry has itself.
// It is complete after Watch.
func (m *Metrics) Collector() prometheus.Collector { return m.registry }

// Recent is the work of the last hour.
func (m *Metrics) Recent() *Recent { return m.recent }

// Handler serves a scrape.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(prometheus.Gatherers{m.registry, m.process},
		promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 10 * time.Second})
}

// SetTypes makes the series of the configured business types.
func (m *Metrics) SetTypes(types *task.Types) {
	m.mu.Lock()
	defer m.mu.Unlock()
	set := make(map[uint64]*series)
	for _, b := range types.All() {
		set[b.ID] = m.seriesOf(b)
	}
	m.types.Store(&set)
}

func (m *Metrics) seriesOf(b task.BizType) *series {
	s := &series{
		bizType:   b,
		submitted: m.submitted.WithLabelValues(b.Name),
		lateness:  sync.OnceValue(func() prometheus.Observer { return m.lateness.WithLabelValues(b.Name, string(b.Mode)) }),
		parts: sync.OnceValue(func() (list [4]prometheus.Observer) {
			for i, part := range latenessParts {
				list[i] = m.part.WithLabelValues(b.Name, string(b.Mode), part)
			}
			return list
		}),
		promise: sync.OnceValue(func() prometheus.Observer { return m.promise.WithLabelValues(b.Name, string(b.Mode)) }),
		run:     sync.OnceValue(func() prometheus.Observer { return m.run.WithLabelValues(b.Name) }),
		fenced:  make(map[worker.Fence]prometheus.Counter),
		runs:    make(map[worker.Outcome]prometheus.Counter),
	}
	m.expired.WithLabelValues(b.Name)
	m.unarmed.WithLabelValues(b.Name)
	for _, reason := range redistimer.Reasons {
		m.rearmed.WithLabelValues(b.Name, reason)
	}
	for _, why := range worker.Fences {
		s.fenced[why] = m.fenced.WithLabelValues(b.Name, string(why))
	}
	for _, o := range worker.Outcomes {
		s.runs[o] = m.runs.WithLabelValues(b.Name, string(b.Mode), string(o))
	}
	return s
}

// of finds the series of a business type; one that was just taken out of the
// configuration still ends its runs.
func (m *Metrics) of(b task.BizType) *series {
	if s := (*m.types.Load())[b.ID]; s != nil && s.bizType.Name == b.Name && s.bizType.Mode == b.Mode {
		return s
	}
	return m.seriesOf(b)
}

// Submitted implements intake.Observer.
func (m *Metrics) Submitted(b task.BizType, tasks int) {
	m.of(b).submitted.Add(float64(tasks))
	m.recent.submitted.Add(int64(tasks))
}

// Started implements worker.Observer.
func (m *Metrics) Started(b task.BizType, late queue.Lateness) {
	s := m.of(b)
	s.lateness().Observe(late.Total().Seconds())
	m.recent.started(late.Total())
	parts := s.parts()
	for i, part := range [...]time.Duration{late.Find, late.Check, late.Wait, late.Start} {
		parts[i].Observe(part.Seconds())
	}
}

// Finished implements worker.Observer.
func (m *Metrics) Finished(b task.BizType, o worker.Outcome, ran, promiseLateness time.Duration) {
	s := m.of(b)
	s.runs[o].Inc()
	m.recent.runs.Add(1)
	if o == worker.Failed || o == worker.Dead {
		m.recent.failed.Add(1)
	}
	s.run().Observe(ran.Seconds())
	if o == worker.Processed {
		s.promise().Observe(promiseLateness.Seconds())
	}
}

// Fenced implements worker.Observer.
func (m *Metrics) Fenced(b task.BizType, why worker.Fence) { m.of(b).fenced[why].Inc() }

// Scanned implements scanner.Observer.
func (m *Metrics) Scanned(database int, took time.Duration, err error) {
	name := strconv.Itoa(database)
	if err != nil {
		m.scanFails.WithLabelValues(name).Inc()
		return
	}
	m.scans.Observe(took.Seconds())
	m.lastScan.WithLabelValues(name).SetToCurrentTime()
}

// Purged implements scanner.Observer.
func (m *Metrics) Purged(p store.Purged) {
	for status, rows := range map[task.Status]int{task.Processed: p.Processed, task.Cancelled: p.Cancelled, task.Dead: p.Dead} {
		if rows > 0 {
			m.purged.WithLabelValues(status.String()).Add(float64(rows))
		}
	}
}

// PurgeLag implements scanner.Observer.
func (m *Metrics) PurgeLag(database int, lag time.Duration) {
	m.purgeLag.WithLabelValues(strconv.Itoa(database)).Set(lag.Seconds())
}

// Rearmed implements redistimer.Observer.
func (m *Metrics) Rearmed(b task.BizType, reason string, tasks int) {
	m.rearmed.WithLabelValues(b.Name, reason).Add(float64(tasks))
}

// ArmFailed implements redistimer.Observer.
func (m *Metrics) ArmFailed(b task.BizType, tasks int) {
	m.unarmed.WithLabelValues(b.Name).Add(float64(tasks))
}

// ClaimsExpired implements redistimer.Observer.
func (m *Metrics) ClaimsExpired(b task.BizType, tasks int) {
	m.expired.WithLabelValues(b.Name).Add(float64(tasks))
}

// Answered implements rest.Observer.
func (m *Metrics) Answered(route string, status int, took time.Duration) {
	s := m.answersOf(answerKey{route, status})
	s.requests.Inc()
	s.took.Observe(took.Seconds())
	if s.refused != nil {
		s.refused.Inc()
	}
}

// answerKey names the answers that are counted together.
type answerKey struct {
	route  string
	status int
}

// answers are the curried metrics of an answerKey.
type answers struct {
	requests, refused prometheus.Counter // refused is nil below 400
	took              prometheus.Observer
}

func (m *Metrics) answersOf(k answerKey) answers {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, known := m.answers[k]
	if !known {
		s = answers{requests: m.requests.WithLabelValues(k.route, strconv.Itoa(k.status)), took: m.answering.WithLabelValues(k.route)}
		if k.status >= 400 {
			s.refused = m.refused.WithLabelValues(k.route, reasonOf(k.status))
		}
		m.answers[k] = s
	}
	return s
}

// reasonOf is a status in a word.
func reasonOf(status int) string {
	switch status {
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		return "invalid"
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusMisdirectedRequest:
		return "not_allowed"
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return "not_found"
	case http.StatusConflict:
		return "conflict"
	case http.StatusPreconditionFailed:
		return "changed"
	case http.StatusRequestEntityTooLarge:
		return "too_large"
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		return "unavailable"
	case http.StatusInternalServerError:
		return "internal"
	}
	return strconv.Itoa(status)
}

// RoundTrip implements redistimer.Observer.
func (m *Metrics) RoundTrip(took time.Duration) { m.roundTrip.Observe(took.Seconds()) }

// IntakeRefused counts n refused records of an intake.
func (m *Metrics) IntakeRefused(name string, n int) { m.unstored.WithLabelValues(name).Add(float64(n)) }

// Produced observes how long the brokers of a Kafka cluster took to acknowledge a record.
func (m *Metrics) Produced(cluster string, took time.Duration) {
	m.produced.WithLabelValues(cluster).Observe(took.Seconds())
}

// SpansDropped counts n spans that were not exported.
func (m *Metrics) SpansDropped(n int) { m.spans.Add(float64(n)) }
