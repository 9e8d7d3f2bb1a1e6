package cluster

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/timeoutcenter/toc/internal/wait"
)

// The service's meta data.
const (
	metaNode        = "node"
	metaInstance    = "instance" // hexadecimal
	metaAddress     = "address"
	metaUnreachable = "unable" // databases, by comma
)

// peer is one process of the cluster, from the watch.
type peer struct {
	name, address string
	service       string // its id in Consul
	instance      uint64
	created       uint64 // index of its registration
	unreachable   []int
	healthy       bool // its checks pass; see Consul.lives
	expired       bool // a TTL has passed since its last heartbeat
	ready         bool // it may get partitions
	inMaintenance bool // an operator has put it into maintenance mode
}

// view is the cluster as the watches have read it. Consul.mu guards it.
type view struct {
	*node
	nodes       []peer          // nil: no answer yet
	unseenSince instant         // since when nodes lack this one; zero: they have it
	names       map[string]name // by the service of their holder; nil: no answer yet
	locks       []lock          // by partition; nil: no answer yet
	locksAt     uint64          // the index of that answer
	dead        map[uint64]bool // instances whose death was reported
}

// askNodes reads the processes of the cluster from Consul, healthy or not: an expired TTL is also of interest.
func (c *Consul) askNodes(q *api.QueryOptions) (uint64, error) {
	entries, meta, err := c.client.Health().Service(c.cfg.Prefix, "", false, q)
	if err != nil {
		return 0, err
	}
	nodes, altered, seen := make([]peer, 0, len(entries)), false, false
	for _, e := range entries {
		p, ok := peerOf(e)
		if ok {
			nodes = append(nodes, p)
		}
		if e.Service.ID == c.service {
			seen = true
			altered = !ok || p.instance != c.instance || p.name != c.cfg.Node || p.address != c.cfg.Address
		}
	}
	c.mu.Lock()
	c.nodes = nodes
	switch { // Consul leaves out what a token may not read
	case seen:
		c.unseenSince = instant{}
	case c.unseenSince == instant{}:
		c.unseenSince = c.clock()
	}
	if altered {
		c.agent.altered.Store(true)
		c.beatNow.Set()
	}
	c.mu.Unlock()
	c.wake.Set()
	return meta.LastIndex, nil
}

// peerOf reads an instance of the service; ok is false if it is not a node.
func peerOf(e *api.ServiceEntry) (p peer, ok bool) {
	instance, err := strconv.ParseUint(e.Service.Meta[metaInstance], 16, 64)
	if err != nil || e.Service.Meta[metaNode] == "" {
		return peer{}, false
	}
	p = peer{
		name: e.Service.Meta[metaNode], address: e.Service.Meta[metaAddress], instance: instance,
		service: e.Service.ID, created: e.Service.CreateIndex, healthy: true,
	}
	for _, text := range strings.Split(e.Service.Meta[metaUnreachable], ",") {
		if d, err := strconv.Atoi(text); err == nil {
			p.unreachable = append(p.unreachable, d)
		}
	}
	for _, check := range e.Checks {
		passing := check.Status == api.HealthPassing
		switch {
		case check.CheckID == e.Service.ID+":ready":
			p.ready = passing
		case check.CheckID == e.Service.ID+":alive":
			p.expired = !passing
			p.healthy = p.healthy && passing
		case check.CheckID == api.NodeMaint, strings.HasPrefix(check.CheckID, api.ServiceMaintPrefix):
			p.inMaintenance = true
		case check.CheckID == "serfHealth":
			p.healthy = p.healthy && check.Status != api.HealthCritical
		}
	}
	return p, true
}

// Members lists the nodes that work or still hold partitions, by name. It comes from the watches, and does not
// change while Consul is away.
func (c *Consul) Members() []Member {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []Member
	for _, n := range c.livePeers() {
		if m := c.memberOf(n); n.ready && !n.inMaintenance || len(m.Partitions) > 0 {
			list = append(list, m)
		}
	}
	return list
}

// name is the lock on a node's name.
type name struct {
	freed instant // when it was found free; zero: it is locked
}

