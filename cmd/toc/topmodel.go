package main

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/timeoutcenter/toc/api"
)

// top is the picture of a center, as toc top --json prints it.
type top struct {
	At         api.Time      `json:"at"`
	Partitions int           `json:"partitions"`
	NoOwner    int           `json:"without_owner"`
	Faults     []topFault    `json:"faults"`
	BizTypes   []topBizType  `json:"biz_types"`
	Nodes      []topNode     `json:"nodes"`
	Databases  []topDatabase `json:"databases"`
}

// topFault is a line of a node's /readyz, or why it does not answer.
type topFault struct {
	Node string `json:"node"`
	Text string `json:"text"`
}

// topLoad is the work of a node, or of a business type.
type topLoad struct {
	Waiting int     `json:"waiting"` // in memory, not started
	Running int     `json:"running"`
	Runs    float64 `json:"runs_per_second"`
}

type topBizType struct {
	Name string `json:"biz_type"`
	topLoad
	Failed   float64  `json:"failed_runs_per_second"`
	LateP99  *float64 `json:"late_p99_seconds"` // of the runs since the reading before; nil: there was none
	Overdue  int      `json:"overdue"`
	Oldest   float64  `json:"oldest_overdue_seconds"`
	Retrying int      `json:"retrying"`
	Promise  float64  `json:"oldest_promise_seconds"`
	Died     int      `json:"died"` // since the nodes were started
	Paused   bool     `json:"paused"`
}

type topNode struct {
	Name    string `json:"node"`
	Address string `json:"address"`
	Answers bool   `json:"answers"`
	Ready   bool   `json:"ready"`
	topLoad
	Partitions int     `json:"partitions"`
	ClockSkew  float64 `json:"clock_skew_seconds"` // from the clock that differs most
}

type topDatabase struct {
	Number string   `json:"database"`
	Up     bool     `json:"up"`               // for all nodes that answer
	Read   *float64 `json:"read_seconds_ago"` // the last complete scan by any node; nil: there was none
}

// sum adds up the samples of a metric that have a label's value; an empty label takes all.
func (s series) sum(metric, label, value string) (sum float64) {
	for _, x := range s[metric] {
		if label == "" || x.labels[label] == value {
			sum += x.value
		}
	}
	return sum
}

// newTop makes the picture from two readings.
func newTop(before, now reading) top {
	t := top{
		At: api.Time(now.at), Partitions: now.cluster.Partitions, Faults: []topFault{}, BizTypes: []topBizType{}, Nodes: []topNode{},
		Databases: []topDatabase{},
	}
	earlier := make(map[string]series)
	for i, n := range before.cluster.Nodes {
		earlier[n.Name] = before.nodes[i].metrics
	}
	seconds := now.at.Sub(before.at).Seconds()
	types, databases := make(map[string]*topType), make(map[string]*topDatabase)
	owned := make(map[int]bool)
	for i, n := range now.cluster.Nodes {
		for _, p := range n.Partitions {
			owned[p] = true
		}
		r := &now.nodes[i]
		node := topNode{Name: n.Name, Address: n.Address, Answers: r.err == nil, Ready: r.ready.Ready, Partitions: len(n.Partitions)}
		if r.err != nil {
			t.Faults = append(t.Faults, topFault{n.Name, "does not answer: " + r.err.Error()})
			t.Nodes = append(t.Nodes, node)
			continue
		}
		for _, text := range r.ready.Degraded {
			t.Faults = append(t.Faults, topFault{n.Name, text})
		}
		m := r.metrics
		node.topLoad = loadOf(earlier[n.Name], m, "", "", seconds)
		for _, x := range m["toc_clock_skew_seconds"] {
			if math.Abs(x.value) > math.Abs(node.ClockSkew) {
				node.ClockSkew = x.value
			}
		}
		t.Nodes = append(t.Nodes, node)
		addTypes(types, earlier[n.Name], m, seconds)
		addDatabases(databases, m, now.at)
	}
	t.NoOwner = t.Partitions - len(owned)
	for _, name := range slices.Sorted(maps.Keys(types)) {
		t.BizTypes = append(t.BizTypes, types[name].finish())
	}
	for _, d := range databases {
		t.Databases = append(t.Databases, *d)
	}
	slices.SortFunc(t.Databases, func(a, b topDatabase) int {
		x, _ := strconv.Atoi(a.Number)
		y, _ := strconv.Atoi(b.Number)
		return cmp.Compare(x, y)
	})
	return t
}

