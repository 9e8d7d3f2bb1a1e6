package app_test

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/await"
)

// A Redis answers, and each answer is an error: /readyz, why and the log give the answer, never the password.
func TestTheAnswersOfRedisAreShown(t *testing.T) {
	t.Parallel()
	r := testrig.StartRedis(t, "--busy-reply-threshold", "50")
	require.NoError(t, redisClient(t, r.Addr()).ConfigSet(t.Context(), "requirepass", "secret-1").Err())
	admin := redis.NewClient(&redis.Options{Addr: r.Addr(), Password: "secret-1", MaxRetries: -1, ReadTimeout: await.Patience})
	t.Cleanup(func() { require.NoError(t, admin.Close()) })
	hangUp := func() { // connections of the node keep what they were granted
		for _, kind := range []string{"normal", "pubsub"} {
			require.NoError(t, admin.ClientKillByFilter(t.Context(), "TYPE", kind, "SKIPME", "yes").Err())
		}
	}
	cfg := fewSlots(t, r.Addr())
	cfg.Redis.Password = "secret-1"
	cfg.Redis.OutageAfter = time.Second
	fired := newLedger()
	log := &logbook{}
	center := run(t, cfg, app.WithProcessor("ledger", fired), app.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
	fired.awaitAll(t, submitSpread(t, center, 20, 0, time.Second), await.Patience)

	for answer, act := range map[string]func() (undo func()){
		"WRONGPASS invalid username-password pair": func() func() {
			require.NoError(t, admin.ConfigSet(t.Context(), "requirepass", "secret-2").Err())
			hangUp()
			return func() { require.NoError(t, admin.ConfigSet(t.Context(), "requirepass", "secret-1").Err()) }
		},
		"BUSY Redis is busy running a script": func() func() {
			ended := make(chan error, 1)
			other := redis.NewClient(&redis.Options{Addr: r.Addr(), Password: "secret-1", ReadTimeout: -1, MaxRetries: -1})
			go func() { ended <- other.Eval(context.WithoutCancel(t.Context()), "while true do end", nil).Err() }()
			return func() {
				require.NoError(t, admin.ScriptKill(t.Context()).Err())
				require.Error(t, <-ended)
				require.NoError(t, other.Close())
			}
		},
		"NOPERM": func() func() {
			require.NoError(t, admin.Do(t.Context(), "ACL", "SETUSER", "default", "-evalsha").Err())
			return func() { require.NoError(t, admin.Do(t.Context(), "ACL", "SETUSER", "default", "+evalsha").Err()) }
		},
		"The user executing the script can't run this command": func() func() { // only what arms needs it
			require.NoError(t, admin.Do(t.Context(), "ACL", "SETUSER", "default", "-zadd").Err())
			fired.awaitAll(t, submitSpread(t, center, 5, 0, time.Second), await.Patience)
			return func() { require.NoError(t, admin.Do(t.Context(), "ACL", "SETUSER", "default", "+zadd").Err()) }
		},
	} {
		undo := act()
		awaitTrouble(t, center, answer)
		awaitTrouble(t, center, "the scanner serves")
		_, degraded := readiness(t, center)
		require.NotContains(t, degraded, "does not answer", answer)
		requireWhy(t, center, "store", answer)
		fired.awaitAll(t, submitSpread(t, center, 20, 0, time.Second), await.Patience)
		undo()
		awaitNoTrouble(t, center, "redis")
		await.That(t, func() bool { return strings.Contains(log.String(), answer) }, "the log has %s", answer)
	}
	require.NotContains(t, log.String(), "<nil>")
	require.NotContains(t, log.String(), "secret-")
}

// requireWhy submits a task that is due in half a minute and requires where and why it waits.
func requireWhy(t *testing.T, c *center, where, because string) {
	t.Helper()
	s, err := c.Tasks().Submit(t.Context(), client.Submit{BizType: "order_close", BizID: rand.Uint64(), Delay: 30 * time.Second})
	require.NoError(t, err)
	await.That(t, func() bool { // a submit does not wait until the task is in its slot
		why, err := c.Tasks().Why(t.Context(), uint64(s.Task.JobID))
		return err == nil && why.Where == where && strings.Contains(strings.Join(why.Because, "\n"), because)
	}, "it waits in %s: %s", where, because)
	require.NoError(t, c.Tasks().Cancel(t.Context(), uint64(s.Task.JobID)))
}
