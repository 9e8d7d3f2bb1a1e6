package app_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/migrations"
)

// A start waits for tables that are not made yet, and for a login that an administrator may mend; not for a store of another layout,
// which time does not mend.
func TestTheStartWaitsOnlyForWhatCanBeMended(t *testing.T) {
	t.Parallel()
	inRealTime(t)
	server := testrig.MySQL(t)
	cfg := fewTables(t)
	cfg.Store.Driver, cfg.Store.MySQL.DSN = configs.DriverMySQL, server.DSN()
	direct, user := cfg, server.Prefix()+"user"
	cfg.Store.MySQL.DSN = user + ":secret" + cfg.Store.MySQL.DSN[strings.Index(cfg.Store.MySQL.DSN, "@"):]
	ready := make(chan string, 1)
	a, err := app.New(cfg, app.WithProcessor("ledger", newLedger()), app.WithLogger(testLogger(t)), app.WithReady(func(addr string) { ready <- addr }))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	await.That(t, func() bool { return a.Addr() != "" }, "it listens")
	waitsFor := func(what string) {
		await.That(t, func() bool {
			status, text := readiness(t, &center{App: a})
			return status == http.StatusServiceUnavailable && strings.Count(text, "waiting for database ") == 2 && strings.Contains(text, what)
		}, "it waits: %s", what)
	}
	waitsFor("Access denied for user '" + user)
	db := server.DB(t)
	for _, statement := range []string{"CREATE USER " + user + "@'%' IDENTIFIED BY 'secret'", "GRANT ALL ON *.* TO " + user + "@'%'"} {
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	t.Cleanup(func() {
		_, err := db.ExecContext(context.WithoutCancel(t.Context()), "DROP USER "+user+"@'%'")
		require.NoError(t, err)
	})
	waitsFor("has no tables yet: run `toc migrate`")
	require.NoError(t, app.Migrate(t.Context(), direct, nil, nil))
	await.Receive(t, ready, "it starts")
	cancel()
	require.NoError(t, await.Receive(t, ended, "it ends"))

	direct.Store.TablesPerDatabase = 4
	a, err = app.New(direct, app.WithProcessor("ledger", newLedger()), app.WithLogger(testLogger(t)))
	require.NoError(t, err)
	var layout *migrations.LayoutError
	require.ErrorAs(t, a.Run(t.Context()), &layout)
}
