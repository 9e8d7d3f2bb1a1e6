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
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/intake"
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
		opts := []app.Option{app.WithReady(func(addr string) { fmt.Println("ready", addr) })}
		if slices.ContainsFunc(cfg.BizTypes, func(b configs.BizType) bool { return b.Processor == "poison" }) {
			opts = append(opts, app.WithProcessor("poison", processorFunc(endOfProcess)))
		}
		if a, err = app.New(cfg, opts...); err == nil {
			err = a.Run(context.Background())
		}
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// poison is the attribute of a task whose run ends the child.
const poison = "poison"

func endOfProcess(_ context.Context, t task.Task) error {
	if t.Attribute == poison {
		os.Exit(1)
	}
	return nil
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
	last  time.Time // when the last call came
	takes time.Duration

	arrived chan struct{} // rung at each call
	holds   func() bool   // first calls that come now wait for free, every second of them; nil: none does
	held    int
	free    chan struct{}
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
		s.last = time.Now()
		free := make(chan struct{})
		close(free)
		if s.holds != nil && s.calls[body.JobID] == 1 && s.holds() {
			if s.held++; s.held%2 == 1 {
				free = s.free
			}
		}
		s.mu.Unlock()
		select {
		case s.arrived <- struct{}{}:
		default:
		}
		time.Sleep(s.takes) // real time: the work of the receiver, which a kill may cut anywhere
		<-free
	}))
	t.Cleanup(s.Close)
	return s
}

// killInTheMiddle kills a process when of tasks tasks a call has come, with runs in hand: of the last calls every second one
// has no answer, and the outcomes of the others are being recorded. It is the first call of its task: one that is cut short
// again and again would be taken for the cause, and dead in the end.
func (s *webhookSink) killInTheMiddle(t *testing.T, cmd *exec.Cmd, tasks int) {
	t.Helper()
	s.killWhen(t, cmd, func() int { return len(s.calls) }, tasks, 20)
}

// killWhen is killInTheMiddle for another number, and so many last calls. count is called under mu.
func (s *webhookSink) killWhen(t *testing.T, cmd *exec.Cmd, count func() int, n, last int) {
	t.Helper()
	s.mu.Lock()
	s.holds, s.held, s.free = func() bool { return count() > n-last }, 0, make(chan struct{})
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.holds = nil
		close(s.free)
	}()
	await.That(t, func() bool { s.mu.Lock(); defer s.mu.Unlock(); return count() >= n }, "%d calls have come", n)
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
}

// called returns of how many tasks a call has come.
func (s *webhookSink) called() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.calls)
}

// The process is killed in the middle of firing and started again, many times:
// every task ends processed.
func TestNothingIsLostWhenTheProcessIsKilled(t *testing.T) {
	onSQLite(t, func(t *testing.T, cfg configs.Config) {
		sink := newWebhookSink(t)
		sink.takes = time.Millisecond
		cfg.BizTypes[0].Processor = configs.ProcessorWebhook
		cfg.BizTypes[0].Webhook.URL = sink.URL
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
		sink.mu.Lock()
		defer sink.mu.Unlock()
		twice := 0
		for id := range due {
			require.NotZero(t, sink.calls[id], "task %s was recorded but never ran", id)
			if sink.calls[id] > 1 {
				twice++
			}
		}
		t.Logf("%d kills: %d tasks, lost 0, ran twice %d", kills, n, twice)
	})
}

// submitBefore stores tasks that are due over a span from now, through a center
// that is stopped again.
func submitBefore(t *testing.T, cfg configs.Config, n int, span time.Duration) map[string]time.Time {
	t.Helper()
	c := run(t, cfg)
	requests := make([]intake.Submit, n)
	start := time.Now().Add(time.Second)
	for i := range requests {
		requests[i] = intake.Submit{BizType: "order_close", BizID: rand.Uint64(),
			When: intake.At(start.Add(time.Duration(rand.Int64N(int64(span)))))}
	}
	due := make(map[string]time.Time, n)
	for _, s := range c.Desk().SubmitBatch(context.Background(), requests) {
		require.NoError(t, s.Err)
		due[fmt.Sprint(s.Task.JobID)] = s.Task.ActionTime
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
