package sim

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	_ "modernc.org/sqlite" // for the hands

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig/audit"
	"github.com/timeoutcenter/toc/internal/testrig/traffic"
	"github.com/timeoutcenter/toc/internal/virtual"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// Options say how large a simulation is.
type Options struct {
	Nodes  int           // 1 or more; 0 is 1
	Length time.Duration // how long it is loaded and broken, in virtual time; 0 is ten minutes
	Rate   int           // tasks a second; 0 is 2
	Small  bool          // every queue, batch, lookahead and horizon is as small as it can be
	Calm   bool          // no faults
	Log    io.Writer     // gets the log of the nodes; nil: nobody
	// Only are the kinds of faults that are injected; nil: all. Operators have a kind, too: operations.
	Only []string
}

// Result is what came of a simulation.
type Result struct {
	Breaches []audit.Breach
	Summary  string
	Took     time.Duration // in real time
}

// The times of a simulation, which is judged by them. They are in virtual time, where only faults hold up a step.
var windows = audit.Windows{Start: 500 * time.Millisecond, Record: 3 * time.Second, Hand: 2500 * time.Millisecond, Adopt: 30 * time.Second, Late: 30 * time.Second, Calm: 30 * time.Second, Prompt: prompt}

// prompt is the table "What each fault does" of docs/redis-engine.md. outage_after and a tick are 5 s.
var prompt = map[string]time.Duration{
	"no fault":        time.Second,
	"Redis loses all": 2 * time.Second,
	"Redis is silent": 12 * time.Second,
	"cut from redis":  12 * time.Second,
}

// patience is how long the center may need after the end of the load until all is done.
const patience = 15 * time.Minute

// world is a center that is simulated.
type world struct {
	*virtual.World
	t      *testing.T
	seed   uint64
	o      Options
	http   *http.Client
	dbs    []*sql.DB
	layout sharding.Layout

	mu         sync.Mutex
	processes  map[string][]*process // by node
	runs       map[uint64][]*audit.Run
	faults     []*audit.Fault
	reloads    []audit.Reload
	operations []audit.Operation
	blamed     []audit.Breach // what is seen in Redis

	busy     chan struct{} // held by who does something to servers or processes
	poisoned sync.WaitGroup
}

// process is a node from its start to its end.
type process struct {
	audit.Process
	node    *virtual.Node // nil: it starts
	api     *client.Client
	tenures *audit.TenureLog
	spans   *spans
}

// Run simulates a center, in a new bubble.
func Run(t *testing.T, seed uint64, o Options) (r Result) {
	t.Helper()
	o.Nodes, o.Length, o.Rate = max(1, o.Nodes), cmp.Or(o.Length, 10*time.Minute), cmp.Or(o.Rate, 2)
	began := time.Now()
	var judge func(artifacts string) Result
	synctest.Test(t, func(t *testing.T) { judge = run(t, seed, o) })
	r = judge(t.ArtifactDir()) // in real time, which bounds the search for an order of a task's events
	r.Took = time.Since(began)
	return r
}

