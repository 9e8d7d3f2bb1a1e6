package toctest_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/toctest"
)

// cpu is the time that this process has used.
func cpu(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// What some virtual time costs, start and stop of the center included.
func BenchmarkRun(b *testing.B) {
	for _, d := range []time.Duration{0, 30 * time.Minute, 24 * time.Hour} {
		b.Run(fmt.Sprint(d), func(b *testing.B) {
			before := cpu(b)
			for b.Loop() {
				testing.RunTests(func(string, string) (bool, error) { return true, nil }, []testing.InternalTest{{Name: "run", F: func(t *testing.T) {
					toctest.Run(t, func(c *toctest.Center) {
						order := c.Submit(client.Submit{BizType: "order_close", BizID: 42, Delay: d + time.Millisecond})
						c.Advance(d + time.Millisecond)
						c.RequireFired(order.JobID)
					}, toctest.With("order_close", newShop()))
				}}})
			}
			b.ReportMetric(float64((cpu(b)-before).Microseconds())/1000/float64(b.N), "cpu-ms/op")
		})
	}
}
