package app

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/app/metrics"
	"github.com/timeoutcenter/toc/cluster"
	"github.com/timeoutcenter/toc/cluster/forward"
	"github.com/timeoutcenter/toc/cluster/peerproof"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig/await"
)

// seen lets a clock see the others.
func seen(c *clock, ahead ...time.Duration) { c.observe(ahead, ahead) }

// TestTheClock: a node's clock that is ahead fires nothing early. Before, a clock that was 90 minutes ahead for a second
// fired all tasks of those 90 minutes, and slots counted as filled that far.
func TestTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var set time.Duration // by how much somebody has set the wall clock
		c := newClock(slog.New(slog.DiscardHandler), nil)
		c.raw = func() time.Time { return time.Now().Add(set) }
		c.drift = func(time.Time) time.Duration { return set }
		right := func() time.Time { return time.Now() }
		agrees := func(by time.Duration) {
			t.Helper()
			require.WithinDuration(t, right().Add(by), c.Now(), time.Millisecond)
		}
		agrees(0)

		set = 90 * time.Minute
		agrees(0) // not believed
		set = 0
		agrees(0)

		set = 90 * time.Minute
		agrees(0)
		seen(c, 0, 0, time.Millisecond) // the others say so, too: this machine was asleep
		agrees(90 * time.Minute)
		require.Empty(t, c.Degraded())
		set = 0
		agrees(0) // set back is believed at once
		seen(c, 0)

		set = time.Hour
		agrees(0)
		seen(c, time.Hour, time.Hour, -time.Hour) // it is wrong, and so is one of the others
		agrees(0)
		require.Contains(t, c.Degraded(), "1h0m0s ahead")
		set = 0
		agrees(0) // set right: it is not set back for a second time until the others are asked again
		seen(c, 0, 0)
		agrees(0)
		require.Empty(t, c.Degraded())

		seen(c, -3*time.Second, -3*time.Second)
		agrees(0)
		require.Contains(t, c.Degraded(), "3s behind")
		seen(c, 900*time.Millisecond)
		agrees(0)

		set = 20 * time.Second
		c.observe([]time.Duration{19750 * time.Millisecond}, []time.Duration{20 * time.Second}) // the answer took 250 ms: nothing starts early
		agrees(0)
		set = 0
		seen(c, 0)

		set = time.Hour // and nobody to ask
		agrees(0)
		time.Sleep(unconfirmed)
		agrees(time.Hour)

		set = 0 // and nobody to ask: at 799f0ec nothing was reported
		agrees(0)
		require.Contains(t, c.Degraded(), "set back by 1h0m0s")
		set = time.Hour
		agrees(0)
		time.Sleep(unconfirmed)
		agrees(time.Hour)
		require.Empty(t, c.Degraded(), "it is where it was")
		set = 0
		agrees(0)
		time.Sleep(setBackShown)
		require.Empty(t, c.Degraded())
	})
}

// Clocks that differ too much are named, the worst first.
func TestClocksThatDifferAreNamed(t *testing.T) {
	skews := func(ahead ...time.Duration) (list []metrics.Skew) {
		for i, d := range ahead {
			list = append(list, metrics.Skew{Of: ofDatabase, Name: strconv.Itoa(i), Ahead: d})
		}
		return list
	}
	const most = 500 * time.Millisecond
	require.Empty(t, describeSkews(nil, most))
	require.Empty(t, describeSkews(skews(most, -most), most))
	require.Empty(t, describeSkews(skews(time.Hour), 0), "it is off")
	require.Equal(t, "this machine's clock differs by more than clock.max_skew (500ms): it is 2s behind database 2, 501ms ahead of database 1",
		describeSkews(skews(0, most+time.Millisecond, -2*time.Second), most))
	require.Equal(t, "this machine's clock differs by more than clock.max_skew (500ms): it is 4s ahead of database 3, 3s ahead of database 2, 2s ahead of database 1, 1 more",
		describeSkews(skews(time.Second, 2*time.Second, 3*time.Second, 4*time.Second), most))
}

// otherNode is the cluster of a node with one other node.
type otherNode cluster.Member

func (otherNode) Term(int) uint64                  { return 1 }
func (otherNode) Owner(int) (cluster.Member, bool) { return cluster.Member{}, false }
func (n otherNode) Members() []cluster.Member      { return []cluster.Member{cluster.Member(n)} }

// A clock that differs is reported, and the node stays ready.
func TestAClockThatDiffersLeavesTheNodeReady(t *testing.T) {
	t.Parallel()
	for name, most := range map[string]time.Duration{"reported": 500 * time.Millisecond, "off": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := configs.Default()
			cfg.Clock.MaxSkew = most
			cfg.Store.SQLite.Dir, cfg.Store.Databases, cfg.Store.TablesPerDatabase, cfg.Cluster.Partitions = t.TempDir(), 1, 1, 0
			a, err := New(cfg, WithoutHTTP(), WithLogger(slog.New(slog.DiscardHandler)))
			require.NoError(t, err)
			other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_ = json.NewEncoder(w).Encode(api.ExchangeAnswer{Node: "n2", Now: api.Time(time.Now().Add(time.Hour))})
			}))
			defer other.Close()
			a.forward = forward.New(forward.Config{
				Node: a.node, Proof: peerproof.New(a.node, nil), Logger: slog.New(slog.DiscardHandler),
				Cluster: otherNode{Name: "n2", Address: other.URL},
			})
			require.NoError(t, a.Start(t.Context()))
			defer func() { require.NoError(t, a.Stop(context.Background())) }()
			await.That(t, func() bool {
				ready, skews := status{a}.Ready(t.Context()), status{a}.state().skews
				says := slices.ContainsFunc(ready.Degraded, func(s string) bool {
					return strings.HasPrefix(s, "this machine's clock differs by more than clock.max_skew (500ms): it is ") && strings.HasSuffix(s, " behind node n2")
				})
				return ready.Ready && says == (most > 0) && len(skews) == 1 && skews[0].Of == ofNode && skews[0].Name == "n2" &&
					(skews[0].Ahead+time.Hour).Abs() < time.Minute
			}, "ready, and its clock differs from that of n2 alone")
		})
	}
}
