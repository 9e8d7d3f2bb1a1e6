package soak_test

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/testrig"
)

// The environment of a soak.
const (
	durationEnv = "TOC_SOAK"      // how long: "10m"; unset: a little of each fault, some two minutes
	seedEnv     = "TOC_SOAK_SEED" // of the order and the victims of the faults
	rateEnv     = "TOC_SOAK_RATE" // tasks a second; 500
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

// Three nodes fire tasks while one thing after the other happens to them.
func TestSoak(t *testing.T) {
	var last time.Duration
	if text := os.Getenv(durationEnv); text != "" {
		var err error
		last, err = time.ParseDuration(text)
		require.NoError(t, err, durationEnv)
	}
	seed := envInt(t, seedEnv, rand.Uint64())
	t.Logf("%s=%d", seedEnv, seed)

	consul := testrig.StartConsul(t)
	f := newFleet(t, consul.Addr(), "toc", 3)
	f.startAll()
	f.awaitWhole()

	began := time.Now()
	l := newLoad(f, int(envInt(t, rateEnv, 500)))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); l.run(ctx) }()
	stop := func() { cancel(); <-done }
	defer stop()

	v := &vandal{fleet: f, consul: consul, rng: rand.New(rand.NewPCG(seed, 0))}
	for _, kind := range v.plan(last > 0) {
		if !t.Failed() {
			v.do(kind)
		}
	}
	for time.Since(began) < last && !t.Failed() {
		v.do(v.anything())
	}
	stop()
	f.awaitDone(2 * time.Minute)
	f.stopAll()
	judge(t, newVerdict(f, v.faults, l.orders), l)
}

// shown is how many of a kind are told in full.
const shown = 10

// judge fails the test for what must not be.
func judge(t *testing.T, v *verdict, l *load) {
	t.Helper()
	t.Logf("\n%s%d submits repeated, %d changes answered by nobody, %d conflicts", v.table(), l.retries.Load(), l.unavailable.Load(), l.conflicts.Load())
	conflicts := v.reigns.conflicts()
	told := make([]string, len(conflicts))
	for i, c := range conflicts {
		told[i] = c.String()
	}
	for _, bad := range []struct {
		what string
		list []string
	}{
		{"partitions had two owners", told},
		{"tasks were lost", v.lost},
		{"tasks ran early", v.early},
		{"cancelled tasks ran", v.ranCancelled},
		{"tasks ran twice, and no fault explains it", v.twice},
		{"tasks are not as they should be", v.wrong},
		{"requests went wrong", l.problems},
	} {
		if len(bad.list) > 0 {
			t.Errorf("%d %s", len(bad.list), bad.what)
		}
		for _, story := range bad.list[:min(shown, len(bad.list))] {
			t.Log("  ", story)
		}
	}
	require.Positive(t, v.fired)
}

// Two nodes that do not know of each other work on one store: the audit and the verdict must say so, or they would not
// say anything.
func TestTwoOwnersAreFound(t *testing.T) {
	consul := testrig.Consul(t)
	f := newFleet(t, consul.Addr(), consul.Prefix(), 2)
	for _, n := range f.nodes {
		n.cfg.Cluster.Consul.Prefix += n.name
	}
	f.startAll()
	l := newLoad(f, 200)
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
	defer cancel()
	l.run(ctx)
	f.awaitDone(time.Minute)
	f.stopAll()
	v := newVerdict(f, nil, l.orders)
	conflicts := v.reigns.conflicts()
	require.Len(t, partitionsIn(conflicts), f.cfg.Cluster.Partitions, "all partitions have two owners")
	require.NotZero(t, v.unexplained, "tasks run twice")
	require.Empty(t, v.lost)
	t.Logf("%s, and %d more; %d of %d tasks ran twice, such as\n%s", conflicts[0], len(conflicts)-1, v.unexplained, v.fired, v.twice[0])
}

func partitionsIn(list []conflict) map[int]bool {
	found := map[int]bool{}
	for _, c := range list {
		found[c.partition] = true
	}
	return found
}
