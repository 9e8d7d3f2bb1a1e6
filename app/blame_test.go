package app_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/task"
)

// parts reads the sums of toc_lateness_part_seconds, and of toc_lateness_seconds as "", in seconds, and how many runs these are.
func parts(t *testing.T, c *center) (sums map[string]float64, n int) {
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

// Something is slow, and the part to blame is the one that grows. Redis may be slow by less than the 200 ms ahead in which
// tasks are claimed, and nothing grows.
func TestThePartToBlame(t *testing.T) {
	t.Parallel()
	db := testrig.MySQL(t)
	for _, row := range []struct {
		mode         task.Mode
		name         string
		redis, store time.Duration // how late their answers are
		takes        time.Duration // for how long a run keeps the only worker busy
		blame        string
	}{
		{mode: task.ModeRedis, name: "nothing"},
		{mode: task.ModeRedis, name: "redis by 50 ms", redis: 50 * time.Millisecond},
		{mode: task.ModeRedis, name: "redis by 2 s", redis: 2000 * time.Millisecond, blame: "find"},
		{mode: task.ModeRedis, name: "database by 300 ms", store: 300 * time.Millisecond, blame: "check"},
		{mode: task.ModeRedis, name: "workers", takes: 40 * time.Millisecond, blame: "wait"},
		{mode: task.ModeScan, name: "nothing"},
		{mode: task.ModeScan, name: "database by 300 ms", store: 300 * time.Millisecond, blame: "check"},
		{mode: task.ModeScan, name: "workers", takes: 40 * time.Millisecond, blame: "wait"},
	} {
		t.Run(fmt.Sprint(row.mode, "/", row.name), func(t *testing.T) {
			t.Parallel()
			cfg, redis := embedded(t), testrig.StartRedis(t)
			lines := [2]*testrig.Proxy{testrig.StartProxy(t, redis.Addr()), testrig.StartProxy(t, db.Addr())}
			cfg = onMySQL(t, onRedis(cfg, lines[0].Addr()))
			cfg.Store.MySQL.DSN = strings.Replace(cfg.Store.MySQL.DSN, db.Addr(), lines[1].Addr(), 1)
			cfg.Store.MySQL.MaxOpenConns = 16
			cfg.Scan.Lookahead = 10 * time.Second
			cfg.BizTypes[0].Mode = string(row.mode)
			if row.takes > 0 {
				cfg.BizTypes[0].Workers = 1
			}
			c := run(t, cfg, app.WithProcessor("ledger", processor.Func(func(context.Context, task.Task) error {
				time.Sleep(row.takes)
				return nil
			})))
			const n = 50
			list := make([]client.Submit, n)
			for i := range list {
				list[i] = client.Submit{BizType: "order_close", BizID: uint64(i), ActionTime: time.Now().Add(3*time.Second + time.Duration(i)*10*time.Millisecond)}
			}
			_, err := c.Tasks().SubmitBatch(t.Context(), list)
			require.NoError(t, err)
			if row.mode == task.ModeRedis {
				awaitWaiting(t, cfg, redisClient(t, redis.Addr()), n)
			}
			lines[0].Delay(row.redis)
			lines[1].Delay(row.store)
			var got map[string]float64
			require.Eventually(t, func() bool {
				var runs int
				got, runs = parts(t, c)
				return runs == n
			}, 30*time.Second, 50*time.Millisecond)
			for part := range got {
				got[part] *= 1000. / n // mean milliseconds
			}
			t.Logf("mean ms a task: %v", got)
			total := got[""]
			delete(got, "")
			sum, most := 0., ""
			for part, mean := range got {
				if sum += mean; mean > got[most] {
					most = part
				}
			}
			require.InDelta(t, total, sum, 0.001)
			if row.blame != "" {
				require.Equal(t, row.blame, most)
				require.Greater(t, got[most], 20.)
			}
		})
	}
}
