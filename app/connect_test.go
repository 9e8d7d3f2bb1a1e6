package app_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/await"
)

// redisRules are the rules of docs/redis-engine.md for a user of Redis.
const redisRules = "~%[1]s* ~prepare_{%[1]s* ~dead_{%[1]s* &%[1]stoc:wake +@all -@dangerous +info +config|get"

// aclUser makes a user of a Redis with these rules, and returns the configuration with which it is used.
func aclUser(t *testing.T, admin *redis.Client, cfg configs.Config, name, rules string) configs.Config {
	args := []any{"ACL", "SETUSER", name, "reset", "on", ">secret-1"}
	for _, rule := range strings.Fields(rules) {
		args = append(args, rule)
	}
	require.NoError(t, admin.Do(t.Context(), args...).Err())
	cfg.Redis.Username, cfg.Redis.Password = name, "secret-1"
	return cfg
}

// A user with exactly the rules of the docs is enough, for the check and for tasks. One that may only use keys that begin
// with the prefix is not, and the check says so.
func TestRulesOfARedisUser(t *testing.T) {
	t.Parallel()
	docs, err := os.ReadFile("../docs/redis-engine.md")
	require.NoError(t, err)
	require.Contains(t, string(docs), fmt.Sprintf(redisRules, "<prefix>"))
	r := testrig.StartRedis(t)
	admin := redisClient(t, r.Addr())
	cfg := fewSlots(t, r.Addr())
	cfg.Redis.Prefix = "shop:"
	cfg = aclUser(t, admin, cfg, "toc", fmt.Sprintf(redisRules, "shop:"))
	advice, err := app.RedisAdvice(t.Context(), cfg)
	require.NoError(t, err)
	require.Empty(t, advice)

	fired := newLedger()
	center := run(t, cfg, app.WithProcessor("ledger", fired))
	fired.awaitAll(t, submitSpread(t, center, 20, 0, time.Second), await.Patience)
	awaitNoTrouble(t, center, "redis")
	_, degraded := readiness(t, center)
	require.NotContains(t, degraded, "redis")

	advice, err = app.RedisAdvice(t.Context(), aclUser(t, admin, cfg, "mute", "~* &* +@all -info -config|get"))
	require.NoError(t, err)
	require.Len(t, advice, 1)
	require.Contains(t, advice[0], "does not say whether it may evict slots")

	for rules, answer := range map[string]string{
		"~shop:* &* +@all -@dangerous":              "NOPERM",
		"~* &other +@all -@dangerous":               "ERR The user executing the script can't ",
		"~* &* +@all -zadd":                         "ERR The user executing the script can't run this command",
		"~* &* +@all -time":                         "ERR The user executing the script can't run this command",
		"~* &* +@all -@dangerous -@scripting":       "NOPERM",
		"~* &* +@read +@pubsub +@connection +hello": "NOPERM",
	} {
		_, err := app.RedisAdvice(t.Context(), aclUser(t, admin, cfg, "less", rules))
		require.ErrorContains(t, err, "redis "+r.Addr()+" answers: "+answer, rules)
		require.NotContains(t, err.Error(), "secret-1")
	}
}

// What a Redis answers is what the check says.
func TestTheCheckOfRedisGivesItsAnswer(t *testing.T) {
	t.Parallel()
	r := testrig.StartRedis(t)
	admin := redisClient(t, r.Addr())
	cfg := fewSlots(t, r.Addr())
	require.NoError(t, admin.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err())
	advice, err := app.RedisAdvice(t.Context(), cfg)
	require.NoError(t, err)
	require.Equal(t, []string{"redis may evict slots: its maxmemory-policy is allkeys-lru; set it to noeviction"}, advice)

	require.NoError(t, admin.ConfigSet(t.Context(), "min-replicas-to-write", "1").Err())
	_, err = app.RedisAdvice(t.Context(), cfg)
	require.ErrorContains(t, err, "answers: NOREPLICAS")
	require.NoError(t, admin.ConfigSet(t.Context(), "min-replicas-to-write", "0").Err())

	require.NoError(t, admin.ConfigSet(t.Context(), "requirepass", "secret-2").Err())
	_, err = app.RedisAdvice(t.Context(), cfg)
	require.ErrorContains(t, err, "answers: NOAUTH")
	cfg.Redis.Password = "secret-1"
	_, err = app.RedisAdvice(t.Context(), cfg)
	require.ErrorContains(t, err, "answers: WRONGPASS")
	require.NotContains(t, err.Error(), "secret-")

	cfg.Redis.Addrs = []string{"127.0.0.1:1"}
	_, err = app.RedisAdvice(t.Context(), cfg)
	require.ErrorContains(t, err, "redis 127.0.0.1:1 does not answer: ")
	require.ErrorContains(t, err, "connection refused")
}

func TestTheCheckOfConsulGivesItsAnswer(t *testing.T) {
	t.Parallel()
	cfg := configs.Config{}
	cfg.Cluster.Provider = configs.ProviderConsul
	cfg.Cluster.Consul.Address, cfg.Cluster.Consul.Prefix = testrig.Consul(t).Addr(), "check"
	_, err := app.ConsulAdvice(t.Context(), cfg)
	require.NoError(t, err)

	refuses := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "Permission denied", http.StatusForbidden)
	}))
	t.Cleanup(refuses.Close)
	cfg.Cluster.Consul.Address, cfg.Cluster.Consul.Token = refuses.Listener.Addr().String(), "secret-1"
	_, err = app.ConsulAdvice(t.Context(), cfg)
	for _, what := range []string{"register a service", "make a session", "write check/check"} {
		require.ErrorContains(t, err, "answers: "+what+": 403 Permission denied")
	}
	require.NotContains(t, err.Error(), "secret-1")
	refuses.Close()
	_, err = app.ConsulAdvice(t.Context(), cfg)
	require.ErrorContains(t, err, "does not answer")
}

func TestTheCheckOfTracesGivesTheAnswer(t *testing.T) {
	t.Parallel()
	status := http.StatusOK
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	t.Cleanup(collector.Close)
	cfg := configs.Config{Tracing: configs.Tracing{OTLP: collector.URL}}
	_, err := app.TracingAdvice(t.Context(), cfg)
	require.NoError(t, err)
	status = http.StatusUnauthorized
	_, err = app.TracingAdvice(t.Context(), cfg)
	require.ErrorContains(t, err, "tracing.otlp: "+collector.Listener.Addr().String()+": answers 401")
}
