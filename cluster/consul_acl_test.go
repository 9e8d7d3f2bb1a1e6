package cluster_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/cluster"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/await"
)

// rights are those of docs/operating.md, by resource.
type rights struct{ key, session, node string }

var allRights = rights{key: "write", session: "write", node: "read"}

func (r rights) rules(prefix string) string {
	return fmt.Sprintf(`key_prefix "%s/" { policy = "%s" }
		session_prefix "" { policy = "%s" }
		service "%s" { policy = "write" }
		node_prefix "" { policy = "%s" }
		agent_prefix "" { policy = "read" }`, prefix, r.key, r.session, prefix, r.node)
}

// badge is an ACL token of its own policy, and its place in a file that is re-read.
type badge struct {
	w      *testCluster
	policy *api.ACLPolicy

	mu    sync.Mutex
	token *api.ACLToken
	asked int // how often it was read
}

// aclCluster is a testCluster on a Consul that denies all that a token does not allow.
func aclCluster(t *testing.T, consul *testrig.ConsulServer, prefix string) *testCluster {
	w := newTestClusterAt(t, consul.Addr(), prefix)
	w.token = testrig.ConsulMaster
	return w
}

// newBadge makes a token with all rights.
func (w *testCluster) newBadge(name string) *badge {
	w.t.Helper()
	policy, _, err := w.direct().ACL().PolicyCreate(&api.ACLPolicy{Name: w.prefix + "-" + name, Rules: allRights.rules(w.prefix)}, nil)
	require.NoError(w.t, err)
	b := &badge{w: w, policy: policy}
	b.replace()
	return b
}

// replace puts a new token in the place of the one before.
func (b *badge) replace() {
	b.w.t.Helper()
	token, _, err := b.w.direct().ACL().TokenCreate(&api.ACLToken{Policies: []*api.ACLLink{{ID: b.policy.ID}}}, nil)
	require.NoError(b.w.t, err)
	b.mu.Lock()
	b.token = token
	b.mu.Unlock()
}

// remove deletes the token in Consul. The file still has it.
func (b *badge) remove() {
	b.w.t.Helper()
	_, err := b.w.direct().ACL().TokenDelete(b.token.AccessorID, nil)
	require.NoError(b.w.t, err)
}

// allow changes the rights of the token.
func (b *badge) allow(r rights) {
	b.w.t.Helper()
	b.policy.Rules = r.rules(b.w.prefix)
	_, _, err := b.w.direct().ACL().PolicyUpdate(b.policy, nil)
	require.NoError(b.w.t, err)
}

func (b *badge) read() (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked++
	return b.token.SecretID, nil
}

func (b *badge) reads() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.asked
}

// with gives a node the token, and a session that ends soon.
func (b *badge) with(c *cluster.ConsulConfig) {
	c.Token, c.SessionTTL = b.read, ttl
}

