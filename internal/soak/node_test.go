package soak_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"github.com/timeoutcenter/toc/internal/testrig/audit"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/task"
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
		app.WithAudit(newTenureLog(files[1], cfg.Cluster.Partitions).record),
		app.WithLogger(slog.New(slog.NewTextHandler(os.Stderr, nil))),
		app.WithConfigFile(filepath.Join(dir, reloadFile), nil),
		app.WithReady(func(addr string) { fmt.Println(addr) }),
	}
	if slices.ContainsFunc(cfg.BizTypes, func(b configs.BizType) bool { return b.Processor == "ledger" }) {
		options = append(options, app.WithProcessor("ledger", recorder{files[0], filepath.Dir(dir)}))
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

// How a run behaves. It depends on the job_id and on the attempts alone, so a run can be repeated.
type behaviour struct {
	takes  time.Duration
	hangs  bool // until its time is over; then it fails
	stays  bool // for some seconds, whatever the time-out says
	fails  bool
	panics bool // is how it fails
}

// The attributes that decide how a run behaves. All other texts say nothing.
const (
	poison   = "poison"    // ends the process, each time
	harmless = "hand-made" // what a hand has made
)

// runTimeout is the time-out of both business types.
const runTimeout = time.Second

// behave decides: one in five runs fails, one task in twenty fails in all its runs.
func behave(jobID uint64, attempts int) behaviour {
	h := mix(jobID ^ mix(uint64(attempts)+1))
	b := behaviour{takes: time.Duration(h>>8%20) * time.Millisecond, fails: h%5 == 0 || mix(jobID)%20 == 0}
	b.panics = b.fails && h>>16%10 == 0
	switch n := h >> 24 % 200; {
	case n < 2:
		b.hangs = true
	case n < 3:
		b.stays, b.takes = true, runTimeout+time.Second+time.Duration(h>>32%2000)*time.Millisecond
	case n < 30:
		b.takes = time.Duration(h>>32%200) * time.Millisecond
	}
	return b
}

// lasts is for how long the run is under way.
func (b behaviour) lasts() time.Duration {
	if b.hangs {
		return runTimeout
	}
	return b.takes
}

// mix spreads a number over all bits (the finalizer of splitmix64).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// recorder is a processor that writes down each run, before and after.
type recorder struct {
	ledger *ledger
	fleet  string // the directory that all processes share
}

var errFails = errors.New("this run fails")

func (r recorder) Process(ctx context.Context, t task.Task) (err error) {
	s := audit.Span{Key: t.JobID, From: time.Now().UnixNano(), Seen: audit.Seen{int64(t.Attempts), t.ActionTime.UnixMilli(), audit.TextHash(t.Attribute)}}
	place := r.ledger.add(s)
	b := behave(t.JobID, t.Attempts)
	if takes, ok := steadyFor(t.Attribute); ok {
		b = behaviour{takes: takes}
	}
	if t.Attribute == poison && r.mayKill(t.JobID) {
		os.Exit(poisonExit)
	}
	over := ctx.Done()
	if b.stays {
		over = nil
	}
	if b.hangs {
		<-over
	} else {
		select {
		case <-time.After(b.takes):
		case <-over:
		}
	}
	switch {
	case ctx.Err() == nil || b.stays && !errors.Is(ctx.Err(), context.Canceled):
		if b.fails {
			err = errFails
		}
	default:
		err = ctx.Err()
	}
	s.Till, s.End = time.Now().UnixNano(), audit.EndOK
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		s.End = audit.EndStopped
	case err != nil:
		s.End = audit.EndFailed
	}
	r.ledger.set(place, s)
	if b.panics && s.End == audit.EndFailed {
		panic(err)
	}
	return err
}

const (
	poisonExit = 42
	// poisonEnds bounds how many processes a poison ends, so that a soak goes on where the product does not bound it.
	poisonEnds = 7
)

// mayKill counts, over all processes, how often a poison was run.
func (r recorder) mayKill(jobID uint64) bool {
	f, err := os.OpenFile(filepath.Join(r.fleet, fmt.Sprintf("poison.%d", jobID)), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
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
