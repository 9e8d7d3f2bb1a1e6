package app_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/task"
)

// requireRuns requires that a task has these failed runs, with times that go on.
func requireRuns(t *testing.T, c *center, id uint64, want ...string) {
	t.Helper()
	why, err := askHTTP(c).Why(t.Context(), id)
	require.NoError(t, err)
	var got []string
	before := time.Now().Add(-time.Hour)
	for _, r := range why.FailedRuns {
		require.WithinRange(t, r.At.Time(), before, time.Now().Add(time.Second))
		before = r.At.Time()
		got = append(got, fmt.Sprint(r.Attempt, " ", r.Error))
	}
	require.Equal(t, want, got)
}

func awaitStatus(t *testing.T, c *center, id uint64, status string) {
	t.Helper()
	await.That(t, func() bool {
		got, err := c.Tasks().Get(t.Context(), id)
		return err == nil && got.Status == status
	}, "%s", status)
}

// Each run that failed and counted is told, across a redrive; a run that was no attempt is not, nor one that discards.
func TestFailedRuns(t *testing.T) {
	onSQLite(t, func(t *testing.T, cfg configs.Config) {
		b := &cfg.BizTypes[0]
		b.MaxRetries, b.Backoff = 2, configs.Backoff{Min: 10 * time.Millisecond, Max: 10 * time.Millisecond}
		var runs atomic.Int32
		c := run(t, cfg, app.WithProcessor("ledger", processorFunc(func(context.Context, task.Task) error {
			switch n := runs.Add(1); n {
			case 2:
				return processor.NoAttempt(0, errors.New("not now"))
			case 4:
				panic("run 4")
			case 6:
				return processor.Discard(errors.New("paid"))
			default:
				return fmt.Errorf("run %d", n)
			}
		})))
		s, err := c.Tasks().Submit(t.Context(), client.Submit{BizType: "order_close", BizID: 42, Now: true})
		require.NoError(t, err)
		id := uint64(s.Task.JobID)
		awaitStatus(t, c, id, "dead")
		requireRuns(t, c, id, "1 run 1", "2 run 3", "3 panic: run 4")
		_, err = c.Tasks().Redrive(t.Context(), id)
		require.NoError(t, err)
		awaitStatus(t, c, id, "cancelled")
		requireRuns(t, c, id, "1 run 1", "2 run 3", "3 panic: run 4", "1 run 5")
	})
}

// So is a lease that its consumer has not settled, and one that it has given back.
func TestFailedRunsOfLeases(t *testing.T) {
	onSQLite(t, func(t *testing.T, cfg configs.Config) {
		cfg = pulled(cfg, time.Minute)
		cfg.BizTypes[0].MaxRetries = 1
		c := run(t, cfg)
		s, err := c.Tasks().Submit(t.Context(), client.Submit{BizType: "order_close", BizID: 42, Now: true})
		require.NoError(t, err)
		var lease string
		for _, ttr := range []time.Duration{200 * time.Millisecond, 10 * time.Minute} {
			await.That(t, func() bool {
				got, err := askHTTP(c).Lease(t.Context(), "order_close", client.AskLease{Wait: 10 * time.Second, TTR: ttr})
				require.NoError(t, err)
				if len(got.Tasks) == 0 {
					return false
				}
				lease = got.Tasks[0].Lease.String()
				return true
			}, "it is leased for %s", ttr)
		}
		results, err := askHTTP(c).Settle(t.Context(), client.Settlement{Lease: lease, Do: client.Nack, Error: "locked"})
		require.NoError(t, err)
		require.Equal(t, "ok", results[0].Result)
		id := uint64(s.Task.JobID)
		awaitStatus(t, c, id, "dead")
		requireRuns(t, c, id, "1 the lease is over: its consumer has not settled it in time", "2 locked")
	})
}