func TestTokens(t *testing.T) {
	t.Parallel()
	consul := testrig.StartConsul(t, testrig.ConsulACL, `-hcl=session_ttl_min = "3s"`)

	// The agent reports checks with the token of their registration. Before, the checks of nodes whose token was gone passed
	// for ever, their sessions never ended, and they owned all partitions.
	t.Run("deleted, and the nodes are started again", func(t *testing.T) {
		t.Parallel()
		w := aclCluster(t, consul, "deleted")
		old := w.newBadge("old")
		a, b := w.join("a", old.with), w.join("b", old.with)
		settled(t, a, b)
		secret, _ := old.read()
		old.remove()
		deleted := time.Now()
		says := func(n *node) bool {
			return strings.Contains(n.Lost(), "consul refuses this node's heartbeats since ") && strings.Contains(n.Lost(), "ACL not found") &&
				strings.Contains(n.Lost(), "cluster.consul.token_file")
		}
		eventually(t, "both stop", func() bool { return a.owns() == 0 && b.owns() == 0 && says(a) && says(b) })
		a.halt()
		a.Release() // it cannot sign off
		b.halt()
		b.Release()
		require.Zero(t, a.log.count(secret))

		next := w.newBadge("new")
		c := w.join("c", next.with)
		again := w.join("a", next.with)
		settled(t, c, again)
		t.Logf("all partitions are worked again %s after the token was deleted; sessions of %s",
			time.Since(deleted).Round(100*time.Millisecond), ttl)
		entries, _, err := w.direct().Health().Service(w.prefix, "", false, nil)
		require.NoError(t, err)
		passing := 0
		for _, e := range entries {
			if e.Service.Meta["node"] == "b" && e.Checks.AggregatedStatus() == api.HealthPassing {
				passing++
			}
		}
		require.Equal(t, 1, passing, "to Consul b is as healthy as ever")
	})

	t.Run("deleted, and a new one is in the file", func(t *testing.T) {
		t.Parallel()
		w := aclCluster(t, consul, "rotated")
		file := w.newBadge("file")
		a, b := w.join("a", file.with), w.join("b", file.with)
		settled(t, a, b)
		file.remove()
		eventually(t, "both stop", func() bool { return a.owns() == 0 && b.owns() == 0 })
		file.replace()
		settled(t, a, b)
		logged(t, a, "the consul token has changed; registering again")

		// A death is found by the check again: the agent reports it with the new token.
		a.proxy.Cut()
		a.halt()
		settled(t, b)
		entries, _, err := w.direct().Health().Service(w.prefix, "", false, nil)
		require.NoError(t, err)
		for _, e := range entries {
			require.Equal(t, e.Service.Meta["node"] == "b", e.Checks.AggregatedStatus() == api.HealthPassing)
		}
	})

	t.Run("replaced in time", func(t *testing.T) {
		t.Parallel()
		w := aclCluster(t, consul, "intime")
		file := w.newBadge("file")
		a, b := w.join("a", file.with), w.join("b", file.with)
		settled(t, a, b)
		before := file.token.AccessorID
		keepsPartitions(t, a, func() {
			file.replace()
			eventually(t, "both take the new one", func() bool {
				return a.log.count("the consul token has changed") > 0 && b.log.count("the consul token has changed") > 0
			})
			_, err := w.direct().ACL().TokenDelete(before, nil)
			require.NoError(t, err)
			asked := file.reads()
			eventually(t, "many requests later", func() bool { return file.reads() > asked+60 })
		})
	})

	// An agent takes a deleted token for half a minute more, from its cache; the servers do not.
	t.Run("deleted, behind an agent that forgets", func(t *testing.T) {
		t.Parallel()
		w := aclCluster(t, consul, "agent")
		agent := consul.Agent(t, testrig.ConsulACL)
		hers, his := w.newBadge("a"), w.newBadge("b")
		a := w.join("a", func(c *cluster.ConsulConfig) {
			hers.with(c)
			c.Consul.Address = agent.Addr()
		})
		b := w.join("b", his.with)
		settled(t, a, b)
		hers.remove()
		settled(t, b)
		hers.replace()
		settled(t, a, b)
		agent.Kill()
		settled(t, b)
		agent.Start()
		settled(t, a, b)
	})

	t.Run("without the right to sessions", func(t *testing.T) {
		t.Parallel()
		w := aclCluster(t, consul, "nosession")
		hers, his := w.newBadge("a"), w.newBadge("b")
		a, b := w.join("a", hers.with), w.join("b", his.with)
		settled(t, a, b)
		hers.allow(rights{key: "write", session: "read", node: "read"})
		settled(t, b)
		require.Empty(t, a.Ownership().Owned())
		eventually(t, "it says so", func() bool { return strings.Contains(a.Lost(), "consul refuses this node's heartbeats") })
		hers.allow(allRights)
		settled(t, a, b)
	})

	// A node that can neither take nor release goes on with the partitions that it has. Before, it gave up those of a node
	// that joined, and its lock on them stayed.
	t.Run("without the right to keys", func(t *testing.T) {
		t.Parallel()
		w := aclCluster(t, consul, "nokey")
		hers, his := w.newBadge("a"), w.newBadge("b")
		a := w.join("a", hers.with)
		settled(t, a)
		hers.allow(rights{key: "read", session: "write", node: "read"})
		b := w.join("b", his.with)
		eventually(t, "a is refused", func() bool {
			return strings.Contains(a.Lost(), "consul refuses this node's writes: its partitions are kept")
		})
		eventually(t, "a works all of them", func() bool { return a.owns() == wide.Partitions })
		hers.allow(allRights)
		settled(t, a, b)
		eventually(t, "it says so no more", func() bool { return a.Lost() == "" })
		hers.allow(rights{key: "read", session: "write", node: "read"})
		a.leave() // its locks end with its session
		settled(t, b)
	})

	// Consul leaves out the keys that a token may not read, so the node believes that it has lost its locks, and has them. Its
	// session must end.
	t.Run("without the right to see keys", func(t *testing.T) {
		t.Parallel()
		w := aclCluster(t, consul, "blind")
		hers, his := w.newBadge("a"), w.newBadge("b")
		a, b := w.join("a", hers.with), w.join("b", his.with)
		settled(t, a, b)
		hers.allow(rights{key: "deny", session: "write", node: "read"})
		settled(t, b)
		eventually(t, "it says so", func() bool { return strings.Contains(a.Lost(), "consul refuses this node's heartbeats") })
		eventually(t, "and why", func() bool { return strings.Contains(a.Lost(), "Permission denied") })
		hers.allow(allRights)
		settled(t, a, b)
	})

	t.Run("without the right to see nodes", func(t *testing.T) {
		testrig.OnlyInAll(t, "TestANodeThatConsulDoesNotShow has a clock that is set")
		t.Parallel()
		w := aclCluster(t, consul, "alone")
		hers := w.newBadge("a")
		a := w.join("a", hers.with)
		settled(t, a)
		keepsPartitions(t, a, func() {
			hers.allow(rights{key: "write", session: "write", node: "deny"})
			eventually(t, "it says so", func() bool { return strings.Contains(a.Lost(), "consul does not show this node its own registration") })
			hers.allow(allRights)
			eventually(t, "it is seen again", func() bool { return a.Lost() == "" })
		})
	})

	t.Run("Consul wants longer sessions", func(t *testing.T) {
		t.Parallel()
		w := aclCluster(t, consul, "longer")
		file := w.newBadge("file")
		a := w.join("a", func(c *cluster.ConsulConfig) {
			file.with(c)
			c.TTL, c.SessionTTL = 2*time.Second, 2*time.Second
		})
		settled(t, a)
		session, _, err := w.direct().Session().Info(a.Members()[0].Session, nil)
		require.NoError(t, err)
		require.Equal(t, "3s", session.TTL)
		require.Equal(t, 1, a.log.count("consul's session_ttl_min is longer"))
	})

	t.Run("a token that is none", func(t *testing.T) {
		t.Parallel()
		w := aclCluster(t, consul, "none")
		b := w.newBadge("gone")
		b.remove()
		a := w.newNode("a", b.with)
		acquired := make(chan error, 1)
		go func() { acquired <- a.Acquire(t.Context()) }()
		eventually(t, "it says what it waits for", func() bool {
			waits := a.Waits()
			return len(waits) == 1 && strings.Contains(waits[0].String(), "ACL not found") && strings.Contains(waits[0].String(), "cluster.consul.token_file")
		})
		b.replace()
		require.NoError(t, await.Receive(t, acquired, "the new token is taken"))
		a.Release()
	})
}
