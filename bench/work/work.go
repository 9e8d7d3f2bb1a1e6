// Package work is the workloads: what is asked of each peer, and which numbers
// come of it. A workload gets a peer that is up and empty, and gives values; how
// often and in which order is not its business.
package work

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/timeoutcenter/toc/bench/peer"
	"github.com/timeoutcenter/toc/bench/result"
	"github.com/timeoutcenter/toc/bench/server"
	"github.com/timeoutcenter/toc/bench/stat"
)

// Sizes is how much of everything.
type Sizes struct {
	Singles    int           `json:"singles"`     // submit: tasks
	Batched    int           `json:"batched"`     // batch: tasks
	Rates      []int         `json:"rates"`       // lateness: tasks a second, a workload each
	Steady     time.Duration `json:"steady"`      // lateness: for so long
	Parked     int           `json:"parked"`      // crowd and idle: tasks over the next 30 days
	Crowd      int           `json:"crowd"`       // crowd: tasks due in one second
	Drain      int           `json:"drain"`       // drain: tasks due at one instant
	IdleFor    time.Duration `json:"idle_for"`    // idle: measured for so long
	IdleSettle time.Duration `json:"idle_settle"` // idle, growth: rest after parking, for what the servers still write
	Settle     time.Duration `json:"settle"`      // rest before the other workloads
	Armed      int           `json:"armed"`       // memory: tasks due within the hour
	Grown      []int         `json:"grown"`       // growth: parked tasks
	Calls      int           `json:"calls"`       // scripts: calls of each
}

// Full is what the project is judged by.
func Full() Sizes {
	return Sizes{
		Singles: 30_000, Batched: 200_000, Rates: []int{1000, 5000, 10_000}, Steady: 20 * time.Second,
		Parked: 1_000_000, Crowd: 20_000, Drain: 50_000, IdleFor: 60 * time.Second, IdleSettle: 100 * time.Second,
		Settle: 5 * time.Second, Armed: 200_000, Grown: []int{100_000, 1_000_000, 10_000_000}, Calls: 100_000,
	}
}

// Quick is small enough for all of it to end within a quarter of an hour.
func Quick() Sizes {
	return Sizes{
		Singles: 3000, Batched: 20_000, Rates: []int{1000}, Steady: 4 * time.Second,
		Parked: 20_000, Crowd: 2000, Drain: 4000, IdleFor: 3 * time.Second, IdleSettle: time.Second,
		Settle: 500 * time.Millisecond, Armed: 20_000, Grown: []int{5000, 20_000}, Calls: 20_000,
	}
}

// Workload is one kind of measurement.
type Workload struct {
	Name  string
	Title string
	Part  peer.Part // who takes part
	Sum   string    // the work in one sentence
	run   func(context.Context, *bench) error
}

// All lists the workloads of these sizes, in the order of the document.
func (s Sizes) All() []Workload {
	list := []Workload{
		{"submit", "Submit, single", peer.Submits, fmt.Sprintf("%s single submits from 32 callers, due over 30 days", count(s.Singles)), runSubmit},
		{"batch", "Submit, batches of 1,000", peer.Batches, fmt.Sprintf("%s tasks in batches of 1,000 from 8 callers, due over 30 days", count(s.Batched)), runBatch},
	}
	for _, rate := range s.Rates {
		list = append(list, Workload{
			fmt.Sprintf("lateness-%d", rate), fmt.Sprintf("Lateness, %s tasks a second", count(rate)), peer.Fires | peer.Submits,
			fmt.Sprintf("%s tasks a second for %s, each due 2 to 4 s after its submit", count(rate), s.Steady),
			func(ctx context.Context, b *bench) error { return runLateness(ctx, b, rate) },
		})
	}
	return append(list,
		Workload{"crowd", "Lateness of a crowd", peer.Fires | peer.Parks,
			fmt.Sprintf("%s tasks due within one second, with nothing parked and with %s parked over 30 days", count(s.Crowd), count(s.Parked)), runCrowd},
		Workload{"drain", "Drain", peer.Fires, fmt.Sprintf("%s tasks due at one instant, until the last outcome is recorded", count(s.Drain)), runDrain},
		Workload{"idle", "Idle", peer.Parks | peer.Fires, fmt.Sprintf("CPU for %s with %s tasks parked over 30 days", s.IdleFor, count(s.Parked)), runIdle},
		Workload{"memory", "Memory", peer.Parks | peer.Fires, fmt.Sprintf("memory of %s tasks due in 30 to 50 minutes", count(s.Armed)), runMemory},
		Workload{"growth", "Growth", peer.Grows, fmt.Sprintf("scan tick and %s single submits with %s parked rows, put in table by table", count(s.Singles), counts(s.Grown)), runGrowth},
		Workload{"nodes", "Nodes", peer.Clusters, fmt.Sprintf("%s single submits, then %s tasks due at one instant", count(s.Singles), count(s.Drain)), runNodes},
		Workload{"scripts", "Redis scripts", peer.Scripts, fmt.Sprintf("%s calls of each script by redis-benchmark, 32 connections", count(s.Calls)), runScripts},
	)
}

