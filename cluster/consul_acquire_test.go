package cluster_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/cluster"
	"github.com/timeoutcenter/toc/store"
)

var down = &store.DatabaseError{Database: 1, Op: "connect", Err: errors.New("connection refused")}

func TestANodeWithAnotherLayoutIsRefused(t *testing.T) {
	virtually(t, func(t *testing.T, w *testCluster) {
		w.join("a", nil)
		for _, c := range []struct {
			change func(*cluster.ConsulConfig)
			says   string
		}{
			{func(c *cluster.ConsulConfig) { c.Layout.TablesPerDatabase = 64 },
				`store.tables_per_database is 64 here, but the cluster "PREFIX" has 32 (kept in Consul under PREFIX/layout)`},
			{func(c *cluster.ConsulConfig) { c.Layout.Databases = 4 },
				`store.databases is 4 here, but the cluster "PREFIX" has 8 (kept in Consul under PREFIX/layout)`},
			{func(c *cluster.ConsulConfig) { c.Layout.Partitions = 64 },
				`cluster.partitions is 64 here, but the cluster "PREFIX" has 32 (kept in Consul under PREFIX/layout)`},
		} {
			b := w.newNode("b", c.change)
			err := b.Acquire(t.Context())
			require.Error(t, err)
			require.Equal(t, string(bytes.ReplaceAll([]byte(c.says), []byte("PREFIX"), []byte(w.prefix))), err.Error())
		}
	})
}

func TestANameIsUsedOnce(t *testing.T) {
	virtually(t, func(t *testing.T, w *testCluster) {
		a := w.join("a", nil)
		settled(t, a)
		twin := w.newNode("a", nil)
		err := twin.Acquire(t.Context())
		require.ErrorContains(t, err, `node.name "a" is in use: another process of the cluster "`+w.prefix+`" has it; give each node a name of its own. `)
		require.ErrorContains(t, err, "ends within 20s of its last renewal, or at once by PUT /v1/session/destroy/"+a.Members()[0].Session)
		lone := w.newNode("b", nil)
		require.NoError(t, lone.Acquire(t.Context()))
		settled(t, a)
		require.Len(t, a.Members(), 1, "who does not work yet is no member")
	})
}

func TestBadConfigurations(t *testing.T) {
	t.Parallel()
	w := newTestClusterAt(t, "127.0.0.1:1", "toc")
	for says, change := range map[string]func(*cluster.ConsulConfig){
		"node.name":                 func(c *cluster.ConsulConfig) { c.Node = "a/b" },
		"cluster.consul.prefix":     func(c *cluster.ConsulConfig) { c.Prefix = "a b" },
		"cluster.consul.ttl":        func(c *cluster.ConsulConfig) { c.TTL = time.Millisecond },
		"cluster.partitions":        func(c *cluster.ConsulConfig) { c.Layout.Partitions = 3 },
		"Unknown protocol scheme: ": func(c *cluster.ConsulConfig) { c.Consul = &api.Config{Address: "ftp://x"} },
	} {
		require.ErrorContains(t, w.newNode("a", change).Acquire(t.Context()), says)
	}
}

// A Consul that does not answer, or refuses, is waited for. Meanwhile the node looks at its databases, so it can name all
// that is missing.
func TestConsulIsAwayAtTheStart(t *testing.T) {
	virtually(t, func(t *testing.T, w *testCluster) {
		a := w.newNode("a", func(c *cluster.ConsulConfig) { c.TTL = time.Second })
		a.proxy.Cut()
		a.down[1] = down
		acquired := make(chan error, 1)
		go func() { acquired <- a.Acquire(t.Context()) }()
		eventually(t, "a waits for both", func() bool { return len(a.Waits()) == 2 })
		require.Equal(t, "consul", a.Waits()[0].Name())
		require.Equal(t, "database 1", a.Waits()[1].Name())
		logged(t, a, "waiting to start")
		require.Empty(t, acquired)
		a.proxy.Mend()
		require.NoError(t, <-acquired)
		require.Len(t, a.Waits(), 1)
		a.set(func(a *node) { a.down = nil })
		a.run()
		settled(t, a)
		require.Empty(t, a.Waits())

		b := w.newNode("b", nil)
		b.proxy.Cut()
		ctx, cancel := context.WithCancel(t.Context())
		go func() { acquired <- b.Acquire(ctx) }()
		eventually(t, "b waits", func() bool { return b.log.count("waiting to start") > 0 })
		cancel()
		var waited *cluster.WaitError
		err := <-acquired
		require.ErrorAs(t, err, &waited)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorContains(t, err, "while waiting for consul, since ")
		require.ErrorContains(t, err, "connection refused")

		unfit := errors.New("toc_1 was made with another layout")
		c := w.newNode("c", nil)
		c.proxy.Stall()
		c.down[1] = unfit
		require.ErrorIs(t, c.Acquire(t.Context()), unfit, "a store of another layout does not wait for consul")
	})
}

