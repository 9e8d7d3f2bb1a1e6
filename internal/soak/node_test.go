package soak_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/task"
)

// nodeEnv makes this test binary a node; its value is the node's directory.
const nodeEnv = "TOC_SOAK_NODE"

const configFile = "config.json"

func TestMain(m *testing.M) {
	if dir := os.Getenv(nodeEnv); dir != "" {
		if err := runNode(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	testrig.Main(m)
}

// runNode works until SIGTERM, or until it is killed. Its standard output is one line, its address.
func runNode(dir string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var cfg configs.Config
	raw, err := os.ReadFile(filepath.Join(dir, configFile))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, &cfg); err != nil {
		return err
	}
	runs, err := newBook(dir, runsFile)
	if err != nil {
		return err
	}
	owned, err := newBook(dir, tenuresFile)
	if err != nil {
		return err
	}
	stalls, err := newBook(dir, stallsFile)
	if err != nil {
		return err
	}
	go watchStalls(stalls)
	a, err := app.New(cfg,
		app.WithProcessor("ledger", ledger{runs}),
		app.WithAudit(newTenures(owned, cfg.Cluster.Partitions).tell),
		app.WithLogger(slog.New(slog.NewTextHandler(os.Stderr, nil))),
		app.WithReady(func(addr string) { fmt.Println(addr) }))
	if err != nil {
		return err
	}
	return a.Run(ctx)
}

// ledger is a processor that writes down its runs. A task's attribute is how many milliseconds a run takes.
type ledger struct{ book *book }

func (l ledger) Process(ctx context.Context, t task.Task) error {
	s := span{key: t.JobID, from: time.Now().UnixNano(), note: uint64(t.Attempts)}
	place := l.book.add(s)
	if ms, _ := strconv.Atoi(t.Attribute); ms > 0 {
		select {
		case <-time.After(time.Duration(ms) * time.Millisecond):
		case <-ctx.Done():
		}
	}
	s.till = time.Now().UnixNano()
	l.book.set(place, s)
	return nil
}
