package report

import (
	"fmt"
	"math"
	"strings"

	"github.com/timeoutcenter/toc/bench/result"
)

// goal is a ratio or a difference that the project has set itself.
type goal struct {
	text    string
	work    string
	measure measure
	most    bool // the target is the most it may be, not the least
	target  float64
	unit    string
	over    string // the workload whose measure that of work is divided by; empty: none
}

// measure gives what is compared with a target, and of how many runs the medians
// in it are at least; of 0 if something it needs was not measured.
type measure func(s result.Session) (value float64, runs int)

const (
	ours  = "toc/redis/8x128"
	large = "toc/redis/8x1024"
)

// others are the peers beside beanstalkd. One that is missing is left out: the table says so.
var others = []string{"asynq", "asynq/100ms", "river", "bullmq", "delayqueue"}

func goals() []goal {
	list := []goal{
		{"drain on 8×128, of beanstalkd's", "drain", ratio("per_s", ours, "beanstalkd"), false, 1.3, "×", ""},
		{"drain on 8×128, of the best of River, asynq and BullMQ", "drain", overBest("per_s", ours, others), false, 3, "×", ""},
		{"drain on 8×1024, of beanstalkd's", "drain", ratio("per_s", large, "beanstalkd"), false, 1, "×", ""},
		{"lateness p99 at 1,000/s, above beanstalkd's", "lateness-1000", above("p99_ms", ours, "beanstalkd"), true, 2, " ms", ""},
		{"lateness p99 at 1,000/s, of the best of River, asynq and BullMQ", "lateness-1000", underBest("p99_ms", ours, others), true, 0.1, "×", ""},
		{"single durable submit in process, of River's", "submit", ratio("per_s", ours, "river"), false, 2, "×", ""},
		{"single durable submit over HTTP, of River's", "submit", ratio("per_s", ours+"/http", "river"), false, 1, "×", ""},
		{"batch submit on 8×128, of the SQL floor's", "batch", ratio("per_s", ours, "sql-loop/8x128"), false, 0.85, "×", ""},
		{"batch submit on 8×1024, of the SQL floor's", "batch", ratio("per_s", large, "sql-loop/8x1024"), false, 0.85, "×", ""},
	}
	for _, key := range []string{"p50", "p99", "max"} {
		list = append(list, goal{text: "lateness " + key + " of a crowd beside a million parked tasks, of one beside none (8×128)", work: "crowd+1m", over: "crowd",
			measure: value(key+"_ms", ours), most: true, target: 1.2, unit: "×"})
	}
	for _, engine := range []string{"toc/scan/8x128", "toc/scan/8x1024"} {
		list = append(list,
			goal{"scan tick, most rows of fewest (" + engine + ")", "growth", value("scan_ratio", engine), true, 1.2, "×", ""},
			goal{"submit time, most rows of fewest (" + engine + ")", "growth", value("submit_ratio", engine), true, 1.2, "×", ""})
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

func above(key, a, b string) measure {
	return func(s result.Session) (float64, int) {
		va, _ := s.Value(a, key)
		vb, _ := s.Value(b, key)
		return va.Median - vb.Median, min(va.Repeats, vb.Repeats)
	}
}

func against(key, a string, others []string, better func(x, y float64) float64) measure {
	return func(s result.Session) (float64, int) {
		v, _ := s.Value(a, key)
		runs := v.Repeats
		var medians []float64
		for _, name := range others {
			if o, ok := s.Value(name, key); ok {
				medians, runs = append(medians, o.Median), min(runs, o.Repeats)
			}
		}
		if len(medians) == 0 {
			return 0, 0
		}
		best := medians[0]
		for _, m := range medians {
			best = better(best, m)
		}
		if best <= 0 {
			return 0, 0
		}
		return v.Median / best, runs
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
	fmt.Fprintf(b, "## Goals\n\nEach value is a ratio or a difference of medians of one table (of two where parked tasks are compared). Only full sizes and medians of %d runs or more are judged.\n\n", judged)
	b.WriteString("| | goal | measured | |\n|---|---|---|---|\n")
	for _, g := range goals() {
		bound := "at least"
		if g.most {
			bound = "at most"
		}
		measured, verdict := "not measured", ""
		if s, v, runs := g.newest(r, g.work); runs > 0 {
			if g.over != "" {
				_, of, others := g.newest(r, g.over)
				v, runs = v/max(of, 1e-9), min(runs, others)
			}
			if runs > 0 {
				measured, verdict = number(v)+g.unit, g.verdict(s, v, runs)
			}
		}
		fmt.Fprintf(b, "| %s | %s %s%s | %s | %s |\n", g.text, bound, number(g.target), g.unit, measured, verdict)
	}
	b.WriteByte('\n')
}
