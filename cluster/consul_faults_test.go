package cluster_test

import (
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/cluster"
	"github.com/timeoutcenter/toc/internal/testrig/await"
)

// keepsPartitions fails the test if a node's partitions go away while f runs.
func keepsPartitions(t *testing.T, n *node, f func()) {
	t.Helper()
	before := n.owns()
	var once sync.Once
	defer await.Throughout(func() {
		if owns := n.owns(); owns != before {
			once.Do(func() { t.Errorf("%s owns %d partitions, which were %d", n.name, owns, before) })
		}
	})()
	f()
}

// A node that keeps its partitions may find that they have been taken.
func TestKeptPartitionsAreGivenUpIfOthersHaveThem(t *testing.T) {
	virtually(t, func(t *testing.T, w *testCluster) {
		w.twoOwnersAllowed.Store(true) // the price of keeping
		a := w.join("a", func(c *cluster.ConsulConfig) { c.KeepOnLoss = true })
		b := w.join("b", nil)
		settled(t, a, b)
		a.proxy.Cut()
		keepsPartitions(t, a, func() { eventually(t, "b takes over", func() bool { return b.owns() == 32 }) })
		require.Regexp(t, `partitions kept: .+`, a.Lost())
		b.set(func(b *node) { b.hold = make(chan struct{}) }) // b does not give back
		a.proxy.Mend()
		eventually(t, "a gives up", func() bool { return a.owns() == 0 })
		w.twoOwnersAllowed.Store(false)
		b.proxy.Cut()
		b.halt()
		eventually(t, "a has all", func() bool { return a.owns() == 32 })
	})
}

// A session that was given up and could not be ended then would live for twice its TTL: the check that it hangs on passes
// again.
func TestASessionThatCouldNotBeEnded(t *testing.T) {
	virtually(t, func(t *testing.T, w *testCluster) {
		var mute, refused atomic.Bool
		lives := func(session string) bool {
			entry, _, err := w.direct().Session().Info(session, nil)
			return err == nil && entry != nil
		}
		w.front(func(rw http.ResponseWriter, r *http.Request) {
			switch {
			case mute.Load():
				time.Sleep(10 * time.Millisecond) // in a bubble: where no time passes, heartbeats only meet the edges of these times
				rw.WriteHeader(http.StatusInternalServerError)
			case strings.Contains(r.URL.Path, "/session/destroy") && !refused.Load() && lives(path.Base(r.URL.Path)):
				refused.Store(true)
				rw.WriteHeader(http.StatusInternalServerError)
			default:
				w.fake.ServeHTTP(rw, r)
			}
		})
		a := w.join("a", func(c *cluster.ConsulConfig) { c.Consul.Address = frontAddress })
		settled(t, a)
		// Silent for longer than the session is trusted and less than it lives: where that lies in a heartbeat's rhythm has
		// to be found.
		for try := 0; !refused.Load(); try++ {
			require.Less(t, try, 40)
			mute.Store(true)
			time.Sleep(ttl * time.Duration(80+3*(try%7)) / 100) // in a bubble
			mute.Store(false)
			back := time.Now()
			eventually(t, "a owns all again", func() bool { return a.owns() == 32 })
			require.Less(t, time.Since(back), ttl)
		}
	})
}

// The agent has lost its state, or was cleaned up by hand. Before, a node with a token waited for ever then: where Consul
// 1.8 asks for tokens, it says in other words that it does not know a check.
func TestANodeThatIsForgottenRegistersAgain(t *testing.T) {
	for _, token := range []string{"", "secret"} {
		t.Run("token="+token, func(t *testing.T) {
			virtually(t, func(t *testing.T, w *testCluster) {
				if token != "" {
					w.fake.AddToken(token)
				}
				a := w.join("a", func(c *cluster.ConsulConfig) { c.Consul.Token = token })
				settled(t, a)
				w.fake.Forget()
				forgotten := time.Now()
				eventually(t, "it registers again", func() bool { return a.log.count("registering again") > 0 })
				eventually(t, "it is back", func() bool { return a.log.count("consul session opened") > 1 })
				settled(t, a)
				require.Less(t, time.Since(forgotten), ttl)
			})
		})
	}
}

