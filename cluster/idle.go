package cluster

import (
	"cmp"
	"slices"
	"time"
)

// Idle is a group of partitions that no living node has worked for longer than a take-over takes.
type Idle struct {
	Partitions    []int
	Node, Address string        // the node that holds their locks; Node "": their locks are free
	Session       string        // by which it holds them
	For           time.Duration // the longest time of one of them
}

// takeOverLimit is the time within which other nodes have taken the partitions of one that died: its check ends, and its
// locks are left alone for a TTL. The rest is for a slow Consul.
func (n *node) takeOverLimit() time.Duration { return 3*n.cfg.TTL + 5*time.Second }

// recordIdle records which partitions no living node works, and whether this node has none although it should. The
// caller holds mu.
func (c *Consul) recordIdle(owners []string) {
	at := c.clock()
	living := make(map[uint64]bool, len(c.nodes))
	for _, n := range c.nodes {
		living[n.instance] = c.lives(n)
	}
	share, has, worked := false, false, false // of what is assigned to this node: whether there is any, and a living node works some
	for p, l := range c.locks {
		state, usable := c.holds[p].state, c.databases.of(p).usable()
		isWorked, mine := state != none || l.session != "" && living[l.instance], usable && owners[p] == c.cfg.Node
		switch {
		case isWorked || !usable: // a database that is away is a separate fault
			c.idleSince[p] = instant{}
		case c.idleSince[p] == instant{}:
			c.idleSince[p] = at
		}
		share, worked = share || mine, worked || mine && isWorked
		has = has || state != none
	}
	c.shareIdle = share && !worked
	switch {
	case has || !share:
		c.withoutSince = instant{}
	case c.withoutSince == instant{}:
		c.withoutSince = at
	}
}

// Idle lists the partitions that no living node has worked for too long, by their holder. It is empty while this node
// has lost Consul or may not see the nodes: it cannot know.
func (c *Consul) Idle() (list []Idle) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lost || c.unseenSince != (instant{}) {
		return nil
	}
	for p, since := range c.idleSince {
		age := c.age(since)
		if age <= c.takeOverLimit() {
			continue
		}
		l := c.locks[p]
		at := slices.IndexFunc(list, func(i Idle) bool { return i.Session == l.session })
		if at < 0 {
			at = len(list)
			list = append(list, c.idleOf(l))
		}
		list[at].Partitions = append(list[at].Partitions, p)
		list[at].For = max(list[at].For, age)
	}
	return list
}

// idleOf returns who holds a lock. The caller holds mu.
func (v *view) idleOf(l lock) Idle {
	if l.session == "" {
		return Idle{}
	}
	idle := Idle{Node: cmp.Or(l.holder, "an unknown process"), Session: l.session}
	for _, n := range v.nodes {
		if n.instance == l.instance {
			idle.Address = n.address
		}
	}
	return idle
}

// WithoutShare is the time for which this node has had no partitions although some are assigned to it; 0: it has some,
// or should have none. fault says why that is wrong; "" if other nodes may still be handing them over, or this one taking
// them.
func (c *Consul) WithoutShare() (d time.Duration, fault string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lost {
		return 0, ""
	}
	d = c.age(c.withoutSince)
	switch {
	case d > c.cfg.TTL && c.shareIdle:
		return d, "no living node works those that are its share"
	case d > c.cfg.DrainFor+c.takeOverLimit():
		return d, "others have not handed over those that are its share"
	}
	return d, ""
}

// age is the time since an instant, by the monotonic clock; 0 for the zero instant.
func (n *node) age(since instant) time.Duration {
	if since == (instant{}) {
		return 0
	}
	return time.Duration(n.clock().mono - since.mono)
}
