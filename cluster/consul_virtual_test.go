package cluster_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/cluster"
	"github.com/timeoutcenter/toc/internal/testrig/await"
)

// soon is the longest that it takes to see and to lock what is free, and to see who has it: two gaps of watches, the pause
// after an attempt that met a lock-delay or another node, and as much again.
const soon = 400 * time.Millisecond

// longestWithoutOwner measures the longest time for which a partition has no owner, until it is asked.
func (w *testCluster) longestWithoutOwner() (ask func() time.Duration) {
	longest, since := time.Duration(0), make([]time.Time, wide.Partitions)
	end := sync.OnceFunc(await.Throughout(func() {
		owned := make([]bool, wide.Partitions)
		for _, n := range w.liveNodes() {
			for _, p := range n.Ownership().Owned() {
				owned[p] = true
			}
		}
		for p := range owned {
			if owned[p] || since[p].IsZero() {
				since[p] = time.Now()
			}
			longest = max(longest, time.Since(since[p]))
		}
	}))
	w.t.Cleanup(end)
	return func() time.Duration { end(); return longest }
}

// stopsAndIsReplaced takes a's Consul away and says when a has stopped and when the others have its partitions.
func stopsAndIsReplaced(t *testing.T, a *node, away func(), others ...*node) (stopped, replaced time.Duration) {
	began := time.Now()
	away()
	eventually(t, "a stops", func() bool { return a.owns() == 0 })
	stopped = time.Since(began)
	eventually(t, "the others have all", func() bool {
		all := 0
		for _, n := range others {
			all += n.owns()
		}
		return all == wide.Partitions
	})
	return stopped, time.Since(began)
}

// A node that is cut off, at any moment between two heartbeats, stops by its own clock before others take over.
func TestANodeThatIsCutOffStops(t *testing.T) {
	for _, how := range []string{"cut", "stalled"} {
		for phase := range 5 {
			t.Run(fmt.Sprintf("%s at %d/5", how, phase), func(t *testing.T) {
				virtually(t, func(t *testing.T, w *testCluster) {
					a, b, c := w.join("a", nil), w.join("b", nil), w.join("c", nil)
					settled(t, a, b, c)
					rings, worker := a.Ownership().Watch(), a.worker()
					time.Sleep(time.Duration(phase) * ttl / 25) // in a bubble
					away := a.proxy.Cut
					if how == "stalled" {
						away = a.proxy.Stall
					}
					stopped, replaced := stopsAndIsReplaced(t, a, away, b, c)
					require.Less(t, stopped, ttl*2/3+soon)
					require.Greater(t, stopped, ttl*2/3-ttl/5-soon)
					require.Less(t, replaced, ttl+soon)
					require.Greater(t, replaced, ttl-ttl/5-soon)
					require.Len(t, rings, 1, "who works partitions is told")
					require.Regexp(t, `^consul does not answer since \d+s: partitions stopped: .+`, a.Lost())

					a.proxy.Mend()
					settled(t, a, b, c)
					require.Empty(t, a.Lost())
					require.Equal(t, 1, a.log.count("lost consul"))
					require.Equal(t, 1, a.log.count("consul is back"))
					require.Equal(t, worker, a.worker())
				})
			})
		}
	}
}

// A rolling restart stops no partition for longer than a hand-over takes.
func TestARollingRestart(t *testing.T) {
	virtually(t, func(t *testing.T, w *testCluster) {
		nodes := []*node{w.join("a", nil), w.join("b", nil), w.join("c", nil)}
		settled(t, nodes...)
		without := w.longestWithoutOwner()
		for i, n := range nodes {
			n.leave()
			time.Sleep(10 * time.Second) // in a bubble
			nodes[i] = w.join(n.name, nil)
			settled(t, nodes...)
		}
		require.Less(t, without(), soon)
		for _, n := range nodes {
			for _, p := range n.Ownership().Owned() {
				_, unclean := n.Ownership().TakenUncleanly(p)
				require.False(t, unclean)
			}
		}
	})
}

