package sim_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/timeoutcenter/toc/internal/sim"
	"github.com/timeoutcenter/toc/internal/testrig"
)

var (
	seed   = flag.Uint64("seed", 0, "run this `seed` only")
	seeds  = flag.Uint64("seeds", 20, "how many seeds to run")
	nodes  = flag.Int("nodes", 0, "how many nodes; 0: one or three, as the seed says")
	length = flag.Duration("length", 10*time.Second, "how long, in virtual time; make sim has ten minutes")
	rate   = flag.Int("rate", 0, "tasks a second")
	small  = flag.Bool("small", false, "every queue, batch and horizon is as small as it can be")
	calm   = flag.Bool("calm", false, "no faults")
	only   = flag.String("only", "", "the `kinds` of faults, with commas between them")
	logs   = flag.Bool("log", false, "show the log of the nodes")
)

func TestMain(m *testing.M) {
	flag.Parse()
	debug.SetGCPercent(400) // a world lives for some seconds
	redis.SetLogger(quiet{})
	m.Run()
}

// quiet keeps the Redis client from writing what it fails at: a fault was injected.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// A center keeps its promises under load, whatever breaks.
func TestSim(t *testing.T) { simulate(t, sim.Options{Small: *small}) }

// So does one whose queues, batches, lookaheads and horizons are as small as they can be.
func TestSimSmall(t *testing.T) {
	testrig.OnlyInAll(t, "TestSim")
	simulate(t, sim.Options{Small: true})
}

func simulate(t *testing.T, o sim.Options) {
	if testing.Short() {
		t.Skip("-short: simulations keep the machine busy")
	}
	if *seeds == 0 || *nodes < 0 || *length <= 0 || *rate < 0 {
		t.Fatal("nothing to run: -seeds and -length are more than 0, -nodes and -rate not less")
	}
	first, last := uint64(1), *seeds
	if *seed > 0 {
		first, last = *seed, *seed
	}
	for n := first; n <= last; n++ {
		t.Run(fmt.Sprintf("seed %d", n), func(t *testing.T) {
			t.Parallel()
			o := o
			o.Nodes, o.Length, o.Calm, o.Rate, o.Log = *nodes, *length, *calm, *rate, io.Writer(nil)
			if o.Nodes == 0 {
				o.Nodes = []int{1, 3}[n%2]
			}
			if *only != "" {
				o.Only = strings.Split(*only, ",")
			}
			if *logs {
				o.Log = t.Output()
			}
			report(t, n, o, sim.Run(t, n, o))
		})
	}
}

// shown is how many breaches of a rule are told in full.
const shown = 3

// report fails the test for what is broken.
func report(t *testing.T, n uint64, o sim.Options, r sim.Result) {
	t.Logf("seed %d, %d nodes, %s: %s", n, o.Nodes, r.Took.Round(time.Millisecond), r.Summary)
	counts := map[string]int{}
	for _, b := range r.Breaches {
		if counts[b.Rule]++; counts[b.Rule] <= shown {
			t.Errorf("%s: %s", b.Rule, b.What)
		}
	}
	if len(r.Breaches) > 0 {
		t.Logf("%v\nonce more: go test ./internal/sim -run '^TestSim$' -seed=%d -nodes=%d -length=%s%s", counts, n, o.Nodes, o.Length, others(o))
	}
}

// others is the flags of a run that are not the default.
func others(o sim.Options) (text string) {
	if o.Small {
		text += " -small"
	}
	flag.Visit(func(f *flag.Flag) {
		if f.Name == "rate" || f.Name == "calm" || f.Name == "only" {
			text += fmt.Sprintf(" '-%s=%s'", f.Name, f.Value)
		}
	})
	return text
}