// A token may get its rights later. No text has the token.
func TestConsulRefuses(t *testing.T) {
	t.Parallel()
	const token = "5ec2e700-0000-4000-8000-000000000000"
	consul := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Consul-Token") != token {
			t.Errorf("%s without a token", r.URL)
		}
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, "Permission denied")
	}))
	defer consul.Close()
	w := newTestClusterAt(t, consul.Listener.Addr().String(), "toc")
	a := w.newNode("a", func(c *cluster.ConsulConfig) { c.Consul.Token = token })
	ctx, cancel := context.WithCancel(t.Context())
	acquired := make(chan error, 1)
	go func() { acquired <- a.Acquire(ctx) }()
	eventually(t, "a waits", func() bool { return a.log.count("Permission denied") > 0 })
	cancel()
	err := <-acquired
	require.ErrorContains(t, err, "Permission denied")
	require.NotContains(t, err.Error(), token)
	require.Zero(t, a.log.count(token))
}

func TestDatabasesAreJudgedAtTheStart(t *testing.T) {
	virtually(t, func(t *testing.T, w *testCluster) {
		a := w.newNode("a", nil)
		for d := range 8 {
			a.down[d] = down
		}
		acquired := make(chan error, 1)
		go func() { acquired <- a.Acquire(t.Context()) }()
		eventually(t, "a waits for all", func() bool { return len(a.Waits()) == 8 })
		require.Empty(t, acquired)

		unfit := errors.New("toc_1 was made with another layout")
		a.set(func(a *node) { a.down = map[int]error{1: unfit, 2: down} })
		require.ErrorIs(t, <-acquired, unfit)

		// One that cannot be reached waits, and is taken when it can be.
		a.set(func(a *node) { a.down = map[int]error{1: down} })
		require.NoError(t, a.Acquire(t.Context()))
		a.run()
		eventually(t, "a takes what is fit", func() bool { return a.owns() == 28 })
		logged(t, a, "database not usable")
		require.Len(t, a.Waits(), 1)
		a.set(func(a *node) { a.down = nil })
		settled(t, a)
		require.Empty(t, a.Waits())
	})
}

// A database that one node cannot reach is worked by others.
func TestUnableNodes(t *testing.T) {
	virtually(t, func(t *testing.T, w *testCluster) {
		a, b := w.join("a", nil), w.join("b", nil)
		settled(t, a, b)
		has := func(n *node, database int) (count int) {
			first, end := wide.DatabasePartitions(database)
			for p := first; p < end; p++ {
				if n.Ownership().Owns(p) {
					count++
				}
			}
			return count
		}
		a.set(func(a *node) { a.unable = []int{3} })
		eventually(t, "b works database 3", func() bool { return has(a, 3) == 0 && has(b, 3) == 4 })
		settled(t, a, b)

		// If no node can reach it, all are equal.
		b.set(func(b *node) { b.unable = []int{3} })
		eventually(t, "b says so", func() bool { return b.log.count("databases=[3]") > 0 })

		// It is prepared before it is worked again.
		a.set(func(a *node) { a.unable, a.down = nil, map[int]error{3: errors.New("another layout")} })
		eventually(t, "a finds it unfit", func() bool { return a.log.count("database not usable") > 0 })
		require.Zero(t, has(a, 3))
		a.set(func(a *node) { a.down = nil })
		b.set(func(b *node) { b.unable = nil })
		settled(t, a, b)
	})
}

// The number of a process that has ended goes to the back of the queue.
func TestWorkerNumbersAreLeasedAgain(t *testing.T) {
	virtually(t, func(t *testing.T, w *testCluster) {
		a := w.join("a", nil)
		require.Equal(t, 0, a.worker())
		a.leave()
		b := w.join("b", nil)
		require.Equal(t, 1, b.worker(), "one that nobody had, as long as there are")
	})
}

// A client that may write to Consul can change a node's address. The node corrects it. Before, its tasks'
// cancels went to that address until it was restarted.
func TestAForgedRegistrationIsPutRight(t *testing.T) {
	virtually(t, func(t *testing.T, w *testCluster) {
		a := w.join("a", nil)
		settled(t, a)
		right := a.Members()[0].Address
		consul := w.direct()
		services, err := consul.Agent().ServicesWithFilter(`Service == "` + w.prefix + `"`)
		require.NoError(t, err)
		require.Len(t, services, 1)
		for id, s := range services {
			s.Meta["address"] = "10.66.66.66:8080"
			require.NoError(t, consul.Agent().ServiceRegister(&api.AgentServiceRegistration{ID: id, Name: s.Service, Meta: s.Meta}))
		}
		eventually(t, "it is noticed", func() bool { return a.log.count("somebody has changed this node's registration in consul") > 0 })
		eventually(t, "the address is right again", func() bool { return len(a.Members()) == 1 && a.Members()[0].Address == right })
	})
}
