package soak_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/testrig"
)

// fault is something that was done to the cluster.
type fault struct {
	kind  string
	nodes []*node // whom it hit
	life  *life   // of a kill: whom it ended
	// explains tells whether a task may run twice because of it.
	explains   bool
	begin, end time.Time // while it lasted
	whole      time.Time // when all was well again
}

func (f *fault) String() string {
	names := "all"
	if len(f.nodes) == 1 {
		names = f.nodes[0].name
	}
	return fmt.Sprintf("%s of %s at %s for %s, whole %s later", f.kind, names, f.begin.Format("15:04:05.000"),
		f.end.Sub(f.begin).Round(time.Millisecond), f.whole.Sub(f.end).Round(time.Millisecond))
}

// vandal breaks a fleet, one thing at a time.
type vandal struct {
	fleet  *fleet
	consul *testrig.ConsulServer
	rng    *rand.Rand
	faults []*fault
}

// The kinds of faults.
const (
	kill        = "SIGKILL"
	rolling     = "SIGTERM"
	pause       = "SIGSTOP"
	consulCrash = "Consul killed"
	consulAway  = "Consul away"
	cutPrefix   = "cut from "
	stallPrefix = "stalled to "
)

// Consul's absence and the pauses outlast every time-out that the cluster has.
const awayFor = 20 * time.Second

// lines lists how a node's lines can break.
func lines() (kinds []string) {
	for _, server := range []string{"consul", "mysql", "redis"} {
		kinds = append(kinds, cutPrefix+server, stallPrefix+server)
	}
	return kinds
}

// plan is what is done in any case, in random order: a little of all, or for a soak a lot.
func (v *vandal) plan(long bool) []string {
	var list []string
	add := func(n int, kinds ...string) {
		for range n {
			list = append(list, kinds...)
		}
	}
	if long {
		add(20, kill)
		add(7, rolling) // of three nodes each
		add(3, pause, consulCrash)
		add(1, consulAway)
		add(1, lines()...)
	} else {
		add(2, kill)
		add(1, rolling, pause, consulCrash, consulAway, cutPrefix+"redis")
		add(1, []string{cutPrefix, stallPrefix}[v.rng.IntN(2)]+"consul", []string{cutPrefix, stallPrefix}[v.rng.IntN(2)]+"mysql")
	}
	v.rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

// anything is one more fault, when there is time left.
func (v *vandal) anything() string {
	kinds := slices.Concat([]string{kill, kill, kill, rolling, pause, consulCrash}, lines())
	return kinds[v.rng.IntN(len(kinds))]
}

// do breaks one thing and waits until the cluster is whole again.
func (v *vandal) do(kind string) {
	v.fleet.t.Helper()
	if kind == rolling {
		for _, n := range v.fleet.nodes {
			v.one(kind, n, func() { n.stop(); n.start() })
		}
		return
	}
	n := v.fleet.nodes[v.rng.IntN(len(v.fleet.nodes))]
	switch kind {
	case kill:
		back := v.between(0, 5*time.Second)
		v.one(kind, n, func() {
			n.kill()
			<-time.After(back)
			n.start()
		})
	case pause:
		v.one(kind, n, func() {
			require.NoError(v.fleet.t, n.proc.Freeze())
			<-time.After(v.between(10*time.Second, 15*time.Second))
			require.NoError(v.fleet.t, n.proc.Signal(syscall.SIGCONT))
		})
	case consulCrash, consulAway:
		v.one(kind, nil, func() {
			v.consul.Kill()
			if kind == consulAway {
				<-time.After(awayFor)
			}
			v.consul.Start()
			// Whom it has not heard of in time it gives up only now.
			<-time.After(v.fleet.cfg.Cluster.Consul.TTL)
		})
	default:
		v.one(kind, n, func() { v.breakLine(n, kind) })
	}
}

func (v *vandal) breakLine(n *node, kind string) {
	for server, line := range n.lines {
		switch kind {
		case cutPrefix + server:
			line.Cut()
		case stallPrefix + server:
			line.Stall()
		default:
			continue
		}
		<-time.After(v.between(5*time.Second, 10*time.Second))
		line.Mend()
	}
}

func (v *vandal) between(low, high time.Duration) time.Duration {
	return low + time.Duration(v.rng.Int64N(int64(high-low)))
}

// one does something to a node, or to all.
func (v *vandal) one(kind string, n *node, act func()) {
	v.fleet.t.Helper()
	f := &fault{kind: kind, nodes: v.fleet.nodes, explains: kind != rolling}
	if n != nil {
		f.nodes = []*node{n}
	}
	if kind == kill {
		f.life = n.life()
	}
	f.begin = time.Now()
	act()
	f.end = time.Now()
	f.whole = v.fleet.awaitWhole()
	v.faults = append(v.faults, f)
	v.fleet.t.Log(f)
}
