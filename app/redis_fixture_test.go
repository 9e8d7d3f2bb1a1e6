package app_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/task"
)

// onRedis makes the business type of a configuration one of mode redis. Submits
// put the tasks of the next hour into Redis.
func onRedis(cfg configs.Config, addrs ...string) configs.Config {
	cfg.Redis.Addrs = addrs
	cfg.Store.TablesPerDatabase, cfg.Cluster.Partitions = 8, 64
	cfg.BizTypes[0].Mode, cfg.BizTypes[0].Horizon = configs.ModeRedis, time.Hour
	return cfg
}

// noFile is a Redis that keeps nothing over a restart.
var noFile = []testrig.Option{"--appendonly", "no"}

// redisClient talks to a server of the test past the center.
func redisClient(t testing.TB, addr string) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// inSlots counts what all slots hold: tasks that wait for their time, and claims.
func inSlots(t testing.TB, cfg configs.Config, client redis.UniversalClient) (waiting, claims int) {
	t.Helper()
	pipe := client.Pipeline()
	var stored, prepared []*redis.IntCmd
	for p := range cfg.Cluster.Partitions {
		topic := fmt.Sprintf("%s_%d", cfg.BizTypes[0].Name, p)
		stored = append(stored, pipe.ZCard(t.Context(), topic))
		prepared = append(prepared, pipe.ZCard(t.Context(), "prepare_{"+topic+"}"))
	}
	_, err := pipe.Exec(t.Context())
	require.NoError(t, err)
	for p := range stored {
		waiting += int(stored[p].Val())
		claims += int(prepared[p].Val())
	}
	return waiting, claims
}

// awaitWaiting waits until at least so many tasks wait for their time in all
// slots: a submit does not wait for that.
func awaitWaiting(t testing.TB, cfg configs.Config, client redis.UniversalClient, least int) {
	t.Helper()
	await.That(t, func() bool { waiting, _ := inSlots(t, cfg, client); return waiting >= least }, "%d tasks are in Redis", least)
}

// awaitInSlots waits until no more than so many tasks are left in all slots.
func awaitInSlots(t *testing.T, cfg configs.Config, client redis.UniversalClient, most int) {
	t.Helper()
	await.That(t, func() bool { waiting, claims := inSlots(t, cfg, client); return waiting+claims <= most }, "%d tasks are left in Redis", most)
}

// readiness asks a center how it is.
func readiness(t *testing.T, c *center) (code int, degraded string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: await.Patience}
	answer, err := client.Get("http://" + c.Addr() + "/readyz")
	require.NoError(t, err)
	defer answer.Body.Close()
	var body struct {
		Degraded []string `json:"degraded"`
	}
	require.NoError(t, json.NewDecoder(answer.Body).Decode(&body))
	return answer.StatusCode, strings.Join(body.Degraded, "; ")
}

// submitSpread submits tasks that are due at random moments of a span that
// begins and ends so long after now, and returns when each is due.
func submitSpread(t *testing.T, c *center, n int, begin, end time.Duration) map[uint64]time.Time {
	t.Helper()
	now := time.Now()
	requests := make([]api.Submit, n)
	for i := range requests {
		requests[i] = api.Submit{BizType: "order_close", BizID: rand.Uint64(),
			ActionTime: now.Add(begin + time.Duration(rand.Int64N(int64(end-begin))))}
	}
	return submitted(t, c, requests)
}

// submitted submits tasks with an action_time, and returns when each is due.
func submitted(t testing.TB, c *center, list []api.Submit) map[uint64]time.Time {
	t.Helper()
	results, err := c.Tasks().SubmitBatch(context.Background(), list)
	require.NoError(t, err)
	due := make(map[uint64]time.Time, len(list))
	for i, r := range results {
		require.Nil(t, r.Err)
		due[uint64(r.JobID)] = task.CeilMilli(list[i].ActionTime)
	}
	return due
}

// submitSteadily submits tasks that are due within a span, so many a second, until
// the test calls end, which returns when each is due. All submits must succeed.
func submitSteadily(t *testing.T, c *center, perSecond int, within time.Duration) (end func() map[uint64]time.Time) {
	const pace = 20 * time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan map[uint64]time.Time, 1)
	go func() {
		due := make(map[uint64]time.Time)
		defer func() { done <- due }()
		tick := time.NewTicker(pace)
		defer tick.Stop()
		start, slowest := time.Now(), time.Duration(0)
		for sent := 0; ; {
			select {
			case <-tick.C:
			case <-ctx.Done():
				t.Logf("%d submitted in %s, the slowest answer took %s", sent, time.Since(start).Round(time.Millisecond), slowest.Round(time.Millisecond))
				return
			}
			// No more than a few beats are caught up with: a load, not a storm.
			n := min(int(time.Since(start).Seconds()*float64(perSecond))-sent, perSecond/5)
			if n <= 0 {
				continue
			}
			requests := make([]api.Submit, n)
			for i := range requests {
				requests[i] = api.Submit{BizType: "order_close", BizID: rand.Uint64(),
					ActionTime: time.Now().Add(time.Duration(rand.Int64N(int64(within))))}
			}
			asked := time.Now()
			results, err := c.Tasks().SubmitBatch(context.Background(), requests)
			for i, r := range results {
				if r.Err != nil {
					t.Errorf("a submit failed: %v", r.Err)
					continue
				}
				due[uint64(r.JobID)] = task.CeilMilli(requests[i].ActionTime)
			}
			if err != nil {
				t.Errorf("submits failed: %v", err)
			}
			slowest = max(slowest, time.Since(asked))
			sent += n
		}
	}()
	var due map[uint64]time.Time
	end = func() map[uint64]time.Time {
		if due == nil {
			cancel()
			due = <-done
		}
		return due
	}
	t.Cleanup(func() { end() })
	return end
}

// requireAllOnce waits until all tasks have fired, stops the center, and checks
// that each fired once, none before its time, and that the store knows.
func requireAllOnce(t *testing.T, c *center, cfg configs.Config, fired *ledger, due map[uint64]time.Time, _ ...time.Duration) {
	t.Helper()
	fired.awaitAll(t, due)
	require.NoError(t, c.stop())
	late, twice := fired.lateness(t, due)
	require.Zero(t, twice, "tasks ran twice")
	require.Equal(t, len(due), countStatus(t, cfg, task.Processed))
	t.Log("lateness", percentiles(late))
}

// merged is all of some tasks.
func merged(sets ...map[uint64]time.Time) map[uint64]time.Time {
	all := make(map[uint64]time.Time)
	for _, s := range sets {
		maps.Copy(all, s)
	}
	return all
}
