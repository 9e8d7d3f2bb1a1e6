package cluster

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/consul/api"
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
	instance      uint64
	created       uint64 // index of its registration
	unreachable   []int
	healthy       bool // its session may be alive
	expired       bool // a TTL has passed since its last heartbeat
	ready         bool // it may get partitions
	inMaintenance bool // an operator has put it into maintenance mode
}

// askNodes reads the processes of the cluster from Consul, healthy or not: an expired TTL is also of interest.
func (c *Consul) askNodes(q *api.QueryOptions) (uint64, error) {
	entries, meta, err := c.client.Health().Service(c.cfg.Prefix, "", false, q)
	if err != nil {
		return 0, err
	}
	nodes, altered := make([]peer, 0, len(entries)), false
	for _, e := range entries {
		p, ok := peerOf(e)
		if ok {
			nodes = append(nodes, p)
		}
		if e.Service.ID == c.service {
			altered = !ok || p.instance != c.instance || p.name != c.cfg.Node || p.address != c.cfg.Address
		}
	}
	c.mu.Lock()
	c.nodes = nodes
	if altered {
		c.registrationAltered = true
		ring(c.beatNow)
	}
	c.mu.Unlock()
	ring(c.wake)
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
		created: e.Service.CreateIndex, healthy: true,
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

// livePeers lists the healthy nodes by name. Of two processes with one name it has the newer: the older has
// died, and its TTL is not over yet. The caller holds mu.
func (c *Consul) livePeers() []peer {
	var list []peer
	for _, n := range c.nodes {
		if n.healthy {
			list = append(list, n)
		}
	}
	slices.SortFunc(list, func(a, b peer) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(b.created, a.created))
	})
	return slices.CompactFunc(list, func(a, b peer) bool { return a.name == b.name })
}

// Owner is the healthy node that holds a partition's lock, according to the watches.
func (c *Consul) Owner(partition int) (Member, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.locks == nil || c.locks[partition].session == "" {
		return Member{}, false
	}
	instance := c.locks[partition].instance
	at := slices.IndexFunc(c.nodes, func(n peer) bool { return n.instance == instance && n.healthy })
	if at < 0 {
		return Member{}, false
	}
	return c.memberOf(c.nodes[at]), true
}

// memberOf is a node with the partitions whose locks it holds. The caller holds mu.
func (c *Consul) memberOf(n peer) Member {
	return Member{n.name, n.address, c.locked(func(l lock) bool { return l.session != "" && l.instance == n.instance })}
}
