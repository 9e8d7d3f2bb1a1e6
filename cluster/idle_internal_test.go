package cluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// idleCluster is a node that works, with a clock, and with the other node b, which lives.
func idleCluster() (*Consul, *tower) {
	c := watched()
	clock := &tower{instant{int64(time.Hour), int64(1e18)}}
	c.clock = func() instant { return clock.at }
	c.phase = working
	c.databases.states[0].prepared = true
	c.holds = make([]hold, 4)
	c.names = map[string]name{"a-1": {}, "b-1": {}}
	c.nodes = []peer{
		{name: "a", service: "a-1", instance: c.instance, healthy: true, ready: true},
		{name: "b", service: "b-1", address: "b:80", instance: 8, healthy: true, ready: true},
	}
	c.locks = make([]lock, 4)
	return c, clock
}

// A node whose checks pass is no member without a session: nobody reports that they fail if the token of the agent's
// registration is gone.
func TestANodeWithoutASessionGetsNoShare(t *testing.T) {
	c, clock := idleCluster()
	owned := func(node string) (n int) {
		for _, owner := range c.assignment() {
			if owner == node {
				n++
			}
		}
		return n
	}
	require.Equal(t, 2, owned("b"))
	c.names["b-1"] = name{freed: clock.at}
	clock.pass(c.cfg.TTL-1, c.cfg.TTL-1)
	require.Equal(t, 2, owned("b"), "it may open another one")
	require.Len(t, c.Members(), 2)
	clock.pass(1, 1)
	require.Zero(t, owned("b"))
	require.Equal(t, 4, owned("a"))
	require.Len(t, c.Members(), 1)
	c.names["b-1"] = name{}
	require.Equal(t, 2, owned("b"), "it is back")
}

func TestPartitionsThatNobodyWorksAreReported(t *testing.T) {
	c, clock := idleCluster()
	for p := range c.locks {
		c.locks[p] = lock{session: "s8", instance: 8, holder: "b"}
	}
	pass := func(d time.Duration) {
		clock.pass(d, d)
		c.compare()
	}
	c.compare()
	pass(time.Hour)
	require.Empty(t, c.Idle(), "b works them")
	d, fault := c.WithoutShare()
	require.Equal(t, time.Hour, d)
	require.Equal(t, "others have not handed over those that are its share", fault)

	delete(c.names, "b-1") // its session has ended, and the locks are still there
	pass(0)
	pass(c.takeOverLimit())
	require.Empty(t, c.Idle(), "they may still be taken")
	_, fault = c.WithoutShare()
	require.Equal(t, "no living node works those that are its share", fault)
	pass(1)
	require.Equal(t, []Idle{{Partitions: []int{0, 1, 2, 3}, Node: "b", Address: "b:80", Session: "s8", For: c.takeOverLimit() + 1}}, c.Idle())

	c.locks[1], c.locks[3] = lock{}, lock{session: "other", holder: ""}
	require.Equal(t, []Idle{
		{Partitions: []int{0, 2}, Node: "b", Address: "b:80", Session: "s8", For: c.takeOverLimit() + 1},
		{Partitions: []int{1}, For: c.takeOverLimit() + 1},
		{Partitions: []int{3}, Node: "an unknown process", Session: "other", For: c.takeOverLimit() + 1},
	}, c.Idle())

	c.lost = true
	require.Empty(t, c.Idle(), "a node that has lost Consul cannot know")
	d, _ = c.WithoutShare()
	require.Zero(t, d)
	c.lost = false

	for p := range c.holds {
		c.holds[p] = hold{state: held, session: "mine"}
	}
	pass(0)
	require.Empty(t, c.Idle(), "they are this node's")
	d, _ = c.WithoutShare()
	require.Zero(t, d)
}

// A node that has just started gets its share from living nodes, or takes it.
func TestAJoiningNodeIsNoFault(t *testing.T) {
	c, clock := idleCluster()
	for p := range c.locks {
		c.locks[p] = lock{session: "s8", instance: 8, holder: "b"}
	}
	c.compare()
	for range 30 {
		clock.pass(time.Second, time.Second)
		c.compare()
		d, fault := c.WithoutShare()
		require.Positive(t, d)
		require.Empty(t, fault, "b drains them")
	}
	c, clock = idleCluster()
	c.compare()
	clock.pass(c.cfg.TTL, c.cfg.TTL)
	c.compare()
	_, fault := c.WithoutShare()
	require.Empty(t, fault, "they were freed just now")
	clock.pass(1, 1)
	_, fault = c.WithoutShare()
	require.NotEmpty(t, fault)
}

// Consul leaves out what a token may not read.
func TestANodeThatConsulDoesNotShow(t *testing.T) {
	c, clock := idleCluster()
	c.locks[0] = lock{session: "s8", instance: 9, holder: "x"}
	c.compare()
	c.unseenSince = clock.at
	clock.pass(c.takeOverLimit(), c.takeOverLimit())
	require.Empty(t, c.Lost(), "its registration may be under way")
	clock.pass(1, 1)
	require.Contains(t, c.Lost(), "consul does not show this node its own registration: does its token lack node_prefix or service?")
	require.Empty(t, c.Idle(), "it cannot know")
	c.unseenSince = instant{}
	require.Empty(t, c.Lost())
	require.Len(t, c.Idle(), 2)
}

// Owning nothing is no fault by itself.
func TestWhoShouldOwnNothing(t *testing.T) {
	for name, change := range map[string]func(c *Consul){
		"more nodes than partitions": func(c *Consul) {
			for _, n := range []string{"c", "d", "e", "f", "g", "h"} {
				c.names[n] = struct{ freed instant }{}
				c.nodes = append(c.nodes, peer{name: n, service: n, instance: uint64(n[0]), healthy: true, ready: true})
			}
			c.cfg.Node, c.instance = "none", 99
			c.phase = joining
		},
		"it leaves":                         func(c *Consul) { c.phase = leaving },
		"maintenance":                       func(c *Consul) { c.nodes[0].inMaintenance = true },
		"the database is away for this one": func(c *Consul) { c.databases.states[0].unreachable = true },
	} {
		t.Run(name, func(t *testing.T) {
			c, clock := idleCluster()
			change(c)
			for p := range c.locks {
				c.locks[p] = lock{session: "s8", instance: 8, holder: "b"}
			}
			c.compare()
			clock.pass(time.Hour, time.Hour)
			c.compare()
			d, _ := c.WithoutShare()
			require.Zero(t, d)
			require.Empty(t, c.Idle())
		})
	}
}

func TestTheLeastTTLOfSessionsIsConsuls(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"Unexpected response code: 500 (Invalid Session TTL '10000000000', must be between [30s=24h0m0s])":  30 * time.Second,
		"Unexpected response code: 500 (Invalid Session TTL '10000000000', must be between [1m0s=24h0m0s])": time.Minute,
		"Unexpected response code: 500 (No cluster leader)":                                                 0,
	} {
		require.Equal(t, want, leastSessionTTL(errorText(text)))
	}
}

type errorText string

func (e errorText) Error() string { return string(e) }
