package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/store"
)

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cfg   store.Config
		names string
	}{
		{store.Config{Driver: "oracle", Layout: small}, `store.driver: "oracle"`},
		{store.Config{Driver: store.SQLite, Dir: t.TempDir()}, "store.databases"},
		{store.Config{Driver: store.SQLite, Dir: t.TempDir(), Layout: sharding.Layout{Databases: 2, TablesPerDatabase: 3, Partitions: 2}},
			"store.tables_per_database"},
		{store.Config{Driver: store.MySQL, Layout: small, DSN: "nonsense"}, "store.mysql.dsn of database 0"},
		{store.Config{Driver: store.MySQL, Layout: small, DSN: "root@tcp(127.0.0.1:1)/"}, "names no database"},
		{store.Config{Driver: store.MySQL, Layout: small, DSNs: []string{"root@tcp(127.0.0.1:1)/toc_0"}}, "database 1 has none"},
	} {
		s, err := store.Open(c.cfg)
		require.ErrorContains(t, err, c.names)
		require.Nil(t, s)
	}
}

// The product sets what it cannot do without, and leaves the rest to the user.
func TestMySQLDSN(t *testing.T) {
	t.Parallel()
	cfg := store.Config{DSN: "u:p@tcp(127.0.0.1:3306)/toc_%d?parseTime=false&loc=Asia%2FShanghai&multiStatements=false" +
		"&clientFoundRows=true&time_zone=%27SYSTEM%27&sql_mode=%27%27&charset=gbk&readTimeout=7s&tls=skip-verify"}
	dsn, err := store.MySQLDSN(cfg, 5)
	require.NoError(t, err)
	require.Equal(t, "toc_5", dsn.DBName)
	require.True(t, dsn.ParseTime && dsn.MultiStatements && dsn.InterpolateParams && !dsn.ClientFoundRows)
	require.Equal(t, time.UTC, dsn.Loc)
	require.Equal(t, "'+00:00'", dsn.Params["time_zone"])
	require.Contains(t, dsn.Params["sql_mode"], "STRICT_ALL_TABLES")
	require.Contains(t, dsn.FormatDSN(), "charset=utf8mb4&", "in gbk a quote can hide in a letter")
	require.Equal(t, 7*time.Second, dsn.ReadTimeout, "the user's own")
	require.NotZero(t, dsn.Timeout)
	require.Equal(t, "skip-verify", dsn.TLSConfig)

	cfg.DSNs = []string{"root@tcp(a:1)/x", "root@tcp(b:2)/y"}
	dsn, err = store.MySQLDSN(cfg, 1)
	require.NoError(t, err)
	require.Equal(t, [2]string{"b:2", "y"}, [2]string{dsn.Addr, dsn.DBName})
}

// What a session needs is in force on the server, whatever the server's defaults.
func TestMySQLSession(t *testing.T) {
	t.Parallel()
	f := openFixture(t, store.Config{Driver: store.MySQL, Layout: small, DSN: testrig.MySQL(t).DSN() + "?time_zone=%27-05:00%27"})
	var zone, mode, isolation string
	require.NoError(t, store.Reader(f.Store, 0).QueryRowContext(t.Context(),
		"SELECT @@session.time_zone, @@session.sql_mode").Scan(&zone, &mode))
	// The variable has one name in MySQL and another in MariaDB.
	require.NoError(t, store.Reader(f.Store, 0).QueryRowContext(t.Context(),
		"SHOW SESSION VARIABLES WHERE Variable_name IN ('tx_isolation', 'transaction_isolation')").Scan(new(string), &isolation))
	require.Equal(t, "+00:00", zone)
	require.Contains(t, mode, "STRICT_ALL_TABLES")
	require.Equal(t, "READ-COMMITTED", isolation)
}
