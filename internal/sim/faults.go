package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig/audit"
	"github.com/timeoutcenter/toc/internal/testrig/traffic"
)

// action is something that can be done to a center.
type action struct {
	kind string
	// explains reports whether a run that the action hits may be off the record, so that its task runs twice.
	explains bool
	// do does it, lets it last and undoes it. It may fill in whom it hits.
	do func(ctx context.Context, r *rand.Rand, f *audit.Fault)
}

// breakThings does one thing after the other, with some calm between them, until ctx ends.
func (w *world) breakThings(ctx context.Context, r *rand.Rand, actions []action) {
	if w.o.Only != nil {
		actions = slices.DeleteFunc(actions, func(a action) bool { return !slices.Contains(w.o.Only, a.kind) })
	}
	if len(actions) == 0 {
		return
	}
	for traffic.Wait(ctx, between(r, 3*time.Second, 25*time.Second)) {
		a := actions[r.IntN(len(actions))]
		f := &audit.Fault{Kind: a.kind, Explains: a.explains, Begin: time.Now(), End: never, Whole: never}
		w.mu.Lock()
		w.faults = append(w.faults, f)
		w.mu.Unlock()
		a.do(ctx, r, f)
		f.End = time.Now()
		f.Whole = w.awaitWhole().Add(settling)
	}
}

// never is the end of a fault that lasts.
var never = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// settling is what a center needs, after a fault, until its tasks are on time again.
const settling = 15 * time.Second

func between(r *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(r.Int64N(int64(high-low)))
}

// any gives a node that is up, and waits for one if there is none: the only one is being started again.
func (w *world) any(r *rand.Rand) *process {
	for {
		if list := w.up(); len(list) > 0 {
			return list[r.IntN(len(list))]
		}
		time.Sleep(500 * time.Millisecond)
	}
}

// servers lists whom a process asks, but for Consul.
func (w *world) servers(p *process) []string {
	list := []string{"redis"}
	for d := range w.layout.Databases {
		list = append(list, fmt.Sprintf("database-%d", d))
	}
	for _, other := range w.up() {
		if other != p {
			list = append(list, other.Node)
		}
	}
	return list
}

// lasting makes an action of its begin and its end.
func lasting(low, high time.Duration, begin, end func()) func(ctx context.Context, r *rand.Rand) {
	return func(ctx context.Context, r *rand.Rand) {
		begin()
		traffic.Wait(ctx, between(r, low, high))
		end()
	}
}

