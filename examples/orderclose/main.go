// Orderclose is a tiny shop that closes the orders which nobody pays: what a
// team does with the timeout center, from beginning to end. Read it as a manual:
//
//	main.go    a center inside this program, with the shop's own processor
//	orders.go  the shop's tables; they do not depend on the center
//	shop.go    place an order: submit its timeout; pay it: cancel the timeout
//	close.go   the processor order_close: what happens when the time is over
//	day.go     customers who buy, pay, forget to pay, or pay too late
//	books.go   at the end: does everything add up?
//
// go run ./examples/orderclose plays a day at the shop in about ten seconds, and
// exits 1 if the books do not balance.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/processor"
)

func main() {
	var d day
	flag.IntVar(&d.customers, "customers", 1000, "how many come")
	flag.DurationVar(&d.open, "open", 5*time.Second, "how long the doors are open")
	flag.DurationVar(&d.payWithin, "pay-within", 3*time.Second, "how long an order waits for its money")
	flag.Parse()
	if d.customers < 1 || d.open <= 0 || d.payWithin <= 0 || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if _, err := run(ctx, &d, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "orderclose:", err)
		os.Exit(1)
	}
}

// run plays a day at a shop that lives in a temporary directory. An error says
// that the books do not balance, or why there are none.
func run(ctx context.Context, d *day, out io.Writer) (books, error) {
	dir, err := os.MkdirTemp("", "orderclose-")
	if err != nil {
		return books{}, err
	}
	defer os.RemoveAll(dir)
	db, err := openOrders(filepath.Join(dir, "shop.db"))
	if err != nil {
		return books{}, err
	}
	defer db.close()

	center, err := startCenter(context.WithoutCancel(ctx), filepath.Join(dir, "center"), closer{db})
	if err != nil {
		return books{}, err
	}
	d.shop = &shop{db: db, timeouts: center.Tasks(), payWithin: d.payWithin}
	if err = d.tell(ctx, out); err == nil {
		err = d.sample(ctx, out)
	}
	if err = errors.Join(err, center.Stop(context.WithoutCancel(ctx))); err != nil {
		return books{}, err
	}
	b, err := db.books(d.receipts)
	if err != nil {
		return b, err
	}
	return b, b.print(out)
}

// startCenter starts a timeout center inside this program, without HTTP. Its store
// is SQLite files in dir; for MySQL only the configuration changes.
func startCenter(ctx context.Context, dir string, orderClose processor.Processor) (*app.App, error) {
	cfg := configs.Default()
	cfg.Store.SQLite.Dir = dir
	cfg.BizTypes = nil
	center, err := app.New(cfg,
		app.WithBizType(configs.BizType{ID: 1, Name: "order_close"}, orderClose),
		app.WithoutHTTP(),
		app.WithLogger(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))))
	if err != nil {
		return nil, err
	}
	return center, center.Start(ctx)
}
