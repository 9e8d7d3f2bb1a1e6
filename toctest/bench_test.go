package toctest_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
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
	for _, mode := range []string{configs.ModeScan, configs.ModeRedis} {
		for _, d := range []time.Duration{0, 30 * time.Minute, 24 * time.Hour, 30 * 24 * time.Hour} {
			b.Run(fmt.Sprint(mode, "/", d), func(b *testing.B) { benchmarkRun(b, mode, d+time.Millisecond) })
		}
	}
}

func benchmarkRun(b *testing.B, mode string, d time.Duration) {
	before := cpu(b)
	for b.Loop() {
		ok := testing.RunTests(func(string, string) (bool, error) { return true, nil }, []testing.InternalTest{{Name: "run", F: func(t *testing.T) {
			toctest.Run(t, func(c *toctest.Center) {
				order := c.Submit(client.Submit{BizType: "order_close", BizID: 42, Delay: d})
				c.Advance(d)
				c.RequireFiredAt(order.JobID, toctest.Start.Add(d))
			}, toctest.WithBizType(configs.BizType{Name: "order_close", Mode: mode}, newShop()))
		}}})
		if !ok {
			b.FailNow()
		}
	}
	b.ReportMetric(float64((cpu(b)-before).Microseconds())/1000/float64(b.N), "cpu-ms/op")
}