// askNames reads from Consul which names are locked: by them a node's session is known.
func (c *Consul) askNames(q *api.QueryOptions) (uint64, error) {
	pairs, meta, err := c.client.KV().List(c.nameDir(), q)
	if err != nil {
		return 0, err
	}
	now := c.clock()
	names := make(map[string]name, len(pairs))
	c.mu.Lock()
	for service, n := range c.names {
		if n.freed == (instant{}) {
			n.freed = now
		}
		if now.mono-n.freed.mono < int64(c.cfg.TTL) {
			names[service] = n
		}
	}
	mine := false
	for _, pair := range pairs {
		if pair.Session != "" {
			names[string(pair.Value)] = name{}
			mine = mine || pair.Session == c.session
		}
	}
	c.names = names
	c.nameLost = c.session != "" && !mine
	if c.nameLost {
		c.beatNow.Set()
	}
	c.mu.Unlock()
	c.wake.Set()
	return meta.LastIndex, nil
}

// lives reports whether a node works: its checks pass, and its session lives. The checks alone are not enough: an agent
// whose token is gone cannot report that they fail. A name that is found free counts for a TTL more, as the locks do:
// its node may be about to open another session. The caller holds mu.
func (v *view) lives(n peer) bool {
	lock, known := v.names[n.service]
	return n.healthy && known && (lock.freed == (instant{}) || v.clock().mono-lock.freed.mono < int64(v.cfg.TTL))
}

// livePeers lists the nodes that live by name. Of two processes with one name it has the newer: the older has died, and
// its TTL is not over yet. The caller holds mu.
func (v *view) livePeers() []peer {
	var list []peer
	for _, n := range v.nodes {
		if v.lives(n) {
			list = append(list, n)
		}
	}
	slices.SortFunc(list, func(a, b peer) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(b.created, a.created))
	})
	return slices.CompactFunc(list, func(a, b peer) bool { return a.name == b.name })
}

// Owner is the living node that holds a partition's lock, according to the watches.
func (c *Consul) Owner(partition int) (Member, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.locks == nil || c.locks[partition].session == "" {
		return Member{}, false
	}
	instance := c.locks[partition].instance
	at := slices.IndexFunc(c.nodes, func(n peer) bool { return n.instance == instance && c.lives(n) })
	if at < 0 {
		return Member{}, false
	}
	return c.memberOf(c.nodes[at]), true
}

// memberOf is a node with the partitions whose locks it holds. The caller holds mu.
func (v *view) memberOf(n peer) Member {
	m := Member{Name: n.name, Address: n.address, Instance: n.instance,
		Partitions: v.locked(func(l lock) bool { return l.session != "" && l.instance == n.instance })}
	if len(m.Partitions) > 0 {
		m.Session = v.locks[m.Partitions[0]].session
	}
	return m
}

const (
	// watchFor is how long Consul may hold a query that has no news. It bounds how long a broken connection
	// goes unnoticed.
	watchFor = 5 * time.Second
	// watchGap is the least time between two answers, so that many changes are read together.
	watchGap = 50 * time.Millisecond
	// watchRetry is the longest pause after an error.
	watchRetry = time.Second
)

// watch repeats a query until ctx ends, each time for changes after the last answer. ask handles an answer and
// returns its index.
func (n *node) watch(ctx context.Context, what string, ask func(*api.QueryOptions) (uint64, error)) {
	var index uint64
	pauses := wait.Backoff{First: 2 * watchGap, Most: watchRetry}
	for ctx.Err() == nil {
		most := jitter(watchFor)
		// Consul itself adds up to a sixteenth.
		limited, cancel := context.WithTimeout(ctx, most+most/16+n.cfg.TTL)
		// Consistent, since a restarted server may answer from its past.
		at, err := ask((&api.QueryOptions{WaitIndex: index, WaitTime: most, RequireConsistent: true}).WithContext(limited))
		cancel()
		if err != nil {
			pause := pauses.Next()
			if pause == pauses.First && ctx.Err() == nil && !unreachable(err) { // the heartbeat logs the rest
				n.cfg.Logger.Error("consul refuses a watch", "of", what, "error", err)
			}
			index = 0 // the next server may know less, or more
			_ = wait.For(ctx, jitter(pause))
			continue
		}
		pauses.Reset()
		if at < index { // restored from a snapshot, for example
			at = 0
		}
		index = at
		_ = wait.For(ctx, watchGap)
	}
}

// jitter is d, more or less by up to a fifth.
func jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}
