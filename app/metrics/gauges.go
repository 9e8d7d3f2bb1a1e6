package metrics

import (
	"math"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/timeoutcenter/toc/queue/limits"
	"github.com/timeoutcenter/toc/redistimer"
)

// State is what is read at the time of a scrape.
type State struct {
	Types           []TypeState
	Partitions      int // of the center
	PartitionsOwned int
	DatabaseUp      []bool  // by database: it can be read and takes writes
	Durable         []*bool // by database: its answered writes are on disk; nil: it has not said so yet
	RedisUp         *bool   // nil: no business type needs it
	ConsulUp        *bool   // nil: there is none
	LogDropped      uint64  // log lines so far
	Degraded        []Trouble
	Skews           []Skew
	IntakeLag       map[string]int64 // by the name of an intake
	UnknownPending  map[uint64]int   // by a biz_type that is not configured: overdue rows
}

// DueWithin are the spans of toc_due.
var DueWithin = [...]struct {
	Label string
	Span  time.Duration
}{{"1m", time.Minute}, {"10m", 10 * time.Minute}, {"1h", time.Hour}, {"1d", 24 * time.Hour}}

// TypeState is the state of a business type.
type TypeState struct {
	BizType       string
	QueueDepth    int
	Running       int
	Stuck         int // runs that have ignored their time-out
	Overdue       int
	OldestOverdue float64 // seconds
	Retrying      int
	OldestPromise float64 // seconds
	Paused        bool
	Throttled     map[limits.Kind]uint64   // of a limited one: refused starts so far
	SlotsDiffer   *redistimer.Differences  // nil: it has no slots
	Due           *[len(DueWithin)]float64 // nil: no task is due within a day
}

// Trouble is something that /readyz lists.
type Trouble struct {
	Reason   string // one of a few words
	Database int    // −1: it concerns none alone
}

// Skew is the difference from another clock.
type Skew struct {
	Of    string // redis, database or node
	Name  string
	Ahead time.Duration // of this machine's clock; negative: it is behind
}

// Watch registers the values that are read when they are asked for.
func (m *Metrics) Watch(state func() State) { m.registry.MustRegister(stateCollector(state)) }

type stateCollector func() State

// descs is all values of a Watch.
var descs []*prometheus.Desc

func desc(name, help string, labels ...string) *prometheus.Desc {
	d := prometheus.NewDesc(name, help, labels, nil)
	descs = append(descs, d)
	return d
}

var (
	depthDesc    = desc("toc_queue_depth", "Tasks in memory that have not started.", "biz_type")
	runningDesc  = desc("toc_running", "Tasks that have started and whose outcome is not durable yet.", "biz_type")
	stuckDesc    = desc("toc_runs_stuck", "Runs that have ignored their time-out for more than 10 seconds.", "biz_type")
	overdueDesc  = desc("toc_pending_overdue", "Pending tasks in the store whose time has passed, as of the last scan. While a database cannot be read, those in memory count, too.", "biz_type")
	oldestDesc   = desc("toc_oldest_overdue_seconds", "How long the oldest pending task is overdue, at most; 0 if none is. Grows while a database cannot be read.", "biz_type")
	retryingDesc = desc("toc_retrying", "Pending tasks that have failed and run again, as of the last scan.", "biz_type")
	promiseDesc  = desc("toc_oldest_promise_seconds", "How long ago the oldest promised time is of the pending tasks that are overdue or have failed; 0 if there is none. Retries do not move it.", "biz_type")
	pausedDesc   = desc("toc_paused", "Whether the biz_type is paused.", "biz_type")
	differDesc   = desc("toc_slots_differ", "Differences between the slots in Redis and the rows, as of the last read of each: pending tasks that a slot lacked although the read before had left them there (missing), and claimed ones that had not been pending for longer than a scan (ghost).", "biz_type", "kind")
	dueDesc      = desc("toc_due", "Pending tasks of this node's partitions that are due within a time from now on, as of the last minute; absent if none is due within a day.", "biz_type", "within")
	throttleDesc = desc("toc_throttled_total", "Looks at due tasks that a limit kept from starting, about 20 a second while they wait.", "biz_type", "by")
	unknownDesc  = desc("toc_unknown_type_pending", "Overdue tasks whose biz_type is not configured, as of the last scan.", "biz_type")
	allDesc      = desc("toc_partitions", "Partitions of the center.")
	ownedDesc    = desc("toc_partitions_owned", "Partitions that this node works on.")
	durableDesc  = desc("toc_durable", "Whether a database's answered writes survive a crash, by its settings.", "database")
	databaseDesc = desc("toc_database_up", "Whether a database can be read and takes writes.", "database")
	redisDesc    = desc("toc_redis_up", "Whether Redis answers for all slots of this node; absent if no biz_type has mode redis.")
	consulDesc   = desc("toc_consul_up", "Whether this node's heartbeats reach Consul; absent without Consul.")
	lagDesc      = desc("toc_intake_lag", "Records of this node's partitions of the topic that are not stored or refused yet.", "name")
	skewDesc     = desc("toc_clock_skew_seconds", "How far this machine's clock is ahead of another one; negative: behind.", "of", "name")
	logDesc      = desc("toc_log_dropped_total", "Log lines that were dropped because the log was not read, or not fast enough.")
	degradedDesc = desc("toc_degraded", "What /readyz lists: how many of each reason.", "reason", "database")
)

