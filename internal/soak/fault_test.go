package soak_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/audit"
	"github.com/timeoutcenter/toc/internal/testrig/traffic"
)

// The kinds of faults.
const (
	kill         = "SIGKILL"
	rolling      = "SIGTERM"
	pause        = "SIGSTOP"
	poisoned     = "ended by a task"
	switched     = "mode switched"
	consulCrash  = "Consul killed"
	consulAway   = "Consul away"
	masterFrozen = "Redis master SIGSTOPped"
	masterKilled = "Redis master killed"
	redisFrozen  = "Redis SIGSTOPped"
	redisWiped   = "Redis wiped"
	storeFrozen  = "a database server SIGSTOPped"
	storeKilled  = "a database server killed"
	cutPrefix    = "cut from "
	stallPrefix  = "stalled to "
)

// explaining are the faults by which a run may be off the record, as docs/operating.md tells. Redis is only an index: what
// happens to it explains no run.
func explaining(kind string) bool {
	switch kind {
	case rolling, switched, masterFrozen, masterKilled, redisFrozen, redisWiped, cutPrefix + "redis", stallPrefix + "redis":
		return false
	}
	return true
}

// faultInjector breaks a fleet, one or two things at a time.
type faultInjector struct {
	fleet       *fleet
	consul      *testrig.ConsulServer // nil: there is none
	redis       *testrig.RedisCluster // nil: there is none
	brokers     *kfake.Cluster        // nil: there is none
	listeners   *listeners
	brokerPorts []int // by the broker's number
	rng         *rand.Rand
	long        bool
	chosen      []string // the kinds of this arena, the first two also in the short form; nil: all that can be done to it
	faults      []*audit.Fault
	nested      bool

	// Of the arena of outages:
	silent    *testrig.PrivateRedis
	databases []*testrig.PrivateMySQL
	hands     *traffic.Hands

	records *records // of the arena of Kafka
}

// patience is how long faults last: in a soak they outlast every time-out of the center, in the short form most.
func (i *faultInjector) patience(short, low, high time.Duration) time.Duration {
	if !i.long {
		return short
	}
	return low + time.Duration(i.rng.Int64N(int64(high-low)))
}

// kinds lists what can be done to this fleet.
func (i *faultInjector) kinds() []string {
	if i.chosen != nil {
		return slices.Clone(i.chosen)
	}
	if i.databases != nil {
		return []string{storeFrozen, storeKilled, redisFrozen, consulAway}
	}
	list := []string{kill, rolling, pause, switched}
	if i.consul != nil {
		list = append(list, consulCrash, consulAway)
	}
	if i.redis != nil {
		list = append(list, masterFrozen, masterKilled)
	}
	for _, server := range []string{"consul", "mysql", "redis"} {
		if i.fleet.nodes[0].lines[server] != nil {
			list = append(list, cutPrefix+server, stallPrefix+server)
		}
	}
	return list
}

// plan is what is done in any case, in random order: some of it in the short form, all of it in a soak.
func (i *faultInjector) plan() []string {
	list := i.kinds()
	switch {
	case i.long:
	case i.chosen != nil:
		list = list[:2]
	case i.databases != nil:
	default:
		list = []string{kill, pause, switched}
		switch {
		case i.redis != nil:
			list = []string{kill, switched, masterFrozen}
		case i.consul != nil:
			list = append(list, []string{cutPrefix, stallPrefix}[i.rng.IntN(2)]+[]string{"consul", "mysql", "redis"}[i.rng.IntN(3)])
		default:
			list = append(list, kill, rolling)
		}
	}
	i.rng.Shuffle(len(list), func(a, b int) { list[a], list[b] = list[b], list[a] })
	return list
}

// anything is one more fault, when there is time left.
func (i *faultInjector) anything() string {
	kinds := i.kinds()
	if i.databases == nil && i.chosen == nil {
		kinds = append(kinds, kill, kill, switched)
	}
	return kinds[i.rng.IntN(len(kinds))]
}

