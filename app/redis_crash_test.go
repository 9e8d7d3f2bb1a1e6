package app_test

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/task"
)

// awaitRecorded waits until no call has come for a while, from now on, and the
// outcomes of all that came are in the store.
func (s *webhookSink) awaitRecorded(t *testing.T, cfg configs.Config) {
	t.Helper()
	began := time.Now() // what is claimed by now starts within 200 ms
	await.That(t, func() bool {
		s.mu.Lock()
		quiet := time.Since(s.last) > 400*time.Millisecond && time.Since(began) > time.Second
		s.mu.Unlock()
		return quiet && countStatus(t, cfg, task.Processed) == s.called()
	}, "runs go on")
}

// The process is killed in the middle of firing and started again, several
// times at each point, and its claims stay behind in Redis: every task ends processed.
func TestNothingIsLostWhenTheProcessIsKilledWithClaims(t *testing.T) {
	t.Parallel()
	inTheMiddle := func(t *testing.T, _ configs.Config, cmd *exec.Cmd, some int, sink *webhookSink, _ *testrig.PrivateRedis) {
		sink.killInTheMiddle(t, cmd, some)
	}
	for name, c := range map[string]struct {
		store func(t testing.TB, cfg configs.Config) configs.Config                                                       // nil: SQLite
		die   func(t *testing.T, cfg configs.Config, cmd *exec.Cmd, some int, sink *webhookSink, r *testrig.PrivateRedis) // after calls of some tasks
		kills int
		twice int // tasks that may run twice, for each kill
	}{
		"between claim and store": {
			die:   inTheMiddle,
			kills: 2,
			twice: 128, // those whose runs it cuts, one a worker, or whose outcomes wait for their commit
		},
		"between claim and store, on MariaDB": {
			store: onMySQL,
			die:   inTheMiddle,
			kills: 3, // each next start waits until the lease of the one before is over
			twice: 128,
		},
		"between store and settle": {
			die: func(t *testing.T, cfg configs.Config, cmd *exec.Cmd, some int, sink *webhookSink, r *testrig.PrivateRedis) {
				await.That(t, func() bool { return sink.called() >= some }, "%d tasks have run", some)
				r.Freeze() // what is claimed runs and is stored, and Redis never hears of it
				sink.awaitRecorded(t, cfg)
				require.NoError(t, cmd.Process.Kill())
				_ = cmd.Wait()
				r.Thaw()
			},
			kills: 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.store != nil {
				testrig.OnlyInAll(t, "between claim and store")
			}
			r := testrig.StartRedis(t)
			cfg := fewSlots(t, r.Addr())
			if c.store != nil {
				cfg = c.store(t, cfg).WithDefaults()
			}
			sink := newWebhookSink(t)
			cfg.BizTypes[0].Processor = configs.ProcessorWebhook
			cfg.BizTypes[0].Webhook.URL = sink.URL
			cfg.BizTypes[0].Backoff.Max = 2 * time.Second // bounds how far claims that were rolled back part
			file := filepath.Join(t.TempDir(), "toc.yaml")
			require.NoError(t, os.WriteFile(file, []byte(cfg.String()), 0o600))

			const n = 1000
			due := submitBefore(t, cfg, n, 5*time.Second)
			may := c.kills * c.twice // run twice
			for range c.kills {
				cmd := startChild(t, file)
				some := min(n, sink.called()+1+rand.IntN(100))
				c.die(t, cfg, cmd, some, sink, r)
				if c.twice == 0 { // while Redis is away the scanner may have found some more at the last moment
					may += sink.called() - countStatus(t, cfg, task.Processed)
				}
			}
			cmd := startChild(t, file)
			defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()

			started := time.Now()
			awaitRows(t, cfg, task.Processed, n)
			took := time.Since(started).Round(time.Millisecond)
			awaitInSlots(t, cfg, redisClient(t, r.Addr()), 0) // what is over is out of Redis
			sink.mu.Lock()
			defer sink.mu.Unlock()
			twice := 0
			for id := range due {
				require.NotZero(t, sink.calls[id], "task %s was recorded but never ran", id)
				if sink.calls[id] > 1 {
					twice++
				}
			}
			require.LessOrEqual(t, twice, may)
			t.Logf("%d kills: %d tasks, lost 0, ran twice %d of at most %d, all over %s after the last start", c.kills, n, twice, may, took)
		})
	}
}
