package app_test

import (
	"context"
	"log/slog"
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

// blockingHandler is a slog.Handler whose Handle does not return before the end of the test.
type blockingHandler struct{ gate chan struct{} }

func (blockingHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h blockingHandler) Handle(context.Context, slog.Record) error {
	<-h.gate
	return nil
}
func (h blockingHandler) WithAttrs([]slog.Attr) slog.Handler { return h }
func (h blockingHandler) WithGroup(string) slog.Handler      { return h }

// The log handler of a program that embeds the center blocks for ever. Submits, firing, failed runs, the hand-over of
// partitions and the stop work without it.
func TestALogHandlerThatBlocksHoldsUpNothing(t *testing.T) {
	t.Parallel()
	consul := testrig.Consul(t)
	cfg := inPatientCluster(t, consul.Addr(), consul.Prefix())
	failing := cfg.BizTypes[0]
	failing.ID, failing.Name, failing.Mode, failing.Processor, failing.MaxRetries = 2, "failing", configs.ModeScan, configs.ProcessorWebhook, 0
	failing.Webhook.URL = "http://127.0.0.1:1/"
	cfg.BizTypes = append(cfg.BizTypes, failing)
	fired, gate := newLedger(), make(chan struct{})
	t.Cleanup(func() { close(gate) })
	nodes := runNodes(t, cfg, 2, app.WithProcessor("ledger", fired), app.WithLogger(slog.New(blockingHandler{gate})))
	due := map[uint64]time.Time{}
	submit := func(c *center) {
		for bizID := range uint64(16) { // of all partitions
			s, err := c.Desk().Submit(t.Context(), intake.Submit{BizType: "order_close", BizID: bizID, When: intake.In(0)})
			require.NoError(t, err)
			due[s.Task.JobID] = s.Task.ActionTime
		}
		fired.awaitAll(t, due)
	}
	submit(nodes[0])
	s, err := nodes[1].Desk().Submit(t.Context(), intake.Submit{BizType: "failing", BizID: 1, When: intake.In(0)})
	require.NoError(t, err)
	await.That(t, func() bool {
		row, err := nodes[1].Desk().Get(t.Context(), s.Task.JobID)
		return err == nil && row.Status == task.Dead
	}, "the failed run is recorded")
	require.NoError(t, nodes[0].stop())
	awaitShares(t, nodes[1:])
	submit(nodes[1])
	require.NoError(t, nodes[1].stop())
	_, twice := fired.lateness(t, due)
	require.Zero(t, twice)
}
