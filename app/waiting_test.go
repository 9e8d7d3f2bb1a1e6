package app_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/cluster"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/migrations"
	"github.com/timeoutcenter/toc/task"
)

// waitingCenter is a center that may have to wait at its start.
type waitingCenter struct {
	*center
	log   *logbook
	ready chan string
	ended chan error
}

// start starts a center and waits until it is ready or waits for servers.
func start(t *testing.T, cfg configs.Config, opts ...app.Option) *waitingCenter {
	t.Helper()
	inRealTime(t)
	w := &waitingCenter{log: &logbook{}, ready: make(chan string, 1), ended: make(chan error, 1)}
	opts = append(opts, app.WithLogger(slog.New(slog.NewTextHandler(w.log, nil))), app.WithReady(func(addr string) { w.ready <- addr }))
	a, err := app.New(cfg, opts...)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { w.ended <- a.Run(ctx) }()
	var result error
	w.center = &center{App: a, stop: func() error {
		if cancel != nil {
			cancel()
			cancel, result = nil, await.Receive(t, w.ended, "it ends")
		}
		return result
	}}
	t.Cleanup(func() { require.NoError(t, w.stop()) })
	await.That(t, func() bool { return strings.Contains(w.log.String(), "msg=listening addr="+a.Addr()) }, "its address is in the log")
	return w
}

// get gets a path and returns the answer's status and its body.
func (w *waitingCenter) get(t *testing.T, path string) (status int, body map[string]any) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: await.Patience}
	answer, err := client.Get("http://" + w.Addr() + path)
	require.NoError(t, err)
	defer answer.Body.Close()
	if strings.HasSuffix(answer.Header.Get("Content-Type"), "json") {
		require.NoError(t, json.NewDecoder(answer.Body).Decode(&body))
	}
	return answer.StatusCode, body
}

// waitsFor waits until /readyz lists exactly these servers.
func (w *waitingCenter) waitsFor(t *testing.T, servers ...string) {
	t.Helper()
	await.That(t, func() bool {
		status, text := readiness(t, w.center)
		if status != http.StatusServiceUnavailable || strings.Count(text, "waiting for ") != len(servers) {
			return false
		}
		for _, s := range servers {
			if !strings.Contains(text, "waiting for "+s+", since 20") {
				return false
			}
		}
		return true
	}, "it waits for %s", servers)
}

// A node is started before Consul, its databases, their tables and Redis. Each comes later, and it works without anybody's
// help. Before, it ended at once.
func TestANodeIsStartedBeforeItsServers(t *testing.T) {
	t.Parallel()
	mysql, consul, redis := testrig.MySQL(t), testrig.Consul(t), testrig.Redis(t)
	proxies := map[string]*testrig.Proxy{}
	for name, addr := range map[string]string{"mysql": mysql.Addr(), "consul": consul.Addr(), "redis": redis.Addr()} {
		proxies[name] = testrig.StartProxy(t, addr)
		proxies[name].Cut()
	}
	cfg := clustered(onRedis(fewTables(t), proxies["redis"].Addr()), proxies["consul"].Addr(), consul.Prefix())
	cfg.Redis.Addrs, cfg.Redis.Prefix = []string{proxies["redis"].Addr()}, redis.Prefix()
	cfg.Store.TablesPerDatabase, cfg.Cluster.Partitions = 2, 4
	cfg.HTTP.Tokens, cfg.Cluster.Secret = nil, "the-nodes-know-0123456"
	cfg.Store.Driver, cfg.Store.MySQL.DSN = configs.DriverMySQL, mysql.DSN()
	direct := cfg
	cfg.Store.MySQL.DSN = strings.Replace(mysql.DSN(), mysql.Addr(), proxies["mysql"].Addr(), 1)
	fired := newLedger()
	w := start(t, cfg, app.WithProcessor("ledger", fired))

	w.waitsFor(t, "consul", "database 0", "database 1")
	status, _ := w.get(t, "/healthz")
	require.Equal(t, http.StatusOK, status)
	for _, series := range []string{`toc_degraded{database="",reason="waiting"}`, `toc_degraded{database="1",reason="waiting"}`} {
		v, _ := metric(t, w.center, series)
		require.EqualValues(t, 1, v, series)
	}
	for _, series := range []string{`toc_database_up{database="0"}`, `toc_database_up{database="1"}`, "toc_consul_up"} {
		v, ok := metric(t, w.center, series)
		require.True(t, ok, series)
		require.Zero(t, v, series)
	}
	for _, path := range []string{"/v1/tasks/1", "/v1/cluster", "/console/", "/elsewhere"} {
		status, problem := w.get(t, path)
		require.Equal(t, http.StatusServiceUnavailable, status, path)
		require.Equal(t, "this node does not take requests yet: it waits for consul, database 0, database 1; see /readyz", problem["detail"])
	}
	proxies["consul"].Mend()
	w.waitsFor(t, "database 0", "database 1")
	proxies["mysql"].Mend()
	await.That(t, func() bool {
		_, text := readiness(t, w.center)
		return strings.Count(text, "has no tables yet: run `toc migrate`") == 2
	}, "the tables are missing")
	require.NoError(t, app.Migrate(t.Context(), direct, nil, nil))
	await.Receive(t, w.ready, "it starts")
	require.Equal(t, 1, strings.Count(w.log.String(), "msg=listening"))

	due := map[uint64]time.Time{}
	submit := func() {
		for i := range uint64(8) {
			s, err := w.Desk().Submit(t.Context(), intake.Submit{BizType: "order_close", BizID: i, When: intake.In(0)})
			require.NoError(t, err)
			due[s.Task.JobID] = s.Task.ActionTime
		}
		fired.awaitAll(t, due)
	}
	submit()
	awaitReady(t, w.center, "redis is missing", func(degraded string) bool { return strings.Contains(strings.ToLower(degraded), "redis") })
	proxies["redis"].Mend()
	awaitReady(t, w.center, "redis is there", func(degraded string) bool { return !strings.Contains(strings.ToLower(degraded), "redis") })
	submit()
	require.NoError(t, w.stop())
	_, twice := fired.lateness(t, due)
	require.Zero(t, twice)
}

