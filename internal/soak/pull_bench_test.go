package soak_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/audit"
)

// Consumers at three node processes: how late tasks are in their hands, and what those cost that wait for nothing.
func BenchmarkPull(b *testing.B) {
	for _, mode := range []string{configs.ModeRedis, configs.ModeScan} {
		b.Run("lateness/"+mode, func(b *testing.B) { benchPullLateness(b, mode) })
	}
	for _, mode := range []string{configs.ModeRedis, configs.ModeScan} {
		b.Run("idle/"+mode, func(b *testing.B) { benchPullIdle(b, mode) })
	}
}

// pulledFleet is three nodes, with the settings that a center has by default, and one business type that is pulled.
func pulledFleet(b *testing.B, mode string) *fleet {
	consul := testrig.Consul(b)
	f := newFleet(b, sharedServers(b, consul.Addr(), consul.Prefix()), 3, many, func(cfg *configs.Config) {
		d := configs.Default()
		cfg.Scan, cfg.Redis.SweepAfter, cfg.Store.MySQL.MaxOpenConns = d.Scan, d.Redis.SweepAfter, d.Store.MySQL.MaxOpenConns
		one := configs.DefaultBizType()
		one.ID, one.Name, one.Mode, one.Processor = 1, "pulled", mode, configs.ProcessorPull
		cfg.BizTypes = []configs.BizType{one}
	})
	for _, n := range f.nodes { // without the rig's lines between
		n.cfg.Cluster.Consul, n.cfg.Store.MySQL, n.cfg.Redis = f.cfg.Cluster.Consul, f.cfg.Store.MySQL, f.cfg.Redis
	}
	f.startAll()
	f.awaitWhole()
	return f
}

// benchPullLateness submits 1,000 tasks a second, each due 2 to 4 s later. Four consumers lease them, and settle what they have
// leased while they lease more.
func benchPullLateness(b *testing.B, mode string) {
	const rate, every, lasts, consumers = 1000, 10 * time.Millisecond, 20 * time.Second, 4
	f := pulledFleet(b, mode)
	var mu sync.Mutex
	var late []time.Duration
	var acked, again atomic.Int64
	ctx, stop := context.WithCancel(b.Context())
	var work sync.WaitGroup
	for i := range consumers {
		lease, settle := f.nodes[i%3].api(), f.nodes[(i+1)%3].api()
		acks := make(chan []client.Settlement, 1)
		work.Go(func() {
			defer close(acks)
			for ctx.Err() == nil {
				got, err := lease.Lease(ctx, "pulled", client.AskLease{Max: 256, Wait: 20 * time.Second})
				now := time.Now()
				if err != nil || len(got.Tasks) == 0 {
					continue
				}
				list := make([]client.Settlement, len(got.Tasks))
				mu.Lock()
				for k, t := range got.Tasks {
					late = append(late, now.Sub(t.Task.ActionTime.Time()))
					list[k] = client.Settlement{Lease: t.Lease.String(), Do: client.Ack}
					if t.Attempt > 1 {
						again.Add(1)
					}
				}
				mu.Unlock()
				acks <- list
			}
		})
		work.Go(func() {
			for list := range acks {
				results, err := settle.Settle(context.WithoutCancel(ctx), list...)
				if err != nil {
					b.Error(err)
				}
				for _, r := range results {
					if r.Result == client.SettledOK {
						acked.Add(1)
					}
				}
			}
		})
	}
	began, sent := time.Now(), 0
	var submits sync.WaitGroup
	for tick := time.Tick(every); sent < rate*int(lasts/time.Second); {
		<-tick
		n := int(time.Since(began).Seconds()*rate) - sent
		if n <= 0 {
			continue
		}
		list := make([]client.Submit, n)
		for i := range list {
			list[i] = client.Submit{BizType: "pulled", BizID: rand.Uint64(),
				ActionTime: time.Now().Add(2*time.Second + time.Duration(rand.Int64N(int64(2*time.Second)))).Truncate(time.Millisecond)}
		}
		api := f.nodes[sent%3].api()
		sent += n
		submits.Go(func() {
			if _, err := api.SubmitBatch(ctx, list); err != nil {
				b.Error(err)
			}
		})
	}
	submits.Wait()
	require.Eventually(b, func() bool { return acked.Load() >= int64(sent) }, 30*time.Second, 10*time.Millisecond)
	stop()
	work.Wait()
	require.Len(b, late, sent, "each task once")
	require.Zero(b, again.Load())
	slices.Sort(late)
	require.GreaterOrEqual(b, late[0], time.Duration(0))
	for name, q := range map[string]float64{"p50": .5, "p99": .99, "p99.9": .999, "max": 1} {
		b.ReportMetric(float64(audit.Quantile(late, q))/float64(time.Millisecond), "ms/"+name)
	}
	b.ReportMetric(0, "ns/op")
	f.stopAll()
}

// benchPullIdle compares the CPU time of the nodes with and without consumers that wait for a minute each.
func benchPullIdle(b *testing.B, mode string) {
	const consumers, counted, wait = 1000, 30 * time.Second, time.Minute
	f := pulledFleet(b, mode)
	<-time.After(5 * time.Second) // what the start has left to do
	without := f.cpuFor(counted)
	ctx, stop := context.WithCancel(b.Context())
	var waiting sync.WaitGroup
	for i := range consumers {
		api := f.nodes[i%3].api()
		waiting.Go(func() {
			first := time.Duration(rand.Int64N(int64(wait))) // so that they do not all come back in one moment
			for d := first; ctx.Err() == nil; d = wait {
				_, _ = api.Lease(ctx, "pulled", client.AskLease{Max: 16, Wait: d})
			}
		})
	}
	<-time.After(5 * time.Second)
	with := f.cpuFor(counted)
	stop()
	waiting.Wait()
	b.ReportMetric(without, "%core/idle")
	b.ReportMetric(with, "%core/waiting")
	b.ReportMetric(with-without, "%core/1000-consumers")
	b.ReportMetric(0, "ns/op")
	f.stopAll()
}

// cpuFor is how much of a core all nodes use over a while, in percent.
func (f *fleet) cpuFor(d time.Duration) float64 {
	before := f.cpu()
	<-time.After(d)
	return 100 * (f.cpu() - before).Seconds() / d.Seconds()
}

// cpu adds up the CPU times of all nodes, which Linux counts in hundredths of a second.
func (f *fleet) cpu() (sum time.Duration) {
	for _, n := range f.nodes {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n.proc.Pid()))
		require.NoError(f.t, err)
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		for _, field := range fields[11:13] { // utime, stime
			ticks, err := strconv.Atoi(field)
			require.NoError(f.t, err)
			sum += time.Duration(ticks) * 10 * time.Millisecond
		}
	}
	return sum
}
