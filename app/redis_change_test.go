package app_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/task"
)

// Cancels race against the firing of 2,000 tasks that are due within the same
// second: a task whose cancel was answered never fires, any other fires once.
func TestCancelsRaceAgainstFiringFromRedis(t *testing.T) {
	t.Parallel()
	cfg := fewSlots(t, testrig.StartRedis(t).Addr())
	fired := newLedger()
	c := run(t, cfg, app.WithProcessor("ledger", fired))
	due := submitSpread(t, c, 2000, 2*time.Second, 3*time.Second)

	var mu sync.Mutex
	var all sync.WaitGroup
	cancelled, refused := make(map[uint64]time.Time), make(map[uint64]time.Time)
	conflicts := make(map[task.Conflict]int)
	for id, at := range due {
		// Around the moment at which it is claimed and fires.
		wait := time.Until(at) + time.Duration(rand.IntN(160)-100)*time.Millisecond
		all.Go(func() {
			<-time.After(wait) // real time: around the claim
			err := c.Desk().Cancel(context.Background(), id)
			mu.Lock()
			defer mu.Unlock()
			var conflict *task.ConflictError
			switch {
			case err == nil:
				cancelled[id] = at
			case errors.As(err, &conflict):
				refused[id] = at
				conflicts[conflict.Conflict]++
			default:
				t.Errorf("cancel %d: %v", id, err)
			}
		})
	}
	all.Wait()
	fired.awaitAll(t, refused, await.Patience)
	// One that comes after them all has been through whatever the others left.
	last := submitSpread(t, c, 1, time.Second, 1001*time.Millisecond)
	fired.awaitAll(t, last, await.Patience)
	require.NoError(t, c.stop())

	for id := range cancelled {
		require.Empty(t, fired.runs(id), "task %d fired although it was cancelled", id)
	}
	late, twice := fired.lateness(t, refused)
	require.Zero(t, twice)
	require.NotEmpty(t, cancelled)
	require.Equal(t, len(cancelled), countStatus(t, cfg, task.Cancelled))
	require.Equal(t, len(refused)+1, countStatus(t, cfg, task.Processed))
	t.Logf("cancelled %d, refused %v; lateness of the rest %s", len(cancelled), conflicts, percentiles(late))
}

// A task that runs refuses cancels and new times, and its outcome stands.
func TestRunningTaskFromRedisRefusesChanges(t *testing.T) {
	t.Parallel()
	r := testrig.StartRedis(t)
	cfg := fewSlots(t, r.Addr())
	cfg.BizTypes[0].Visibility, cfg.BizTypes[0].Timeout = time.Second, time.Second
	started, release := make(chan struct{}), make(chan struct{})
	fired := newLedger()
	fired.answer = func(task.Task) error { close(started); <-release; return nil }
	c := run(t, cfg, app.WithProcessor("ledger", fired))
	end := sync.OnceFunc(func() { close(release) })
	t.Cleanup(end) // also when the test fails
	s, err := c.Desk().Submit(t.Context(), intake.Submit{BizType: "order_close", BizID: 7, When: intake.In(100 * time.Millisecond)})
	require.NoError(t, err)
	<-started

	later := intake.In(time.Hour)
	refuses := func() {
		t.Helper()
		var conflict *task.ConflictError
		require.ErrorAs(t, c.Desk().Cancel(t.Context(), s.Task.JobID), &conflict)
		require.Equal(t, task.ConflictRunning, conflict.Conflict)
		_, err := c.Desk().Reschedule(t.Context(), s.Task.JobID, intake.Change{When: &later})
		require.ErrorAs(t, err, &conflict)
		require.Equal(t, task.ConflictRunning, conflict.Conflict)
	}
	refuses()
	client := redisClient(t, r.Addr())
	require.NoError(t, client.FlushAll(t.Context()).Err()) // its claim is gone, and it is filled in again
	await.That(t, func() bool {
		waiting, claims := inSlots(t, cfg, client)
		return waiting+claims > 0
	}, "the task is in Redis again")
	refuses()
	// Its claim expires under it again and again.
	<-time.After(2500 * time.Millisecond) // real time: visibility passes twice
	refuses()
	end()
	awaitInSlots(t, cfg, client, 0)
	require.NoError(t, c.stop())
	require.Len(t, fired.runs(s.Task.JobID), 1)
	require.Equal(t, 1, countStatus(t, cfg, task.Processed))
}

