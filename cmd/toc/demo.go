package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/task"
)

func demoCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Watch a few thousand order timeouts fire",
		Long: `Start an embedded center in a temporary directory, submit order timeouts that
are due over the next ten seconds, show how they fire, and end with a histogram
of their lateness.`,
		Args: noArguments,
	}
	d := &demo{fired: map[uint64]int{}}
	cmd.Flags().IntVarP(&d.tasks, "tasks", "n", 3000, "how many")
	checkRange(cmd, "tasks", &d.tasks, 1, 1_000_000)
	seconds := cmd.Flags().Int("seconds", 10, "over how many seconds they are due")
	checkRange(cmd, "seconds", seconds, 1, 3600)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		d.out, d.span = cmd.OutOrStdout(), time.Duration(*seconds)*time.Second
		return d.run(cmd.Context())
	}
	return cmd
}

// demo keeps its own books: what was submitted, what fired and when.
type demo struct {
	out   io.Writer
	tasks int
	span  time.Duration

	mu    sync.Mutex
	due   map[uint64]time.Time
	fired map[uint64]int
	early int
	late  latencies
}

// Process is the demo's business: it writes down how late it was called.
func (d *demo) Process(_ context.Context, t task.Task) error {
	late := time.Since(t.ActionTime)
	d.late.add(max(0, late))
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fired[t.JobID]++
	if late < 0 {
		d.early++
	}
	return nil
}

func (d *demo) run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "toc-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	cfg := configs.Default()
	cfg.Store.SQLite.Dir = dir
	cfg.Scan.Schedule, cfg.Scan.Lookahead = "@every 2s", 2*time.Second
	b := configs.DefaultBizType()
	b.ID, b.Name, b.Processor = 1, "order_close", "demo"
	cfg.BizTypes = []configs.BizType{b}

	ready := make(chan string, 1)
	center, err := app.New(cfg, app.WithProcessor("demo", d), app.WithoutHTTP(),
		app.WithLogger(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))),
		app.WithReady(func(addr string) { ready <- addr }))
	if err != nil {
		return err
	}
	stop, err := runReady(ctx, center, ready)
	if err != nil {
		return err
	}

	fmt.Fprintf(d.out, "An embedded timeout center on 8 SQLite databases × 32 tables in %s.\n", dir)
	err = d.submit(ctx, center.Tasks())
	if err == nil {
		err = d.watch(ctx)
	}
	if err = errors.Join(err, stop()); err != nil {
		return err
	}
	return d.report()
}

// submit hands in orders that time out at random moments of the span.
func (d *demo) submit(ctx context.Context, tasks *app.Tasks) error {
	start := time.Now()
	requests := make([]client.Submit, d.tasks)
	for i := range requests {
		delay := time.Second + time.Duration(rand.Int64N(int64(d.span)))
		requests[i] = client.Submit{
			BizType: "order_close", BizID: rand.Uint64(), ActionTime: task.CeilMilli(start.Add(delay)),
			Attribute: fmt.Sprintf(`{"order":%d}`, i),
		}
	}
	d.due = make(map[uint64]time.Time, d.tasks)
	stored, err := submitEach(ctx, tasks, requests)
	for i, r := range stored {
		d.due[uint64(r.JobID)] = requests[i].ActionTime
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(d.out, "Submitted %s order timeouts, due over the next %s, in %s.\n\n",
		thousands(d.tasks), d.span, time.Since(start).Round(time.Millisecond))
	return nil
}

// watch shows how tasks fire until all have, or until they are long overdue.
func (d *demo) watch(ctx context.Context) error {
	live := isTerminal(d.out)
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.Now().Add(d.span + 30*time.Second)
	for {
		d.mu.Lock()
		fired := len(d.fired)
		d.mu.Unlock()
		if live {
			sorted := d.late.sorted()
			fmt.Fprintf(d.out, "\r  %-40s %s of %s fired, p50 %s, p99 %s late   ", bar(fired, d.tasks, 40),
				thousands(fired), thousands(d.tasks), millis(percentile(sorted, .5)), millis(percentile(sorted, .99)))
		}
		if fired >= d.tasks || time.Now().After(deadline) {
			if live {
				fmt.Fprint(d.out, "\n\n")
			}
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return errors.New("interrupted")
		}
	}
}

// isTerminal reports whether a person may be watching.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func (d *demo) report() error {
	sorted := d.late.sorted()
	lost, twice := 0, 0
	for id := range d.due {
		switch n := d.fired[id]; {
		case n == 0:
			lost++
		case n > 1:
			twice++
		}
	}
	fmt.Fprintf(d.out, "Lateness, from action_time to the start of the processor:\n\n%s\n", histogram(sorted, 50))
	fmt.Fprintf(d.out, "fired %s, lost %d, early %d, twice %d, p50 %s, p99 %s, max %s\n", thousands(len(d.fired)), lost, d.early, twice,
		millis(percentile(sorted, .5)), millis(percentile(sorted, .99)), millis(percentile(sorted, 1)))
	if lost+d.early+twice > 0 {
		return fmt.Errorf("lost %d, early %d, twice %d: this must not happen", lost, d.early, twice)
	}
	return nil
}
