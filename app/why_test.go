package app_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/task"
)

// A task tells at each stage of its life why it is there. In-process and over HTTP the answers are the same.
func TestWhy(t *testing.T) {
	onSQLite(t, func(t *testing.T, cfg configs.Config) {
		cfg.BizTypes[0].Workers, cfg.BizTypes[0].MaxRetries = 1, 1
		cfg.BizTypes[0].Backoff.Min, cfg.BizTypes[0].Backoff.Max = time.Hour, time.Hour
		free, began := make(chan struct{}), make(chan struct{}, 1)
		c := run(t, cfg, app.WithProcessor("ledger", processor.Func(func(_ context.Context, one task.Task) error {
			switch one.Attribute {
			case "hold":
				began <- struct{}{}
				<-free
			case "fail":
				return errors.New("no luck")
			}
			return nil
		})))
		ctx, overHTTP := t.Context(), client.New(c.Addr())
		submit := func(bizID uint64, attribute string, in time.Duration) uint64 {
			s, err := c.Tasks().Submit(ctx, client.Submit{BizType: "order_close", BizID: bizID, Attribute: attribute, Delay: in, Now: true, DedupKey: attribute})
			require.NoError(t, err)
			return uint64(s.Task.JobID)
		}
		says := func(id uint64, state, where, because string) {
			t.Helper()
			require.EventuallyWithT(t, func(t *assert.CollectT) {
				for _, api := range []tasks{c.Tasks(), overHTTP} {
					why, err := api.Why(ctx, id)
					require.NoError(t, err)
					require.Equal(t, state, why.State)
					require.Equal(t, where, why.Where)
					require.Equal(t, c.Node(), why.Node)
					require.Contains(t, strings.Join(why.Because, "\n"), because)
				}
			}, await.Patience, 20*time.Millisecond)
		}
		later := submit(1, "later", time.Hour)
		says(later, "pending", "store", "its time has not come: it is due at ")
		byKey, err := overHTTP.WhyByKey(ctx, client.Key{BizType: "order_close", BizID: 1, DedupKey: "later"})
		require.NoError(t, err)
		require.Equal(t, "store", byKey.Where)

		failed := submit(2, "fail", 0)
		says(failed, "pending", "store", "it has failed once and waits for its back-off until ")
		holds := submit(3, "hold", 0)
		<-began
		says(holds, "pending", "running", "it runs on node "+c.Node()+" for ")
		waits := submit(4, "waits", 0)
		says(waits, "pending", "queue", "it waits for the only worker of order_close on node "+c.Node()+", which has been busy for ")
		close(free)
		says(waits, "processed", "done", "it was processed at ")

		require.NoError(t, c.Tasks().Cancel(ctx, later))
		says(later, "cancelled", "done", "it was cancelled at ")
		_, err = c.Tasks().Reschedule(ctx, failed, client.Change{Delay: new(time.Duration)})
		require.NoError(t, err)
		says(failed, "dead", "done", "no luck; it had failed 2 times")
		for _, api := range []tasks{c.Tasks(), overHTTP} {
			_, err = api.Why(ctx, 1)
			require.ErrorIs(t, err, task.ErrNotFound)
		}
	})
}

// requireWhy submits a task that is due in half a minute and requires where and why it waits.
func requireWhy(t *testing.T, c *center, where, because string) {
	t.Helper()
	s, err := c.Tasks().Submit(t.Context(), client.Submit{BizType: "order_close", BizID: rand.Uint64(), Delay: 30 * time.Second})
	require.NoError(t, err)
	await.That(t, func() bool { // a submit does not wait until the task is in its slot
		why, err := c.Tasks().Why(t.Context(), uint64(s.Task.JobID))
		return err == nil && why.Where == where && strings.Contains(strings.Join(why.Because, "\n"), because)
	}, "it waits in %s: %s", where, because)
	require.NoError(t, c.Tasks().Cancel(t.Context(), uint64(s.Task.JobID)))
}
