// Package work is the workloads: what is asked of each peer, and which numbers
// come of it. A workload gets a peer that is up, and empty or beside parked tasks,
// and gives values; how often is not its business.
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
	Parked     []int         `json:"parked"`      // tasks over the next 30 days, before the work; 0: none
	Crowd      int           `json:"crowd"`       // crowd and kill: tasks
	Drain      int           `json:"drain"`       // drain: tasks due at one instant
	IdleFor    time.Duration `json:"idle_for"`    // idle: measured for so long
	IdleSettle time.Duration `json:"idle_settle"` // rest after parking, for what the servers still write
	Settle     time.Duration `json:"settle"`      // rest before each workload
	Armed      int           `json:"armed"`       // memory: tasks due within the hour
	Grown      []int         `json:"grown"`       // growth: parked tasks
	Calls      int           `json:"calls"`       // scripts: calls of each
	Keep       time.Duration `json:"keep"`        // keep: for so long
	KeepRate   int           `json:"keep_rate"`   // keep: tasks a second
	Retention  time.Duration `json:"retention"`   // keep: of what has fired
	Tables     []int         `json:"tables"`      // of each of 8 databases, for the limits of the machine
}

// Full is what the project is judged by.
func Full() Sizes {
	return Sizes{
		Singles: 30_000, Batched: 200_000, Rates: []int{1000, 5000, 10_000}, Steady: 20 * time.Second,
		Parked: []int{0, 1_000_000}, Crowd: 20_000, Drain: 50_000, IdleFor: 60 * time.Second, IdleSettle: 100 * time.Second,
		Settle: 5 * time.Second, Armed: 200_000, Grown: []int{100_000, 1_000_000, 10_000_000}, Calls: 100_000,
		Keep: 30 * time.Minute, KeepRate: 5000, Retention: 3 * time.Minute, Tables: []int{16, 128, 1024},
	}
}

// Quick is small enough for all of it to end within a quarter of an hour.
func Quick() Sizes {
	return Sizes{
		Singles: 3000, Batched: 20_000, Rates: []int{1000}, Steady: 4 * time.Second,
		Parked: []int{0, 20_000}, Crowd: 2000, Drain: 4000, IdleFor: 3 * time.Second, IdleSettle: time.Second,
		Settle: 500 * time.Millisecond, Armed: 20_000, Grown: []int{5000, 20_000}, Calls: 20_000,
		Keep: 12 * time.Second, KeepRate: 200, Retention: 3 * time.Second, Tables: []int{16, 128},
	}
}

// Workload is one kind of measurement.
type Workload struct {
	Name   string
	Title  string
	Part   peer.Part     // who takes part
	Sum    string        // the work in one sentence
	Parked int           // tasks that are parked before
	Keep   time.Duration // of what has fired; 0: the peer's default
	run    func(context.Context, *bench) error
}

// All lists the workloads of these sizes. Those with as many parked tasks follow each other, the least work first.
func (s Sizes) All() []Workload {
	var list []Workload
	for _, parked := range s.Parked {
		list = append(list, s.beside(parked)...)
	}
	return append(list,
		Workload{Name: "memory", Title: "Memory", Part: peer.Parks | peer.Fires,
			Sum: fmt.Sprintf("memory of %s tasks due in 30 to 50 minutes", count(s.Armed)), run: runMemory},
		Workload{Name: "growth", Title: "Growth", Part: peer.Grows,
			Sum: fmt.Sprintf("scan tick and %s single submits with %s parked rows, put in table by table", count(s.Singles), counts(s.Grown)), run: runGrowth},
		Workload{Name: "nodes", Title: "Nodes", Part: peer.Clusters,
			Sum: fmt.Sprintf("%s single submits, then %s tasks due at one instant", count(s.Singles), count(s.Drain)), run: runNodes},
		Workload{Name: "scripts", Title: "Redis scripts", Part: peer.Scripts,
			Sum: fmt.Sprintf("%s calls of each script by redis-benchmark, 32 connections", count(s.Calls)), run: runScripts},
		Workload{Name: "kill", Title: "Kill", Part: peer.Restarts | peer.Fires,
			Sum: fmt.Sprintf("kill -9 of all servers of a system when a quarter of %s tasks due at one instant have fired, and a start a second later", count(s.Crowd)),
			run: runKill},
		Workload{Name: "keep", Title: "Submit, fire and purge at once", Part: peer.Purges,
			Sum: fmt.Sprintf("%s tasks a second for %s, each due 2 to 4 s after its submit; what has fired is kept for %s; the first sixth of the time and the last",
				count(s.KeepRate), s.Keep, s.Retention), Keep: s.Retention, run: runKeep},
	)
}