// serverFaults are those of nodes, servers and lines.
func (w *world) serverFaults() []action {
	database := func(name string, low, high time.Duration, begin func(r *rand.Rand, d int)) action {
		return action{name, true, func(ctx context.Context, r *rand.Rand, _ *audit.Fault) {
			d := r.IntN(w.layout.Databases)
			lasting(low, high, func() { begin(r, d) }, func() { w.MendDatabase(d) })(ctx, r)
		}}
	}
	// A crash behind slow lines leaves much half done.
	crashBehind := func(name string, lines func(p *process) []string) action {
		return action{name, true, func(ctx context.Context, r *rand.Rand, f *audit.Fault) {
			p := w.any(r)
			f.Nodes, f.Process = []string{p.Node}, &p.Process
			list := lines(p)
			for _, line := range list {
				w.Delay(line, p.Node, between(r, 20*time.Millisecond, 700*time.Millisecond))
			}
			traffic.Wait(ctx, between(r, time.Second, 8*time.Second))
			w.end(p.Node, true)
			for _, line := range list {
				w.Delay(line, p.Node, 0)
			}
			traffic.Wait(ctx, between(r, 0, 10*time.Second))
			w.start(p.Node)
		}}
	}
	list := []action{
		crashBehind("crash behind a slow line", func(*process) []string { return []string{"caller"} }),
		crashBehind("crash behind slow servers", w.servers),
		{"crash", true, func(ctx context.Context, r *rand.Rand, f *audit.Fault) {
			p := w.any(r)
			f.Nodes, f.Process = []string{p.Node}, &w.end(p.Node, true).Process
			traffic.Wait(ctx, between(r, 0, 10*time.Second))
			w.start(p.Node)
		}},
		{"rolling restart", false, func(_ context.Context, _ *rand.Rand, f *audit.Fault) {
			f.Leaves = true
			for _, p := range w.up() {
				w.end(p.Node, false)
				w.start(p.Node)
				w.awaitWhole()
			}
		}},
		database("database hangs", 3*time.Second, 30*time.Second, func(_ *rand.Rand, d int) { w.HangDatabase(d) }),
		database("database is down", 3*time.Second, 30*time.Second, func(_ *rand.Rand, d int) { w.StopDatabase(d) }),
		database("database is slow", 3*time.Second, 20*time.Second, func(r *rand.Rand, d int) {
			w.SlowDatabase(d, between(r, 50*time.Millisecond, 2*time.Second))
		}),
		database("database is locked", 3*time.Second, 20*time.Second, func(_ *rand.Rand, d int) { w.LockDatabase(d) }),
		database("database is full", 3*time.Second, 30*time.Second, func(_ *rand.Rand, d int) { w.FillDatabase(d) }),
		{"Redis loses all", false, func(context.Context, *rand.Rand, *audit.Fault) { w.FlushRedis() }},
		{"Redis is silent", false, func(ctx context.Context, r *rand.Rand, _ *audit.Fault) {
			lasting(3*time.Second, 30*time.Second, w.SilenceRedis, w.MendRedis)(ctx, r)
		}},
		{"a node stands still", true, func(ctx context.Context, r *rand.Rand, f *audit.Fault) {
			p := w.any(r)
			f.Nodes, f.Frozen = []string{p.Node}, true
			lasting(2*time.Second, 25*time.Second, p.node.Stop, p.node.Resume)(ctx, r)
		}},
	}
	cut := func(server string, explains bool) action {
		return action{"cut from " + server, explains, func(ctx context.Context, r *rand.Rand, f *audit.Fault) {
			p := w.any(r)
			f.Nodes = []string{p.Node}
			lasting(2*time.Second, 25*time.Second, func() { w.Cut(p.Node, server) }, func() { w.Mend(p.Node, server) })(ctx, r)
		}}
	}
	list = append(list, cut("redis", false), cut("caller", true), cut("database-0", true))
	if w.o.Nodes > 1 {
		list = append(list, cut("consul", true),
			// When the node goes on, the data that the others have sent it by then is there.
			action{"a node stands still behind slow nodes", true, func(ctx context.Context, r *rand.Rand, f *audit.Fault) {
				p := w.any(r)
				f.Nodes, f.Frozen = []string{p.Node}, true
				for _, other := range w.up() {
					if other != p {
						w.Delay(other.Node, p.Node, between(r, 20*time.Millisecond, 700*time.Millisecond))
					}
				}
				traffic.Wait(ctx, between(r, time.Second, 4*time.Second))
				lasting(2*time.Second, 25*time.Second, p.node.Stop, p.node.Resume)(ctx, r)
				for _, other := range w.up() {
					w.Delay(other.Node, p.Node, 0)
				}
			}},
			action{"session ends", true, func(_ context.Context, r *rand.Rand, f *audit.Fault) {
				p := w.any(r)
				f.Nodes = []string{p.Node}
				w.EndSession(p.Node)
			}},
			action{"Consul is away", true, func(ctx context.Context, r *rand.Rand, _ *audit.Fault) {
				lasting(2*time.Second, 25*time.Second, w.StopConsul, w.StartConsul)(ctx, r)
			}},
			action{"two nodes are cut", true, func(ctx context.Context, r *rand.Rand, _ *audit.Fault) {
				list := w.up()
				if len(list) < 2 {
					return
				}
				i := r.IntN(len(list) - 1)
				a, b := list[i].Node, list[i+1].Node
				lasting(2*time.Second, 25*time.Second, func() { w.Cut(a, b) }, func() { w.Mend(a, b) })(ctx, r)
			}})
	}
	for i, a := range list {
		list[i].do = func(ctx context.Context, r *rand.Rand, f *audit.Fault) {
			w.busy <- struct{}{}
			defer func() { <-w.busy }()
			a.do(ctx, r, f)
		}
	}
	return list
}

// poisons is how many tasks end the process that runs them.
const poisons = 2

