package app_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/task"
)

// childEnv makes this test binary a timeout center; its value is the
// configuration file.
const childEnv = "TOC_APP_TEST_CHILD"

// child runs a center until it is killed.
func child() int {
	slog.SetLogLoggerLevel(slog.LevelWarn)
	cfg, err := configs.Load(os.Getenv(childEnv), nil)
	if err == nil {
		var a *app.App
		if a, err = app.New(cfg, app.WithReady(func(addr string) { fmt.Println("ready", addr) })); err == nil {
			err = a.Run(context.Background())
		}
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

func childCommand(config string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+config)
	cmd.Stderr = os.Stderr
	return cmd
}

// startChild starts a center in a process of its own and waits until it works.
func startChild(t *testing.T, config string) *exec.Cmd {
	t.Helper()
	cmd, _ := startChildAt(t, config)
	return cmd
}

// startChildAt returns its address, too.
func startChildAt(t *testing.T, config string) (cmd *exec.Cmd, addr string) {
	t.Helper()
	cmd = childCommand(config)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = fmt.Fscanf(out, "ready %s\n", &addr)
	require.NoError(t, err, "the center did not start")
	return cmd, addr
}

// webhookSink counts the calls of each task.
type webhookSink struct {
	*httptest.Server
	mu    sync.Mutex
	calls map[string]int
	takes time.Duration

	arrived chan struct{} // rung at each call
}

func newWebhookSink(t *testing.T) *webhookSink {
	s := &webhookSink{calls: map[string]int{}, arrived: make(chan struct{}, 1)}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			JobID string `json:"job_id"`
		}
		if json.NewDecoder(r.Body).Decode(&body) != nil || body.JobID != r.Header.Get("webhook-id") {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		s.mu.Lock()
		s.calls[body.JobID]++
		s.mu.Unlock()
		select {
		case s.arrived <- struct{}{}:
		default:
		}
		time.Sleep(s.takes) // real time: the work of the receiver, which a kill may cut anywhere
	}))
	t.Cleanup(s.Close)
	return s
}

// called returns of how many tasks a call has come.
func (s *webhookSink) called() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.calls)
}

// The process is killed in the middle of firing and started again, and its claims stay behind in Redis: every task ends processed.
func TestNothingIsLostWhenTheProcessIsKilled(t *testing.T) {
	t.Parallel()
	r := testrig.StartRedis(t)
	cfg := fewSlots(t, r.Addr())
	sink := newWebhookSink(t)
	sink.takes = time.Millisecond
	cfg.BizTypes[0].Processor = configs.ProcessorWebhook
	cfg.BizTypes[0].Webhook.URL = sink.URL
	cfg.BizTypes[0].Backoff.Max = 2 * time.Second // bounds how far claims that were rolled back part
	file := filepath.Join(t.TempDir(), "toc.yaml")
	require.NoError(t, os.WriteFile(file, []byte(cfg.String()), 0o600))

	const n, kills = 1000, 2 // a third one might cut a task short for the third time: it would be taken for the cause, and die
	due := submitBefore(t, cfg, n, 2*time.Second)
	for range kills {
		cmd := startChild(t, file)
		// Many are due, or run, or are called and not yet recorded.
		moment := sink.called() + 100 + rand.IntN(50)
		await.That(t, func() bool { return sink.called() >= moment }, "%d tasks have run", moment)
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait()
	}
	cmd := startChild(t, file)
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()

	awaitRows(t, cfg, task.Processed, n)
	awaitInSlots(t, cfg, redisClient(t, r.Addr()), 0) // what is over is out of Redis
	sink.mu.Lock()
	defer sink.mu.Unlock()
	for id := range due {
		require.NotZero(t, sink.calls[id], "task %s was recorded but never ran", id)
	}
}

// submitBefore stores tasks that are due over a span from now, through a center
// that is stopped again.
func submitBefore(t *testing.T, cfg configs.Config, n int, span time.Duration) map[string]time.Time {
	t.Helper()
	c := run(t, cfg)
	requests := make([]api.Submit, n)
	start := time.Now().Add(time.Second)
	for i := range requests {
		requests[i] = api.Submit{BizType: "order_close", BizID: rand.Uint64(),
			ActionTime: start.Add(time.Duration(rand.Int64N(int64(span))))}
	}
	due := make(map[string]time.Time, n)
	for id, at := range submitted(t, c, requests) {
		due[fmt.Sprint(id)] = at
	}
	require.NoError(t, c.stop())
	return due
}

// countStatus counts rows by plain SQL.
func countStatus(t testing.TB, cfg configs.Config, status task.Status) int {
	t.Helper()
	total := 0
	eachTable(t, cfg, func(db querier, table string) {
		var n int
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+table+" WHERE status = ?", int(status)).Scan(&n))
		total += n
	})
	return total
}
