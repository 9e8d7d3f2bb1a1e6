package soak_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/audit"
	"github.com/timeoutcenter/toc/internal/testrig/traffic"
)

// nodeEnv makes this test binary a node; its value is the directory of the process.
const nodeEnv = "TOC_SOAK_NODE"

// The files that a process is given.
const (
	configFile = "config.json"
	reloadFile = "toc.yaml" // the same, in the form that is re-read while it runs
)

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

// runNode works until SIGTERM, or until it is killed. Its standard output is one line, its address. SIGHUP makes it
// read the configuration file again.
func runNode(dir string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	hups := make(chan os.Signal, 1)
	signal.Notify(hups, syscall.SIGHUP)
	var cfg configs.Config
	raw, err := os.ReadFile(filepath.Join(dir, configFile))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, &cfg); err != nil {
		return err
	}
	var files [3]*ledger
	for i, name := range []string{runsFile, tenuresFile, stallsFile} {
		if files[i], err = newLedger(dir, name); err != nil {
			return err
		}
	}
	go watchStalls(files[2])
	options := []app.Option{
		app.WithAudit(audit.NewTenureLog(files[1], cfg.Cluster.Partitions).Record),
		app.WithLogger(slog.New(slog.NewTextHandler(os.Stderr, nil))),
		app.WithConfigFile(filepath.Join(dir, reloadFile), nil),
		app.WithReady(func(addr string) { fmt.Println(addr) }),
	}
	if slices.ContainsFunc(cfg.BizTypes, func(b configs.BizType) bool { return b.Processor == "ledger" }) {
		options = append(options, app.WithProcessor("ledger", traffic.Recorder{
			Begin: func(s audit.Span) func(audit.Span) {
				place := files[0].Add(s)
				return func(s audit.Span) { files[0].Set(place, s) }
			},
			Poison: func(jobID uint64) {
				if mayKill(filepath.Dir(dir), jobID) {
					os.Exit(poisonExit)
				}
			}}))
	}
	a, err := app.New(cfg, options...)
	if err != nil {
		return err
	}
	go func() {
		for range hups {
			a.Reload()
		}
	}()
	return a.Run(ctx)
}

const (
	poisonExit = 42
	// poisonEnds bounds how many processes a poison ends, so that a soak goes on where the product does not bound it.
	poisonEnds = 7
)

// mayKill counts, over all processes of a fleet's directory, how often a poison was run.
func mayKill(fleet string, jobID uint64) bool {
	f, err := os.OpenFile(filepath.Join(fleet, fmt.Sprintf("poison.%d", jobID)), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return false
	}
	defer f.Close()
	if _, err := f.WriteString("x"); err != nil {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Size() <= poisonEnds
}
