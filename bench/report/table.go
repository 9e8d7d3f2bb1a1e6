package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/timeoutcenter/toc/bench/result"
	"github.com/timeoutcenter/toc/bench/stat"
)

// column is one value of a workload.
type column struct {
	key, head string
}

var columns = map[string][]column{
	"submit": {{"per_s", "tasks/s"}, {"p50_ms", "call p50, ms"}, {"p99_ms", "call p99, ms"}, {"cpu_us", "CPU µs/task"}},
	"batch":  {{"per_s", "tasks/s"}, {"p50_ms", "call p50, ms"}, {"p99_ms", "call p99, ms"}, {"cpu_us", "CPU µs/task"}},
	"lateness": {{"p50_ms", "p50, ms"}, {"p99_ms", "p99, ms"}, {"p999_ms", "p99.9, ms"}, {"max_ms", "max, ms"}, {"rate_per_s", "submitted/s"}, {"cpu_percent", "CPU, % of a core"},
		{"cpu_us", "CPU µs/task"}, {"client_us", "of it the process with the library"}, {"server_us", "database or broker"}, {"redis_us", "Redis"}},
	"crowd": {{"first_p99_ms", "first crowd: p99, ms"}, {"p50_ms", "second crowd: p50, ms"}, {"p99_ms", "p99, ms"}, {"max_ms", "max, ms"}},
	"kill":  {{"before", "fired at the kill"}, {"lost", "not run, after 3 min in which none ran"}, {"twice", "ran twice"}, {"last_s", "the last one late by, s"}},
	"keep": {{"rate_per_s", "submitted/s"}, {"first_rows", "rows, first part"}, {"last_rows", "last part"}, {"ratio_rows", "ratio"}, {"first_p99_ms", "p99 late, first part, ms"},
		{"last_p99_ms", "last part"}, {"ratio_p99_ms", "ratio"}, {"first_cpu_us", "CPU µs/task, first part"}, {"last_cpu_us", "last part"}, {"ratio_cpu_us", "ratio"}},
	"drain": {{"per_s", "tasks/s"}, {"flow_per_s", "tasks/s from the first on"}, {"first_ms", "first after, ms"}, {"cpu_us", "CPU µs/task"}},
	"idle":  {{"cpu_percent", "CPU, % of a core"}, {"client_percent", "of it the process with the library"}, {"servers_percent", "servers"}, {"park_per_s", "parked/s"}},
	"memory": {{"redis_bytes", "Redis used_memory, bytes/task"}, {"client_bytes", "process with the library, bytes/task"},
		{"servers_bytes", "servers, bytes/task"}},
	"nodes": {{"submit_per_s", "submits/s"}, {"submit_p99_ms", "submit p99, ms"}, {"drain_per_s", "drained/s"}, {"drain_p99_ms", "drain p99 late, ms"}},
	"scripts": {{"arm_1_per_s", "arm, calls/s"}, {"claim_1_per_s", "claim"}, {"settle_1_per_s", "settle"},
		{"arm_16_per_s", "arm, pipeline of 16"}, {"claim_16_per_s", "claim, 16"}, {"settle_16_per_s", "settle, 16"}},
}

// tableOf gives a workload's columns; those of growth follow from its sizes.
func tableOf(s result.Session) []column {
	kind, _, _ := parts(s.Work)
	if kind == "growth" {
		return growthColumns(s)
	}
	return columns[kind]
}

// grownTo lists the sizes that a growth session went through.
func grownTo(s result.Session) (sizes []int) {
	for _, r := range s.Runs {
		for key := range r.Values {
			if size, err := strconv.Atoi(strings.TrimSuffix(key, "_scan_ms")); err == nil && !slices.Contains(sizes, size) {
				sizes = append(sizes, size)
			}
		}
	}
	slices.Sort(sizes)
	return sizes
}

func growthColumns(s result.Session) (list []column) {
	sizes := grownTo(s)
	for _, size := range sizes {
		list = append(list, column{fmt.Sprintf("%d_scan_ms", size), "scan of a database at " + thousands(float64(size)) + ", ms"})
	}
	list = append(list, column{"scan_ratio", "ratio"})
	for _, size := range sizes {
		list = append(list, column{fmt.Sprintf("%d_per_s", size), "submits/s at " + thousands(float64(size))})
	}
	return append(list, column{"submit_ratio", "ratio"})
}

// show is a cell: the median, and what it lies between if there were several runs.
func (c column) show(s result.Session, peer string) string {
	v, ok := s.Value(peer, c.key)
	if !ok {
		return "–"
	}
	return summary(v)
}

func summary(v stat.Summary) string {
	if v.Repeats == 1 {
		return number(v.Median)
	}
	return fmt.Sprintf("%s (%s–%s)", number(v.Median), number(v.Min), number(v.Max))
}

// number has three digits, or all before the point.
func number(v float64) string {
	switch size := math.Abs(v); {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "–"
	case size >= 100 || v == math.Trunc(v):
		return thousands(v)
	case size >= 10:
		return minus(strconv.FormatFloat(v, 'f', 1, 64))
	default:
		return minus(strconv.FormatFloat(v, 'f', 2, 64))
	}
}

// thousands writes 1204.4 as 1,204.
func thousands(v float64) string {
	s := strconv.FormatFloat(math.Abs(v), 'f', 0, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	if v <= -0.5 {
		return "−" + s
	}
	return s
}

// minus writes a minus sign, not a hyphen.
func minus(s string) string { return strings.Replace(s, "-", "−", 1) }

// limits writes what the machine could do.
func limits(values map[string]float64) string {
	var list []string
	add := func(key, format string, with ...any) {
		if v, ok := values[key]; ok {
			list = append(list, fmt.Sprintf(format, append([]any{number(v)}, with...)...))
		}
	}
	if spin, ok := values["spin_per_s"]; ok {
		list = append(list, "loop "+number(spin/1e6)+" M/s")
	}
	add("fsync_p50_ms", "fsync %s ms")
	add("redis_1_per_s", "Redis %s/s")
	add("redis_16_per_s", "in pipelines of 16 %s/s")
	var tables []int
	for key := range values {
		if n, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(key, "insert_"), "_per_s")); err == nil {
			tables = append(tables, n)
		}
	}
	slices.Sort(tables)
	for _, n := range tables {
		list = append(list, fmt.Sprintf("8×%d tables: %s rows/s inserted, %s finished", n,
			number(values[fmt.Sprintf("insert_%d_per_s", n)]), number(values[fmt.Sprintf("finish_%d_per_s", n)])))
	}
	return strings.Join(list, "; ")
}
