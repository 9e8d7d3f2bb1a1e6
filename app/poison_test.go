package app_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/task"
)

// onBothEngines runs a test in mode scan and in mode redis.
func onBothEngines(t *testing.T, test func(t *testing.T, cfg configs.Config)) {
	t.Run("scan", func(t *testing.T) { t.Parallel(); test(t, fewTables(t)) })
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		test(t, fewSlots(t, testrig.StartRedis(t).Addr()))
	})
	t.Run("scan, on MariaDB", func(t *testing.T) {
		t.Parallel()
		testrig.OnlyInAll(t, "scan")
		test(t, onMySQL(t, fewTables(t)).WithDefaults())
	})
}

func writeConfig(t *testing.T, cfg configs.Config) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "toc.yaml")
	require.NoError(t, os.WriteFile(file, []byte(cfg.String()), 0o600))
	return file
}

// A task whose run ends the process does so three times, whatever max_retries is,
// and is dead then; those that are due beside it are processed. Before, in mode
// scan the process ended at each start, and in mode redis neighbours died.
func TestATaskThatEndsTheProcessDies(t *testing.T) {
	t.Parallel()
	onBothEngines(t, func(t *testing.T, cfg configs.Config) {
		b := &cfg.BizTypes[0]
		b.Processor, b.MaxRetries = "poison", 2
		b.Workers = 4 // most of the neighbours wait for their turn when the process ends

		const neighbours = 50
		c := run(t, cfg, app.WithProcessor("poison", newLedger()))
		requests := make([]intake.Submit, neighbours+1)
		at := time.Now().Add(3 * time.Second)
		for i := range requests {
			requests[i] = intake.Submit{BizType: "order_close", BizID: uint64(i), When: intake.At(at)}
		}
		requests[neighbours/2].Attribute = poison
		var poisonous uint64
		for i, s := range c.Desk().SubmitBatch(t.Context(), requests) {
			require.NoError(t, s.Err)
			if requests[i].Attribute == poison {
				poisonous = s.Task.JobID
			}
		}
		require.NoError(t, c.stop())

		file := writeConfig(t, cfg)
		ends := 0
		deadline := time.Now().Add(3 * await.Patience)
		for countStatus(t, cfg, task.Pending) > 0 {
			require.Truef(t, time.Now().Before(deadline), "not over: %d processed, %d dead, the process ended %d times",
				countStatus(t, cfg, task.Processed), countStatus(t, cfg, task.Dead), ends)
			if endsItself(t, cfg, file, deadline) {
				ends++
			}
		}
		require.Equal(t, 3, ends)
		require.Equal(t, neighbours, countStatus(t, cfg, task.Processed))
		eachTable(t, cfg, func(db querier, table string) {
			var text string
			var attempts int
			row := db.QueryRowContext(t.Context(), "SELECT last_error, attempts FROM "+table+" WHERE status = 4 AND job_id = ?", poisonous)
			if row.Scan(&text, &attempts) == nil {
				require.Equal(t, "started 3 times without an end: its run may end the process", text)
				require.Zero(t, attempts)
				ends++
			}
		})
		require.Equal(t, 4, ends, "the task is dead")
	})
}

// all counts the calls of all tasks.
func (s *webhookSink) all() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sum()
}

func (s *webhookSink) sum() (sum int) {
	for _, n := range s.calls {
		sum += n
	}
	return sum
}

// endsItself starts a center and reports whether it ended before no task was pending any more.
func endsItself(t *testing.T, cfg configs.Config, file string, deadline time.Time) bool {
	t.Helper()
	cmd := childCommand(file)
	require.NoError(t, cmd.Start()) // it may end before it is ready
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	check := time.NewTicker(200 * time.Millisecond)
	defer check.Stop()
	for {
		select {
		case <-ended:
			return true
		case <-check.C:
			if countStatus(t, cfg, task.Pending) == 0 || time.Now().After(deadline) {
				_ = cmd.Process.Kill()
				<-ended
				return false
			}
		}
	}
}

// The process is killed four times while a crowd of overdue tasks waits for two
// workers. Nothing dies that never ran. Before, in mode redis 254 of 300 were
// dead then, although 51 had ever been started.
func TestNothingDiesOfSomebodyElsesKill(t *testing.T) {
	t.Parallel()
	onBothEngines(t, func(t *testing.T, cfg configs.Config) {
		if cfg.BizTypes[0].Mode != configs.ModeRedis {
			testrig.OnlyInAll(t, "redis, and TestATaskThatEndsTheProcessDies")
		}
		sink := newWebhookSink(t)
		b := &cfg.BizTypes[0]
		b.Processor, b.Webhook.URL, b.MaxRetries, b.Workers = configs.ProcessorWebhook, sink.URL, 0, 2
		const n = 100
		c := run(t, cfg)
		requests := make([]intake.Submit, n)
		at := time.Now().Add(2 * time.Second)
		for i := range requests {
			requests[i] = intake.Submit{BizType: "order_close", BizID: uint64(i), When: intake.At(at)}
		}
		for _, s := range c.Desk().SubmitBatch(t.Context(), requests) {
			require.NoError(t, s.Err)
		}
		require.NoError(t, c.stop())

		file := writeConfig(t, cfg)
		for range 4 {
			before := sink.all()
			sink.killWhen(t, startChild(t, file), sink.sum, before+4, 2) // of this process
		}
		b.Workers = 64
		cmd := startChild(t, writeConfig(t, cfg))
		defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
		awaitRows(t, cfg, task.Pending, 0)
		var dead []uint64
		eachTable(t, cfg, func(db querier, table string) {
			var id uint64
			for db.QueryRowContext(t.Context(), "SELECT job_id FROM "+table+" WHERE status = 4 AND job_id > ? ORDER BY job_id LIMIT 1", id).Scan(&id) == nil {
				dead = append(dead, id)
			}
		})
		sink.mu.Lock()
		defer sink.mu.Unlock()
		for _, id := range dead { // of three starts some may have gone unseen: the process was killed before the call came
			require.GreaterOrEqual(t, sink.calls[fmt.Sprint(id)], 1, "task %d is dead", id)
		}
		require.LessOrEqual(t, len(dead), 2, "as many as the process that was killed last but one could run at once")
	})
}
