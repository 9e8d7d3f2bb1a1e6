package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/internal/wait"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// inParallel runs f from several callers until n calls were made or one fails.
func inParallel(callers, n int, f func() error) (time.Duration, error) {
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, callers)
	start := time.Now()
	for c := range callers {
		wg.Go(func() {
			for next.Add(1) <= int64(n) {
				if errs[c] = f(); errs[c] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	return time.Since(start), errors.Join(errs...)
}

func (b *bench) runSubmit(ctx context.Context) error {
	m, err := b.start(ctx)
	if err != nil {
		return err
	}
	var took latencies
	total, err := inParallel(32, b.submits, func() error {
		start := time.Now()
		_, err := m.Desk().Submit(ctx, intake.Submit{BizType: "toc_bench", BizID: rand.Uint64(), When: intake.In(parkedDelay())})
		took.add(time.Since(start))
		return err
	})
	sorted := took.sorted()
	if err = errors.Join(err, m.stop()); err != nil {
		return err
	}
	b.say("submit", "%s single, 32 callers: %s (p50 %s, p99 %s)", thousands(b.submits), perSecond(b.submits, total),
		millis(percentile(sorted, .5)), millis(percentile(sorted, .99)))
	return nil
}

func parkedDelay() time.Duration {
	const soonest = 5 * time.Minute // nothing is due while it is measured
	return soonest + time.Duration(rand.Int64N(int64(30*24*time.Hour-soonest)))
}

func (b *bench) runBatch(ctx context.Context) error {
	m, err := b.start(ctx)
	if err != nil {
		return err
	}
	total, err := b.park(ctx, m, b.batched)
	if err = errors.Join(err, m.stop()); err != nil {
		return err
	}
	b.say("batch", "%s in batches of 1,000, 8 callers: %s", thousands(b.batched), perSecond(b.batched, total))
	return nil
}

// park submits n tasks that are due over the next 30 days.
func (b *bench) park(ctx context.Context, m *measured, n int) (time.Duration, error) {
	return b.submitAll(ctx, m, n, func() intake.When { return intake.In(parkedDelay()) })
}

func (b *bench) submitAll(ctx context.Context, m *measured, n int, when func() intake.When) (time.Duration, error) {
	const size = 1000
	return inParallel(8, (n+size-1)/size, func() error {
		requests := make([]intake.Submit, size)
		for i := range requests {
			requests[i] = intake.Submit{BizType: "toc_bench", BizID: rand.Uint64(), When: when()}
		}
		for _, s := range m.Desk().SubmitBatch(ctx, requests) {
			if s.Err != nil {
				return s.Err
			}
		}
		return nil
	})
}

// runDrain stores a backlog that is due since up to an hour, then starts a
// center and times it from its start until the last outcome is durable.
func (b *bench) runDrain(ctx context.Context) error {
	if b.mode == configs.ModeRedis {
		return b.runInstant(ctx)
	}
	if err := b.storeBacklog(ctx); err != nil {
		return err
	}
	if err := wait.For(ctx, b.settle); err != nil {
		return err
	}
	start := time.Now()
	m, err := b.start(ctx)
	if err != nil {
		return err
	}
	ready := time.Since(start)
	for m.fired.Load() < int64(b.backlog) && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	fired := time.Since(start)
	err = errors.Join(ctx.Err(), m.stop()) // draining waits for the last outcome
	total := time.Since(start)
	if err != nil {
		return err
	}
	b.say("drain", "%s due tasks, log processor: %s (started in %s, all fired after %s, all recorded and stopped after %s)",
		thousands(b.backlog), perSecond(b.backlog, total-ready), ready.Round(time.Millisecond),
		fired.Round(time.Millisecond), total.Round(time.Millisecond))
	return nil
}

// runInstant submits tasks that are all due at one instant, and times a center from
// then until the last outcome is durable.
func (b *bench) runInstant(ctx context.Context) error {
	m, err := b.start(ctx)
	if err != nil {
		return err
	}
	due := time.Now().Add(b.settle + time.Duration(b.backlog/5000)*time.Second)
	_, err = b.submitAll(ctx, m, b.backlog, func() intake.When { return intake.At(due) })
	if spare := time.Until(due); err == nil && spare < b.settle/2 {
		err = fmt.Errorf("submitting took so long that only %s are left; raise --settle", spare)
	}
	for err == nil && m.fired.Load() < int64(b.backlog) {
		time.Sleep(time.Millisecond)
		err = ctx.Err()
	}
	fired := time.Since(due)
	err = errors.Join(err, m.stop()) // draining waits for the last outcome
	total := time.Since(due)
	if err != nil {
		return err
	}
	b.say("drain", "%s tasks due at one instant, log processor: %s (all fired after %s, all recorded and stopped after %s)",
		thousands(b.backlog), perSecond(b.backlog, total), fired.Round(time.Millisecond), total.Round(time.Millisecond))
	return nil
}

func (b *bench) isPulled() bool { return b.cfg.BizTypes[0].Processor == configs.ProcessorPull }

// runPull is runInstant for consumers that lease the tasks.
func (b *bench) runPull(ctx context.Context) error {
	pushed := b.cfg
	defer func() { b.cfg = pushed }()
	bt := b.cfg.BizTypes[0]
	bt.Processor = configs.ProcessorPull
	b.cfg.BizTypes, b.cfg.HTTP.Listen, b.cfg.HTTP.Tokens = []configs.BizType{bt}, "127.0.0.1:0", nil
	m, err := b.start(ctx)
	if err != nil {
		return err
	}
	due := time.Now().Add(b.settle + time.Duration(b.backlog/5000)*time.Second)
	_, err = b.submitAll(ctx, m, b.backlog, func() intake.When { return intake.At(due) })
	if spare := time.Until(due); err == nil && spare < b.settle/2 {
		err = fmt.Errorf("submitting took so long that only %s are left; raise --settle", spare)
	}
	const consumers, size = 4, 256
	pulling, stop := context.WithCancel(ctx)
	defer stop()
	var total time.Duration
	if err == nil {
		_, err = inParallel(consumers, consumers, func() error {
			err := m.pull(pulling, size, func(settled int) {
				if m.fired.Add(int64(settled)) == int64(b.backlog) {
					total = time.Since(due)
					stop() // the other consumers wait for more
				}
			})
			if ctx.Err() == nil && pulling.Err() != nil {
				return nil
			}
			return err
		})
	}
	if err = errors.Join(err, m.stop()); err != nil {
		return err
	}
	b.say("pull", "%s tasks due at one instant, leased and settled by %d consumers, %d at a time: %s (all settled after %s)",
		thousands(b.backlog), consumers, size, perSecond(b.backlog, total), total.Round(time.Millisecond))
	return nil
}

// pull leases and settles tasks until ctx ends.
func (m *measured) pull(ctx context.Context, size int, settled func(n int)) error {
	c := client.New("http://" + m.Addr())
	defer c.CloseIdleConnections()
	for {
		got, err := c.Lease(ctx, "toc_bench", client.AskLease{Max: size, Wait: time.Second})
		if err != nil {
			return err
		}
		if len(got.Tasks) == 0 {
			continue
		}
		acks := make([]client.Settlement, len(got.Tasks))
		for i, t := range got.Tasks {
			acks[i] = client.Settlement{Lease: t.Lease.String(), Do: client.Ack}
		}
		results, err := c.Settle(ctx, acks...)
		if err != nil {
			return err
		}
		for _, r := range results {
			if r.Result != client.SettledOK {
				return fmt.Errorf("a lease was not settled: %s", r.Result)
			}
		}
		settled(len(acks))
	}
}

func (b *bench) storeBacklog(ctx context.Context) error {
	cfg := app.StoreConfig(b.cfg.WithDefaults())
	var err error
	if cfg.IDs, err = sharding.NewIDs(cfg.Layout, 1, time.Now); err != nil {
		return err
	}
	s, err := store.Open(cfg)
	if err != nil {
		return err
	}
	now := time.Now()
	for left := b.backlog; left > 0; {
		tasks := make([]task.Task, min(left, 8000))
		left -= len(tasks)
		for i := range tasks {
			tasks[i] = task.Task{BizID: rand.Uint64(), BizType: benchType,
				ActionTime: task.CeilMilli(now.Add(-time.Duration(rand.Int64N(int64(time.Hour)))))}
		}
		for _, in := range s.Insert(ctx, tasks) {
			if in.Err != nil {
				return errors.Join(in.Err, s.Close())
			}
		}
	}
	return s.Close()
}

// runLateness submits at a steady rate; each task is due 2 to 4 s later.
func (b *bench) runLateness(ctx context.Context) error {
	m, err := b.start(ctx)
	if err != nil {
		return err
	}
	const step = 10 * time.Millisecond
	total := b.rate * int(b.duration/time.Second)
	start, sent := time.Now(), 0
	ticker := time.NewTicker(step)
	defer ticker.Stop()
	var wg sync.WaitGroup
	var failed atomic.Value
	for sent < total && failed.Load() == nil && ctx.Err() == nil {
		<-ticker.C
		n := min(total, int(time.Since(start).Seconds()*float64(b.rate))) - sent
		if n <= 0 {
			continue
		}
		sent += n
		wg.Go(func() {
			requests := make([]intake.Submit, n)
			for i := range requests {
				delay := 2*time.Second + time.Duration(rand.Int64N(int64(2*time.Second)))
				requests[i] = intake.Submit{BizType: "toc_bench", BizID: rand.Uint64(), When: intake.In(delay)}
			}
			for _, s := range m.Desk().SubmitBatch(ctx, requests) {
				if s.Err != nil {
					failed.Store(s.Err)
				}
			}
		})
	}
	wg.Wait()
	deadline := time.Now().Add(60 * time.Second)
	for int(m.fired.Load()) < sent && time.Now().Before(deadline) && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	fired := int(m.fired.Load())
	err = errors.Join(ctx.Err(), m.stop())
	if e, ok := failed.Load().(error); ok {
		err = errors.Join(err, e)
	}
	if err != nil {
		return err
	}
	sorted := m.late.sorted()
	early := 0
	for early < len(sorted) && sorted[early] < 0 {
		early++
	}
	b.say("lateness", "%s/s for %s: fired %s of %s, early %d, p50 %s, p99 %s, p99.9 %s, max %s", thousands(b.rate), b.duration,
		thousands(fired), thousands(sent), early, millis(percentile(sorted, .5)), millis(percentile(sorted, .99)),
		millis(percentile(sorted, .999)), millis(percentile(sorted, 1)))
	return nil
}

// runIdle counts the CPU of this process and of the given ones while nothing is due.
func (b *bench) runIdle(ctx context.Context) error {
	m, err := b.start(ctx)
	if err != nil {
		return err
	}
	if b.parked > 0 {
		if _, err := b.park(ctx, m, b.parked); err != nil {
			return errors.Join(err, m.stop())
		}
	}
	if err := wait.For(ctx, b.settle); err != nil {
		return errors.Join(err, m.stop())
	}
	pids := append([]int{os.Getpid()}, b.pids...)
	before, err := cpuTimes(pids)
	start := time.Now()
	if err == nil {
		err = wait.For(ctx, b.duration)
	}
	took := time.Since(start)
	var parts []string
	if err == nil {
		var after []time.Duration
		after, err = cpuTimes(pids)
		var sum float64
		for i := range after {
			share := 100 * (after[i] - before[i]).Seconds() / took.Seconds()
			sum += share
			parts = append(parts, fmt.Sprintf("%.2f %%", share))
		}
		b.say("idle", "%s parked, %s: %.2f %% of one core (%s: toc%s)", thousands(b.parked), b.duration, sum,
			strings.Join(parts, " + "), strings.Repeat(" + server", len(b.pids)))
	}
	return errors.Join(err, m.stop())
}