// inject breaks one thing and waits until the center is whole again.
func (i *faultInjector) inject(kind string) {
	i.fleet.t.Helper()
	if kind == rolling {
		for _, n := range i.fleet.nodes {
			i.one(kind, n, func() { n.stop(); n.start() })
		}
		return
	}
	n := i.fleet.nodes[i.rng.IntN(len(i.fleet.nodes))]
	switch kind {
	case kill:
		back := i.patience(time.Second, 0, 5*time.Second)
		i.one(kind, n, func() {
			n.kill()
			i.fleet.rest(back)
			n.start()
		})
	case pause:
		i.one(kind, n, func() {
			if n.freeze() {
				n.down = true // nobody else is to start it
				i.last(i.patience(5*time.Second, 8*time.Second, 15*time.Second), n)
				n.down = false
				n.thaw()
			}
		})
	case switched:
		i.one(kind, nil, i.switchModes)
	case consulCrash, consulAway:
		i.one(kind, nil, func() {
			i.consul.Kill()
			if kind == consulAway {
				i.fleet.rest(i.patience(5*time.Second, 15*time.Second, 20*time.Second))
			}
			i.consul.Start()
			// Whom it has not heard of in time it gives up only now.
			i.fleet.rest(i.fleet.cfg.Cluster.Consul.TTL)
		})
	case masterFrozen:
		master := i.rng.IntN(len(i.redis.Addrs()))
		i.one(kind, nil, func() {
			i.redis.Freeze(master)
			i.last(i.patience(8*time.Second, 10*time.Second, 30*time.Second), nil)
			i.redis.Thaw(master)
		})
	case masterKilled:
		master := i.rng.IntN(len(i.redis.Addrs()))
		i.one(kind, nil, func() {
			i.redis.Kill(master)
			i.last(i.patience(3*time.Second, 5*time.Second, 15*time.Second), nil)
			i.redis.Start(master)
		})
	case brokersSilent, brokerRestarted, leadersMoved, groupMoved, topicMadeAnew:
		i.one(kind, nil, func() { i.breakBrokers(kind) })
	case redisWiped:
		i.one(kind, nil, i.wipeRedis)
	case redisFrozen:
		i.one(kind, nil, func() {
			i.silent.Freeze()
			i.last(i.patience(15*time.Second, 15*time.Second, 30*time.Second), nil)
			i.silent.Thaw()
		})
	case storeFrozen, storeKilled:
		server := i.databases[i.rng.IntN(len(i.databases))]
		leave, comeBack := server.Freeze, server.Thaw
		if kind == storeKilled {
			leave, comeBack = server.Kill, server.Start
		}
		i.hands.Outage.Lock()
		defer i.hands.Outage.Unlock()
		i.one(kind, nil, func() {
			leave()
			i.last(i.patience(15*time.Second, 15*time.Second, 30*time.Second), nil)
			comeBack()
		})
	default:
		i.one(kind, n, func() {
			server := kind[strings.LastIndex(kind, " ")+1:]
			line := n.lines[server]
			if strings.HasPrefix(kind, cutPrefix) {
				line.Cut()
			} else {
				line.Stall()
			}
			i.last(i.patience(5*time.Second, 5*time.Second, 10*time.Second), n)
			line.Mend()
		})
	}
}

// last lets a fault last. At times another node is killed meanwhile.
func (i *faultInjector) last(d time.Duration, but *node) {
	i.fleet.t.Helper()
	others := slices.DeleteFunc(slices.Clone(i.fleet.nodes), func(n *node) bool { return n == but || n.down })
	if i.nested || len(others) < 2 || i.rng.IntN(3) > 0 {
		i.fleet.rest(d)
		return
	}
	i.nested = true
	defer func() { i.nested = false }()
	until := time.Now().Add(d)
	i.fleet.rest(d / 3)
	n := others[i.rng.IntN(len(others))]
	f := &audit.Fault{Kind: kill, Nodes: []string{n.name}, Process: &n.process().Process, Explains: true, Begin: time.Now()}
	n.kill()
	n.start()
	f.End = time.Now()
	f.Whole = f.End.Add(within.Adopt)
	i.faults = append(i.faults, f)
	i.fleet.rest(time.Until(until))
}

// switchModes turns each business type to one of the engines, on all nodes within a short time.
func (i *faultInjector) switchModes() {
	modes := make([]string, len(bizTypes))
	for t := range modes {
		modes[t] = []string{configs.ModeScan, configs.ModeRedis}[i.rng.IntN(2)]
	}
	first := i.rng.IntN(len(modes)) // one changes in any case
	modes[first] = map[string]string{configs.ModeScan: configs.ModeRedis, configs.ModeRedis: configs.ModeScan}[i.fleet.nodes[0].cfg.BizTypes[first].Mode]
	for _, n := range i.fleet.nodes {
		n.setModes(modes, i.rng.IntN(2) == 0)
	}
	i.fleet.rest(time.Second)
}

// one does something to a node, or to all.
func (i *faultInjector) one(kind string, n *node, act func()) {
	i.fleet.t.Helper()
	f := &audit.Fault{Kind: kind, Explains: explaining(kind), Leaves: kind == rolling}
	if n != nil {
		f.Nodes = []string{n.name}
	}
	if kind == kill {
		f.Process = &n.process().Process
	}
	f.Begin = time.Now()
	act()
	f.End = time.Now()
	f.Whole = i.fleet.awaitWhole()
	i.faults = append(i.faults, f)
	i.fleet.t.Log(f)
}
