package app_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig"
)

func TestTablesAdvice(t *testing.T) {
	t.Parallel()
	server := testrig.MySQL(t)
	cfg := small(t)
	cfg.Store.Driver, cfg.Store.Databases, cfg.Store.MySQL.DSN = configs.DriverMySQL, 2, server.DSN()
	says := func() []string {
		t.Helper()
		advice, err := app.TablesAdvice(t.Context(), cfg)
		require.NoError(t, err)
		return advice
	}
	none := []string{"the tables are not there yet: run `toc migrate` with the same --config"}
	require.Equal(t, none, says())
	_, err := app.ServerAdvice(t.Context(), cfg)
	require.NoError(t, err, "a server is asked also without a database")

	db := server.DB(t)
	_, err = db.ExecContext(t.Context(), "CREATE DATABASE "+server.Prefix()+"0")
	require.NoError(t, err)
	require.Equal(t, none, says(), "an empty database is no better")

	require.NoError(t, app.Migrate(t.Context(), cfg, nil, nil))
	require.Empty(t, says())
	_, err = db.ExecContext(t.Context(), fmt.Sprintf("DROP DATABASE %s1", server.Prefix()))
	require.NoError(t, err)
	advice, err := app.TablesAdvice(t.Context(), cfg)
	require.Empty(t, advice)
	require.ErrorContains(t, err, server.Prefix()+"1 has no tables yet", "perhaps they are lost")

	cfg.Store.TablesPerDatabase = 8
	_, err = app.TablesAdvice(t.Context(), cfg)
	require.ErrorContains(t, err, "tables_per_database")
}
