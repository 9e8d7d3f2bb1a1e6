package metrics

import "github.com/prometheus/client_golang/prometheus"

// Gauge is a value read at the time of a scrape, by business type.
type Gauge struct {
	BizType       string
	QueueDepth    int
	Running       int
	Overdue       int
	OldestOverdue float64 // seconds
}

// Watch registers the values that are read when they are asked for.
func (m *Metrics) Watch(gauges func() []Gauge, partitionsOwned func() int) {
	m.registry.MustRegister(&gaugeCollector{gauges: gauges, owned: partitionsOwned})
}

type gaugeCollector struct {
	gauges func() []Gauge
	owned  func() int
}

var (
	depthDesc   = prometheus.NewDesc("toc_queue_depth", "Tasks in memory that have not started.", []string{"biz_type"}, nil)
	runningDesc = prometheus.NewDesc("toc_running", "Tasks that have started and whose outcome is not durable yet.", []string{"biz_type"}, nil)
	overdueDesc = prometheus.NewDesc("toc_pending_overdue", "Pending tasks in the store whose time has passed, as of the last scan.", []string{"biz_type"}, nil)
	oldestDesc  = prometheus.NewDesc("toc_oldest_overdue_seconds", "How long the oldest pending task is overdue; 0 if none is.", []string{"biz_type"}, nil)
	ownedDesc   = prometheus.NewDesc("toc_partitions_owned", "Partitions that this node works on.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c *gaugeCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{depthDesc, runningDesc, overdueDesc, oldestDesc, ownedDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *gaugeCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(ownedDesc, float64(c.owned()))
	for _, g := range c.gauges() {
		gauge(depthDesc, float64(g.QueueDepth), g.BizType)
		gauge(runningDesc, float64(g.Running), g.BizType)
		gauge(overdueDesc, float64(g.Overdue), g.BizType)
		gauge(oldestDesc, g.OldestOverdue, g.BizType)
	}
}
