package app_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/task"
)

// slowly gives each answer of a handler after a pause.
func slowly(h http.Handler, pause time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r)
		<-time.After(pause)
	})
}

// The process is killed in the middle of firing and started again, 20 times, and
// its claims stay behind in Redis: every task ends processed.
func TestNothingIsLostWhenTheProcessIsKilledWithClaims(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		run time.Duration // how long a task runs
		die func(kill func(), r *testrig.PrivateRedis)
		// mayRunTwice: a kill cuts runs.
		mayRunTwice bool
	}{
		"between claim and store": {
			run:         50 * time.Millisecond,
			die:         func(kill func(), _ *testrig.PrivateRedis) { kill() },
			mayRunTwice: true,
		},
		"between store and settle": {
			run: time.Millisecond,
			die: func(kill func(), r *testrig.PrivateRedis) {
				r.Freeze()
				<-time.After(300 * time.Millisecond) // outcomes are stored, and nobody hears of it
				kill()
				r.Thaw()
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := testrig.StartRedis(t)
			cfg := onRedis(embedded(t), r.Addr())
			sink := newWebhookSink(t)
			sink.Config.Handler = slowly(sink.Config.Handler, c.run)
			cfg.BizTypes[0].Processor = configs.ProcessorWebhook
			cfg.BizTypes[0].Webhook.URL = sink.URL
			cfg.BizTypes[0].Backoff.Max = 2 * time.Second // bounds how far claims that were rolled back part
			file := filepath.Join(t.TempDir(), "toc.yaml")
			require.NoError(t, os.WriteFile(file, []byte(cfg.String()), 0o600))

			const kills, n = 10, 2000
			due := submitBefore(t, cfg, n, 8*time.Second)
			for range kills {
				cmd := startChild(t, file)
				<-time.After(time.Duration(100+rand.IntN(400)) * time.Millisecond) // the moment of the crash, not a wait for anything
				c.die(func() {
					require.NoError(t, cmd.Process.Kill())
					_ = cmd.Wait()
				}, r)
			}
			cmd := startChild(t, file)
			defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()

			started := time.Now()
			require.Eventually(t, func() bool { return countStatus(t, cfg, task.Processed) == n }, 60*time.Second, 250*time.Millisecond,
				"tasks stayed behind")
			claims := func() (left int64) {
				client := redisClient(t, r.Addr())
				for p := range cfg.Cluster.Partitions {
					left += client.ZCard(t.Context(), fmt.Sprintf("prepare_{order_close_%d}", p)).Val()
					left += client.ZCard(t.Context(), fmt.Sprintf("order_close_%d", p)).Val()
				}
				return left
			}
			require.Eventually(t, func() bool { return claims() == 0 }, 30*time.Second, 250*time.Millisecond, "claims stayed in Redis")
			sink.mu.Lock()
			defer sink.mu.Unlock()
			twice := 0
			for id := range due {
				require.NotZero(t, sink.calls[id], "task %s was recorded but never ran", id)
				if sink.calls[id] > 1 {
					twice++
				}
			}
			if !c.mayRunTwice {
				// Only what ran or waited for its commit at the very moment of a kill.
				require.LessOrEqual(t, twice, kills*cfg.BizTypes[0].Workers)
			}
			t.Logf("%d kills: %d tasks, lost 0, ran twice %d, all over %s after the last start",
				kills, n, twice, time.Since(started).Round(time.Millisecond))
		})
	}
}

var _ = context.Background
