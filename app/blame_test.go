package app_test

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/task"
)

// parts reads the sums of toc_lateness_part_seconds, and of toc_lateness_seconds as "", in seconds, and how many runs these are.
func parts(t testing.TB, c *center) (sums map[string]float64, n int) {
	sums = map[string]float64{}
	for line := range strings.Lines(scrape(t, c)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		part := ""
		switch {
		case strings.HasPrefix(name, `toc_lateness_seconds_count{`):
			count, err := strconv.Atoi(value)
			require.NoError(t, err)
			n += count
			continue
		case strings.HasPrefix(name, "toc_lateness_part_seconds_sum{"):
			_, part, _ = strings.Cut(name, `part="`)
			part = strings.TrimSuffix(part, `"}`)
		case !strings.HasPrefix(name, "toc_lateness_seconds_sum{"):
			continue
		}
		sum, err := strconv.ParseFloat(value, 64)
		require.NoError(t, err)
		sums[part] += sum
	}
	return sums, n
}

// slowed is a center of one business type behind proxies that may delay what Redis and the database say.
type slowed struct {
	*center
	redis, store *testrig.Proxy
	late         atomic.Int64 // nanoseconds: the sum of all runs, by the processor's own clock
}

const slowedTasks = 50

// startSlowed starts a center whose servers answer late when its tasks fire, so long ahead. With a run there is only one worker.
func startSlowed(t testing.TB, mode task.Mode, ahead, redis, store time.Duration, work func()) (s *slowed) {
	db, own := testrig.MySQL(t), testrig.StartRedis(t)
	s = &slowed{redis: testrig.StartProxy(t, own.Addr()), store: testrig.StartProxy(t, db.Addr())}
	cfg := onMySQL(t, fewSlots(t, s.redis.Addr()))
	cfg.Store.MySQL.DSN = strings.Replace(cfg.Store.MySQL.DSN, db.Addr(), s.store.Addr(), 1)
	cfg.Store.MySQL.MaxOpenConns = 16
	cfg.Scan.Lookahead = 10 * time.Second
	cfg.BizTypes[0].Mode = string(mode)
	if work != nil {
		cfg.BizTypes[0].Workers = 1
	} else {
		work = func() {}
	}
	s.center = run(t, cfg, app.WithProcessor("ledger", processor.Func(func(_ context.Context, t task.Task) error {
		s.late.Add(int64(time.Since(t.ActionTime)))
		work()
		return nil
	})))
	list, due := make([]client.Submit, slowedTasks), time.Now().Add(ahead)
	for i := range list {
		list[i] = client.Submit{BizType: "order_close", BizID: uint64(i), ActionTime: due.Add(time.Duration(i) * 10 * time.Millisecond)}
	}
	_, err := s.Tasks().SubmitBatch(t.Context(), list)
	require.NoError(t, err)
	if mode == task.ModeRedis {
		client := redisClient(t, own.Addr())
		await.That(t, func() bool { // or it is past their time already
			waiting, _ := inSlots(t, cfg, client)
			return waiting == slowedTasks || time.Now().After(due)
		}, "the tasks are in Redis")
	}
	s.redis.Delay(redis)
	s.store.Delay(store)
	return s
}

// sums waits until all have run and returns the parts of their lateness, in seconds.
func (s *slowed) sums(t testing.TB) (sums map[string]float64) {
	t.Helper()
	await.That(t, func() bool { // the series of a run are not counted at one instant
		var runs int
		if sums, runs = parts(t, s.center); runs < slowedTasks {
			return false
		}
		before := sums
		sums, _ = parts(t, s.center)
		return maps.Equal(before, sums)
	}, "all runs are counted")
	return sums
}

// The parts of lateness add up to it, and it is no more than what a processor sees by its own clock.
func TestThePartsAddUp(t *testing.T) {
	t.Parallel()
	for _, mode := range []task.Mode{task.ModeRedis, task.ModeScan} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			idle := make(chan struct{})
			s := startSlowed(t, mode, 2*time.Second, 50*time.Millisecond, 100*time.Millisecond, func() { <-idle })
			await.That(t, func() bool {
				return s.late.Load() > 0 && bizTypeNow(t, s.center, "order_close").QueueDepth == slowedTasks-1
			}, "one runs, the others wait")
			close(idle)
			sums := s.sums(t)
			total, sum := sums[""], 0.
			delete(sums, "")
			require.Len(t, sums, 4)
			for _, part := range sums {
				require.GreaterOrEqual(t, part, 0.)
				sum += part
			}
			require.InDelta(t, total, sum, 0.001*slowedTasks)
			require.Greater(t, sums["wait"], 0., "fifty tasks shared a worker")
			require.LessOrEqual(t, total, time.Duration(s.late.Load()).Seconds())
		})
	}
}

// BenchmarkThePartToBlame slows a server, or keeps the only worker busy, and fails unless the part to blame is the one that
// grows. Redis may be slow by less than the 200 ms ahead in which tasks are claimed, and nothing grows; by more than its
// time-out, and the tasks are scanned. Use -benchtime=1x.
func BenchmarkThePartToBlame(b *testing.B) {
	for _, row := range []struct {
		mode         task.Mode
		name         string
		redis, store time.Duration // how late their answers are
		takes        time.Duration // for how long a run keeps the only worker busy
		blame        string
	}{
		{mode: task.ModeRedis, name: "nothing"},
		{mode: task.ModeRedis, name: "redis by 50 ms", redis: 50 * time.Millisecond},
		{mode: task.ModeRedis, name: "redis by 500 ms", redis: 500 * time.Millisecond, blame: "find"},
		{mode: task.ModeRedis, name: "database by 300 ms", store: 300 * time.Millisecond, blame: "check"},
		{mode: task.ModeRedis, name: "workers", takes: 40 * time.Millisecond, blame: "wait"},
		{mode: task.ModeScan, name: "nothing"},
		{mode: task.ModeScan, name: "database by 100 ms", store: 100 * time.Millisecond, blame: "check"},
		{mode: task.ModeScan, name: "workers", takes: 40 * time.Millisecond, blame: "wait"},
	} {
		b.Run(fmt.Sprint(row.mode, "/", row.name), func(b *testing.B) {
			for b.Loop() {
				var work func()
				if row.takes > 0 {
					work = func() { time.Sleep(row.takes) } // real time: a benchmark
				}
				sums := startSlowed(b, row.mode, 8*time.Second, row.redis, row.store, work).sums(b)
				delete(sums, "")
				most := "find"
				for part, sum := range sums {
					b.ReportMetric(sum*1000/slowedTasks, part+"-ms/task")
					if sum > sums[most] {
						most = part
					}
				}
				if row.blame != "" {
					require.Equal(b, row.blame, most)
				}
			}
		})
	}
}
