package soak_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/traffic"
)

// In the arena of pull no node runs anything: consumers lease the tasks at any node and settle them at any other one,
// while nodes are killed, stopped and replaced and Redis loses all that it has. Each consumer writes down what it was
// promised. The clocks of all are one machine's, so the end of a lease, which comes with it, tells when it was given.

// pulled makes all business types of a center ones whose tasks are leased.
func pulled(cfg *configs.Config) {
	for i := range cfg.BizTypes {
		b := &cfg.BizTypes[i]
		b.Processor, b.Pull = configs.ProcessorPull, configs.Pull{TTR: time.Second, MaxInFlight: 5000}
	}
}

// soakPull is soak for consumers.
func soakPull(t *testing.T, a arena, seed uint64, last time.Duration) {
	faults := &faultInjector{rng: rand.New(rand.NewPCG(seed, 0)), long: last > 0, chosen: []string{kill, redisWiped, pause, rolling}}
	wiped := testrig.StartRedis(t)
	faults.consul, faults.silent = testrig.StartConsul(t), wiped
	f := newFleet(t, servers{mysql: testrig.MySQL(t), redis: []string{wiped.Addr()}, redisPrefix: wiped.Prefix(),
		consul: faults.consul.Addr(), consulPrefix: "toc"}, a.nodes, pulled)
	faults.fleet = f
	f.startAll()
	f.awaitWhole()

	c := traffic.NewConsumers(f.traffic(faults.long), seed)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	submits, consuming := context.WithCancel(ctx)
	var load, work sync.WaitGroup
	load.Go(func() { c.Submit(submits, int(envInt(t, rateEnv, 200))) })
	for n := range 4 * len(bizTypes) {
		work.Go(func() { c.Consume(ctx, uint64(n), bizTypes[n%len(bizTypes)]) })
	}
	for n, bizType := range bizTypes {
		work.Go(func() { c.RunWorker(ctx, uint64(n), client.New("consul://"+faults.consul.Addr()+"/toc"), bizType) })
	}
	began := time.Now()
	f.rest(time.Second)
	for _, kind := range faults.plan() {
		faults.inject(kind)
	}
	for time.Since(began) < last && !t.Failed() {
		faults.inject(faults.anything())
	}
	f.rest(time.Second)
	consuming()
	load.Wait()
	f.awaitDone(time.Minute)
	stop()
	work.Wait()
	f.stopAll()
	t.Log(c.Judge(readRows(f), faults.faults))
	require.Positive(t, c.ExtendedRuns)
	reportBroken(t, c.Broken)
}

// wipeRedis takes all from Redis that it has.
func (i *faultInjector) wipeRedis() {
	c := redis.NewClient(&redis.Options{Addr: i.silent.Addr()})
	defer c.Close()
	require.NoError(i.fleet.t, c.FlushAll(i.fleet.t.Context()).Err())
}
