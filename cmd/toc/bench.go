package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/processors"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// benchType is the biz_type of the benchmark's tasks. They are deleted at the end.
const benchType = 1 << 40

func benchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench [submit] [batch] [drain] [lateness] [idle]",
		Short: "Measure the whole path on a store",
		Long: `Measure the whole path, in this process, on the store of a configuration: a
temporary SQLite store without --config; a MySQL store must be migrated and not
in use. The tasks that it makes have the biz_type ` + fmt.Sprint(uint64(benchType)) + ` and are deleted
at the end, but do not aim it at a store that matters.

  submit    single submits from 32 callers
  batch     submits of 1,000 tasks from 8 callers
  drain     a backlog of due tasks, fired by the log processor
  lateness  a steady rate of tasks due 2 to 4 s ahead
  idle      CPU with parked tasks (see --parked, --pid)`,
		ValidArgs: []string{"submit", "batch", "drain", "lateness", "idle"},
		Args:      cobra.OnlyValidArgs,
	}
	b := &bench{}
	path := configFlag(cmd)
	cmd.Flags().StringVar(&b.mode, "mode", configs.ModeScan, "engine that fires the tasks: scan or redis")
	cmd.Flags().BoolVar(&b.webhook, "webhook", false, "fire by webhook, to an HTTP server in this process")
	cmd.Flags().IntVar(&b.submits, "submits", 30_000, "tasks of submit")
	cmd.Flags().IntVar(&b.batched, "batched", 200_000, "tasks of batch")
	cmd.Flags().IntVar(&b.backlog, "backlog", 50_000, "tasks of drain")
	cmd.Flags().IntVar(&b.rate, "rate", 1000, "tasks a second of lateness")
	cmd.Flags().DurationVar(&b.duration, "duration", 20*time.Second, "of lateness and idle")
	cmd.Flags().IntVar(&b.parked, "parked", 0, "tasks parked over the next 30 days before idle")
	cmd.Flags().DurationVar(&b.settle, "settle", 10*time.Second, "before drain and idle are timed: the database writes what was stored for them")
	cmd.Flags().IntSliceVar(&b.pids, "pid", nil, "processes whose CPU idle counts as well (the database)")
	profile := cmd.Flags().String("cpuprofile", "", "write a CPU profile of this process to the file")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if min(b.submits, b.batched, b.backlog, b.rate) < 1 || b.duration < time.Second || b.parked < 0 {
			return usage("counts must be 1 or more, --duration 1s or more")
		}
		if b.mode != configs.ModeScan && b.mode != configs.ModeRedis {
			return usage("--mode: %q is neither scan nor redis", b.mode)
		}
		cfg, err := loadConfig(*path)
		if err != nil {
			return err
		}
		if *path == "" {
			dir, err := os.MkdirTemp("", "toc-bench-")
			if err != nil {
				return err
			}
			defer os.RemoveAll(dir)
			cfg.Store.SQLite.Dir = dir
		}
		b.out, b.cfg = cmd.OutOrStdout(), cfg
		if len(args) == 0 {
			args = []string{"submit", "batch", "drain", "lateness"}
		}
		ctx, stop := untilSignal(cmd.Context())
		defer stop()
		if *profile != "" {
			f, err := os.Create(*profile)
			if err != nil {
				return err
			}
			defer f.Close()
			if err := pprof.StartCPUProfile(f); err != nil {
				return err
			}
			defer pprof.StopCPUProfile()
		}
		return b.run(ctx, args)
	}
	return cmd
}

type bench struct {
	out io.Writer
	cfg configs.Config

	submits, batched, backlog, rate, parked int
	duration, settle                        time.Duration
	mode                                    string
	webhook                                 bool
	pids                                    []int
}

func (b *bench) run(ctx context.Context, names []string) error {
	bt := configs.DefaultBizType()
	bt.ID, bt.Name, bt.Processor, bt.Mode = benchType, "toc_bench", "bench", b.mode
	b.cfg.BizTypes = []configs.BizType{bt}
	if b.cfg.Store.Driver == configs.DriverSQLite {
		if err := app.Migrate(ctx, b.cfg, slog.New(slog.DiscardHandler), nil); err != nil {
			return err
		}
	}
	fmt.Fprintf(b.out, "store: %s, %d databases × %d tables\n", b.cfg.Store.Driver, b.cfg.Store.Databases, b.cfg.Store.TablesPerDatabase)
	scenarios := map[string]func(context.Context) error{
		"submit": b.runSubmit, "batch": b.runBatch, "drain": b.runDrain, "lateness": b.runLateness, "idle": b.runIdle,
	}
	var err error
	for _, name := range names {
		if err = scenarios[name](ctx); err != nil {
			err = fmt.Errorf("%s: %w", name, err)
			break
		}
		if err = b.clean(context.WithoutCancel(ctx)); err != nil {
			break
		}
	}
	return errors.Join(err, b.clean(context.WithoutCancel(ctx)))
}

