package app_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/task"
)

// batchCounter is a processor with the batch form that does nothing.
type batchCounter struct {
	left atomic.Int64
	over chan struct{} // rung when none is left
}

func (c *batchCounter) Process(ctx context.Context, t task.Task) error {
	return c.ProcessBatch(ctx, []task.Task{t})[0]
}

func (c *batchCounter) ProcessBatch(_ context.Context, tasks []task.Task) []error {
	if c.left.Add(-int64(len(tasks))) == 0 {
		c.over <- struct{}{}
	}
	return make([]error, len(tasks))
}

// BenchmarkFire is the way of a task from its row to its outcome: claimed or
// scanned, loaded, queued, run, recorded and settled, on MariaDB and Redis. An op
// is 20,000 tasks due at one instant; the metrics are per task, of the whole
// process. Submits are not counted.
func BenchmarkFire(b *testing.B) {
	b.Run("redis", func(b *testing.B) {
		cfg := onMySQL(b, embedded(b))
		r := testrig.Redis(b)
		cfg.Redis.Addrs = []string{r.Addr()}
		cfg.BizTypes[0].Topic = r.Prefix() + "fire"
		cfg.BizTypes[0].Mode = configs.ModeRedis
		benchmarkFire(b, cfg)
	})
	b.Run("scan", func(b *testing.B) { benchmarkFire(b, onMySQL(b, embedded(b))) })
}

func benchmarkFire(b *testing.B, cfg configs.Config) {
	const tasks = 20_000
	counter := &batchCounter{over: make(chan struct{}, 1)}
	c := run(b, cfg, app.WithProcessor("ledger", counter))
	var before, after runtime.MemStats
	var mallocs, bytes uint64
	var took time.Duration
	for b.Loop() {
		counter.left.Store(tasks)
		due := time.Now().Add(3 * time.Second)
		list := make([]api.Submit, 1000)
		for n := range tasks / len(list) {
			for i := range list {
				list[i] = api.Submit{BizType: "order_close", BizID: uint64(n*len(list) + i), ActionTime: due}
			}
			submitted(b, c, list)
		}
		require.Greater(b, time.Until(due), 300*time.Millisecond, "the submits took too long")
		time.Sleep(time.Until(due.Add(-250 * time.Millisecond))) // real time: a benchmark
		runtime.ReadMemStats(&before)
		<-counter.over
		took += time.Since(due)
		time.Sleep(200 * time.Millisecond) // real time: a benchmark, and its last outcomes
		runtime.ReadMemStats(&after)
		mallocs += after.Mallocs - before.Mallocs
		bytes += after.TotalAlloc - before.TotalAlloc
	}
	n := float64(b.N * tasks)
	b.ReportMetric(float64(mallocs)/n, "allocs/task")
	b.ReportMetric(float64(bytes)/n, "B/task")
	b.ReportMetric(n/took.Seconds(), "tasks/s")
	b.ReportMetric(0, "ns/op")
}