// One of two databases is missing at the start, the other has everything: the node works with that one, as when the first
// goes away later.
func TestANodeIsStartedWithSomeOfItsDatabases(t *testing.T) {
	t.Parallel()
	server := testrig.MySQL(t)
	cfg := onMySQL(t, fewTables(t))
	proxy := testrig.StartProxy(t, server.Addr())
	proxy.Cut()
	dsn := func(database int) string {
		return strings.Replace(cfg.Store.MySQL.DSN, "%d", strconv.Itoa(database), 1)
	}
	cfg.Store.MySQL.DSNs = []string{dsn(0), strings.Replace(dsn(1), server.Addr(), proxy.Addr(), 1)}
	fired := newLedger()
	w := start(t, cfg, app.WithProcessor("ledger", fired))
	await.Receive(t, w.ready, "it starts")
	awaitTrouble(t, w.center, "database 1 is out of reach")
	submit := func(bizID uint64) error {
		_, err := w.Desk().Submit(t.Context(), intake.Submit{BizType: "order_close", BizID: bizID, When: intake.In(0)})
		return err
	}
	require.NoError(t, submit(0))
	fired.await(t, 1)
	require.ErrorIs(t, submit(1), task.ErrUnavailable)
	proxy.Mend()
	await.That(t, func() bool { return submit(1) == nil }, "database 1 is worked")
	fired.await(t, 2)
}

// A stop while the node waits is a clean one; a program that embeds it learns why it does not start.
func TestAStopWhileTheStartWaits(t *testing.T) {
	t.Parallel()
	cfg := fewTables(t)
	cfg.Store.Driver, cfg.Store.MySQL.DSN = configs.DriverMySQL, "root@tcp(127.0.0.1:1)/toc_%d"
	w := start(t, cfg, app.WithProcessor("ledger", newLedger()))
	w.waitsFor(t, "database 0", "database 1")
	require.NoError(t, w.stop())

	inRealTime(t)
	embedding, err := app.New(cfg, app.WithProcessor("ledger", newLedger()), app.WithoutHTTP(), app.WithLogger(testLogger(t)))
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second) // real time: Start waits for it
	defer cancel()
	err = embedding.Start(ctx)
	var waited *cluster.WaitError
	require.ErrorAs(t, err, &waited)
	require.ErrorContains(t, err, "while waiting for database 0, since 20")
	require.ErrorContains(t, err, "connection refused")
	require.NoError(t, embedding.Stop(t.Context()))
}

// Time does not mend a store of another layout. An administrator may mend a login that is refused.
func TestTheStartWaitsOnlyForWhatCanBeMended(t *testing.T) {
	t.Parallel()
	server := testrig.MySQL(t)
	cfg := onMySQL(t, fewTables(t))
	inRealTime(t)
	other := cfg
	other.Store.TablesPerDatabase = 4
	a, err := app.New(other, app.WithProcessor("ledger", newLedger()), app.WithLogger(testLogger(t)))
	require.NoError(t, err)
	var layout *migrations.LayoutError
	require.ErrorAs(t, a.Run(t.Context()), &layout)

	user := server.Prefix() + "user"
	cfg.Store.MySQL.DSN = user + ":secret" + cfg.Store.MySQL.DSN[strings.Index(cfg.Store.MySQL.DSN, "@"):]
	w := start(t, cfg, app.WithProcessor("ledger", newLedger()))
	w.waitsFor(t, "database 0", "database 1")
	_, text := readiness(t, w.center)
	require.Contains(t, text, "Access denied for user '"+user)
	db := server.DB(t)
	for _, statement := range []string{"CREATE USER " + user + "@'%' IDENTIFIED BY 'secret'", "GRANT ALL ON *.* TO " + user + "@'%'"} {
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	t.Cleanup(func() {
		_, err := db.ExecContext(context.WithoutCancel(t.Context()), "DROP USER "+user+"@'%'")
		require.NoError(t, err)
	})
	await.Receive(t, w.ready, "it starts")
}
