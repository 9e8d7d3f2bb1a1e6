package app_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/task"
)

// A program embeds a center: it stores its tasks in SQLite files and calls a Go function when one is due.
func Example() {
	ctx := context.Background()
	dir, _ := os.MkdirTemp("", "toc-example-")
	defer os.RemoveAll(dir)
	cfg := configs.Default()
	cfg.Store.SQLite.Dir = dir
	cfg.Store.Databases, cfg.Store.TablesPerDatabase, cfg.Cluster.Partitions = 1, 4, 0 // few tables: it starts at once
	closed := make(chan uint64)
	closeIfUnpaid := func(_ context.Context, order uint64) error { closed <- order; return nil }

	center, err := app.New(cfg, app.WithoutHTTP(), app.WithBizType(
		configs.BizType{ID: 1, Name: "order_close"},
		processor.Func(func(ctx context.Context, t task.Task) error { return closeIfUnpaid(ctx, t.BizID) })))
	check(err)
	err = center.Start(ctx) // without an error it takes tasks
	check(err)
	payBefore := time.Now().Add(50 * time.Millisecond)
	_, err = center.Tasks().Submit(ctx, client.Submit{BizType: "order_close", BizID: 42, ActionTime: payBefore})
	check(err)
	fmt.Println("closed order", <-closed)
	fmt.Println("too early:", time.Now().Before(payBefore))
	err = center.Stop(ctx) // it waits for running tasks and records them
	check(err)
	// Output:
	// closed order 42
	// too early: false
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// timeouts is what a program needs of a center. A center in its process has it, and so has one far away.
type timeouts interface {
	Submit(ctx context.Context, s client.Submit) (client.Submitted, error)
	Reschedule(ctx context.Context, jobID uint64, c client.Change, opts ...client.ChangeOption) (client.Task, error)
	Cancel(ctx context.Context, jobID uint64, opts ...client.ChangeOption) error
}

var (
	_ timeouts = (*app.Tasks)(nil)
	_ timeouts = (*client.Client)(nil)
)

// A program submits a task, moves it and cancels it. With client.New instead of center.Tasks the same code
// works with a center far away.
func ExampleApp_Tasks() {
	center, stop := startQuiet()
	defer stop()
	ctx := context.Background()

	var tasks timeouts = center.Tasks()
	unpaid := client.Submit{BizType: "order_close", BizID: 42, Delay: 30 * time.Minute, DedupKey: "unpaid"}
	first, err := tasks.Submit(ctx, unpaid) // if it returns no error, the task is committed
	fmt.Println("submitted:", first.Task.Status, err)

	again, err := tasks.Submit(ctx, unpaid) // the same dedup_key: the first task is answered
	fmt.Println("once more:", again.Duplicate, again.Task.JobID == first.Task.JobID, err)

	jobID := uint64(first.Task.JobID)
	_, err = tasks.Reschedule(ctx, jobID, client.Change{Delay: new(time.Hour)})
	fmt.Println("moved:", err)

	fmt.Println("cancelled:", tasks.Cancel(ctx, jobID)) // nil: it never fires

	var conflict *task.ConflictError
	if err := tasks.Cancel(ctx, jobID); errors.As(err, &conflict) {
		fmt.Println("twice:", conflict.Conflict)
	}
	var wrong *task.FieldError
	if _, err := tasks.Submit(ctx, client.Submit{BizType: "order_close", BizID: 42}); errors.As(err, &wrong) {
		fmt.Println("refused:", wrong)
	}
	// Output:
	// submitted: pending <nil>
	// once more: true true <nil>
	// moved: <nil>
	// cancelled: <nil>
	// twice: already_cancelled
	// refused: action_time: is missing; give ActionTime, Delay or Now
}

// startQuiet starts a center in a directory of its own, of few tables, without HTTP and without a log.
func startQuiet(options ...app.Option) (center *app.App, stop func()) {
	dir, _ := os.MkdirTemp("", "toc-example-")
	cfg := configs.Default()
	cfg.Store.SQLite.Dir = dir
	cfg.Store.Databases, cfg.Store.TablesPerDatabase, cfg.Cluster.Partitions = 1, 4, 0
	center, err := app.New(cfg, append(options, app.WithoutHTTP(), app.WithLogger(slog.New(slog.DiscardHandler)))...)
	check(err)
	check(center.Start(context.Background()))
	return center, func() {
		check(center.Stop(context.Background()))
		check(os.RemoveAll(dir))
	}
}

// A processor that no business type names would never be called, so New refuses it.
func ExampleWithProcessor() {
	cfg := configs.Default()
	cfg.BizTypes = cfg.BizTypes[:1]
	cfg.BizTypes[0].Processor = "log"
	never := processor.Func(func(context.Context, task.Task) error { return nil })
	_, err := app.New(cfg, app.WithProcessor("close", never))
	fmt.Println(err)
	// Output:
	// processor "close" would never be called: no business type names it (order_close has log): set processor of one of them in biz_types, or use WithBizType
}

// A center reads its settings from a file. A change of biz_types or http.tokens in the file takes effect at once.
func ExampleWithConfigFile() {
	dir, _ := os.MkdirTemp("", "toc-example-")
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "toc.yaml")
	text := "store: {databases: 1, tables_per_database: 4, sqlite: {dir: " + dir + "}}\nbiz_types: [{id: 1, name: order_close, processor: close}]\n"
	_ = os.WriteFile(path, []byte(text), 0o600)
	closeUnpaid := processor.Func(func(context.Context, task.Task) error { return nil })

	cfg, err := configs.Load(path, os.Environ())
	check(err)
	center, err := app.New(cfg, app.WithConfigFile(path, os.Environ()), app.WithProcessor("close", closeUnpaid),
		app.WithoutHTTP(), app.WithLogger(slog.New(slog.DiscardHandler)))
	check(err)
	ctx := context.Background()
	fmt.Println("started:", center.Start(ctx))
	fmt.Println("stopped:", center.Stop(ctx))
	// Output:
	// started: <nil>
	// stopped: <nil>
}

