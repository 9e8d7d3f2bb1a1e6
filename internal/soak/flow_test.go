package soak_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/internal/testrig/audit"
	"github.com/timeoutcenter/toc/internal/testrig/traffic"
	"github.com/timeoutcenter/toc/queue/limits"
)

// Flow control on three nodes, each a process of its own. Use -benchtime=1x.
func BenchmarkFlow(b *testing.B) {
	b.Run("pause", benchPause)
	b.Run("rate_limit", benchRateLimit)
	b.Run("max_running", benchMaxRunning)
}

// benchPause pauses one of two types, of 500 tasks a second each, for a while, and resumes it with catch_up 1,000.
func benchPause(b *testing.B) {
	const phase, catchUp = 20 * time.Second, 1000
	held := typeOf(1, "held")
	held.CatchUp = catchUp
	f := operated(b, 3, held, typeOf(2, "other"))
	f.startAll()
	f.awaitWhole()
	var submits sync.WaitGroup
	stop := make(chan struct{})
	f.submitEach(&submits, stop, 500, "held", "other")
	time.Sleep(5 * time.Second)
	began := time.Now()
	time.Sleep(phase)
	asked := time.Now()
	_, err := f.nodes[0].api().Pause(b.Context(), "held", client.Pause{})
	require.NoError(b, err)
	answered := time.Now()
	time.Sleep(2 * phase)
	resumed := time.Now()
	_, err = f.nodes[1].api().Resume(b.Context(), "held")
	require.NoError(b, err)
	time.Sleep(2 * phase)
	close(stop)
	submits.Wait()
	time.Sleep(3 * time.Second)
	f.stopAll()

	runs, others := f.runsOf(quick("held")), f.runsOf(quick("other"))
	var last time.Duration
	var backlog []audit.Span
	for _, s := range runs {
		if at := time.Unix(0, s.From); at.After(asked) && at.Before(resumed) {
			last = max(last, at.Sub(answered))
		}
		if s.Late() > limits.LateAfter {
			backlog = append(backlog, s)
		}
	}
	n := len(backlog)
	require.Greater(b, n, 10_000)
	middle := time.Duration(backlog[n*9/10].From - backlog[n/10].From)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(audit.Round(last).Seconds()*1000, "ms-last-start-after-answer")
	b.ReportMetric(p99(others, began, asked).Seconds()*1000, "ms-other-p99-before")
	b.ReportMetric(p99(others, answered, resumed).Seconds()*1000, "ms-other-p99-paused")
	b.ReportMetric(p99(others, resumed, resumed.Add(phase)).Seconds()*1000, "ms-other-p99-resumed")
	b.ReportMetric(float64(n*8/10)/middle.Seconds(), "backlog/s")
}

// benchRateLimit has 35,000 tasks due at once, 500 of which may start each second, and kills a node.
func benchRateLimit(b *testing.B) {
	const n, rate = 35_000, 500
	held := typeOf(1, "held")
	held.RateLimit = rate
	f := operated(b, 3, held)
	due := time.Now().Add(time.Minute).UTC()
	f.fill(n, "1, '"+due.Format("2006-01-02 15:04:05.000")+"', 0, 0, '', '"+quick("held")+"'")
	f.startAll()
	f.awaitWhole()
	time.Sleep(time.Until(due.Add(15 * time.Second)))
	f.nodes[1].kill()
	killed := time.Now()
	time.Sleep(30 * time.Second)
	over := time.Now()
	for _, n := range []int{0, 2} {
		f.nodes[n].kill()
	}
	runs := f.runsOf(quick("held"))
	least, most := anyTen(runs, due.Add(time.Second), killed)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(least, "least/s-before")
	b.ReportMetric(most, "most/s-before")
	least, most = anyTen(runs, killed.Add(-10*time.Second), over)
	b.ReportMetric(least, "least/s-with-kill")
	b.ReportMetric(most, "most/s-with-kill")
}

// benchMaxRunning has runs of 100 ms, 20 of which may be under way, and kills a node, which comes back.
func benchMaxRunning(b *testing.B) {
	const most = 20
	attribute := traffic.SteadyPrefix + "100ms"
	few := typeOf(1, "held")
	few.MaxRunning = most
	f := operated(b, 3, few)
	f.fill(20_000, "1, UTC_TIMESTAMP(3), 0, 0, '', '"+attribute+"'")
	f.startAll()
	f.awaitWhole()
	time.Sleep(15 * time.Second)
	f.nodes[2].kill()
	time.Sleep(20 * time.Second)
	f.nodes[2].start()
	time.Sleep(20 * time.Second)
	f.nodes[0].stop()
	time.Sleep(5 * time.Second)
	for _, n := range []int{1, 2} {
		f.nodes[n].kill()
	}
	runs := f.runsOf(attribute)
	first, last := runs[0].From, runs[len(runs)-1].From
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(atATime(runs)), "at-a-time")
	b.ReportMetric(float64(len(runs))/time.Duration(last-first).Seconds(), "runs/s")
	whole := slices.DeleteFunc(slices.Clone(runs), func(s audit.Span) bool { return time.Duration(s.From-first) > 10*time.Second })
	b.ReportMetric(float64(len(whole))/10, "runs/s-three-nodes")
	require.LessOrEqual(b, atATime(runs), most)
}
