package metrics_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app/metrics"
	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/task"
	"github.com/timeoutcenter/toc/worker"
)

// What is counted belongs to the minute of the next tick, and is forgotten after an hour.
func TestRecent(t *testing.T) {
	m := metrics.New()
	b, c := task.BizType{ID: 1, Name: "a"}, task.BizType{ID: 2, Name: "b"}
	begin := time.Date(2026, 1, 2, 15, 4, 30, 0, time.UTC)
	m.Submitted(b, 7)
	m.Submitted(c, 3)
	m.Started(b, queue.Lateness{Wait: 4 * time.Millisecond})
	m.Started(c, queue.Lateness{Find: 5 * time.Millisecond})
	m.Started(c, queue.Lateness{Find: 2 * time.Hour})
	m.Finished(b, worker.Processed, time.Millisecond, 0)
	m.Finished(b, worker.Failed, time.Millisecond, 0)
	m.Finished(c, worker.Dead, time.Millisecond, 0)
	m.Recent().Tick(begin)
	m.Submitted(b, 1)
	m.Recent().Tick(begin.Add(20 * time.Second))
	m.Submitted(b, 5)
	m.Recent().Tick(begin.Add(40 * time.Second))

	list := m.Recent().Minutes()
	require.Len(t, list, 2)
	require.Equal(t, time.Date(2026, 1, 2, 15, 4, 0, 0, time.UTC), list[0].At)
	require.Equal(t, []int{11, 3, 2}, []int{list[0].Submitted, list[0].Runs, list[0].Failed})
	require.Len(t, list[0].Late, 3)
	require.Equal(t, 1, list[0].Late[.005], "4 ms is below 5 ms")
	require.Equal(t, 1, list[0].Late[.007], "5 ms is not")
	require.Equal(t, 5, list[1].Submitted)

	m.Recent().Tick(begin.Add(61 * time.Minute))
	list = m.Recent().Minutes()
	require.Len(t, list, 2, "the first minute is more than an hour ago")
	require.Equal(t, 5, list[0].Submitted)
}

// The counts of one business type; what has not run has no histograms.
func TestOfType(t *testing.T) {
	m := metrics.New()
	b := task.BizType{ID: 1, Name: "a", Mode: task.ModeScan}
	types, err := task.NewTypes(b)
	require.NoError(t, err)
	m.SetTypes(types)
	m.Submitted(b, 2)
	got := m.OfType(b)
	require.InDelta(t, 2, got.Submitted, 0)
	require.Zero(t, got.Late.Count)
	require.NotContains(t, scrape(t, m), "toc_lateness_seconds_count")
	m.Started(b, queue.Lateness{Find: time.Second, Wait: 3 * time.Second})
	m.Finished(b, worker.Processed, time.Second, 0)
	got = m.OfType(b)
	require.InDelta(t, 1, got.Runs[worker.Processed], 0)
	require.Equal(t, uint64(1), got.Late.Count)
	require.InDelta(t, 4, got.Late.Sum, 1e-9)
	require.Equal(t, []string{"find", "check", "wait", "start"}, metrics.LatenessParts())
	require.InDelta(t, 3, got.Parts[2].Sum, 1e-9)
	require.Len(t, got.Late.Below, len(got.Late.Bounds))
	require.Equal(t, uint64(1), got.Late.Below[len(got.Late.Below)-1])
}
