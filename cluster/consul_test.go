package cluster_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/cluster"
)

func TestNodesComeAndGo(t *testing.T) {
	t.Parallel()
	w := newTestCluster(t)
	a := w.join("a", nil)
	settled(t, a)
	self := a.Members()[0]
	require.NotZero(t, self.Instance)
	require.Equal(t, []cluster.Member{{Name: "a", Address: "a.test:8080", Partitions: a.Ownership().Owned(), Session: self.Session, Instance: self.Instance}}, a.Members())
	before := a.Ownership().Owned()
	pair, _, err := w.direct().KV().Get(w.prefix+"/partitions/7", nil)
	require.NoError(t, err)
	require.Equal(t, "a", string(pair.Value))
	session, _, err := w.direct().Session().Info(pair.Session, nil)
	require.NoError(t, err)
	require.Equal(t, time.Millisecond, session.LockDelay, "or the next node would wait for 15 s")
	require.Equal(t, "10s", session.TTL, "it ends by itself")
	require.Equal(t, pair.Session, a.Members()[0].Session)

	b := w.join("b", nil)
	settled(t, a, b)
	a.set(func(a *node) { require.Len(t, a.drained, 16, "each was drained once") })
	members := a.Members()
	require.Equal(t, "a", members[0].Name)
	require.Equal(t, a.Ownership().Owned(), members[0].Partitions)
	require.Equal(t, b.Ownership().Owned(), members[1].Partitions)
	require.Equal(t, members, b.Members())
	for _, p := range before {
		owner, ok := a.Owner(p)
		require.True(t, ok)
		require.Equal(t, b.Ownership().Owns(p), owner.Name == "b")
		require.Equal(t, owner.Name+".test:8080", owner.Address)
	}

	a.leave()
	settled(t, b)
	require.Empty(t, a.Ownership().Owned())
	a.Release() // nothing is left to release
	b.leave()

	// A lock that was handed over can be had at once.
	c := w.join("c", nil)
	settled(t, c)
	c.leave()
	pairs, _, err := w.direct().KV().List(w.prefix+"/partitions/", nil)
	require.NoError(t, err)
	require.Len(t, pairs, 32)
	for _, pair := range pairs {
		require.Empty(t, pair.Session)
	}
	services, err := w.direct().Agent().ServicesWithFilter(`Service == "` + w.prefix + `"`)
	require.NoError(t, err)
	require.Empty(t, services)
}

// The other nodes get the death of a node that did not hand over.
func TestADeathIsTold(t *testing.T) {
	virtually(t, func(t *testing.T, w *testCluster) {
		a := w.join("a", nil)
		b := w.join("b", nil)
		settled(t, a, b)
		b.leave()
		settled(t, a)
		require.Zero(t, a.deaths.Load(), "b has left in order")
		c := w.join("c", nil)
		settled(t, a, c)
		c.proxy.Cut()
		settled(t, a)
		eventually(t, "the death is told", func() bool { return a.deaths.Load() > 0 })
		require.EqualValues(t, 1, a.deaths.Load())
	})
}

func TestAHandOverHasAnEnd(t *testing.T) {
	virtually(t, func(t *testing.T, w *testCluster) {
		a := w.join("a", func(c *cluster.ConsulConfig) { c.DrainFor = 100 * time.Millisecond })
		settled(t, a)
		a.set(func(a *node) { a.hold = make(chan struct{}) })
		b := w.join("b", nil)
		settled(t, a, b)
		logged(t, a, "handed over with work in hand")
	})
}

// Consul's maintenance mode drains a node.
func TestMaintenanceMode(t *testing.T) {
	t.Parallel()
	w := newTestCluster(t)
	a, b := w.join("a", nil), w.join("b", nil)
	settled(t, a, b)
	services, err := w.direct().Agent().ServicesWithFilter(`Service == "` + w.prefix + `" and Meta.node == "a"`)
	require.NoError(t, err)
	require.Len(t, services, 1)
	for id := range services {
		require.NoError(t, w.direct().Agent().EnableServiceMaintenance(id, "test"))
		settled(t, b)
		require.Empty(t, a.Ownership().Owned())
		require.NoError(t, w.direct().Agent().DisableServiceMaintenance(id))
	}
	settled(t, a, b)
}

func TestTenNodesSettle(t *testing.T) {
	virtually(t, func(t *testing.T, w *testCluster) {
		var nodes []*node
		workers := map[int]bool{}
		for i := range 10 {
			n := w.join(string(rune('a'+i)), nil)
			nodes = append(nodes, n)
			told := 0
			n.set(func(n *node) { told = len(n.workers) })
			require.Equal(t, 1, told, "before Acquire returned")
			require.False(t, workers[n.worker()], "worker numbers are distinct")
			workers[n.worker()] = true
		}
		settled(t, nodes...)
		for _, n := range nodes[:3] {
			n.leave()
		}
		settled(t, nodes[3:]...)
	})
}