func run(t *testing.T, seed uint64, o Options) (judge func(artifacts string) Result) {
	w := &world{t: t, seed: seed, o: o, processes: map[string][]*process{}, runs: map[uint64][]*audit.Run{}, busy: make(chan struct{}, 1)}
	log := o.Log
	if log == nil {
		log = io.Discard
	}
	w.World = virtual.New(t, virtual.Config{Consul: o.Nodes > 1, HTTP: true, Reloads: true, Log: log, Options: w.options,
		Configure: func(c *configs.Config) { configure(c, o) }})
	w.connect()
	for i := range o.Nodes {
		w.start(string(rune('a' + i)))
	}
	w.awaitWhole()
	w.reloads = append(w.reloads, audit.Reload{At: time.Now(), Types: bizTypes(o.Small)})

	center := w.traffic()
	load := traffic.NewLoad(center, seed, o.Rate)
	consumers := traffic.NewConsumers(center, seed)
	consumers.TTR, consumers.Work, consumers.Wait, consumers.Cancels = 8*time.Second, 4*time.Second, 8*time.Second, false
	consumers.Again, consumers.Slow = center.Again, true
	ctx, stop := context.WithTimeout(context.Background(), o.Length)
	defer stop()
	consuming, stopConsuming := context.WithCancel(context.Background())
	defer stopConsuming()
	var work, eaters sync.WaitGroup
	work.Go(func() { load.Run(ctx) })
	work.Go(func() { w.watchRedis(ctx) })
	for i, name := range []string{pulled, pulledAtOnce, pulledCoalesce} {
		for k := range 3 {
			eaters.Go(func() { consumers.Consume(consuming, uint64(10*i+k), name) })
		}
	}
	if !o.Calm {
		kinds := []string{"poison", "operations"}
		for _, a := range slices.Concat(w.serverFaults(), w.settingFaults()) {
			kinds = append(kinds, a.kind)
		}
		for _, kind := range o.Only {
			if !slices.Contains(kinds, kind) {
				t.Fatalf("there is no kind of fault %q: there are %q", kind, kinds)
			}
		}
		if o.Only == nil || slices.Contains(o.Only, "poison") {
			load.Poisons.Store(poisons)
		}
		work.Go(func() { w.breakThings(ctx, source(seed, 1), w.serverFaults()) })
		work.Go(func() { w.breakThings(ctx, source(seed, 2), w.settingFaults()) })
		if o.Only == nil || slices.Contains(o.Only, "operations") {
			work.Go(func() { w.operate(ctx, source(seed, 3)) })
		}
	}
	work.Wait()
	w.awaitDone()
	w.poisoned.Wait()
	stopConsuming()
	eaters.Wait()
	w.lookIntoRedis()
	w.lookAtOperations()
	rows, err := audit.SelectRows(context.Background(), w.dbs, w.layout.TablesPerDatabase)
	if err != nil {
		t.Fatalf("read the rows: %v", err)
	}
	for _, n := range w.Nodes() {
		if err := n.Shutdown(); err != nil {
			t.Errorf("shutdown of %s: %v", n.Name, err)
		}
	}
	e := w.evidence(load, consumers, rows)
	return func(artifacts string) Result {
		e.Artifacts = artifacts
		return w.judge(e, load, consumers)
	}
}

func (w *world) judge(e audit.Evidence, load *traffic.Load, consumers *traffic.Consumers) Result {
	v := audit.Judge(e)
	for _, p := range load.Problems() {
		v.Blame("requests went wrong", p)
	}
	for _, b := range w.blamed {
		v.Blame(b.Rule, b.What)
	}
	consumers.Lock()
	defer consumers.Unlock()
	for rule, list := range consumers.Broken {
		if rule != "leases were called lost before their end" { // a hand may have ended them: the stories show it
			for _, what := range list {
				v.Blame(rule, what)
			}
		}
	}
	return Result{Breaches: v.Breaches, Summary: v.Numbers() + "\n" + load.Counts() + "\n" + w.list()}
}

// source is where an actor of this package draws from.
func source(seed, actor uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, actor)) }

// connect opens the databases for hands. Who meets a lock does not wait for it: that would be in real time.
func (w *world) connect() {
	c := w.Config("hand")
	w.layout = sharding.Layout{Databases: c.Store.Databases, TablesPerDatabase: c.Store.TablesPerDatabase, Partitions: c.Cluster.Partitions}
	for d := range w.layout.Databases {
		dsn := strings.Replace(store.SQLiteDSN(c.Store.SQLite.Dir, d, false), "busy_timeout%2810000%29", "busy_timeout%280%29", 1)
		db, err := sql.Open("sqlite", dsn)
		if err != nil {
			w.t.Fatalf("open database %d: %v", d, err)
		}
		w.t.Cleanup(func() { _ = db.Close() })
		w.dbs = append(w.dbs, db)
	}
	transport := &http.Transport{DialContext: w.Net().Host("caller").Dial, MaxIdleConnsPerHost: 64}
	w.t.Cleanup(transport.CloseIdleConnections)
	w.http = &http.Client{Transport: transport}
}

