package app_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/intake"
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
	closed := make(chan uint64)
	closeIfUnpaid := func(_ context.Context, order uint64) error { closed <- order; return nil }

	center, err := app.New(cfg, app.WithoutHTTP(), app.WithBizType(
		configs.BizType{ID: 1, Name: "order_close"},
		processor.Func(func(ctx context.Context, t task.Task) error { return closeIfUnpaid(ctx, t.BizID) })))
	check(err)
	err = center.Start(ctx) // without an error it takes tasks
	check(err)
	payBefore := time.Now().Add(50 * time.Millisecond)
	_, err = center.Desk().Submit(ctx, intake.Submit{BizType: "order_close", BizID: 42, When: intake.At(payBefore)})
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
	text := "store: {databases: 1, sqlite: {dir: " + dir + "}}\nbiz_types: [{id: 1, name: order_close, processor: close}]\n"
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
