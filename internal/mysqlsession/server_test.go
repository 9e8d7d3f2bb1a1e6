package mysqlsession_test

import (
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/mysqlsession"
	"github.com/timeoutcenter/toc/internal/testrig"
)

func TestMain(m *testing.M) { testrig.Main(m) }

// limits are unlike those of any server.
var limits = mysqlsession.Limits{Statement: 17 * time.Second, LockWait: 3 * time.Second}

// user makes a user without rights but to one database, and returns its DSN.
func user(t *testing.T, addr string, root *sql.DB, password string) string {
	for _, text := range []string{
		"CREATE DATABASE toc_0", "CREATE USER toc@'%' IDENTIFIED BY '" + strings.ReplaceAll(password, "'", "''") + "'",
		"GRANT ALL ON toc_0.* TO toc@'%'",
	} {
		_, err := root.ExecContext(t.Context(), text)
		require.NoError(t, err)
	}
	return "toc:" + password + "@tcp(" + addr + ")/toc_%d"
}

func open(t *testing.T, dsn string) *sql.DB {
	parsed, err := mysqlsession.Parse(dsn, 0)
	require.NoError(t, err)
	pool, err := mysqlsession.Open(parsed, limits)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	return pool
}

// A new connection has the variables of the list, whatever the server gives to its sessions: each hostile value by
// itself, then all of them at once.
func TestHostileServer(t *testing.T) {
	server := testrig.StartMySQL(t, testrig.BufferPool("64M"))
	root := server.DB(t)
	dsn := user(t, server.Addr(), root, "secret")
	hostile := testrig.HostileVariables(t, root)

	// Each variable of the list has a hostile value, but for those that no server can be made to give.
	listed := map[string]bool{}
	for _, v := range hostile {
		listed[strings.Replace(v.Name, "tx_", "transaction_", 1)] = true
	}
	plain := open(t, dsn)
	report, err := mysqlsession.Read(t.Context(), plain, limits)
	require.NoError(t, err)
	require.Empty(t, report.Wrong)
	isMariaDB := strings.Contains(version(t, root), "MariaDB")
	for _, v := range mysqlsession.Variables() {
		byNames := strings.HasPrefix(v.Name, "character_set_") || v.Name == "collation_connection" // MakeHostile sets them
		if v.Only == "" || strings.HasPrefix(v.Only, "MariaDB") == isMariaDB {
			require.True(t, listed[v.Name] || byNames || v.Name == "resultset_metadata", "%s is not tried", v.Name)
		}
	}

	try := func(t *testing.T, list ...testrig.HostileVariable) {
		testrig.MakeHostile(t, root, list)
		pool := open(t, dsn)
		report, err := mysqlsession.Read(t.Context(), pool, limits)
		require.NoError(t, err)
		require.Empty(t, report.Wrong)
		var database string
		var shift float64
		require.NoError(t, pool.QueryRowContext(t.Context(), "SELECT DATABASE(), UNIX_TIMESTAMP(SYSDATE(6))-UNIX_TIMESTAMP(NOW(6))").Scan(&database, &shift))
		require.Equal(t, "toc_0", database)
		require.Less(t, shift, 1e6, "the session's clock stands still")
	}
	for _, v := range hostile {
		t.Run(v.Name, func(t *testing.T) {
			try(t, v)
			if !v.OfSession {
				_, err := root.ExecContext(t.Context(), "SET GLOBAL "+v.Name+"=DEFAULT")
				require.NoError(t, err)
			}
		})
	}
	t.Run("all", func(t *testing.T) { try(t, hostile...) })
}

func version(t *testing.T, db *sql.DB) (v string) {
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT VERSION()").Scan(&v))
	return v
}
