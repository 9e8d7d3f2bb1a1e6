package sim_test

import (
	"flag"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/timeoutcenter/toc/internal/sim"
)

var (
	seed    = flag.Uint64("seed", 0, "the only seed to run")
	seeds   = flag.Uint64("seeds", 20, "how many seeds")
	nodes   = flag.Int("nodes", 1, "nodes")
	length  = flag.Duration("length", 10*time.Minute, "virtual time")
	rate    = flag.Int("rate", 0, "tasks a second")
	small   = flag.Bool("small", false, "small")
	calm    = flag.Bool("calm", false, "no faults")
	only    = flag.String("only", "", "kinds of faults")
	verbose = flag.Bool("log", false, "the log of the nodes")
)

func TestSim(t *testing.T) {
	list := []uint64{*seed}
	if *seed == 0 {
		list = nil
		for n := range *seeds {
			list = append(list, n+1)
		}
	}
	for _, n := range list {
		o := sim.Options{Nodes: *nodes, Length: *length, Small: *small, Calm: *calm, Rate: *rate}
		if *verbose {
			o.Log = t.Output()
		}
		if *only != "" {
			o.Only = strings.Split(*only, ",")
		}
		r := sim.Run(t, n, o)
		t.Logf("seed %d, %s: %s", n, r.Took.Round(time.Millisecond), r.Summary)
		for _, rule := range slices.Sorted(maps.Keys(r.Broken)) {
			list := r.Broken[rule]
			t.Errorf("seed %d: %d %s", n, len(list), rule)
			for _, what := range list[:min(3, len(list))] {
				t.Log("   ", what)
			}
		}
	}
}
