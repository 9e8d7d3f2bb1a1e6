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

// 5,000 tasks due 4 to 8 s ahead: each fires once, none before its time.
func TestEmbeddedFiresEachTaskOnceAndOnTime(t *testing.T) {
	t.Parallel()
	cfg := embedded(t)
	cfg.Scan.Schedule, cfg.Scan.Lookahead = "@every 2s", 2*time.Second
	fired := newLedger()
	c := run(t, cfg, app.WithProcessor("ledger", fired))

	const n = 5000
	due := make(map[uint64]time.Time, n)
	requests := make([]intake.Submit, n)
	now := time.Now()
	for i := range requests {
		at := now.Add(4*time.Second + time.Duration(rand.Int64N(int64(4*time.Second))))
		requests[i] = intake.Submit{BizType: "order_close", BizID: rand.Uint64(), When: intake.At(at)}
	}
	for _, s := range c.Desk().SubmitBatch(context.Background(), requests) {
		require.NoError(t, s.Err)
		due[s.Task.JobID] = s.Task.ActionTime
	}
	require.Len(t, due, n)

	fired.await(t, n, 30*time.Second)
	require.NoError(t, c.stop())
	late, twice := fired.lateness(t, due)
	require.Zero(t, twice)
	t.Log("lateness", percentiles(late))
}