// beside lists the workloads that are measured beside parked tasks.
func (s Sizes) beside(parked int) []Workload {
	list := []Workload{
		{Name: "idle", Title: "Idle", Part: peer.Parks | peer.Fires, Sum: fmt.Sprintf("CPU for %s with nothing due", s.IdleFor), run: runIdle},
		{Name: "submit", Title: "Submit, single", Part: peer.Submits,
			Sum: fmt.Sprintf("%s single submits from 32 callers, due over 30 days", count(s.Singles)), run: runSubmit},
		{Name: "batch", Title: "Submit, batches of 1,000", Part: peer.Batches,
			Sum: fmt.Sprintf("%s tasks in batches of 1,000 from 8 callers, due over 30 days", count(s.Batched)), run: runBatch},
		{Name: "crowd", Title: "Lateness of a crowd", Part: peer.Fires | peer.Parks,
			Sum: fmt.Sprintf("%s tasks due within one second, twice", count(s.Crowd)), run: runCrowd},
		{Name: "drain", Title: "Drain", Part: peer.Fires,
			Sum: fmt.Sprintf("%s tasks due at one instant, until the last outcome is recorded", count(s.Drain)), run: runDrain},
	}
	for _, rate := range s.Rates {
		list = append(list, Workload{
			Name: fmt.Sprintf("lateness-%d", rate), Title: fmt.Sprintf("Lateness, %s tasks a second", count(rate)), Part: peer.Fires | peer.Submits,
			Sum: fmt.Sprintf("%s tasks a second for %s, each due 2 to 4 s after its submit", count(rate), s.Steady),
			run: func(ctx context.Context, b *bench) error { return runLateness(ctx, b, rate) },
		})
	}
	if parked == 0 {
		return list
	}
	for i := range list {
		w := &list[i]
		w.Name += "+" + short(parked)
		w.Title += ", " + count(parked) + " parked"
		w.Part |= peer.Parks
		w.Sum += ", beside " + count(parked) + " tasks parked over 30 days"
		w.Parked = parked
	}
	return list
}

// short writes 1000000 as 1m.
func short(n int) string {
	if n%1_000_000 == 0 {
		return fmt.Sprintf("%dm", n/1_000_000)
	}
	return fmt.Sprint(n)
}

// For reports whether a peer takes part.
func (w Workload) For(i peer.Info) bool { return i.Has(w.Part) }

// Do brings a peer up and measures it once by each workload of the list. All have as many parked tasks, which are parked once.
// done gets what was measured; an error is of the workload that follows, and of those after it.
func Do(ctx context.Context, p peer.Peer, env peer.Env, s Sizes, list []Workload, done func(work string, run result.Run) error) (err error) {
	b := &bench{Peer: p, sizes: s}
	defer func() { err = errors.Join(err, p.Down()) }()
	env.Retention = list[0].Keep
	if err := p.Up(ctx, env); err != nil {
		return err
	}
	if err := b.park(ctx, list[0].Parked); err != nil {
		return fmt.Errorf("park: %w", err)
	}
	for i, w := range list {
		b.run = result.Run{Peer: p.Info().Name, Values: map[string]float64{}}
		if err := w.run(ctx, b); err != nil {
			return fmt.Errorf("%s: %w", w.Name, err)
		}
		if err := done(w.Name, b.run); err != nil {
			return err
		}
		if b.run.Values["lost"] > 0 && i < len(list)-1 {
			return fmt.Errorf("%s left tasks behind", w.Name)
		}
	}
	return nil
}

// bench is a peer during one run.
type bench struct {
	peer.Peer
	sizes   Sizes
	run     result.Run
	working bool
	warmed  bool
	parked  int
	parking float64 // tasks a second
}

func (b *bench) set(key string, v float64) { b.run.Values[key] = v }

// work starts the processors, once.
func (b *bench) work(ctx context.Context) error {
	if b.working {
		return nil
	}
	b.working = true
	return b.Work(ctx)
}

// park parks n tasks beside working processors.
func (b *bench) park(ctx context.Context, n int) error {
	if n == 0 {
		return nil
	}
	if err := b.work(ctx); err != nil {
		return err
	}
	loaded, err := b.Load(ctx, b.fill(parked(n, 0, 0)))
	if err != nil {
		return err
	}
	b.parked, b.parking = n, float64(n)/loaded.Took.Seconds()
	return rest(ctx, b.sizes.IdleSettle)
}

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
	if !b.warmed {
		if _, err := b.Load(ctx, b.fill(parked(n, 0, 0))); err != nil {
			return fmt.Errorf("warm up: %w", err)
		}
	}
	b.warmed = true
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

// setCPU records the CPU time of each of n tasks: of all processes, and of it the client, Redis and the other servers.
func (b *bench) setCPU(prefix string, used map[string]time.Duration, n int) {
	each := func(d time.Duration) float64 { return float64(d.Microseconds()) / float64(n) }
	all, client, redis := total(used), used["client"], used[server.Redis.Name]
	b.set(prefix+"cpu_us", each(all))
	b.set(prefix+"client_us", each(client))
	b.set(prefix+"redis_us", each(redis))
	b.set(prefix+"server_us", each(all-client-redis))
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
func (b *bench) setLate(prefix string, fired peer.Fired, sent int) []time.Duration {
	late, lost := slices.Clone(fired.Late), max(0, sent-fired.Tasks)
	for range lost {
		late = append(late, patience)
	}
	slices.Sort(late)
	b.setPercentiles(prefix, late)
	early := 0
	for early < len(late) && late[early] < 0 {
		early++
	}
	b.set(prefix+"early", float64(early))
	b.set(prefix+"lost", float64(lost))
	b.set(prefix+"twice", float64(fired.Twice))
	return late
}

func (b *bench) setPercentiles(prefix string, late []time.Duration) {
	for key, p := range map[string]float64{"p50_ms": .5, "p99_ms": .99, "p999_ms": .999, "max_ms": 1} {
		b.set(prefix+key, millis(stat.Percentile(late, p)))
	}
}

func curve(late []time.Duration) []float64 {
	list := make([]float64, len(result.Quantiles))
	for i, q := range result.Quantiles {
		list[i] = millis(stat.Percentile(late, q))
	}
	return list
}
