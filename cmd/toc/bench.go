package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime/pprof"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/processor/logger"
	"github.com/timeoutcenter/toc/processor/webhook"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/task"
)

// benchType is the biz_type of the benchmark's tasks. They are deleted at the end.
const benchType = 1 << 40

func benchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench [drain] [lateness]",
		Short: "Measure the whole path on a store",
		Long: `Measure the whole path, in this process, on the store of a configuration: a
temporary SQLite store without --config; a MySQL store must be migrated and not
in use. The tasks that it makes have the biz_type ` + fmt.Sprint(uint64(benchType)) + ` and are deleted
at the end, but do not aim it at a store that matters.

  drain     a backlog of due tasks, fired by the log processor
  lateness  a steady rate of tasks due 2 to 4 s ahead`,
		ValidArgs: []string{"drain", "lateness"},
		Args:      cobra.OnlyValidArgs,
	}
	b := &bench{}
	path := configFlag(cmd)
	cmd.Flags().StringVar(&b.mode, "mode", configs.ModeScan, "engine that fires the tasks: scan or redis")
	cmd.Flags().BoolVar(&b.webhook, "webhook", false, "fire by webhook, to an HTTP server in this process")
	cmd.Flags().IntVar(&b.backlog, "backlog", 50_000, "tasks of drain")
	cmd.Flags().IntVar(&b.rate, "rate", 1000, "tasks a second of lateness")
	cmd.Flags().DurationVar(&b.duration, "duration", 20*time.Second, "of lateness")
	cmd.Flags().DurationVar(&b.settle, "settle", 10*time.Second, "before drain is timed: the database writes what was stored for it")
	cmd.Flags().BoolVar(&b.limited, "limited", false, "set rate_limit, max_running and catch_up, so high that none is reached")
	profile := cmd.Flags().String("cpuprofile", "", "write a CPU profile of this process to the file")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if min(b.backlog, b.rate) < 1 || b.duration < time.Second {
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
			args = []string{"drain", "lateness"}
		}
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
		return b.run(cmd.Context(), args)
	}
	return cmd
}

type bench struct {
	out io.Writer
	cfg configs.Config

	backlog, rate    int
	duration, settle time.Duration
	mode             string
	webhook, limited bool
}

func (b *bench) run(ctx context.Context, names []string) error {
	bt := configs.DefaultBizType()
	bt.ID, bt.Name, bt.Processor, bt.Mode = benchType, "toc_bench", "bench", b.mode
	if b.limited {
		bt.RateLimit, bt.MaxRunning, bt.CatchUp = 1_000_000, 1_000_000, 1_000_000
	}
	b.cfg.BizTypes = []configs.BizType{bt}
	if b.cfg.Store.Driver == configs.DriverSQLite {
		if err := app.Migrate(ctx, b.cfg, slog.New(slog.DiscardHandler), nil); err != nil {
			return err
		}
	}
	fmt.Fprintf(b.out, "store: %s, %d databases × %d tables\n", b.cfg.Store.Driver, b.cfg.Store.Databases, b.cfg.Store.TablesPerDatabase)
	scenarios := map[string]func(context.Context) error{"drain": b.runDrain, "lateness": b.runLateness}
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

// counter is a log processor that counts tasks when they are fired, before
// their outcomes are durable.
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
	p, err := webhook.New(bt, webhook.Config{URL: m.sink.URL})
	return called{p, m}, err
}

// called notes when a webhook is about to be called.
type called struct {
	*webhook.Processor
	m *measured
}

func (c called) Process(ctx context.Context, t task.Task) error {
	c.m.late.add(time.Since(t.ActionTime))
	return c.Processor.Process(ctx, t)
}

func (b *bench) start(ctx context.Context) (*measured, error) {
	m := &measured{}
	warnings := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	ready := make(chan string, 1)
	a, err := app.New(b.cfg, app.WithLogger(warnings), app.WithReady(func(addr string) { ready <- addr }), app.WithoutHTTP(),
		app.WithConstructor("bench", func(bt task.BizType, _ any) (processor.Processor, error) {
			if b.webhook {
				return m.webhook(bt)
			}
			p := logger.New(bt, warnings)
			return counter{p, p, &m.fired, &m.late}, nil
		}))
	if err != nil {
		return nil, err
	}
	m.App = a
	stop, err := runReady(ctx, a, ready)
	m.stop = func() error {
		err := stop()
		if m.sink != nil {
			m.sink.Close()
		}
		return err
	}
	return m, err
}

// runReady runs a center until stop, which returns its error, and returns when it is ready.
func runReady(ctx context.Context, center *app.App, ready <-chan string) (stop func() error, err error) {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- center.Run(work) }()
	stop = func() error { cancel(); return <-ended }
	select {
	case <-ready:
		return stop, nil
	case err := <-ended:
		cancel()
		return nil, err
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
