package app_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
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
	center, err := app.New(cfg, app.WithoutHTTP(), app.WithLogger(slog.New(slog.DiscardHandler)),
		app.WithBizType(configs.BizType{ID: 1, Name: "order_close"}, processor.Func(func(_ context.Context, t task.Task) error {
			closed <- t.BizID
			return nil
		})))
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := center.Start(ctx); err != nil {
		fmt.Println(err)
		return
	}
	due := time.Now().Add(50 * time.Millisecond)
	if _, err := center.Desk().Submit(ctx, intake.Submit{BizType: "order_close", BizID: 42, When: intake.At(due)}); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("closed order", <-closed)
	fmt.Println("too early:", time.Now().Before(due))
	fmt.Println("stopped:", center.Stop(ctx))
	// Output:
	// closed order 42
	// too early: false
	// stopped: <nil>
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
