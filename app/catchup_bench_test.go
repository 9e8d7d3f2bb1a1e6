package app_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/queue/limits"
	"github.com/timeoutcenter/toc/task"
)

// starts notes how late fresh tasks start, and when those of a backlog do.
type starts struct {
	mu    sync.Mutex
	fresh []time.Duration
	late  []time.Time
}

func (s *starts) Process(_ context.Context, t task.Task) error {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(t.ActionTime) > limits.LateAfter {
		s.late = append(s.late, now)
	} else {
		s.fresh = append(s.fresh, now.Sub(t.ActionTime))
	}
	return nil
}

func (s *starts) lates() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.late)
}

// BenchmarkCatchUp works off the backlog of an outage of a minute, 60,000 tasks, while 1,000 more become due each second,
// with catch_up 2,000. Use -benchtime=1x.
func BenchmarkCatchUp(b *testing.B) {
	for _, mode := range []string{configs.ModeRedis, configs.ModeScan} {
		b.Run(mode, func(b *testing.B) {
			cfg := onMySQL(b, embedded(b))
			r := testrig.Redis(b)
			cfg.Redis.Addrs = []string{r.Addr()}
			cfg.BizTypes[0].Topic, cfg.BizTypes[0].Mode, cfg.BizTypes[0].CatchUp = r.Prefix()+"catchup", mode, 2000
			for b.Loop() {
				benchmarkCatchUp(b, cfg)
			}
		})
	}
}

func benchmarkCatchUp(b *testing.B, cfg configs.Config) {
	const backlog, rate = 60_000, 1000
	seen := &starts{}
	c := run(b, cfg, app.WithProcessor("ledger", seen))
	submit := func(n int, due func(i int) time.Time) {
		list := make([]api.Submit, n)
		for i := range list {
			list[i] = api.Submit{BizType: "order_close", BizID: uint64(i), ActionTime: due(i)}
		}
		submitted(b, c, list)
	}
	_, err := c.Pause(b.Context(), "order_close", client.Pause{})
	require.NoError(b, err)
	for range backlog / 1000 {
		now := time.Now()
		submit(1000, func(int) time.Time { return now })
	}
	time.Sleep(limits.LateAfter + 2*time.Second) // real time: a benchmark
	var submits sync.WaitGroup
	stop := make(chan struct{})
	submits.Go(func() { // each tenth of a second the tasks of one, two seconds ahead
		for at := time.Now(); ; at = at.Add(100 * time.Millisecond) {
			select {
			case <-stop:
				return
			case <-time.After(time.Until(at)):
			}
			submit(rate/10, func(i int) time.Time { return at.Add(2*time.Second + time.Duration(i)*time.Millisecond) })
		}
	})
	time.Sleep(2 * time.Second) // real time: a benchmark
	_, err = c.Resume(b.Context(), "order_close")
	require.NoError(b, err)
	for end := time.Now().Add(2 * time.Minute); seen.lates() < backlog && time.Now().Before(end); {
		time.Sleep(100 * time.Millisecond) // real time: a benchmark
	}
	close(stop)
	submits.Wait()
	require.NoError(b, c.stop())
	seen.mu.Lock()
	defer seen.mu.Unlock()
	require.GreaterOrEqual(b, len(seen.late), backlog)
	slices.Sort(seen.fresh)
	// The rate is that of the middle: without the first and the last tenth.
	n := len(seen.late)
	span := seen.late[n*9/10].Sub(seen.late[n/10])
	b.ReportMetric(float64(n*8/10)/span.Seconds(), "backlog/s")
	b.ReportMetric(float64(seen.fresh[len(seen.fresh)*99/100].Microseconds())/1000, "fresh-p99-ms")
	b.ReportMetric(float64(seen.fresh[len(seen.fresh)/2].Microseconds())/1000, "fresh-p50-ms")
	b.ReportMetric(float64(len(seen.fresh)), "fresh")
}
