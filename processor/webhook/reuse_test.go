package webhook

import (
	"io"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/testrig/memnet"
	"github.com/timeoutcenter/toc/task"
)

// Calls one after the other have one connection, and calls of many workers have one each, whatever is answered. In virtual
// time, because net/http gives a connection up if it does not know within 50 ms that the request was written.
func TestConnectionsAreReused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var network memnet.Net
		url, stop := network.Serve(t, "example.com:80", "http/1.1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("toc-attempt") == "3" { // refusals too
				w.WriteHeader(http.StatusInternalServerError)
			}
			_, _ = io.WriteString(w, "a body")
		}))
		defer stop()
		const workers = 8
		w, err := New(task.BizType{Name: "order_close", Workers: workers, Timeout: time.Second}, Config{URL: url})
		require.NoError(t, err)
		defer func() { require.NoError(t, w.Close()) }()
		network.Enter(w.pool.Template)
		network.Enter(w.fresh)
		call := func(attempts int) error {
			err := w.Process(t.Context(), task.Task{JobID: 1, Attempts: attempts})
			time.Sleep(time.Millisecond) // a connection is free again a moment after its answer was read
			return err
		}
		for i := range 200 {
			require.Equal(t, i%3 == 2, call(i%3) != nil)
		}
		require.Equal(t, 1, network.Dialed(), "one after the other")

		var all sync.WaitGroup
		for range workers {
			all.Go(func() {
				for range 50 {
					if err := call(0); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		require.Equal(t, workers, network.Dialed(), "of %d calls; so many are under way at a time", 50*workers)
	})
}