// For reports whether a peer takes part.
func (w Workload) For(i peer.Info) bool { return i.Has(w.Part) }

// Do measures a peer once. What it gives is valid only without an error.
func (w Workload) Do(ctx context.Context, p peer.Peer, env peer.Env, s Sizes) (result.Run, error) {
	b := &bench{Peer: p, sizes: s, run: result.Run{Peer: p.Info().Name, Values: map[string]float64{}}}
	err := p.Up(ctx, env)
	if err == nil {
		err = w.run(ctx, b)
	}
	return b.run, errors.Join(err, p.Down())
}

// bench is a peer during one run.
type bench struct {
	peer.Peer
	sizes Sizes
	run   result.Run
}

func (b *bench) set(key string, v float64) { b.run.Values[key] = v }

func counts(list []int) string {
	parts := make([]string, len(list))
	for i, n := range list {
		parts[i] = count(n)
	}
	return strings.Join(parts, ", ")
}

// count writes 1000000 as 1,000,000.
func count(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

const (
	soonest = 5 * time.Minute // parked tasks are not due while it is measured
	days30  = 30 * 24 * time.Hour
	callers = 32
	loaders = 8
	bulk    = 1000
)

// parked is a load of n tasks that are due over the next 30 days.
func parked(n, callers, batch int) peer.Load {
	return peer.Load{N: n, Callers: callers, Batch: batch, After: soonest, Spread: days30 - soonest}
}

// fill is the fastest way that a peer has for many tasks.
func (b *bench) fill(l peer.Load) peer.Load {
	l.Callers, l.Batch = callers, 1
	if b.Info().Has(peer.Batches) {
		l.Callers, l.Batch = loaders, bulk
	}
	return l
}

// warm opens connections and tables, with a few parked tasks, and lets the
// servers write what they have.
func (b *bench) warm(ctx context.Context) error {
	n := max(200, b.sizes.Singles/10)
	if _, err := b.Load(ctx, b.fill(parked(n, 0, 0))); err != nil {
		return fmt.Errorf("warm up: %w", err)
	}
	return rest(ctx, b.sizes.Settle)
}

func rest(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// usage is what each of a peer's processes has used.
func (b *bench) usage() (map[string]server.Usage, error) {
	used := make(map[string]server.Usage)
	for _, p := range b.Processes() {
		u, err := server.UsageOf(p.PID)
		if err != nil {
			return nil, err
		}
		if p.Name == "client" {
			// The servers are children of this process: their share is theirs.
			u, err = server.UsageAlone(p.PID)
			if err != nil {
				return nil, err
			}
		}
		used[p.Name] = u
	}
	return used, nil
}

// cpu runs f and gives the CPU time that all processes used meanwhile, by name.
func (b *bench) cpu(f func() error) (map[string]time.Duration, error) {
	before, err := b.usage()
	if err != nil {
		return nil, err
	}
	if err := f(); err != nil {
		return nil, err
	}
	after, err := b.usage()
	if err != nil {
		return nil, err
	}
	used := make(map[string]time.Duration)
	for name, u := range after {
		used[name] = u.CPU - before[name].CPU
	}
	return used, nil
}

func total(used map[string]time.Duration) (sum time.Duration) {
	for _, d := range used {
		sum += d
	}
	return sum
}

// quiet returns what this process does not need to the system.
func quiet() {
	runtime.GC()
	debug.FreeOSMemory()
}

// setCalls records the rate of the tasks and how long calls took.
func (b *bench) setCalls(prefix string, l peer.Loaded, n int) {
	b.set(prefix+"per_s", float64(n)/l.Took.Seconds())
	b.set(prefix+"p50_ms", millis(stat.Percentile(l.Calls, .5)))
	b.set(prefix+"p99_ms", millis(stat.Percentile(l.Calls, .99)))
}

// setLate records how late tasks were. A task that has not fired counts as late as
// patience, so that a peer that loses tasks does not look punctual.
func (b *bench) setLate(prefix string, fired []time.Duration, sent int) []time.Duration {
	late := slices.Clone(fired)
	for len(late) < sent {
		late = append(late, patience)
	}
	slices.Sort(late)
	for key, p := range map[string]float64{"p50_ms": .5, "p99_ms": .99, "p999_ms": .999, "max_ms": 1} {
		b.set(prefix+key, millis(stat.Percentile(late, p)))
	}
	early := 0
	for early < len(late) && late[early] < 0 {
		early++
	}
	b.set(prefix+"early", float64(early))
	b.set(prefix+"lost", float64(max(0, sent-len(fired))))
	b.set(prefix+"twice", float64(max(0, len(fired)-sent)))
	return late
}

func curve(late []time.Duration) []float64 {
	list := make([]float64, len(result.Quantiles))
	for i, q := range result.Quantiles {
		list[i] = millis(stat.Percentile(late, q))
	}
	return list
}
