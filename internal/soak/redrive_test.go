package soak_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/internal/testrig/audit"
)

// What becomes of many dead tasks, on three nodes, each a process of its own. Use -benchtime=1x.
func BenchmarkDead(b *testing.B) {
	b.Run("redrive", benchRedrive)
	b.Run("undo", benchUndo)
}

const theDead = "1, UTC_TIMESTAMP(3)-INTERVAL 1 HOUR, 4, 5, 'the shop is down', '"

// benchRedrive redrives 100,000 dead at 1,000 a second, and kills the node that runs the operation in the middle.
func benchRedrive(b *testing.B) {
	const rate = 1000
	f := operated(b, 3, typeOf(1, "held"))
	f.fill(100_000, theDead+quick("held")+"'")
	dead := f.count("status=4")
	f.startAll()
	f.awaitWhole()
	began := time.Now()
	got, err := f.anyAPI().RedriveDead(b.Context(), client.RedriveDead{BizType: "held", Rate: rate})
	require.NoError(b, err)
	require.Equal(b, dead, got.Matched)
	time.Sleep(50 * time.Second)
	owner := f.ownerOfFirst()
	before, err := f.anyAPI().Operation(b.Context(), uint64(got.Operation))
	require.NoError(b, err)
	b.ReportMetric(float64(before.Done)/time.Since(began).Seconds(), "redriven/s")
	owner.kill()
	o := f.awaitOperation(uint64(got.Operation))
	took := time.Since(began)
	f.awaitRuns(quick("held"), dead, time.Minute)
	f.awaitDone(time.Minute)
	f.stopAll()
	starts, ended := map[uint64]int{}, map[uint64]int{}
	for _, s := range f.runsOf(quick("held")) {
		starts[s.Key]++
		if s.End == audit.EndOK {
			ended[s.Key]++
		}
	}
	twice, redone := 0, 0
	for id, k := range starts {
		if k > 1 {
			twice++
		}
		if ended[id] > 1 {
			redone++
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(dead), "dead")
	b.ReportMetric(float64(o.Done), "done")
	b.ReportMetric(float64(o.Skipped), "skipped")
	b.ReportMetric(float64(f.count("status=2")), "processed")
	b.ReportMetric(float64(twice), "started-twice")
	b.ReportMetric(float64(redone), "ended-twice")
	b.ReportMetric(took.Seconds(), "s")
	require.Equal(b, []int{dead, dead, 0}, []int{o.Matched, o.Done, o.Skipped})
	require.Len(b, starts, dead)
}

// benchUndo stops a redrive of a paused type half way, and takes it back.
func benchUndo(b *testing.B) {
	f := operated(b, 3, typeOf(1, "held"))
	f.fill(20_000, theDead+quick("held")+"'")
	dead := f.count("status=4")
	f.startAll()
	f.awaitWhole()
	_, err := f.anyAPI().Pause(b.Context(), "held", client.Pause{})
	require.NoError(b, err)
	time.Sleep(3 * time.Second) // the pause is in force on all nodes
	got, err := f.anyAPI().RedriveDead(b.Context(), client.RedriveDead{BizType: "held", Rate: 2000})
	require.NoError(b, err)
	time.Sleep(5 * time.Second)
	stopped, err := f.anyAPI().StopOperation(b.Context(), uint64(got.Operation))
	require.NoError(b, err)
	require.Equal(b, stopped.Done, f.count("status=0"), "what it claims")
	require.Equal(b, dead-stopped.Done, f.count("status=4"))
	began := time.Now()
	undo, err := f.anyAPI().UndoOperation(b.Context(), uint64(got.Operation))
	require.NoError(b, err)
	o := f.awaitOperation(uint64(undo.ID))
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(stopped.Done), "redriven")
	b.ReportMetric(float64(o.Done), "undone")
	b.ReportMetric(float64(o.Skipped), "skipped")
	b.ReportMetric(float64(o.Done)/time.Since(began).Seconds(), "undone/s")
	require.Equal(b, []int{stopped.Done, stopped.Done, 0}, []int{o.Matched, o.Done, o.Skipped})
	require.Equal(b, dead, f.count("status=4 AND attempts=5"), "as they were")
	f.stopAll()
	require.Empty(b, f.runsOf(quick("held")))
}

// awaitOperation waits for the end of an operation.
func (f *fleet) awaitOperation(id uint64) client.Operation {
	f.t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(200 * time.Millisecond) {
		o, err := f.anyAPI().Operation(f.t.Context(), id)
		if err == nil && o.State != "running" {
			return o
		}
		require.True(f.t, time.Now().Before(deadline), "%+v %v\n%s", o, err, f.tails())
	}
}
