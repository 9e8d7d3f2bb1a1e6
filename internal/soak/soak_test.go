package soak_test

import (
	"context"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/audit"
	"github.com/timeoutcenter/toc/internal/testrig/traffic"
)

// The environment of a soak.
const (
	poisonsEnv  = "TOC_SOAK_POISONS" // set: tasks that end their process are in the short form, too
	durationEnv = "TOC_SOAK"         // how long each arena: "10m"; unset: the short form, some 40 s
	testsEnv    = "TOC_TEST_RUN"     // all: every arena, and the narrow windows, in the short form, too
	seedEnv     = "TOC_SOAK_SEED"    // of the faults, their order and their victims
	rateEnv     = "TOC_SOAK_RATE"    // tasks a second; 120
	arenaEnv    = "TOC_SOAK_ARENA"   // cluster, rediscluster, embedded, pull, kafka or outages; unset: all but outages, one after the other
)

// narrow is for a machine that has little else to do. A machine of any speed, with any load, keeps to wide: make test
// does not judge by the clock.
var (
	narrow = audit.Windows{Start: 500 * time.Millisecond, Record: 3 * time.Second, Hand: 2500 * time.Millisecond, Adopt: 10 * time.Second, Late: 10 * time.Second}
	wide   = audit.Windows{Start: 3 * time.Second, Record: 15 * time.Second, Hand: 4500 * time.Millisecond, Adopt: 30 * time.Second, Late: 5 * time.Minute}

	within = narrow
)

func envInt(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	require.NoError(t, err, name)
	return n
}

// arena is what a soak takes place in.
type arena struct {
	name    string
	nodes   int
	proven  string // the tests of make test that prove the same; "": make test has the arena itself
	asked   bool   // it is only soaked by name
	servers func(t *testing.T, i *faultInjector) servers
	soak    func(t *testing.T, a arena, seed uint64, last time.Duration) // nil: soak
}

var arenas = []arena{
	{name: "cluster", nodes: 3, servers: func(t *testing.T, i *faultInjector) servers {
		i.consul = testrig.StartConsul(t)
		return sharedServers(t, i.consul.Addr(), "toc")
	}},
	{name: "rediscluster", nodes: 3, proven: "the arena cluster, and redistimer/slots on a Redis Cluster", servers: func(t *testing.T, i *faultInjector) servers {
		i.consul, i.redis = testrig.StartConsul(t), testrig.StartRedisCluster(t)
		return servers{mysql: testrig.MySQL(t), redis: i.redis.Addrs(), consul: i.consul.Addr(), consulPrefix: "toc"}
	}},
	{name: "embedded", nodes: 1, proven: "the arena cluster, and app's tests of crashes on SQLite", servers: func(*testing.T, *faultInjector) servers { return servers{} }},
	{name: "pull", nodes: 3, proven: "the tests of leases in worker, intake and app", soak: soakPull},
	{name: "kafka", nodes: 3, proven: "server/kafka, processor/kafka and app's tests of Kafka", soak: soakKafka},
	// Each server goes away for longer than any time-out: of two that have half of the databases each, one hangs and one
	// is killed; Redis is silent; Consul is away.
	{name: "outages", nodes: 3, asked: true, servers: func(t *testing.T, i *faultInjector) servers {
		i.consul, i.silent = testrig.StartConsul(t), testrig.StartRedis(t)
		i.databases = []*testrig.PrivateMySQL{testrig.StartMySQL(t), testrig.StartMySQL(t)}
		return servers{databases: i.databases, redis: []string{i.silent.Addr()}, redisPrefix: i.silent.Prefix(), consul: i.consul.Addr(), consulPrefix: "toc"}
	}},
}

