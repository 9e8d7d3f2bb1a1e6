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
			require.GreaterOrEqual(t, gauge(t, w, n, "toc_retrying"), 85.) // counted some seconds ago
			promise := gauge(t, w, n, "toc_oldest_promise_seconds")
			require.GreaterOrEqual(t, promise, least)
			require.Less(t, promise, least+30)
			b := n.App.BizTypes()[0]
			require.GreaterOrEqual(t, b.Retrying, 85)
			require.InDelta(t, promise, b.OldestPromise, 1)
			require.InDelta(t, promise, b.OldestRetry, 1)
		}
		seen(475)
		require.Equal(t, errReceiver.Error(), n.App.BizTypes()[0].LastError)
		_, page := page(t, w, n, "/console/")
		require.NotContains(t, page, "on time")
		require.Regexp(t, "Runs fail: (8[5-9]|9[0-6]) tasks wait to run again, the oldest one, of order_close, promised 7 min 5", page)
		require.Regexp(t, "Runs of order_close fail: (8[5-9]|9[0-6]) tasks wait to run again, the oldest one promised 7 min 5", page)
		require.Contains(t, page, "The last error: "+errReceiver.Error())

		r.do(nil)
		require.NoError(t, n.Shutdown()) // so that the start finds them
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

// A retry runs what has failed at once, on whatever node, and each task once. With a rate it takes its time.
func TestFailingTasksAreRetried(t *testing.T) {
	const tasks = 40
	world(t, nodes(func(*configs.Config) {}), func(t *testing.T, w *virtual.World, r *runs) {
		a, b := w.Start("a"), w.Start("b")
		w.Wait(10 * time.Second)
		fail := func() {
			t.Helper()
			r.do(func(context.Context, string, task.Task) error { return errReceiver })
			for i := range uint64(tasks) {
				submit(t, a, i, time.Second)
			}
			w.Wait(6 * time.Minute) // the ninth run was at 255 to 319 s, and the tenth is after 511 s: none is due by itself
			r.do(nil)
			r.forget()
			w.Wait(time.Second) // for the outcomes of the last runs
		}
		fail()
		got, err := b.App.Tasks().Retry(t.Context(), "order_close", 0)
		require.NoError(t, err)
		require.Zero(t, got.Operation)
		require.Equal(t, []any{tasks, tasks}, []any{int(got.Matched), int(got.Retried)})
		w.Wait(20 * time.Second)
		r.requireOnce(t, tasks)
		again, err := b.App.Tasks().Retry(t.Context(), "order_close", 0)
		require.NoError(t, err)
		require.Zero(t, again.Matched)
		_, err = a.App.Tasks().Retry(t.Context(), "nope", 0)
		require.ErrorIs(t, err, task.ErrNotFound)
		var field *task.FieldError
		_, err = a.App.Tasks().Retry(t.Context(), "order_close", -1)
		require.ErrorAs(t, err, &field)
		require.Equal(t, "rate", field.Field)

		r.forget()
		fail()
		got, err = a.App.Tasks().Retry(t.Context(), "order_close", 2)
		require.NoError(t, err)
		require.NotZero(t, got.Operation)
		began := time.Now()
		w.Wait(30 * time.Second)
		r.requireOnce(t, tasks)
		last := began
		for _, one := range r.all() {
			if one.at.After(last) {
				last = one.at
			}
		}
		require.Greater(t, last.Sub(began), 15*time.Second, "two a second")
		o, err := a.App.Tasks().Operation(t.Context(), uint64(got.Operation))
		require.NoError(t, err)
		require.Equal(t, []any{"retry", "done", "order_close"}, []any{o.Kind, o.State, o.Filter.BizType})
		require.Zero(t, o.Filter.Until)
		_, err = a.App.Tasks().UndoOperation(t.Context(), uint64(got.Operation))
		require.ErrorAs(t, err, &field)
	})
}
