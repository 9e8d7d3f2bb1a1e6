package soak_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/audit"
	"github.com/timeoutcenter/toc/sharding"
)

// many is the layout that a center has by default, in fewer tables.
func many(cfg *configs.Config) {
	cfg.Store.TablesPerDatabase = 32
	cfg.Store.MySQL.MaxOpenConns = 2
	cfg.Cluster.Partitions = 256
}

// A cluster as it grows, with nothing to do: what a node asks of Consul, and how long a join takes to settle.
func BenchmarkScale(b *testing.B) {
	b.Run("join", benchJoin)
	b.Run("ten at once", benchTen)
	b.Run("leave", benchLeave)
}

// idleFor is for how long idle requests are counted: some cycles of all that comes back.
const idleFor = 15 * time.Second

func benchJoin(b *testing.B) {
	consul := testrig.Consul(b)
	f := newFleet(b, sharedServers(b, consul.Addr(), consul.Prefix()), 4, many)
	var asked atomic.Int64
	for _, n := range f.nodes {
		n.cfg.Cluster.Consul.Address = countRequests(b, n.lines["consul"].Addr(), &asked)
	}
	for i, n := range f.nodes {
		began := time.Now()
		n.start()
		listening := time.Now()
		whole := f.awaitWhole()
		b.Logf("%d nodes: listening %s after the start, settled %s after the start; partitions %v",
			i+1, audit.Round(listening.Sub(began)), audit.Round(whole.Sub(began)), f.shares())
		if i == 0 {
			b.ReportMetric(whole.Sub(began).Seconds(), "s/first-takes-256")
			require.Equal(b, []int{f.cfg.Cluster.Partitions}, f.shares())
		} else {
			b.ReportMetric(whole.Sub(began).Seconds(), fmt.Sprintf("s/join-%d", i+1))
		}
		if i == 2 {
			continue
		}
		before := asked.Load()
		<-time.After(idleFor)
		rate := float64(asked.Load()-before) / idleFor.Seconds() / float64(i+1)
		b.Logf("%d nodes: %.1f idle Consul requests/s a node", i+1, rate)
		b.ReportMetric(rate, fmt.Sprintf("consul-requests/s/node-of-%d", i+1))
	}
	f.stopAll()
}

// shares lists how many partitions each node has.
func (f *fleet) shares() (list []int) {
	f.t.Helper()
	c, err := f.anyAPI().Cluster(f.t.Context())
	require.NoError(f.t, err)
	for _, n := range c.Nodes {
		list = append(list, len(n.Partitions))
	}
	return list
}

func benchTen(b *testing.B) {
	consul := testrig.Consul(b)
	f := newFleet(b, sharedServers(b, consul.Addr(), consul.Prefix()), 10, many)
	began := time.Now()
	f.startAll()
	listening := time.Now()
	whole := f.awaitWhole()
	b.Logf("ten nodes: all listening %s after the start, settled %s after the start; partitions %v",
		audit.Round(listening.Sub(began)), audit.Round(whole.Sub(began)), f.shares())
	b.ReportMetric(whole.Sub(began).Seconds(), "s/settled")
	b.ReportMetric(float64(slices.Max(f.shares())), "partitions/most")
	f.stopAll()
}

// benchLeave measures for how long partitions have no owner when one of two nodes leaves. A partition is asked for only
// when there is something to do, so all nodes are told of tasks in all partitions, all the time.
func benchLeave(b *testing.B) {
	consul := testrig.Consul(b)
	f := newFleet(b, sharedServers(b, consul.Addr(), consul.Prefix()), 2, many)
	f.startAll()
	f.awaitWhole()
	ctx, cancel := context.WithCancel(b.Context())
	var work sync.WaitGroup
	for _, n := range f.nodes {
		work.Go(func() { poke(ctx, n, f.onePerPartition()) })
	}
	<-time.After(time.Second) // all partitions have been asked for, many times
	began := time.Now()
	f.nodes[1].stop()
	stopped := time.Now()
	whole := f.awaitWhole()
	cancel()
	work.Wait()
	f.stopAll()
	all := readTenures(f)
	require.Empty(b, all.Conflicts())
	gap := all.Gap(began.UnixNano(), whole.UnixNano())
	require.NotZero(b, gap)
	b.Logf("a leave with 128 partitions: gone after %s, the other has all after %s, longest without an owner %s",
		audit.Round(stopped.Sub(began)), audit.Round(whole.Sub(began)), audit.Round(gap))
	b.ReportMetric(gap.Seconds(), "s/no-owner")
	b.ReportMetric(stopped.Sub(began).Seconds(), "s/gone")
}

// onePerPartition lists job_ids that nobody has, one in each partition.
func (f *fleet) onePerPartition() []uint64 {
	layout := f.layout()
	ids := make([]uint64, layout.Partitions)
	for shard := range layout.Databases * layout.TablesPerDatabase {
		ids[layout.Partition(shard)] = uint64(shard)<<10 | sharding.HandWorker
	}
	return ids
}

func poke(ctx context.Context, n *node, ids []uint64) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if api := n.api(); api != nil {
			_, _ = api.Wake(ctx, ids) // a node that leaves may refuse
		}
	}
}

// countRequests stands between a node and Consul and counts.
func countRequests(tb testing.TB, consul string, asked *atomic.Int64) (addr string) {
	tb.Helper()
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: consul})
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	proxy.Transport = transport
	proxy.ErrorLog = log.New(io.Discard, "", 0) // a node that leaves hangs up on the questions that it has open
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		proxy.ServeHTTP(w, r)
	}))
	tb.Cleanup(transport.CloseIdleConnections)
	tb.Cleanup(s.Close)
	return s.Listener.Addr().String()
}