func (b *bench) say(name, format string, args ...any) {
	fmt.Fprintf(b.out, "%-9s %s\n", name, fmt.Sprintf(format, args...))
}

func perSecond(n int, d time.Duration) string { return thousands(int(float64(n)/d.Seconds())) + "/s" }

// counter is the log processor, counted. It hears of a task when it is fired;
// what counts as drained is counted by the store's status.
type counter struct {
	processor.Processor
	processor.Batch
	fired *atomic.Int64
	late  *latencies
}

func (c counter) Process(ctx context.Context, t task.Task) error {
	c.note(t)
	return c.Processor.Process(ctx, t)
}

func (c counter) ProcessBatch(ctx context.Context, tasks []task.Task) []error {
	c.note(tasks...)
	return c.Batch.ProcessBatch(ctx, tasks)
}

func (c counter) note(tasks ...task.Task) {
	now := time.Now()
	late := make([]time.Duration, len(tasks))
	for i := range tasks {
		late[i] = now.Sub(tasks[i].ActionTime)
	}
	c.late.add(late...)
	c.fired.Add(int64(len(tasks)))
}

// measured is a center that runs for a scenario.
type measured struct {
	*app.App
	fired atomic.Int64
	late  latencies
	stop  func() error
	sink  *httptest.Server
}

// webhook is the webhook processor, and the server that it calls.
func (m *measured) webhook(bt task.BizType) (processor.Processor, error) {
	m.sink = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		m.fired.Add(1)
	}))
	p, err := processors.NewWebhook(bt, processors.WebhookConfig{URL: m.sink.URL})
	return called{p, m}, err
}

// called notes when a webhook is about to be called.
type called struct {
	*processors.Webhook
	m *measured
}

func (c called) Process(ctx context.Context, t task.Task) error {
	c.m.late.add(time.Since(t.ActionTime))
	return c.Webhook.Process(ctx, t)
}

func (b *bench) start(ctx context.Context) (*measured, error) {
	m := &measured{}
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	ready := make(chan string, 1)
	a, err := app.New(b.cfg, app.WithoutHTTP(), app.WithLogger(logger), app.WithReady(func(addr string) { ready <- addr }),
		app.WithConstructor("bench", func(bt task.BizType, _ any) (processor.Processor, error) {
			if b.webhook {
				return m.webhook(bt)
			}
			p := processors.NewLog(bt, logger)
			return counter{p, p, &m.fired, &m.late}, nil
		}))
	if err != nil {
		return nil, err
	}
	m.App = a
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- a.Run(work) }()
	m.stop = func() error {
		cancel()
		err := <-ended
		if m.sink != nil {
			m.sink.Close()
		}
		return err
	}
	select {
	case <-ready:
		return m, nil
	case err := <-ended:
		cancel()
		return nil, err
	}
}

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
	if err := sleepFor(ctx, b.settle); err != nil {
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
	if err := sleepFor(ctx, b.settle); err != nil {
		return errors.Join(err, m.stop())
	}
	pids := append([]int{os.Getpid()}, b.pids...)
	before, err := cpuTimes(pids)
	start := time.Now()
	if err == nil {
		err = sleepFor(ctx, b.duration)
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

func sleepFor(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// clean deletes the benchmark's tasks.
func (b *bench) clean(ctx context.Context) error {
	list, err := app.Databases(b.cfg, false)
	if err != nil {
		return err
	}
	for _, d := range list {
		for t := range b.cfg.Store.TablesPerDatabase {
			if _, e := d.DB.ExecContext(ctx, "DELETE FROM "+sharding.TableName(t)+" WHERE biz_type = ?", int64(benchType)); e != nil {
				err = errors.Join(err, e)
				break
			}
		}
	}
	return errors.Join(err, app.CloseDatabases(list))
}
