package peer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/timeoutcenter/toc/bench/server"
	"github.com/timeoutcenter/toc/bench/stat"
)

// Each limit is measured for limitFor. rawBatch is the rows of a transaction: toc's batches under load have about as many.
const (
	limitFor   = 2 * time.Second
	rawBatch   = 256
	rawCallers = 16
)

// Limits measures what the machine can do now, without a system that schedules: a slow day shows in them. The values are spin_per_s
// (steps of a loop on one core), fsync_p50_ms (one caller), redis_1_per_s and redis_16_per_s (SET from 32 connections, without and
// with a pipeline of 16), and, for each number of tables in 8 databases, insert_N_per_s and
// finish_N_per_s: rows in transactions of 256, over random tables of one database, by hand-written SQL. What is not installed has no value.
func Limits(ctx context.Context, env Env, tables []int) (values map[string]float64, err error) {
	values = map[string]float64{"spin_per_s": spin()}
	if values["fsync_p50_ms"], err = fsync(env.Scratch); err != nil {
		return nil, err
	}
	var d driver
	defer func() { err = errors.Join(err, d.Down()) }()
	for _, measure := range []func() error{
		func() error { return d.redisLimits(ctx, env, values) },
		func() error { return d.tableLimits(ctx, env, tables, values) },
	} {
		if err := measure(); err != nil && !errors.Is(err, ErrMissing) {
			return nil, err
		}
	}
	return values, nil
}

// spin takes steps of a random generator that the compiler cannot skip.
func spin() float64 {
	const steps = 1 << 20
	source := rand.NewPCG(1, 2)
	var sum uint64
	n, start := 0, time.Now()
	for time.Since(start) < limitFor/2 {
		for range steps {
			sum += source.Uint64()
		}
		n += steps
	}
	runtime.KeepAlive(sum)
	return float64(n) / time.Since(start).Seconds()
}

// fsync appends 4 KiB and waits until they are on disk, again and again.
func fsync(dir string) (float64, error) {
	f, err := os.Create(filepath.Join(dir, "fsync"))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var took []time.Duration
	page := make([]byte, 4096)
	for start := time.Now(); time.Since(start) < limitFor; {
		asked := time.Now()
		if _, err := f.Write(page); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
		took = append(took, time.Since(asked))
	}
	slices.Sort(took)
	return float64(stat.Percentile(took, .5)) / float64(time.Millisecond), os.Remove(f.Name())
}

func (d *driver) redisLimits(ctx context.Context, env Env, values map[string]float64) error {
	tool, err := exec.LookPath("redis-benchmark")
	if err != nil {
		return errors.Join(ErrMissing, err)
	}
	s, err := d.start(ctx, server.Redis, env)
	if err != nil {
		return err
	}
	for _, pipeline := range []int{1, 16} {
		const calls = 100_000
		rate, err := redisBenchmark(ctx, tool, s.Addr, calls, pipeline, []string{"SET", "task:__rand_int__", Attribute})
		if err != nil {
			return fmt.Errorf("redis-benchmark: %w", err)
		}
		values[fmt.Sprintf("redis_%d_per_s", pipeline)] = rate
	}
	return nil
}

// tableLimits makes the tables of the largest layout once: the smaller layouts use the first of them.
func (d *driver) tableLimits(ctx context.Context, env Env, tables []int, values map[string]float64) error {
	if len(tables) == 0 {
		return nil
	}
	cfg, err := Layout{Tables: slices.Max(tables)}.config(ctx, d, env)
	if err != nil {
		return err
	}
	var p sqlLoop
	defer func() { _ = p.Down() }()
	if err := p.open(cfg); err != nil {
		return err
	}
	for _, n := range tables {
		const enough = 4 // rows a table, so that nearly all are open before the time counts
		open := enough * p.shards.Databases * n
		if _, _, err := p.insertWhile(ctx, n, func(rows int, _ time.Duration) bool { return rows < open }); err != nil {
			return err
		}
		rate, batches, err := p.insertWhile(ctx, n, func(_ int, past time.Duration) bool { return past < limitFor })
		if err != nil {
			return err
		}
		values[fmt.Sprintf("insert_%d_per_s", n)] = rate
		if values[fmt.Sprintf("finish_%d_per_s", n)], err = p.finishAll(ctx, batches); err != nil {
			return err
		}
	}
	return nil
}

// rowBatch is the rows of a transaction.
type rowBatch struct {
	database int
	ids      map[int][]any // by table
}

// insertWhile inserts into the first tables of each database, while more says so.
func (p *sqlLoop) insertWhile(ctx context.Context, tables int, more func(rows int, past time.Duration) bool) (
	perSecond float64, batches []rowBatch, err error,
) {
	var mu sync.Mutex
	var rows atomic.Int64
	start := time.Now()
	err = together(func() error {
		for more(int(rows.Load()), time.Since(start)) {
			jobs := make([]job, rawBatch)
			for i := range jobs {
				shards := uint64(p.shards.Shards()) // the number's low digits are its database and its table
				biz := rand.Uint64()&^(shards-1) | uint64(p.shards.Databases*rand.IntN(tables))
				jobs[i] = job{biz: biz, due: time.Now().Add(rand.N(30 * 24 * time.Hour)).Truncate(time.Millisecond)}
			}
			b := rowBatch{database: rand.IntN(p.shards.Databases)}
			var err error
			if b.ids, err = p.insertInto(ctx, b.database, jobs); err != nil {
				return err
			}
			rows.Add(rawBatch)
			mu.Lock()
			batches = append(batches, b)
			mu.Unlock()
		}
		return nil
	})
	return float64(rawBatch*len(batches)) / time.Since(start).Seconds(), batches, err
}

func (p *sqlLoop) finishAll(ctx context.Context, batches []rowBatch) (perSecond float64, err error) {
	left := make(chan rowBatch, len(batches))
	for _, b := range batches {
		left <- b
	}
	close(left)
	start := time.Now()
	err = together(func() error {
		for b := range left {
			if err := p.finish(ctx, b.database, b.ids); err != nil {
				return err
			}
		}
		return nil
	})
	return float64(rawBatch*len(batches)) / time.Since(start).Seconds(), err
}

// together runs f by rawCallers goroutines.
func together(f func() error) error {
	var wg sync.WaitGroup
	errs := make([]error, rawCallers)
	for i := range errs {
		wg.Go(func() { errs[i] = f() })
	}
	wg.Wait()
	return errors.Join(errs...)
}
