package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// DueWithin are the spans of toc_due.
var DueWithin = [...]struct {
	Label string
	Span  time.Duration
}{{"1m", time.Minute}, {"10m", 10 * time.Minute}, {"1h", time.Hour}, {"1d", 24 * time.Hour}}

// Skew is the difference from another clock.
type Skew struct {
	Of    string // redis, database or node
	Name  string
	Ahead time.Duration // of this machine's clock; negative: it is behind
}

// Gauge is a metric whose values are read at the time of a scrape.
type Gauge struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

// Set reports a value of a gauge; labels are in the order of its declaration.
type Set func(g *Gauge, value float64, labels ...string)

// Bool is 1 or 0.
func Bool(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// Watch registers the gauges; read sets their values, once a scrape.
func (m *Metrics) Watch(read func(set Set)) { m.registry.MustRegister(gaugeCollector(read)) }

type gaugeCollector func(set Set)

// Describe implements prometheus.Collector.
func (c gaugeCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, g := range gauges {
		ch <- g.desc
	}
}

// Collect implements prometheus.Collector.
func (c gaugeCollector) Collect(ch chan<- prometheus.Metric) {
	c(func(g *Gauge, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(g.desc, g.kind, v, labels...)
	})
}

// gauges is all of them.
var gauges []*Gauge

func gauge(name, help string, labels ...string) *Gauge {
	g := &Gauge{prometheus.NewDesc(name, help, labels, nil), prometheus.GaugeValue}
	gauges = append(gauges, g)
	return g
}

// counter is a gauge that only grows.
func counter(name, help string, labels ...string) *Gauge {
	g := gauge(name, help, labels...)
	g.kind = prometheus.CounterValue
	return g
}

// The gauges.
var (
	QueueDepth      = gauge("toc_queue_depth", "Tasks in memory that have not started.", "biz_type")
	Running         = gauge("toc_running", "Tasks that have started and whose outcome is not durable yet.", "biz_type")
	RunsStuck       = gauge("toc_runs_stuck", "Runs that have ignored their time-out for more than 10 seconds.", "biz_type")
	PendingOverdue  = gauge("toc_pending_overdue", "Pending tasks in the store whose time has passed, as of the last scan. While a database cannot be read, those in memory count, too.", "biz_type")
	OldestOverdue   = gauge("toc_oldest_overdue_seconds", "How long the oldest pending task is overdue, at most; 0 if none is. Grows while a database cannot be read.", "biz_type")
	Retrying        = gauge("toc_retrying", "Pending tasks that have failed and run again, as of the last scan.", "biz_type")
	OldestPromise   = gauge("toc_oldest_promise_seconds", "How long ago the oldest promised time is of the pending tasks that are overdue or have failed; 0 if there is none. Retries do not move it.", "biz_type")
	Paused          = gauge("toc_paused", "Whether the biz_type is paused.", "biz_type")
	SlotsDiffer     = gauge("toc_slots_differ", "Differences between the slots in Redis and the rows, as of the last read of each: pending tasks that a slot lacked although the read before had left them there (missing), and claimed ones that had not been pending for longer than a scan (ghost).", "biz_type", "kind")
	Due             = gauge("toc_due", "Pending tasks of this node's partitions that are due within a time from now on, as of the last minute; absent if none is due within a day.", "biz_type", "within")
	Throttled       = counter("toc_throttled_total", "Looks at due tasks that a limit kept from starting, about 20 a second while they wait.", "biz_type", "by")
	UnknownType     = gauge("toc_unknown_type_pending", "Overdue tasks whose biz_type is not configured, as of the last scan.", "biz_type")
	Partitions      = gauge("toc_partitions", "Partitions of the center.")
	PartitionsOwned = gauge("toc_partitions_owned", "Partitions that this node works on.")
	Durable         = gauge("toc_durable", "Whether a database's answered writes survive a crash, by its settings.", "database")
	DatabaseUp      = gauge("toc_database_up", "Whether a database can be read and takes writes.", "database")
	RedisUp         = gauge("toc_redis_up", "Whether Redis answers for all slots of this node; absent if no biz_type has mode redis.")
	ConsulUp        = gauge("toc_consul_up", "Whether this node's heartbeats reach Consul; absent without Consul.")
	IntakeLag       = gauge("toc_intake_lag", "Records of this node's partitions of the topic that are not stored or refused yet.", "name")
	ClockSkew       = gauge("toc_clock_skew_seconds", "How far this machine's clock is ahead of another one; negative: behind.", "of", "name")
	LogDropped      = counter("toc_log_dropped_total", "Log lines that were dropped because the log was not read, or not fast enough.")
	Degraded        = gauge("toc_degraded", "What /readyz lists: how many of each reason.", "reason", "database")
)
