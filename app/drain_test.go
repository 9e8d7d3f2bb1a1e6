package app_test

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/task"
)

// A center that is stopped and started again and again in the middle of firing
// runs nothing twice and loses nothing.
func TestGracefulStopsDoubleNothing(t *testing.T) {
	onSQLite(t, func(t *testing.T, cfg configs.Config) { gracefulStops(t, cfg, func() {}) })
}

// gracefulStops calls stopped after each stop.
func gracefulStops(t *testing.T, cfg configs.Config, stopped func()) {
	fired := newLedger()
	const n, stops = 1000, 3
	c := run(t, cfg, app.WithProcessor("ledger", fired))
	due := make(map[uint64]time.Time, n)
	requests := make([]intake.Submit, n)
	start := time.Now().Add(500 * time.Millisecond)
	for i := range requests {
		requests[i] = intake.Submit{BizType: "order_close", BizID: rand.Uint64(),
			When: intake.At(start.Add(time.Duration(rand.Int64N(int64(2 * time.Second)))))}
	}
	for _, s := range c.Desk().SubmitBatch(context.Background(), requests) {
		require.NoError(t, s.Err)
		due[s.Task.JobID] = s.Task.ActionTime
	}
	for range stops {
		// In the middle of firing: some more have fired since the last stop.
		fired.await(t, min(n, fired.count()+n/20))
		require.NoError(t, c.stop())
		stopped()
		c = run(t, cfg, app.WithProcessor("ledger", fired))
	}
	fired.await(t, n)
	require.NoError(t, c.stop())
	_, twice := fired.lateness(t, due)
	require.Zero(t, twice)
	require.Equal(t, n, countStatus(t, cfg, task.Processed))
}

// A drain waits for a running task. One that does not end in time is cancelled and will run again.
func TestDrainWaitsForRunningTasks(t *testing.T) {
	t.Parallel()
	cfg := fewTables(t)
	started, release, log := make(chan struct{}), make(chan struct{}), &logbook{}
	c := run(t, cfg, app.WithLogger(slog.New(slog.NewTextHandler(log, nil))), app.WithProcessor("ledger", processorFunc(func(context.Context, task.Task) error {
		close(started)
		<-release
		return nil
	})))
	_, err := c.Desk().Submit(t.Context(), intake.Submit{BizType: "order_close", BizID: 7, When: intake.In(0)})
	require.NoError(t, err)
	await.Receive(t, started, "it runs")
	stopped := make(chan error, 1)
	go func() { stopped <- c.stop() }()
	await.That(t, func() bool { return strings.Contains(log.String(), "running=1") }, "the drain has begun")
	require.Empty(t, stopped, "stopped while a task was running")
	close(release)
	require.NoError(t, await.Receive(t, stopped, "it stops"))
	require.Equal(t, 1, countStatus(t, cfg, task.Processed))
}

func TestDrainGivesUpWhenPatienceEnds(t *testing.T) {
	t.Parallel()
	cfg := fewTables(t)
	cfg.Shutdown.Drain = 300 * time.Millisecond
	var runs atomic.Int32
	started := make(chan struct{}, 2)
	p := processorFunc(func(ctx context.Context, _ task.Task) error {
		if runs.Add(1) == 1 {
			started <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		}
		started <- struct{}{}
		return nil
	})
	ready := make(chan string, 1)
	a, err := app.New(cfg, app.WithProcessor("ledger", p), app.WithLogger(testLogger(t)), app.WithReady(func(s string) { ready <- s }))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	await.Receive(t, ready, "it is ready")
	_, err = a.Desk().Submit(t.Context(), intake.Submit{BizType: "order_close", BizID: 7, When: intake.In(0)})
	require.NoError(t, err)
	await.Receive(t, started, "it runs")
	cancel()
	require.ErrorContains(t, await.Receive(t, ended, "it stops"), "shutdown.drain")
	require.Equal(t, 1, countStatus(t, cfg, task.Pending), "what was not recorded runs again")

	cfg.Shutdown.Drain = await.Patience
	c := run(t, cfg, app.WithProcessor("ledger", p))
	await.Receive(t, started, "it runs again")
	require.NoError(t, c.stop())
	require.Equal(t, 1, countStatus(t, cfg, task.Processed))
}

// A drain without any time was configured, so it is no failure.
func TestDrainWithoutPatience(t *testing.T) {
	t.Parallel()
	cfg := fewTables(t)
	cfg.Shutdown.Drain = 0
	c := run(t, cfg, app.WithProcessor("ledger", newLedger()))
	_, err := c.Desk().Submit(t.Context(), intake.Submit{BizType: "order_close", BizID: 7, When: intake.In(time.Hour)})
	require.NoError(t, err)
	require.NoError(t, c.stop())
	require.Equal(t, 1, countStatus(t, cfg, task.Pending))
}

// A second center on the same store is refused, with the holder's name. On SQLite a file is locked, on MariaDB a lease is taken.
func TestSecondCenterIsRefused(t *testing.T) {
	onBoth(t, func(t *testing.T, cfg configs.Config) {
		first := run(t, cfg, app.WithProcessor("ledger", newLedger()))
		second, err := app.New(cfg, app.WithProcessor("ledger", newLedger()))
		require.NoError(t, err)
		err = second.Run(t.Context())
		require.ErrorContains(t, err, "the store is in use")
		require.ErrorContains(t, err, first.Node())
		require.NoError(t, first.stop())
	})
}

type processorFunc func(context.Context, task.Task) error

func (f processorFunc) Process(ctx context.Context, t task.Task) error { return f(ctx, t) }
