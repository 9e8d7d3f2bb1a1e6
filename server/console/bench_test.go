package console_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/server/console"
	"github.com/timeoutcenter/toc/task"
)

// BenchmarkTick is what a tick costs with so many viewers of the overview, while all that it shows changes: 1,000 business types, an hour
// of lateness. A tick is every two seconds, so a millisecond of it is 0.05 % of a core.
func BenchmarkTick(b *testing.B) {
	var types []task.BizType
	for i := range uint64(1000) {
		types = append(types, task.BizType{ID: i + 1, Name: fmt.Sprintf("business_type_%04d", i)})
	}
	for _, viewers := range []int{1, 10} {
		b.Run(fmt.Sprintf("viewers=%d", viewers), func(b *testing.B) {
			f := newFake(b, types...)
			before := cpuTime(b)
			n := 0
			for b.Loop() {
				n++
				f.center.say(busy(n))
				f.Forget()
				for range viewers {
					require.Equal(b, 200, f.ask(b, "GET", "/console/live?topic=overview", nil).Code)
				}
			}
			b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/float64(n)/1000, "cpu-ms/tick")
		})
	}
}

func cpuTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// busy is a node that says something else each time.
func busy(n int) console.NodePulse {
	p := api.Pulse{Ready: true, Running: n, Waiting: 2 * n}
	for i := range 60 {
		p.Minutes = append(p.Minutes, api.PulseMinute{At: api.Time(time.Now().Add(-time.Duration(i) * time.Minute).Truncate(time.Minute)), Runs: 1000 + n%(i+2), Submitted: 1000 + i,
			Late: []api.LateCount{{Under: .002, Runs: 900 + n%7}, {Under: .005, Runs: 90}, {Under: .5, Runs: 10}}})
	}
	for i := range 100 {
		p.BizTypes = append(p.BizTypes, api.PulseType{Name: fmt.Sprintf("business_type_%04d", i), Overdue: n%100 + i, Oldest: float64(n % 50)})
	}
	return console.NodePulse{Name: "n1", Pulse: p}
}
