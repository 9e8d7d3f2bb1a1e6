package app_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/task"
)

// A task whose run ends the process each time is dead after max_retries; the 50
// that are due beside it part from it and are processed. Few retries part them
// little: on a loaded machine some of them may be claimed beside it each time.
func TestTaskThatEndsTheProcessDies(t *testing.T) {
	t.Parallel()
	cfg := onRedis(embedded(t), testrig.StartRedis(t).Addr())
	b := &cfg.BizTypes[0]
	b.Processor, b.MaxRetries = "poison", 3
	b.Workers = 4 // most of the neighbours wait for their turn when the process ends
	file := filepath.Join(t.TempDir(), "toc.yaml")
	require.NoError(t, os.WriteFile(file, []byte(cfg.String()), 0o600))

	const neighbours = 50
	c := run(t, cfg, app.WithProcessor("poison", newLedger()))
	requests := make([]intake.Submit, neighbours+1)
	at := time.Now().Add(2 * time.Second)
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

	over := func() bool {
		return countStatus(t, cfg, task.Pending) == 0
	}
	ends, ended := 0, make(chan struct{})
	for deadline := time.After(90 * time.Second); !over(); {
		cmd := childCommand(file)
		require.NoError(t, cmd.Start()) // it may end before it is ready
		ended = make(chan struct{})
		go func() { _ = cmd.Wait(); close(ended) }()
		check := time.NewTicker(200 * time.Millisecond)
		for running := true; running; {
			select {
			case <-ended:
				ends++
				running = false
			case <-check.C:
				if over() {
					_ = cmd.Process.Kill()
					<-ended
					running = false
				}
			case <-deadline:
				_ = cmd.Process.Kill()
				<-ended
				require.Failf(t, "not over", "%d processed, %d dead, the process ended %d times",
					countStatus(t, cfg, task.Processed), countStatus(t, cfg, task.Dead), ends)
			}
		}
		check.Stop()
	}
	require.Equal(t, b.MaxRetries+1, ends, "max_retries more runs than the first")
	processed, dead := countStatus(t, cfg, task.Processed), countStatus(t, cfg, task.Dead)
	require.Equal(t, neighbours+1, processed+dead)
	require.GreaterOrEqual(t, processed, neighbours*8/10, "neighbours died beside it")
	require.Equal(t, 1, countTask(t, cfg, poisonous, task.Dead), "it is not dead")
	t.Logf("the process ended %d times; %d of %d neighbours processed", ends, processed, neighbours)
}

// countTask is 1 if a task has this status, else 0.
func countTask(t *testing.T, cfg configs.Config, jobID uint64, status task.Status) (n int) {
	t.Helper()
	eachTable(t, cfg, func(db querier, table string) {
		var here int
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+table+" WHERE job_id = ? AND status = ?",
			jobID, int(status)).Scan(&here))
		n += here
	})
	return n
}