// loadOf is the work by a label, on one node.
func loadOf(before, now series, label, value string, seconds float64) topLoad {
	l := topLoad{Waiting: int(now.sum("toc_queue_depth", label, value)), Running: int(now.sum("toc_running", label, value))}
	ran := now.sum("toc_runs_total", label, value) - before.sum("toc_runs_total", label, value)
	if before != nil && seconds > 0 && ran > 0 { // less than 0: the node was restarted
		l.Runs = ran / seconds
	}
	return l
}

// failedRuns is the number of failed runs of a business type a second, on one node.
func failedRuns(before, now series, name string, seconds float64) float64 {
	failed := now.runs(name, "failed", "dead") - before.runs(name, "failed", "dead")
	if before == nil || seconds <= 0 { // less than 0: the node was restarted
		return 0
	}
	return max(0, failed/seconds)
}

// runs counts the runs of a business type with some outcomes.
func (s series) runs(name string, outcomes ...string) (n float64) {
	for _, run := range s["toc_runs_total"] {
		if run.labels["biz_type"] == name && slices.Contains(outcomes, run.labels["outcome"]) {
			n += run.value
		}
	}
	return n
}

// topType is a business type while its nodes are added up.
type topType struct {
	topBizType
	late map[float64]float64 // lateness buckets of the runs since the reading before
}

func addTypes(types map[string]*topType, before, now series, seconds float64) {
	const label = "biz_type"
	for _, x := range now["toc_queue_depth"] {
		name := x.labels[label]
		b := types[name]
		if b == nil {
			b = &topType{topBizType: topBizType{Name: name}, late: make(map[float64]float64)}
			types[name] = b
		}
		l := loadOf(before, now, label, name, seconds)
		b.Waiting, b.Running, b.Runs = b.Waiting+l.Waiting, b.Running+l.Running, b.Runs+l.Runs
		b.Overdue += int(now.sum("toc_pending_overdue", label, name))
		b.Oldest = max(b.Oldest, now.sum("toc_oldest_overdue_seconds", label, name))
		b.Retrying += int(now.sum("toc_retrying", label, name))
		b.Promise = max(b.Promise, now.sum("toc_oldest_promise_seconds", label, name))
		b.Failed += failedRuns(before, now, name, seconds)
		b.Paused = b.Paused || now.sum("toc_paused", label, name) > 0
		b.Died += int(now.runs(name, "dead"))
		for _, h := range now["toc_lateness_seconds"] {
			if h.labels[label] == name {
				h.addSince(b.late, before["toc_lateness_seconds"])
			}
		}
	}
}

// addSince adds what a histogram has counted since the samples before.
func (h sample) addSince(sum map[float64]float64, before []sample) {
	i := slices.IndexFunc(before, func(o sample) bool { return maps.Equal(o.labels, h.labels) })
	for bound, n := range h.buckets {
		if i >= 0 {
			if o := before[i].buckets; o[math.Inf(1)] <= h.buckets[math.Inf(1)] { // else the node was restarted
				n -= o[bound]
			}
		}
		sum[bound] += n
	}
}

func (b *topType) finish() topBizType {
	if b.late[math.Inf(1)] > 0 {
		p99 := quantile(0.99, b.late)
		b.LateP99 = &p99
	}
	return b.topBizType
}

// quantile estimates a quantile of cumulated counts by upper bound, as Prometheus does: linear in its bucket, and the
// last finite bound above that.
func quantile(q float64, buckets map[float64]float64) float64 {
	rank := q * buckets[math.Inf(1)]
	bound, count := 0.0, 0.0
	for _, upper := range slices.Sorted(maps.Keys(buckets)) {
		n := buckets[upper]
		switch {
		case n < rank:
			bound, count = upper, n
		case math.IsInf(upper, 1):
			return bound
		default:
			return bound + (upper-bound)*(rank-count)/(n-count)
		}
	}
	return bound
}

func addDatabases(databases map[string]*topDatabase, m series, now time.Time) {
	for _, x := range m["toc_database_up"] {
		number := x.labels["database"]
		if databases[number] == nil {
			databases[number] = &topDatabase{Number: number, Up: true}
		}
		databases[number].Up = databases[number].Up && x.value > 0
	}
	for _, x := range m["toc_last_scan_timestamp_seconds"] {
		d := databases[x.labels["database"]]
		if d == nil {
			continue
		}
		ago := max(0, float64(now.UnixMilli())/1000-x.value)
		if d.Read == nil || ago < *d.Read {
			d.Read = &ago
		}
	}
}