// The error handler is called for each run that failed.
func ExampleWithErrorHandler() {
	done := make(chan bool)
	sendMail := processor.Func(func(_ context.Context, t task.Task) error {
		if t.Attempts == 0 {
			return processor.RetryAfter(time.Millisecond, errors.New("the mail server is busy"))
		}
		panic("no mail server")
	})

	report := func(_ context.Context, t task.Task, err error) {
		fmt.Printf("failed run %d: %v; the task is %s\n", t.Attempts, err, t.Status)
		if t.Status == task.Dead { // it is not tried again
			close(done)
		}
	}
	center, stop := startQuiet(app.WithErrorHandler(report),
		app.WithBizType(configs.BizType{ID: 3, Name: "mail", MaxRetries: 1}, sendMail))

	defer stop()
	_, err := center.Tasks().Submit(context.Background(), client.Submit{BizType: "mail", BizID: 42, Now: true})
	check(err)
	<-done
	// Output:
	// failed run 1: the mail server is busy; the task is pending
	// failed run 2: panic: no mail server; the task is dead
}

// A middleware stands around every processor: of the program, and those that ship.
func ExampleWithMiddleware() {
	timed := func(next processor.Processor) processor.Processor {
		return processor.Func(func(ctx context.Context, t task.Task) error {
			start := time.Now()
			err := next.Process(ctx, t)
			fmt.Println("biz_id", t.BizID, "took less than a minute:", time.Since(start) < time.Minute)
			return err
		})
	}
	done := make(chan bool)
	sendMail := processor.Func(func(context.Context, task.Task) error { fmt.Println("mail sent"); close(done); return nil })
	center, stop := startQuiet(app.WithMiddleware(timed), app.WithBizType(configs.BizType{ID: 3, Name: "mail"}, sendMail))

	_, err := center.Tasks().Submit(context.Background(), client.Submit{BizType: "mail", BizID: 42, Now: true})
	check(err)
	<-done
	stop() // it waits for the run
	// Output:
	// mail sent
	// biz_id 42 took less than a minute: true
}

// A program registers the center's series beside its own, and serves all of them.
func ExampleApp_Metrics() {
	center, stop := startQuiet()
	defer stop()

	registry := prometheus.NewRegistry()
	registry.MustRegister(center.Metrics())
	http.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))

	families, err := registry.Gather()
	check(err)
	for _, f := range families {
		if f.GetName() == "toc_partitions_owned" {
			fmt.Println(f.GetName(), f.GetMetric()[0].GetGauge().GetValue())
		}
	}
	// Output:
	// toc_partitions_owned 4
}

// New names the setting that is wrong.
func ExampleNew() {
	cfg := configs.Default()
	cfg.Queue.Capacity = 0
	_, err := app.New(cfg)
	fmt.Println(err)
	// Output:
	// queue.capacity: 0 is too little; write 1 or more
}

// A program that is nothing but a center works until it gets a signal.
func ExampleApp_Run() {
	dir, _ := os.MkdirTemp("", "toc-example-")
	defer os.RemoveAll(dir)
	cfg := configs.Default()
	cfg.Store.SQLite.Dir, cfg.HTTP.Listen = dir, "127.0.0.1:0"
	cfg.Store.Databases, cfg.Store.TablesPerDatabase, cfg.Cluster.Partitions = 1, 4, 0

	ctx, signalled := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ready := func(addr string) {
		fmt.Println("it takes tasks on a free port:", addr != "")
		signalled() // stands for the signal
	}
	center, err := app.New(cfg, app.WithReady(ready), app.WithLogger(slog.New(slog.DiscardHandler)))
	check(err)
	fmt.Println("stopped:", center.Run(ctx)) // nil: all runs are recorded
	// Output:
	// it takes tasks on a free port: true
	// stopped: <nil>
}

// Several instances of a program share the partitions of one store through Consul.
func ExampleNew_cluster() {
	cfg := configs.Default()
	cfg.HTTP.Listen = ":8080" // other instances ask this one over HTTP
	cfg.Store.Driver = configs.DriverMySQL
	cfg.Store.MySQL.DSN = "toc:password@tcp(db:3306)/toc_%d"
	cfg.Cluster.Provider = configs.ProviderConsul
	cfg.Cluster.Secret = "the same on all instances"
	cfg.Redis.Addrs = []string{"redis:6379"}
	fmt.Println(cfg.Validate())
	// Output:
	// <nil>
}