// poison ends a process and starts its node again, unless it is on its way down or something else is being done to servers.
func (w *world) poison(p *process) {
	select {
	case w.busy <- struct{}{}:
	default:
		return
	}
	w.mu.Lock()
	up := p.node != nil && w.last(p.Node) == p
	f := &audit.Fault{Kind: "poison", Explains: true, Nodes: []string{p.Node}, Process: &p.Process, Begin: time.Now(), End: never, Whole: never}
	if up {
		w.faults = append(w.faults, f)
	}
	w.mu.Unlock()
	if !up {
		<-w.busy
		return
	}
	w.end(p.Node, true)
	w.poisoned.Go(func() {
		defer func() { <-w.busy }()
		time.Sleep(2 * time.Second)
		w.start(p.Node)
		f.End = time.Now()
		f.Whole = w.awaitWhole().Add(settling)
	})
}

// settingFaults are those of clocks, and what people change in the files and in the control.
func (w *world) settingFaults() []action {
	anyType := func(r *rand.Rand, f *audit.Fault) configs.BizType {
		list := bizTypes(w.o.Small)
		b := list[r.IntN(len(list))]
		if name := []string{limited, coalesced, pulledCoalesce, "", "", ""}[r.IntN(6)]; name != "" { // of which more can be asked
			b = list[slices.IndexFunc(list, func(b configs.BizType) bool { return b.Name == name })]
		}
		f.Types = []string{b.Name}
		return b
	}
	return []action{
		{"clock is wrong", true, func(ctx context.Context, r *rand.Rand, f *audit.Fault) {
			p := w.any(r)
			ahead := []time.Duration{300 * time.Millisecond, 5 * time.Second, time.Minute, time.Hour, -2 * time.Second, -time.Minute, -10 * time.Minute, -time.Hour}[r.IntN(8)]
			f.Nodes, f.Skew, f.Kind = []string{p.Node}, ahead, fmt.Sprintf("clock is wrong by %s", ahead)
			w.mu.Lock()
			n := p.node // nil: it has been ended just now
			w.mu.Unlock()
			if n != nil {
				lasting(5*time.Second, 40*time.Second, func() { n.Skew(ahead) }, func() { n.Skew(0) })(ctx, r)
			}
		}},
		{"engine switched", false, func(_ context.Context, r *rand.Rand, f *audit.Fault) {
			b := anyType(r, f)
			w.change(b.Name, func(b *configs.BizType) {
				b.Mode = map[string]string{configs.ModeScan: configs.ModeRedis, configs.ModeRedis: configs.ModeScan}[b.Mode]
			})
		}},
		{"type taken out", false, func(ctx context.Context, r *rand.Rand, f *audit.Fault) {
			b := anyType(r, f)
			before := w.Config("any").BizTypes
			w.reload(slices.DeleteFunc(slices.Clone(before), func(one configs.BizType) bool { return one.Name == b.Name }))
			traffic.Wait(ctx, between(r, 100*time.Millisecond, []time.Duration{time.Second, 15 * time.Second}[r.IntN(2)]))
			w.reload(before)
		}},
		{"limits changed", false, func(ctx context.Context, r *rand.Rand, f *audit.Fault) {
			f.Types = []string{limited}
			limits := [][3]int{{0, 0, 0}, {0, 2, 5}, {1, 100, 0}, {10, 0, 5}, {10, 2, 0}}[r.IntN(5)]
			before := w.Config("any").BizTypes
			w.change(limited, func(b *configs.BizType) { b.MaxRunning, b.RateLimit, b.CatchUp = limits[0], limits[1], limits[2] })
			traffic.Wait(ctx, between(r, time.Second, 20*time.Second))
			w.reload(before)
		}},
		{"type paused", false, func(ctx context.Context, r *rand.Rand, f *audit.Fault) {
			b := anyType(r, f)
			_ = w.Pause(ctx, b.Name) // one that failed may be stored all the same
			traffic.Wait(ctx, between(r, time.Second, 30*time.Second))
			for w.Unpause(context.Background(), b.Name) != nil {
				time.Sleep(time.Second)
			}
		}},
	}
}

// change puts a changed business type in force.
func (w *world) change(bizType string, change func(b *configs.BizType)) {
	types := slices.Clone(w.Config("any").BizTypes)
	for i := range types {
		if types[i].Name == bizType {
			change(&types[i])
		}
	}
	w.reload(types)
}

func (w *world) reload(types []configs.BizType) {
	w.Reload(types)
	w.mu.Lock()
	w.reloads = append(w.reloads, audit.Reload{At: time.Now(), Types: types})
	w.mu.Unlock()
	time.Sleep(2 * time.Second) // a node looks at its file each second
}
