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

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/task"
)

const receiverEnv = "TOC_APP_TEST_RECEIVER"

// A center that has no descriptor left says so, and its calls count as no attempt.
func TestWithoutDescriptors(t *testing.T) {
	inRealTime(t)
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
	await.That(t, func() bool { return strings.Contains(log.String(), "may run out of file descriptors") }, "it warns")
	none := func(want bool) { // by a connection that there is
		await.That(t, func() bool {
			answer, err := http.Get("http://" + c.Addr() + "/readyz")
			if err != nil {
				return false
			}
			defer answer.Body.Close()
			var ready struct{ Degraded []string }
			require.NoError(t, json.NewDecoder(answer.Body).Decode(&ready))
			return want == strings.Contains(strings.Join(ready.Degraded, "; "), "no file descriptor is left")
		}, "no descriptor is left: %t", want)
	}
	fire := func() uint64 {
		row, err := c.Tasks().Submit(t.Context(), api.Submit{BizType: "order_close", BizID: 1, Now: true})
		require.NoError(t, err)
		return uint64(row.Task.JobID)
	}
	processed := func(jobID uint64) {
		await.That(t, func() bool {
			row, err := c.Tasks().Get(t.Context(), jobID)
			return err == nil && row.Status == task.Processed.String() && row.Attempts == 0
		}, "processed by the first run that counts")
	}
	processed(fire())
	none(false)

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
	none(true)
	await.That(t, func() bool {
		row, err := c.Tasks().Get(t.Context(), jobID)
		return err == nil && strings.Contains(row.LastError, "too many open files")
	}, "its run had no descriptor")

	for _, f := range taken {
		require.NoError(t, f.Close())
	}
	processed(jobID)
	none(false)
}
