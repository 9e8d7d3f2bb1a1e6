package report

import (
	"fmt"
	"math"
	"strings"

	"github.com/timeoutcenter/toc/bench/result"
)

// goal is a ratio or a difference that the project has set itself.
type goal struct {
	text string
	work string
	// measure gives what is compared with the target; not ok: something it needs was not measured.
	measure func(s result.Session) (value float64, ok bool)
	most    bool // the target is the most it may be, not the least
	target  float64
	unit    string
}

const (
	ours  = "toc/redis/8x128"
	large = "toc/redis/8x1024"
)

// others are the peers beside beanstalkd. One that is missing is left out: the table says so.
var others = []string{"asynq", "asynq/100ms", "river", "bullmq", "delayqueue"}

func goals() []goal {
	list := []goal{
		{"drain on 8×128, of beanstalkd's", "drain", ratio("per_s", ours, "beanstalkd"), false, 1.3, "×"},
		{"drain on 8×128, of the best other peer's", "drain", overBest("per_s", ours, others), false, 3, "×"},
		{"drain on 8×1024, of beanstalkd's", "drain", ratio("per_s", large, "beanstalkd"), false, 1, "×"},
		{"lateness p99 at 1,000/s, above beanstalkd's", "lateness-1000", func(s result.Session) (float64, bool) {
			a, b, ok := both(s, "p99_ms", ours, "beanstalkd")
			return a - b, ok
		}, true, 2, " ms"},
		{"lateness p99 at 1,000/s, of the best other peer's", "lateness-1000", underBest("p99_ms", ours, others), true, 0.1, "×"},
		{"single durable submit in process, of River's", "submit", ratio("per_s", ours, "river"), false, 2, "×"},
		{"single durable submit over HTTP, of River's", "submit", ratio("per_s", ours+"/http", "river"), false, 1, "×"},
		{"batch submit on 8×128, of the SQL floor's", "batch", ratio("per_s", ours, "sql-loop/8x128"), false, 0.85, "×"},
		{"batch submit on 8×1024, of the SQL floor's", "batch", ratio("per_s", large, "sql-loop/8x1024"), false, 0.85, "×"},
	}
	for _, key := range []string{"p50", "p99", "max"} {
		list = append(list, goal{"lateness " + key + " of a crowd, with a million parked, of the same with none (8×128)", "crowd", value("ratio_"+key, ours), true, 1.2, "×"})
	}
	for _, engine := range []string{"toc/scan/8x128", "toc/scan/8x1024"} {
		list = append(list,
			goal{"scan tick, most rows of fewest (" + engine + ")", "growth", value("scan_ratio", engine), true, 1.2, "×"},
			goal{"submit time, most rows of fewest (" + engine + ")", "growth", value("submit_ratio", engine), true, 1.2, "×"})
	}
	return list
}

func value(key, peer string) func(result.Session) (float64, bool) {
	return func(s result.Session) (float64, bool) {
		v, ok := s.Value(peer, key)
		return v.Median, ok
	}
}

func both(s result.Session, key, a, b string) (float64, float64, bool) {
	va, oka := s.Value(a, key)
	vb, okb := s.Value(b, key)
	return va.Median, vb.Median, oka && okb
}

func ratio(key, a, b string) func(result.Session) (float64, bool) {
	return func(s result.Session) (float64, bool) {
		va, vb, ok := both(s, key, a, b)
		return va / vb, ok && vb > 0
	}
}

// overBest compares with the highest of the others, underBest with the lowest.
func overBest(key, a string, others []string) func(result.Session) (float64, bool) {
	return against(key, a, others, math.Max)
}

func underBest(key, a string, others []string) func(result.Session) (float64, bool) {
	return against(key, a, others, math.Min)
}

func against(key, a string, others []string, better func(x, y float64) float64) func(result.Session) (float64, bool) {
	return func(s result.Session) (float64, bool) {
		best, found := 0.0, false
		for _, name := range others {
			if v, ok := s.Value(name, key); ok {
				if !found {
					best = v.Median
				}
				best, found = better(best, v.Median), true
			}
		}
		v, ok := s.Value(a, key)
		return v.Median / best, ok && found && best > 0
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
func (g goal) verdict(s result.Session, v float64) string {
	switch {
	case !s.Full:
		return "not judged: small sizes"
	case s.Repeats < judged:
		return "not judged: too few runs"
	case g.reached(v):
		return "reached"
	default:
		return "**not reached**"
	}
}

func writeGoals(b *strings.Builder, r result.Results) {
	fmt.Fprintf(b, "### Goals\n\nRatios of medians, each taken in one run. Judged are only full sizes and medians of %d runs or more.\n\n", judged)
	b.WriteString("| | goal | measured | |\n|---|---|---|---|\n")
	for _, g := range goals() {
		bound := "at least"
		if g.most {
			bound = "at most"
		}
		measured, verdict := "not measured", ""
		if s, ok := r.Of(g.work); ok {
			if v, ok := g.measure(s); ok {
				measured, verdict = number(v)+g.unit, g.verdict(s, v)
			}
		}
		fmt.Fprintf(b, "| %s | %s %s%s | %s | %s |\n", g.text, bound, number(g.target), g.unit, measured, verdict)
	}
	b.WriteByte('\n')
}