// Tasks are moved to earlier and to later, over the horizon and back, with Redis
// and without it: each fires once, at the time that it was given last.
func TestReschedulesAcrossTheHorizon(t *testing.T) {
	t.Parallel()
	testrig.OnlyInAll(t, "TestRedisHoldsTheNearFuture, TestCancelsRaceAgainstFiringFromRedis, and the tests of package redistimer")
	r := testrig.StartRedis(t)
	line := testrig.StartProxy(t, r.Addr())
	cfg := fewSlots(t, line.Addr())
	cfg.BizTypes[0].Horizon = 14 * time.Second
	fired := newLedger()
	c := run(t, cfg, app.WithProcessor("ledger", fired))
	const n = 20
	due, cancelled := make(map[uint64]time.Time), make(map[uint64]time.Time)
	// All at once: without Redis each change waits a moment for its arming, and the
	// next ones must not become due meanwhile.
	each := func(ids map[uint64]time.Time, change func(id uint64) error) {
		t.Helper()
		var g errgroup.Group
		for id := range ids {
			g.Go(func() error { return change(id) })
		}
		require.NoError(t, g.Wait())
	}
	var mu sync.Mutex
	move := func(ids map[uint64]time.Time, in time.Duration) {
		t.Helper()
		each(ids, func(id uint64) error {
			when := intake.In(in)
			moved, err := c.Desk().Reschedule(t.Context(), id, intake.Change{When: &when})
			mu.Lock()
			defer mu.Unlock()
			due[id] = moved.ActionTime
			return err
		})
	}
	cancel := func(ids map[uint64]time.Time) {
		t.Helper()
		each(ids, func(id uint64) error { return c.Desk().Cancel(t.Context(), id) })
		for id := range ids {
			delete(due, id)
			cancelled[id] = time.Time{}
		}
	}

	far := submitSpread(t, c, n, time.Hour, 2*time.Hour)
	near := submitSpread(t, c, n, 10*time.Second, 11*time.Second)
	near2 := submitSpread(t, c, n, 10*time.Second, 11*time.Second)
	nearGone := submitSpread(t, c, n, 10*time.Second, 11*time.Second)
	client := redisClient(t, r.Addr())
	awaitWaiting(t, cfg, client, 3*n)
	waiting, _ := inSlots(t, cfg, client)
	require.Equal(t, 3*n, waiting, "only what is near is in Redis")
	move(far, 500*time.Millisecond) // in over the horizon
	move(near, time.Hour)           // out
	move(near2, 12*time.Second)     // to later, in Redis both times
	cancel(nearGone)
	fired.awaitAll(t, far, await.Patience)
	awaitInSlots(t, cfg, client, len(near2)) // what was cancelled or moved out of the horizon is out of Redis
	fired.awaitAll(t, near2, await.Patience)
	move(near, 300*time.Millisecond) // in again
	fired.awaitAll(t, near, await.Patience)

	// Without Redis. The outage is over before the scan engine takes over.
	farDown := submitSpread(t, c, n, time.Hour, 2*time.Hour)
	nearDown := submitSpread(t, c, n, 12*time.Second, 12100*time.Millisecond)
	goneDown := submitSpread(t, c, n, 12*time.Second, 12100*time.Millisecond)
	line.Cut()
	move(farDown, time.Second)
	move(nearDown, 13*time.Second)
	cancel(goneDown)
	newDown := submitSpread(t, c, n, 500*time.Millisecond, 600*time.Millisecond)
	line.Mend()
	for id, at := range newDown {
		due[id] = at
	}
	fired.awaitAll(t, due, await.Patience) // sweep_after is minutes: waiting for the sweep is a failure
	require.NoError(t, c.stop())
	late, twice := fired.lateness(t, due)
	require.Zero(t, twice)
	for id := range cancelled {
		require.Empty(t, fired.runs(id), "task %d fired although it was cancelled", id)
	}
	require.Equal(t, len(cancelled), countStatus(t, cfg, task.Cancelled))
	require.Equal(t, len(due), countStatus(t, cfg, task.Processed))
	t.Log("lateness", percentiles(late))
}