// options are those of a process that starts.
func (w *world) options(node string) []app.Option {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := &process{Process: audit.Process{Name: fmt.Sprintf("%s.%d", node, len(w.processes[node])+1), Node: node},
		spans: &spans{}, api: client.New("http://"+node+":8080", client.WithHTTPClient(w.http))}
	p.tenures = audit.NewTenureLog(p.spans, w.layout.Partitions)
	w.processes[node] = append(w.processes[node], p)
	return []app.Option{
		app.WithProcessor(processor, traffic.Recorder{Begin: func(s audit.Span) func(audit.Span) { return w.begin(p, s) }, Poison: func(uint64) { w.poison(p) }, Takes: takes}),
		app.WithAudit(func(partition int, owned bool) {
			if !w.hasEnded(p) {
				p.tenures.Record(partition, owned)
			}
		}),
	}
}

// takes makes the runs of a limited type long enough to meet its limits.
func takes(t task.Task) time.Duration {
	if bizTypes(false)[t.BizType-1].Name != limited {
		return 0
	}
	return time.Duration(t.BizID%7000) * time.Millisecond
}

// hasEnded reports whether a process was ended. The actions of its goroutines do not count after that.
func (w *world) hasEnded(p *process) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !p.Ended.IsZero()
}

// begin writes down a run.
func (w *world) begin(p *process, s audit.Span) (end func(audit.Span)) {
	r := &audit.Run{By: &p.Process, Span: s}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !p.Ended.IsZero() {
		return func(audit.Span) {}
	}
	w.runs[s.Key] = append(w.runs[s.Key], r)
	return func(s audit.Span) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if p.Ended.IsZero() {
			r.Span = s
		}
	}
}

// start starts a node and waits until it takes tasks.
func (w *world) start(name string) {
	// A node that finds more claims in Redis than it has itself asks again at once. Answers must take some time, or none passes.
	w.Delay(name, "redis", 200*time.Microsecond)
	n := w.Launch(name)
	if err := n.Ready(context.Background()); err != nil {
		w.t.Errorf("start of %s: %v", name, err)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last(name).node = n
}

// last is the last process of a node. The caller holds the lock.
func (w *world) last(name string) *process {
	list := w.processes[name]
	return list[len(list)-1]
}

// end ends a process, by its end or as a crash.
func (w *world) end(name string, crash bool) *process {
	w.mu.Lock()
	p := w.last(name)
	n := p.node
	p.node = nil
	if crash {
		p.Ended = time.Now()
	}
	w.mu.Unlock()
	if crash {
		n.Crash()
		return p
	}
	if err := n.Shutdown(); err != nil {
		w.t.Errorf("shutdown of %s: %v", p.Name, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	p.Ended = time.Now()
	return p
}

// up lists the processes that take requests, by their names.
func (w *world) up() (list []*process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(w.processes)) {
		if p := w.last(name); p.node != nil {
			list = append(list, p)
		}
	}
	return list
}

// traffic is the center as traffic sees it.
func (w *world) traffic() traffic.Center {
	return traffic.Center{Layout: w.layout, Types: bizTypes(w.o.Small), HTTP: w.http, DBs: w.dbs, Again: 500 * time.Millisecond, Redrive: 30 * time.Second, Burst: 20 * time.Second, Excuse: w.isExcused,
		Any: func(r *rand.Rand, but string) *traffic.Target {
			list := w.up()
			if i := slices.IndexFunc(list, func(p *process) bool { return p.Node == but }); i >= 0 && len(list) > 1 {
				list = slices.Delete(list, i, i+1)
			}
			if len(list) == 0 {
				return nil
			}
			p := list[r.IntN(len(list))]
			return &traffic.Target{Node: p.Node, By: &p.Process, API: p.api, URL: "http://" + p.Node + ":8080"}
		},
		Ahead: func(r *rand.Rand) time.Duration {
			return 100*time.Millisecond + time.Duration(r.Int64N([]int64{5, 5, 20, 60}[r.IntN(4)]*int64(time.Second)))
		},
		BizID: func(r *rand.Rand, bizType string) uint64 {
			if bizType == coalesced || bizType == pulledCoalesce {
				return 1000 + r.Uint64N(4)
			}
			return r.Uint64() >> 1
		},
		LockFor: func(r *rand.Rand) time.Duration {
			return 500*time.Millisecond + time.Duration(r.Int64N(int64(time.Second)))
		},
	}
}

// isExcused reports whether a task was refused because its business type was taken out of the file, or because a clock is
// ahead.
func (w *world) isExcused(problem string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.faults, func(f *audit.Fault) bool {
		return time.Since(f.End) < settling &&
			(f.Kind == "type taken out" && strings.Contains(problem, "not configured") || f.Skew > 0 && strings.Contains(problem, "is more than 5s ago"))
	})
}

// awaitWhole waits until all nodes agree that each partition has an owner.
func (w *world) awaitWhole() time.Time {
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(500 * time.Millisecond) {
		why := w.notWhole()
		if why == "" {
			return time.Now()
		}
		if time.Now().After(deadline) {
			w.t.Errorf("seed %d: the center is not whole after two minutes: %s", w.seed, why)
			return time.Now()
		}
	}
}

// notWhole says what keeps the center from being whole.
func (w *world) notWhole() string {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	up := w.up()
	for _, p := range up {
		c, err := p.api.Cluster(ctx)
		if err != nil {
			return fmt.Sprintf("%s: %v", p.Name, err)
		}
		owned := 0
		for _, m := range c.Nodes {
			owned += len(m.Partitions)
		}
		if len(c.Nodes) != len(up) || owned != c.Partitions {
			return fmt.Sprintf("%s knows %d nodes of %d, which own %d partitions of %d", p.Name, len(c.Nodes), len(up), owned, c.Partitions)
		}
	}
	return ""
}

// awaitDone waits until nothing is pending.
func (w *world) awaitDone() {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Second) {
		pending := 0
		for _, db := range w.dbs {
			var n int
			text := "SELECT SUM(n) FROM (" + audit.EachTable(w.layout.TablesPerDatabase, "SELECT COUNT(*) n FROM %s WHERE status = 0") + ")"
			if err := db.QueryRow(text).Scan(&n); err != nil {
				n = 1
			}
			pending += n
		}
		if pending == 0 {
			break
		}
	}
	time.Sleep(windows.Record)
}

