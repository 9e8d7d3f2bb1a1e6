package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/wait"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

func (b *bench) submitAll(ctx context.Context, m *measured, n int, due time.Time) error {
	const size = 1000
	callers, ctx := errgroup.WithContext(ctx)
	callers.SetLimit(8)
	for range (n + size - 1) / size {
		callers.Go(func() error {
			requests := make([]client.Submit, size)
			for i := range requests {
				requests[i] = client.Submit{BizType: "toc_bench", BizID: rand.Uint64(), ActionTime: due}
			}
			_, err := submitEach(ctx, m.Tasks(), requests)
			return err
		})
	}
	return callers.Wait()
}

// submitEach stores tasks. Its error is the first refusal.
func submitEach(ctx context.Context, tasks *app.Tasks, list []client.Submit) (stored []client.BatchResult, err error) {
	for part := range slices.Chunk(list, 10_000) {
		results, err := tasks.SubmitBatch(ctx, part)
		if err != nil {
			return nil, err
		}
		for _, r := range results {
			if r.Err != nil {
				return nil, r.Err
			}
		}
		stored = append(stored, results...)
	}
	return stored, nil
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
	err = m.awaitFired(ctx, b.backlog)
	fired := time.Since(start)
	err = errors.Join(err, m.stop()) // draining waits for the last outcome
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
	err = b.submitAll(ctx, m, b.backlog, due)
	if spare := time.Until(due); err == nil && spare < b.settle/2 {
		err = fmt.Errorf("submitting took so long that only %s are left; raise --settle", spare)
	}
	if err == nil {
		err = m.awaitFired(ctx, b.backlog)
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

// awaitFired waits until so many tasks have fired.
func (m *measured) awaitFired(ctx context.Context, n int) error {
	for m.fired.Load() < int64(n) && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	return ctx.Err()
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
			requests := make([]client.Submit, n)
			for i := range requests {
				delay := 2*time.Second + time.Duration(rand.Int64N(int64(2*time.Second)))
				requests[i] = client.Submit{BizType: "toc_bench", BizID: rand.Uint64(), Delay: delay}
			}
			if _, err := submitEach(ctx, m.Tasks(), requests); err != nil {
				failed.Store(fmt.Errorf("submit: %w", err))
			}
		})
	}
	wg.Wait()
	last, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	_ = m.awaitFired(last, sent)
	fired := int(m.fired.Load())
	submitErr, _ := failed.Load().(error)
	if err := errors.Join(ctx.Err(), m.stop(), submitErr); err != nil {
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