// Describe implements prometheus.Collector.
func (c stateCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range descs {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c stateCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	up := func(is bool) float64 {
		if is {
			return 1
		}
		return 0
	}
	s := c()
	gauge(allDesc, float64(s.Partitions))
	gauge(ownedDesc, float64(s.PartitionsOwned))
	for _, t := range s.Types {
		gauge(depthDesc, float64(t.QueueDepth), t.BizType)
		gauge(runningDesc, float64(t.Running), t.BizType)
		gauge(stuckDesc, float64(t.Stuck), t.BizType)
		gauge(overdueDesc, float64(t.Overdue), t.BizType)
		gauge(oldestDesc, t.OldestOverdue, t.BizType)
		gauge(retryingDesc, float64(t.Retrying), t.BizType)
		gauge(promiseDesc, t.OldestPromise, t.BizType)
		gauge(pausedDesc, up(t.Paused), t.BizType)
		if d := t.SlotsDiffer; d != nil {
			gauge(differDesc, float64(d.Missing), t.BizType, "missing")
			gauge(differDesc, float64(d.Ghost), t.BizType, "ghost")
		}
		if t.Due != nil {
			for i, n := range t.Due {
				gauge(dueDesc, math.Round(n), t.BizType, DueWithin[i].Label)
			}
		}
		for by, n := range t.Throttled {
			ch <- prometheus.MustNewConstMetric(throttleDesc, prometheus.CounterValue, float64(n), t.BizType, string(by))
		}
	}
	for id, rows := range s.UnknownPending {
		gauge(unknownDesc, float64(rows), strconv.FormatUint(id, 10))
	}
	for d, is := range s.DatabaseUp {
		gauge(databaseDesc, up(is), strconv.Itoa(d))
	}
	for d, is := range s.Durable {
		if is != nil {
			gauge(durableDesc, up(*is), strconv.Itoa(d))
		}
	}
	if s.RedisUp != nil {
		gauge(redisDesc, up(*s.RedisUp))
	}
	if s.ConsulUp != nil {
		gauge(consulDesc, up(*s.ConsulUp))
	}
	for name, lag := range s.IntakeLag {
		gauge(lagDesc, float64(lag), name)
	}
	for _, k := range s.Skews {
		gauge(skewDesc, k.Ahead.Seconds(), k.Of, k.Name)
	}
	ch <- prometheus.MustNewConstMetric(logDesc, prometheus.CounterValue, float64(s.LogDropped))
	count := make(map[Trouble]int)
	for _, t := range s.Degraded {
		count[t]++
	}
	for t, n := range count {
		database := ""
		if t.Database >= 0 {
			database = strconv.Itoa(t.Database)
		}
		gauge(degradedDesc, float64(n), t.Reason, database)
	}
}
