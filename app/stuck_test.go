package app_test

import (
	"context"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/task"
)

// Before, two runs that ignored their time-out stopped a type of two workers for good: none of 20 other tasks
// ran, and /readyz showed no fault.
func TestRunsThatIgnoreTheirTimeoutShowAndHoldNobodyUp(t *testing.T) {
	t.Parallel()
	cfg := fewTables(t)
	cfg.BizTypes[0].Workers, cfg.BizTypes[0].Timeout = 2, 200*time.Millisecond
	fired, letGo := newLedger(), make(chan struct{})
	hung := make(chan struct{}, 2)
	release := sync.OnceFunc(func() { close(letGo) })
	c := run(t, cfg, app.WithProcessor("ledger", processorFunc(func(ctx context.Context, t task.Task) error {
		if t.Attribute == poison {
			hung <- struct{}{}
			<-letGo
			return nil
		}
		return fired.Process(ctx, t)
	})))
	t.Cleanup(release)
	submit := func(n int, attribute string) {
		requests := make([]intake.Submit, n)
		for i := range requests {
			requests[i] = intake.Submit{BizType: "order_close", BizID: uint64(i), Attribute: attribute, When: intake.In(0)}
		}
		for _, s := range c.Desk().SubmitBatch(t.Context(), requests) {
			require.NoError(t, s.Err)
		}
	}
	submit(2, poison)
	<-hung
	<-hung
	submit(20, "")
	awaitTrouble(t, c, "2 runs of order_close have ignored their time-out for ")
	fired.await(t, 20, await.Patience)
	require.Contains(t, scrape(t, c), "toc_runs_stuck{biz_type=\"order_close\"} 2\n")

	release()
	awaitNoTrouble(t, c, "time-out")
	require.Contains(t, scrape(t, c), "toc_runs_stuck{biz_type=\"order_close\"} 0\n")
	awaitRows(t, cfg, task.Processed, 22)
}

func scrape(t testing.TB, c *center) string {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: await.Patience}
	answer, err := client.Get("http://" + c.Addr() + "/metrics")
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return string(text)
}
