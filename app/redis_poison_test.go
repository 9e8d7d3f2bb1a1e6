package app_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/task"
)

// A task whose run ends the process each time is dead after max_retries; the 50
// that are due beside it are processed.
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
	for _, s := range c.Desk().SubmitBatch(t.Context(), requests) {
		require.NoError(t, s.Err)
	}
	require.NoError(t, c.stop())

	over := func() bool {
		return countStatus(t, cfg, task.Processed) == neighbours && countStatus(t, cfg, task.Dead) == 1
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
	t.Logf("the process ended %d times; %d neighbours processed", ends, neighbours)
}