// Consul is away for a minute. Partitions stop or go on, as is configured, and after its return each node has what it had.
func TestConsulIsAwayForAMinute(t *testing.T) {
	for _, keep := range []bool{false, true} {
		for _, how := range []string{"killed", "silent"} {
			t.Run(fmt.Sprintf("%s, keep=%t", how, keep), func(t *testing.T) {
				virtually(t, func(t *testing.T, w *testCluster) {
					change := func(c *cluster.ConsulConfig) { c.KeepOnLoss = keep }
					nodes := []*node{w.join("a", change), w.join("b", change), w.join("c", change)}
					settled(t, nodes...)
					before := make([][]int, len(nodes))
					for i, n := range nodes {
						before[i] = n.Ownership().Owned()
					}
					without := w.longestWithoutOwner()
					switch how {
					case "killed":
						w.fake.Stop()
						for _, n := range nodes[1:] {
							n.proxy.Cut()
						}
					case "silent":
						for _, n := range nodes {
							n.proxy.Stall()
						}
					}
					time.Sleep(time.Minute) // in a bubble
					for i, n := range nodes {
						if keep {
							require.Equal(t, before[i], n.Ownership().Owned())
							require.Regexp(t, `^consul does not answer since \d\S+: partitions kept: .+`, n.Lost())
						} else {
							require.Zero(t, n.owns())
						}
					}
					w.fake.Start()
					for _, n := range nodes { // one returns first, and leaves alone what the others may have kept
						n.proxy.Mend()
						time.Sleep(2 * time.Second) // in a bubble
					}
					back := time.Now()
					settled(t, nodes...)
					require.Less(t, time.Since(back), 2*ttl)
					time.Sleep(time.Minute) // in a bubble
					settled(t, nodes...)
					for i, n := range nodes {
						require.Equal(t, before[i], n.Ownership().Owned())
						require.Empty(t, n.Lost())
						require.Equal(t, n.log.count("lost consul"), n.log.count("consul is back"))
					}
					if longest := without(); keep {
						require.Less(t, longest, 1300*time.Millisecond, "but for hand-overs between those that are back, whose watches may pause for 1.2 s")
					}
				})
			})
		}
	}
}

// A restart of Consul stops nothing.
func TestConsulIsRestarted(t *testing.T) {
	virtually(t, func(t *testing.T, w *testCluster) {
		a, b := w.join("a", nil), w.join("b", nil)
		settled(t, a, b)
		keepsPartitions(t, a, func() {
			keepsPartitions(t, b, func() {
				for range 10 {
					w.fake.Restart()
					time.Sleep(ttl + 100*time.Millisecond) // in a bubble
				}
			})
		})
		settled(t, a, b)
	})
}

// A cluster in which nothing happens writes nothing to Consul, and its nodes say nothing.
func TestFiveMinutesOfNothing(t *testing.T) {
	virtually(t, func(t *testing.T, w *testCluster) {
		nodes := []*node{w.join("a", nil), w.join("b", nil), w.join("c", nil)}
		settled(t, nodes...)
		time.Sleep(time.Second) // in a bubble
		state := func() string {
			keys, _, err := w.direct().KV().List("toc/", nil)
			require.NoError(t, err)
			entries, meta, err := w.direct().Health().Service("toc", "", false, nil)
			require.NoError(t, err)
			text := fmt.Sprint(meta.LastIndex, len(entries))
			for _, k := range keys {
				text += fmt.Sprint(*k)
			}
			for _, n := range nodes {
				text += fmt.Sprint(n.Members(), n.log.count("\n"))
			}
			return text
		}
		before := state()
		var rings []<-chan struct{}
		for _, n := range nodes {
			rings = append(rings, n.Ownership().Watch())
		}
		time.Sleep(5 * time.Minute) // in a bubble
		for _, r := range rings {
			require.Empty(t, r)
		}
		require.Equal(t, before, state())
	})
}

// The nodes' token is deleted, and they are started again with another one. To Consul the old ones are as healthy as ever:
// the agent cannot report that they are not. Their sessions end by themselves.
func TestATokenIsDeletedAndTheNodesAreStartedAgain(t *testing.T) {
	virtually(t, func(t *testing.T, w *testCluster) {
		const sessionTTL = 10 * time.Second // the least that Consul takes
		token := "old"
		w.fake.AddToken(token)
		w.fake.AddToken("new")
		with := func(c *cluster.ConsulConfig) { c.Consul.Token = token }
		a, b := w.join("a", with), w.join("b", with)
		settled(t, a, b)
		deleted := time.Now()
		w.fake.DeleteToken(token)
		eventually(t, "both stop", func() bool { return a.owns() == 0 && b.owns() == 0 })
		require.Less(t, time.Since(deleted), ttl*2/3+soon)
		for _, n := range []*node{a, b} {
			logged(t, n, "lost consul")
			require.Contains(t, n.Lost(), "consul refuses this node's heartbeats since ")
			require.Contains(t, n.Lost(), "ACL not found")
			n.halt()
			n.Release() // it cannot sign off
		}
		token = "new"
		c, d := w.join("c", with), w.join("d", with)
		settled(t, c, d)
		require.Less(t, time.Since(deleted), 2*sessionTTL+ttl+ttl/5+soon) // a lock may be found free a heartbeat later
		require.Greater(t, time.Since(deleted), 2*sessionTTL)
	})
}
