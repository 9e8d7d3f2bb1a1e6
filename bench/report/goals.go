package report

import (
	"fmt"
	"math"
	"strings"

	"github.com/timeoutcenter/toc/bench/result"
	"github.com/timeoutcenter/toc/bench/stat"
)

// goal is a value, a ratio or a difference that the project has set itself.
type goal struct {
	text    string
	work    string
	measure measure
	most    bool // the target is the most it may be, not the least
	target  float64
	unit    string
}

// measure gives what is compared with a target, and of how many runs the medians
// in it are at least; of 0 if something it needs was not measured. Of several systems the median of the best counts.
type measure func(s result.Session) (value float64, runs int)

const (
	ours  = "toc/redis/8x128"
	large = "toc/redis/8x1024"
)

// durable are the peers that, like toc, answer a submit when it is on disk. One that is missing is left out: the table says so.
var durable = []string{"artemis", "rocketmq/100ms", "rocketmq/1000ms", "river", "db-scheduler", "quartz", "jobrunr", "dbos", "nats"}

func goals() []goal {
	const most, least = true, false
	list := []goal{
		{"single submits over HTTP", "submit", value("per_s", ours+"/http"), least, 12_000, "/s"},
		{"the same, of the best durable system's", "submit", overBest("per_s", ours+"/http", durable), least, 1, "×"},
		{"batch submit on 8×128, of the SQL floor's", "batch", ratio("per_s", ours, "sql-loop/8x128"), least, 0.85, "×"},
		{"batch submit on 8×1024, of the SQL floor's", "batch", ratio("per_s", large, "sql-loop/8x1024"), least, 0.85, "×"},
		{"drain on 8×128, of beanstalkd's", "drain", ratio("per_s", ours, "beanstalkd"), least, 2.5, "×"},
		{"drain on 8×128, of the best durable system's", "drain", overBest("per_s", ours, durable), least, 1, "×"},
		{"drain on 8×1024, of beanstalkd's", "drain", ratio("per_s", large, "beanstalkd"), least, 1.5, "×"},
		{"drain by pull, of that in process", "drain", ratio("per_s", ours+"/pull", ours), least, 0.5, "×"},
		{"drain by pull, of beanstalkd's", "drain", ratio("per_s", ours+"/pull", "beanstalkd"), least, 1, "×"},
		{"lateness p99 at 1,000/s, of beanstalkd's", "lateness-1000", ratio("p99_ms", ours, "beanstalkd"), most, 1, "×"},
		{"lateness p99 at 1,000/s, of the best durable system's", "lateness-1000", underBest("p99_ms", ours, durable), most, 1, "×"},
		{"CPU a task at 1,000/s, of all processes", "lateness-1000", value("cpu_us", ours), most, 450, " µs"},
		{"lateness p99 at 5,000/s", "lateness-5000", value("p99_ms", ours), most, 8, " ms"},
		{"the same, of the best durable system's", "lateness-5000", underBest("p99_ms", ours, durable), most, 1, "×"},
		{"lateness p99 at 10,000/s", "lateness-10000", value("p99_ms", ours), most, 35, " ms"},
		{"the same, of the best durable system's", "lateness-10000", underBest("p99_ms", ours, durable), most, 1, "×"},
		{"CPU a task at 10,000/s, of all processes", "lateness-10000", value("cpu_us", ours), most, 110, " µs"},
		{"lateness p99 of a crowd of 20,000 beside a million parked tasks", "crowd+1m", value("p99_ms", ours), most, 100, " ms"},
		{"the same, of the best durable system's", "crowd+1m", underBest("p99_ms", ours, durable), most, 1, "×"},
		{"CPU of all processes beside a million parked tasks, nothing due", "idle+1m", value("cpu_percent", ours), most, 1, " % of a core"},
		{"Redis' memory of a task that is due within the hour", "memory", value("redis_bytes", ours), most, 100, " bytes"},
	}
	for _, engine := range []string{"toc/scan/8x128", "toc/scan/8x1024", "toc/scan/embedded"} {
		list = append(list,
			goal{"scan tick, most rows of fewest (" + engine + ")", "growth", value("scan_ratio", engine), most, 1.2, "×"},
			goal{"submit time, most rows of fewest (" + engine + ")", "growth", value("submit_ratio", engine), most, 1.2, "×"})
	}
	for _, engine := range []string{ours, "toc/scan/8x128"} {
		for _, of := range []struct{ what, key string }{{"rows", "ratio_rows"}, {"lateness p99", "ratio_p99_ms"}, {"CPU a task", "ratio_cpu_us"}} {
			list = append(list, goal{"half an hour of submit, fire and purge, " + of.what + " at the end, of those at the start (" + engine + ")",
				"keep", value(of.key, engine), most, 1.2, "×"})
		}
	}
	return list
}

func value(key, peer string) measure {
	return func(s result.Session) (float64, int) {
		v, _ := s.Value(peer, key)
		return v.Median, v.Repeats
	}
}

func ratio(key, a, b string) measure { return against(key, a, []string{b}, math.Max) }

// overBest compares with the highest of the others, underBest with the lowest.
func overBest(key, a string, others []string) measure { return against(key, a, others, math.Max) }

func underBest(key, a string, others []string) measure { return against(key, a, others, math.Min) }

func against(key, a string, others []string, better func(x, y float64) float64) measure {
	return func(s result.Session) (float64, int) {
		v, _ := s.Value(a, key)
		var best stat.Summary
		for _, name := range others {
			if o, ok := s.Value(name, key); ok && (best.Repeats == 0 || better(best.Median, o.Median) == o.Median) {
				best = o
			}
		}
		if best.Median <= 0 {
			return 0, 0
		}
		return v.Median / best.Median, min(v.Repeats, best.Repeats)
	}
}

// reached compares what was measured, not what is printed of it.
func (g goal) reached(v float64) bool {
	if g.most {
		return v <= g.target
	}
	return v >= g.target
}

// judged is how many runs a median needs.
const judged = 3

// verdict says nothing of a look in passing.
func (g goal) verdict(s result.Session, v float64, runs int) string {
	switch {
	case !s.Full:
		return "not judged: small sizes"
	case runs < judged:
		return "not judged: too few runs"
	case g.reached(v):
		return "reached"
	default:
		return "**not reached**"
	}
}

// newest measures by the newest session of a workload that has all it needs.
func (g goal) newest(r result.Results, work string) (s result.Session, v float64, runs int) {
	for _, s = range r.Of(work) {
		if v, runs = g.measure(s); runs > 0 {
			break
		}
	}
	return s, v, runs
}

func writeGoals(b *strings.Builder, r result.Results) {
	fmt.Fprintf(b, "## Goals\n\nEach value is a median, or a ratio of medians of one table. Only full sizes and medians of %d runs or more are judged.\n\n", judged)
	b.WriteString("| | goal | measured | |\n|---|---|---|---|\n")
	for _, g := range goals() {
		bound := "at least"
		if g.most {
			bound = "at most"
		}
		measured, verdict := "not measured", ""
		if s, v, runs := g.newest(r, g.work); runs > 0 {
			measured, verdict = number(v)+g.unit, g.verdict(s, v, runs)
		}
		fmt.Fprintf(b, "| %s | %s %s%s | %s | %s |\n", g.text, bound, number(g.target), g.unit, measured, verdict)
	}
	b.WriteByte('\n')
}
