package webhook

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/testrig/memnet"
	"github.com/timeoutcenter/toc/task"
)

// TestASilentConnectionFailsNoTaskTwice has calls at a steady rate when all connections fall silent, while new ones work. A
// failed run is tried again after a second, as by the back-off.
func TestASilentConnectionFailsNoTaskTwice(t *testing.T) {
	for _, timeout := range []time.Duration{2 * time.Second, 30 * time.Second} {
		for _, protocol := range memnet.Protocols {
			t.Run(protocol+" "+timeout.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					failed, most := runsOnSilence(t, protocol, timeout)
					t.Logf("failed runs %d, of one task at most %d", failed, most)
					require.LessOrEqual(t, most, 1)
					if protocol == "h2" && timeout > 10*time.Second {
						require.Zero(t, failed, "a ping finds the connection dead before the calls' own time is over")
					} else {
						require.LessOrEqual(t, failed, 1+int(timeout/pace), "the calls that were under way")
					}
				})
			})
		}
	}
}

// pace of the calls.
const pace = 200 * time.Millisecond

// runsOnSilence counts the failed runs of 100 tasks, and those of the task that has most of them.
func runsOnSilence(t *testing.T, protocol string, timeout time.Duration) (failed, most int) {
	var network memnet.Net
	url, stop := network.Serve(t, "example.com:443", protocol, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		time.Sleep(10 * time.Millisecond)
	}))
	defer stop()
	w, err := New(task.BizType{Name: "order_close", Workers: 64, Timeout: timeout}, Config{URL: url})
	require.NoError(t, err)
	defer func() { require.NoError(t, w.Close()) }()
	network.Enter(w.pool.Template)
	network.Enter(w.fresh)

	call := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		return w.Process(ctx, task.Task{JobID: 1})
	}
	var warmUp, tasks sync.WaitGroup
	for range 20 {
		warmUp.Go(func() { _ = call() })
	}
	warmUp.Wait()
	network.Silence()
	var mu sync.Mutex
	for range 100 {
		tasks.Go(func() {
			runs := 0
			for ; runs < 17 && call() != nil; runs++ {
				time.Sleep(time.Second)
			}
			mu.Lock()
			defer mu.Unlock()
			failed, most = failed+runs, max(most, runs)
		})
		time.Sleep(pace)
	}
	tasks.Wait()
	return failed, most
}

// TestAReceiverWithANewAddressIsFollowed has calls at a steady rate while the name of the receiver gets a new server. The old
// one still answers.
func TestAReceiverWithANewAddressIsFollowed(t *testing.T) {
	for _, protocol := range memnet.Protocols {
		t.Run(protocol, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var network memnet.Net
				old, calls := 0, 0
				url, stop := network.Serve(t, "example.com:443", protocol, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { old++ }))
				defer stop()
				w, err := New(task.BizType{Name: "order_close", Workers: 64, Timeout: 30 * time.Second}, Config{URL: url})
				require.NoError(t, err)
				defer func() { require.NoError(t, w.Close()) }()
				network.Enter(w.pool.Template)
				require.NoError(t, w.Process(t.Context(), task.Task{JobID: 1}))
				_, stopNew := network.Serve(t, "example.com:443", protocol, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
				defer stopNew()
				for range 120 {
					calls++
					require.NoError(t, w.Process(t.Context(), task.Task{JobID: 1}))
					time.Sleep(time.Second)
				}
				require.LessOrEqual(t, old, 61, "of %d calls", calls)
			})
		})
	}
}
