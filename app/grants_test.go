package app_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig"
)

// Where toc may not create tables somebody else runs what `toc migrate --print` writes; SELECT, INSERT, UPDATE and DELETE
// are enough for the rest.
func TestItsUserNeedsFourGrants(t *testing.T) {
	t.Parallel()
	server := testrig.StartMySQL(t, testrig.BufferPool("64M"))
	cfg := embedded(t)
	cfg.Store.Driver, cfg.Store.Databases, cfg.Store.TablesPerDatabase, cfg.Cluster.Partitions = configs.DriverMySQL, 2, 1, 2
	login := func(user string) string { return fmt.Sprintf("%s@tcp(%s)/", user, server.Addr()) }
	cfg.Store.MySQL.DSN = login("app:secret") + server.Prefix() + "%d"

	admin, err := sql.Open("mysql", login("root")+"?multiStatements=true")
	require.NoError(t, err)
	defer func() { require.NoError(t, admin.Close()) }()
	exec := func(text string) {
		_, err := admin.ExecContext(t.Context(), text)
		require.NoError(t, err)
	}
	exec("CREATE USER app@'%' IDENTIFIED BY 'secret'")
	exec("GRANT SELECT, INSERT, UPDATE, DELETE ON `" + strings.ReplaceAll(server.Prefix(), "_", `\_`) + "%`.* TO app@'%'")
	const advice = "an administrator makes the tables: `toc migrate --print`"
	err = app.Migrate(t.Context(), cfg, nil, nil)
	require.ErrorContains(t, err, "Access denied", "to create a database")
	require.ErrorContains(t, err, advice)
	exec("CREATE DATABASE " + server.Prefix() + "0; CREATE DATABASE " + server.Prefix() + "1")
	err = app.Migrate(t.Context(), cfg, nil, nil)
	require.ErrorContains(t, err, "command denied", "to create a table")
	require.ErrorContains(t, err, advice)

	var script strings.Builder
	require.NoError(t, app.PrintMigration(t.Context(), cfg, &script))
	exec(script.String())
	require.NoError(t, app.Migrate(t.Context(), cfg, nil, nil), "has nothing to create")

	fired := newLedger()
	c := run(t, cfg, app.WithProcessor("ledger", fired))
	due := submitSpread(t, c, 50, 0, time.Second)
	fired.awaitAll(t, due)
}
