package app_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/task"
)

const receiverEnv = "TOC_APP_TEST_RECEIVER"

// A center that has no descriptor left says so, and its calls count as no attempt.
func TestWithoutDescriptors(t *testing.T) {
	t.Parallel()
	if url := os.Getenv(receiverEnv); url != "" {
		withoutDescriptors(t, url)
		return
	}
	var calls atomic.Int64
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		w.Header().Set("Connection", "close")
	}))
	defer receiver.Close()
	again := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v") // a limit is the process's
	again.Env = append(os.Environ(), receiverEnv+"="+receiver.URL)
	said, err := again.CombinedOutput()
	require.NoError(t, err, string(said))
	require.EqualValues(t, 2, calls.Load(), "one before, one after")
}

func withoutDescriptors(t *testing.T, url string) {
	cfg := embedded(t)
	cfg.Store.Databases, cfg.Store.TablesPerDatabase, cfg.Cluster.Partitions = 1, 1, 1
	b := &cfg.BizTypes[0]
	b.Processor, b.Webhook.URL, b.MaxRetries = "webhook", url, 1
	cfg.HTTP.MaxConnections = 1000
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 1010, Max: 4096}))
	log := &logbook{}
	c := run(t, cfg, app.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
	require.Contains(t, log.String(), "may run out of file descriptors")
	degraded := func(collect *assert.CollectT) string { // by a connection that there is
		answer, err := http.Get("http://" + c.Addr() + "/readyz")
		require.NoError(collect, err)
		defer answer.Body.Close()
		var ready struct{ Degraded []string }
		require.NoError(collect, json.NewDecoder(answer.Body).Decode(&ready))
		return strings.Join(ready.Degraded, "; ")
	}
	fire := func() uint64 {
		row, err := c.Desk().Submit(t.Context(), intake.Submit{BizType: "order_close", BizID: 1, When: intake.In(0)})
		require.NoError(t, err)
		return row.Task.JobID
	}
	is := func(jobID uint64, status task.Status) {
		require.Eventually(t, func() bool {
			row, err := c.Desk().Get(t.Context(), jobID)
			return err == nil && row.Status == status
		}, 20*time.Second, 50*time.Millisecond)
	}
	is(fire(), task.Processed)
	require.EventuallyWithT(t, func(collect *assert.CollectT) { require.Empty(collect, degraded(collect)) }, 10*time.Second, 50*time.Millisecond)

	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 100, Max: 4096}))
	var taken []*os.File
	for {
		f, err := os.Open(os.DevNull)
		if err != nil {
			require.ErrorIs(t, err, syscall.EMFILE)
			break
		}
		taken = append(taken, f)
	}
	jobID := fire()
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		require.Contains(collect, degraded(collect), "no file descriptor is left")
	}, 10*time.Second, 50*time.Millisecond)
	require.Never(t, func() bool {
		row, err := c.Desk().Get(t.Context(), jobID)
		return err == nil && (row.Status != task.Pending || row.Attempts > 0)
	}, 3*time.Second, 50*time.Millisecond, "it was never sent")

	for _, f := range taken {
		require.NoError(t, f.Close())
	}
	is(jobID, task.Processed)
	require.EventuallyWithT(t, func(collect *assert.CollectT) { require.Empty(collect, degraded(collect)) }, 10*time.Second, 50*time.Millisecond)
}
