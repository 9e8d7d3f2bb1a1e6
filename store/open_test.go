package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
		{store.Config{Driver: store.MySQL, Layout: small, DSN: "root@tcp(127.0.0.1:1)/toc_%d?autocommit=0"},
			"store.mysql.dsn of database 0 has the parameter autocommit, and toc needs 1"},
		{store.Config{Driver: store.MySQL, Layout: small, DSN: "root@tcp(127.0.0.1:1)/"}, "names no database"},
		{store.Config{Driver: store.MySQL, Layout: small, DSNs: []string{"root@tcp(127.0.0.1:1)/toc_0"}}, "database 1 has none"},
	} {
		s, err := store.Open(c.cfg)
		require.ErrorContains(t, err, c.names)
		require.Nil(t, s)
	}
}

// The product sets the parameters that it rests on, and leaves the rest to the user.
func TestMySQLDSN(t *testing.T) {
	t.Parallel()
	cfg := store.Config{DSN: "u:p@tcp(127.0.0.1:3306)/toc_%d?readTimeout=7s&tls=skip-verify"}
	dsn, err := store.MySQLDSN(cfg, 5)
	require.NoError(t, err)
	require.Equal(t, "toc_5", dsn.DBName)
	require.Equal(t, 7*time.Second, dsn.ReadTimeout, "the user's own")
	require.NotZero(t, dsn.Timeout)
	require.Equal(t, "skip-verify", dsn.TLSConfig)

	cfg.DSNs = []string{"root@tcp(a:1)/x", "root@tcp(b:2)/y"}
	dsn, err = store.MySQLDSN(cfg, 1)
	require.NoError(t, err)
	require.Equal(t, [2]string{"b:2", "y"}, [2]string{dsn.Addr, dsn.DBName})
}
