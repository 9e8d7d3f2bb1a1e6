package app_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/intake"
)

// A thousand tasks due 2 to 4 s ahead, some of them beyond the next tick: each fires once, none before its time.
func TestEmbeddedFiresEachTaskOnceAndNoneEarly(t *testing.T) {
	t.Parallel()
	cfg := fewTables(t)
	fired := newLedger()
	c := run(t, cfg, app.WithProcessor("ledger", fired))

	const n = 1000
	due := make(map[uint64]time.Time, n)
	requests := make([]intake.Submit, n)
	now := time.Now()
	for i := range requests {
		at := now.Add(2*time.Second + time.Duration(rand.Int64N(int64(2*time.Second))))
		requests[i] = intake.Submit{BizType: "order_close", BizID: rand.Uint64(), When: intake.At(at)}
	}
	for _, s := range c.Desk().SubmitBatch(context.Background(), requests) {
		require.NoError(t, s.Err)
		due[s.Task.JobID] = s.Task.ActionTime
	}
	require.Len(t, due, n)

	fired.await(t, n)
	require.NoError(t, c.stop())
	late, twice := fired.lateness(t, due)
	require.Zero(t, twice)
	t.Log("lateness", percentiles(late))
}