func (w *world) evidence(load *traffic.Load, consumers *traffic.Consumers, rows map[uint64]audit.Row) audit.Evidence {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := audit.Evidence{Center: audit.Center{Layout: w.layout, Types: audit.Types(bizTypes(w.o.Small)), Within: windows, Nodes: w.o.Nodes},
		Faults: w.faults, Histories: load.Histories(), Runs: map[uint64][]audit.Run{}, Rows: rows, Leases: consumers.Leases,
		Reloads: w.reloads, Operations: w.operations, Tenures: make(audit.Tenures, w.layout.Partitions)}
	for id, list := range w.runs {
		for _, r := range list {
			e.Runs[id] = append(e.Runs[id], *r)
		}
		slices.SortFunc(e.Runs[id], func(a, b audit.Run) int { return cmp.Compare(a.Span.From, b.Span.From) })
	}
	for _, name := range slices.Sorted(maps.Keys(w.processes)) {
		for _, p := range w.processes[name] {
			for _, s := range p.spans.all() {
				// Less a nanosecond: a hand-over takes no virtual time, and both nodes have the partition at that instant.
				e.Tenures[s.Key] = append(e.Tenures[s.Key], audit.Tenure{By: &p.Process, From: s.From, Till: s.Till - 1, Ended: s.End == audit.Closed})
			}
		}
	}
	for _, list := range e.Tenures {
		slices.SortFunc(list, func(a, b audit.Tenure) int { return cmp.Compare(a.From, b.From) })
	}
	return e
}

// spans are records in memory.
type spans struct {
	mu   sync.Mutex
	list []audit.Span
}

// Add writes a new span and gives its place.
func (s *spans) Add(one audit.Span) (place int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, one)
	return int64(len(s.list) - 1)
}

// Set replaces a span.
func (s *spans) Set(place int64, one audit.Span) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list[place] = one
}

func (s *spans) all() []audit.Span {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.list)
}

// list describes the faults and the operations, one a line.
func (w *world) list() string {
	var text strings.Builder
	for _, f := range w.faults {
		fmt.Fprintln(&text, f, strings.Join(f.Types, " "))
	}
	for _, o := range w.operations {
		fmt.Fprintf(&text, "%s %d of %s at %s: limit %d, done %d, %s at %s\n", o.Kind, o.ID, cmp.Or(o.BizType, "all"), o.Sent.Format("15:04:05.000"), o.Limit, o.Done,
			o.State, o.Ended.Format("15:04:05.000"))
	}
	return text.String()
}
