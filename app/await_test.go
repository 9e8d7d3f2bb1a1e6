package app_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/task"
)

// onSQLite runs a test on SQLite, and in `make test-all` on MariaDB, too: for tests whose statements the conformance tests
// of package store prove on both.
func onSQLite(t *testing.T, test func(t *testing.T, cfg configs.Config)) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); test(t, fewTables(t)) })
	t.Run("mysql", func(t *testing.T) {
		t.Parallel()
		testrig.OnlyInAll(t, "sqlite, and the conformance tests of package store on MariaDB")
		test(t, onMySQL(t, fewTables(t)))
	})
}

// fewTables is embedded with a layout that is made soon.
func fewTables(t testing.TB) configs.Config {
	cfg := embedded(t)
	cfg.Store.Databases, cfg.Store.TablesPerDatabase = 2, 2
	return cfg
}

// fewSlots is fewTables in mode redis.
func fewSlots(t testing.TB, addrs ...string) configs.Config {
	cfg := onRedis(fewTables(t), addrs...)
	cfg.Store.TablesPerDatabase, cfg.Cluster.Partitions = 2, 4
	return cfg
}

// inPatientCluster is inCluster for nodes that a busy machine does not take for dead.
func inPatientCluster(t *testing.T, addr, prefix string) configs.Config {
	cfg := inCluster(t, addr, prefix)
	cfg.Cluster.Consul.TTL = 30 * time.Second
	return cfg
}

// awaitTrouble waits until a center is ready and reports a trouble that contains what.
func awaitTrouble(t *testing.T, c *center, what string) {
	t.Helper()
	awaitReady(t, c, "degraded by "+what, func(degraded string) bool { return strings.Contains(degraded, what) })
}

// awaitNoTrouble waits until a center is ready and reports no trouble that contains what: on a busy machine its databases
// may be slow.
func awaitNoTrouble(t *testing.T, c *center, what string) {
	t.Helper()
	awaitReady(t, c, "free of "+what, func(degraded string) bool { return !strings.Contains(strings.ToLower(degraded), what) })
}

func awaitReady(t *testing.T, c *center, what string, holds func(degraded string) bool) {
	t.Helper()
	await.Success(t, func() error {
		code, degraded := readiness(t, c)
		if code == http.StatusOK && holds(degraded) {
			return nil
		}
		return fmt.Errorf("%d, degraded by %q", code, degraded)
	}, "ready, and %s", what)
}

// awaitRows waits until so many rows have a status. After crashes a task that was cut short twice waits for a minute, until
// it may run alone, so it is waited for longer than for others.
func awaitRows(t *testing.T, cfg configs.Config, status task.Status, n int) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("%d rows have status %d; %d are pending, %d dead", countStatus(t, cfg, status), status, countStatus(t, cfg, task.Pending), countStatus(t, cfg, task.Dead))
		}
	}()
	await.Within(t, 4*await.Patience, func() bool { return countStatus(t, cfg, status) == n }, "%d rows have status %d", n, status)
}