// A center fires tasks, and callers and hands change them, while one thing after the other happens to it.
func TestSoak(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: a soak takes its time")
	}
	var last time.Duration
	if text := os.Getenv(durationEnv); text != "" {
		var err error
		last, err = time.ParseDuration(text)
		require.NoError(t, err, durationEnv)
	}
	seed := envInt(t, seedEnv, rand.Uint64())
	t.Logf("%s=%d", seedEnv, seed)
	only := os.Getenv(arenaEnv)
	require.True(t, only == "" || slices.ContainsFunc(arenas, func(a arena) bool { return a.name == only }), "%s=%s is none", arenaEnv, only)
	if last == 0 && os.Getenv(testsEnv) != "all" {
		within = wide
		t.Cleanup(func() { within = narrow })
	}
	for _, a := range arenas {
		if only == a.name || only == "" && !a.asked {
			if a.soak == nil {
				a.soak = soak
			}
			t.Run(a.name, func(t *testing.T) {
				if only == "" && last == 0 && a.proven != "" {
					testrig.OnlyInAll(t, a.proven)
				}
				a.soak(t, a, seed, last)
			})
		}
	}
}

func soak(t *testing.T, a arena, seed uint64, last time.Duration) {
	faults := &faultInjector{rng: rand.New(rand.NewPCG(seed, 0)), long: last > 0}
	f := newFleet(t, a.servers(t, faults), a.nodes)
	faults.fleet = f
	f.startAll()
	f.awaitWhole()

	began := time.Now()
	l := traffic.NewLoad(f.traffic(faults.long), seed, int(envInt(t, rateEnv, 120)))
	faults.hands = l.Hands
	end := runBeside(f, l)
	defer end()
	f.rest(2 * time.Second)
	if faults.long || os.Getenv(poisonsEnv) != "" { // in the short form everything else; one that ends its processes is app's TestATaskThatEndsTheProcessDies
		l.Poisons.Add(1)
	}
	for _, kind := range faults.plan() {
		if !t.Failed() {
			faults.inject(kind)
		}
	}
	for next := began.Add(2 * time.Minute); time.Since(began) < last && !t.Failed(); {
		if time.Now().After(next) { // the one before is dead by now
			l.Poisons.Add(1)
			next = time.Now().Add(2 * time.Minute)
		}
		faults.inject(faults.anything())
		if a.nodes == 1 { // nobody takes over: what it may have died of runs alone, after some calm
			f.rest(10 * time.Second)
		}
	}
	faults.awaitCalm()
	end()
	f.awaitDone(3 * time.Minute) // after crashes tasks run alone for one at most
	f.stopAll()
	report(t, newVerdict(f, faults.faults, l.Histories()), l)
}

// calmFor is how long nothing happens in the end: what is late then has no excuse.
const calmFor = 4 * time.Second

// awaitCalm waits until the last fault has been over for as long.
func (i *faultInjector) awaitCalm() {
	for calm := time.Now(); time.Since(calm) < calmFor; i.fleet.rest(100 * time.Millisecond) {
		for _, f := range slices.Concat(i.faults, i.fleet.ended) {
			if f.Whole.After(calm) {
				calm = f.Whole
			}
		}
	}
}

// runBeside submits until the function that it gives is called, which waits until each request has its answer.
func runBeside(f *fleet, l *traffic.Load) (end func()) {
	ctx, cancel := context.WithCancel(f.t.Context())
	done := make(chan struct{})
	go func() { defer close(done); l.Run(ctx) }()
	return func() {
		cancel()
		for {
			select {
			case <-done:
				return
			default:
				f.rest(50 * time.Millisecond)
			}
		}
	}
}

// shown is how many of a kind are told in full.
const shown = 5

// report fails the test for what must not be.
func report(t *testing.T, v *audit.Verdict, l *traffic.Load) {
	t.Helper()
	t.Logf("\n%s%s", v.Table(), l.Counts())
	for _, p := range l.Problems() {
		v.Blame("requests went wrong", p)
	}
	reportBroken(t, v.Broken)
	require.NotEmpty(t, v.Runs)
}

// reportBroken fails the test for each rule that was broken.
func reportBroken(t *testing.T, broken map[string][]string) {
	t.Helper()
	for rule, list := range broken {
		t.Errorf("%d %s", len(list), rule)
		for _, story := range list[:min(shown, len(list))] {
			t.Log("  ", story)
		}
	}
}
