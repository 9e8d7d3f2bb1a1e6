package intake_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/task"
)

// Reads of all tables, of whatever kind, run two at a time; sixteen wait, and one more is refused at once. Other requests do not wait.
func TestReadsOfAllTablesTakeTurns(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		kinds := []func(ctx context.Context) error{
			func(ctx context.Context) error { _, err := r.ListAll(ctx, api.ListAll{}); return err },
			func(ctx context.Context) error { _, err := r.Forecast(ctx, api.AskForecast{}); return err },
			func(ctx context.Context) error { _, err := r.ListDead(ctx, api.ListDead{}); return err },
			func(ctx context.Context) error {
				_, err := r.RedriveDead(ctx, api.DeadRequest{DryRun: true})
				return err
			},
			func(ctx context.Context) error { _, err := r.DeadGroups(ctx, ""); return err },
		}
		var running, most, ended atomic.Int64
		free := make(chan struct{})
		r.fault.wide = func() {
			most.Store(max(most.Load(), running.Add(1)))
			<-free
			running.Add(-1)
		}
		ctx, leave := context.WithCancel(t.Context())
		for i := range 18 {
			asks := t.Context()
			if i == 17 { // it gives up
				asks = ctx
			}
			go func() {
				if err := kinds[i%len(kinds)](asks); asks != ctx {
					require.NoError(t, err)
				} else {
					require.ErrorIs(t, err, context.Canceled)
				}
				ended.Add(1)
			}()
			synctest.Wait()
		}
		for _, kind := range kinds {
			err := kind(t.Context())
			require.ErrorIs(t, err, task.ErrUnavailable)
			require.ErrorContains(t, err, "too many reads of all tables")
		}
		_, err := r.Submit(t.Context(), api.Submit{BizType: "order_close", BizID: 1, Delay: time.Hour})
		require.NoError(t, err)
		leave()
		synctest.Wait()
		require.EqualValues(t, 1, ended.Load())
		close(free)
		synctest.Wait()
		require.EqualValues(t, 18, ended.Load())
		require.EqualValues(t, 2, most.Load())
		for _, kind := range kinds {
			require.NoError(t, kind(t.Context()))
		}
	})
}