// A node counts by the lock on its name, so it puts that right.
func TestANameThatIsDeletedByHand(t *testing.T) {
	virtually(t, func(t *testing.T, w *testCluster) {
		a, b := w.join("a", nil), w.join("b", nil)
		settled(t, a, b)
		kv := w.direct().KV()
		keepsPartitions(t, b, func() {
			keepsPartitions(t, a, func() {
				_, err := kv.Delete(w.prefix+"/nodes/a", nil)
				require.NoError(t, err)
				eventually(t, "it is locked again", func() bool {
					pair, _, err := kv.Get(w.prefix+"/nodes/a", nil)
					return err == nil && pair != nil && pair.Session == a.Members()[0].Session
				})
				eventually(t, "it says so", func() bool { return a.log.count("this node's name was not locked in consul any more") > 0 })
			})
		})
		settled(t, a, b)
	})
}

// Either check of a node may be deregistered or set by hand.
func TestChecksInOtherHands(t *testing.T) {
	virtually(t, func(t *testing.T, w *testCluster) {
		a, b := w.join("a", nil), w.join("b", nil)
		settled(t, a, b)
		agent := w.direct().Agent()
		services, err := agent.ServicesWithFilter(`Service == "` + w.prefix + `" and Meta.node == "a"`)
		require.NoError(t, err)
		for id := range services {
			passes := func(check string) bool {
				checks, err := agent.ChecksWithFilter(`CheckID == "` + id + check + `"`)
				return err == nil && checks[id+check] != nil && checks[id+check].Status == api.HealthPassing
			}
			for _, check := range []string{":ready", ":alive"} {
				require.NoError(t, agent.CheckDeregister(id+check))
				eventually(t, "it is registered again", func() bool { return passes(":ready") && passes(":alive") })
				settled(t, a, b)
			}
			logged(t, a, "the consul agent has forgotten this node")
			require.NoError(t, agent.UpdateTTL(id+":ready", "", api.HealthCritical))
			eventually(t, "it is set again", func() bool { return passes(":ready") })
			settled(t, a, b)
		}
	})
}

// Changes of a lock by hand are seen at once.
func TestLocksInOtherHands(t *testing.T) {
	virtually(t, func(t *testing.T, w *testCluster) {
		a := w.join("a", nil)
		settled(t, a)
		kv := w.direct().KV()
		key := w.prefix + "/partitions/5"

		_, err := kv.Delete(key, nil)
		require.NoError(t, err)
		eventually(t, "it is noticed", func() bool { return a.log.count("locks lost") == 1 })
		settled(t, a)

		pair, _, err := kv.Get(key, nil)
		require.NoError(t, err)
		session, _, err := w.direct().Session().CreateNoChecks(&api.SessionEntry{LockDelay: time.Millisecond}, nil)
		require.NoError(t, err)
		defer func() { _, _ = w.direct().Session().Destroy(session, nil) }()
		released, _, err := kv.Release(&api.KVPair{Key: key, Session: pair.Session}, nil)
		require.NoError(t, err)
		require.True(t, released)
		eventually(t, "the lock is foreign", func() bool {
			had, _, err := kv.Acquire(&api.KVPair{Key: key, Session: session}, nil)
			if err == nil && !had { // the node was faster
				pair, _, err = kv.Get(key, nil)
				require.NoError(t, err)
				_, _, _ = kv.Release(&api.KVPair{Key: key, Session: pair.Session}, nil)
			}
			return had
		})
		eventually(t, "it is given up", func() bool { return !a.Ownership().Owns(5) })
		_, ok := a.Owner(5)
		require.False(t, ok, "no node has it")
		require.Equal(t, 31, a.owns(), "the others stay")
		_, err = w.direct().Session().Destroy(session, nil)
		require.NoError(t, err)
		eventually(t, "it is taken again", func() bool { return a.Ownership().Owns(5) })
	})
}

// Leave and Release end even if Consul is away.
func TestLeavingWithoutConsul(t *testing.T) {
	for _, keep := range []bool{false, true} {
		t.Run("keep="+strconv.FormatBool(keep), func(t *testing.T) {
			virtually(t, func(t *testing.T, w *testCluster) {
				a := w.join("a", func(c *cluster.ConsulConfig) { c.KeepOnLoss = keep })
				settled(t, a)
				a.proxy.Stall()
				require.NoError(t, a.Leave(t.Context()), "the session ends by itself")
				require.Empty(t, a.Ownership().Owned())
				a.set(func(a *node) { require.Len(t, a.drained, 32) })
				a.halt()
				began := time.Now()
				a.Release() // ends, although Consul never answers
				require.Equal(t, 2*time.Second, time.Since(began))
				require.Equal(t, 1, a.log.count("not signed off cleanly"))

				// The successor has the same name.
				b := w.join("a", nil)
				settled(t, b)
			})
		})
	}
}
