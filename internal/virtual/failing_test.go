package virtual_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/virtual"
	"github.com/timeoutcenter/toc/task"
)

var errReceiver = errors.New("POST http://127.0.0.1:9000/close: 500 Internal Server Error")

// gauge is the value of a metric of order_close.
func gauge(t *testing.T, w *virtual.World, n *virtual.Node, name string) float64 {
	t.Helper()
	found := regexp.MustCompile(`(?m)^` + name + `\{biz_type="order_close"\} (.*)$`).FindStringSubmatch(metrics(t, w, n))
	require.NotNil(t, found, name)
	value, err := strconv.ParseFloat(found[1], 64)
	require.NoError(t, err)
	return value
}

// The tasks that a receiver refuses are seen by what was promised, though each retry has a time of its own: while it fails, after
// a restart, and until the last of them is done.
func TestAFailingReceiverIsSeen(t *testing.T) {
	world(t, single(func(*configs.Config) {}), func(t *testing.T, w *virtual.World, r *runs) {
		n := w.Start("a")
		w.Wait(time.Minute)
		require.Zero(t, gauge(t, w, n, "toc_retrying"))
		require.Zero(t, gauge(t, w, n, "toc_oldest_promise_seconds"))

		r.do(func(context.Context, string, task.Task) error { return errReceiver })
		for i := range uint64(96) { // eight minutes
			submit(t, n, i, 5*time.Second)
			w.Wait(5 * time.Second)
		}
		seen := func(least float64) {
			t.Helper()
			require.GreaterOrEqual(t, gauge(t, w, n, "toc_retrying"), 95.)
			promise := gauge(t, w, n, "toc_oldest_promise_seconds")
			require.GreaterOrEqual(t, promise, least)
			require.Less(t, promise, least+30)
			b := n.App.BizTypes()[0]
			require.GreaterOrEqual(t, b.Retrying, 95)
			require.InDelta(t, promise, b.OldestPromise, 1)
		}
		seen(475)
		require.Equal(t, errReceiver.Error(), n.App.BizTypes()[0].LastError)
		_, page := page(t, w, n, "/console/")
		require.NotContains(t, page, "on time")
		require.Regexp(t, "Runs fail: 9[56] tasks wait to run again, the oldest one, of order_close, promised 7 min 5", page)
		require.Regexp(t, "Runs of order_close fail: 9[56] tasks wait to run again, the oldest one promised 7 min 5", page)
		require.Contains(t, page, "The last error: "+errReceiver.Error())

		r.do(nil)
		require.NoError(t, n.Shutdown())
		n = w.Start("a")
		w.Wait(20 * time.Second)
		if left := gauge(t, w, n, "toc_retrying"); left < 40 || left > 96 {
			require.Fail(t, "those that have failed before the start are not counted", fmt.Sprint(left))
		}
		require.Greater(t, gauge(t, w, n, "toc_oldest_promise_seconds"), 60.)
		w.Wait(11 * time.Minute) // backoff.max, and a scan
		require.Zero(t, gauge(t, w, n, "toc_retrying"))
		require.Zero(t, gauge(t, w, n, "toc_oldest_promise_seconds"))
		require.Empty(t, n.App.BizTypes()[0].LastError)
	})
}
