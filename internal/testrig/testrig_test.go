package testrig_test

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/timeoutcenter/toc/internal/testrig"
)

func TestMain(m *testing.M) {
	testrig.SideBySide(8)
	testrig.Main(m)
}

func TestPrefixesDiffer(t *testing.T) {
	t.Parallel()
	a, b := testrig.MySQL(t), testrig.MySQL(t)
	require.Equal(t, a.Addr(), b.Addr(), "one server is shared")
	require.NotEqual(t, a.Prefix(), b.Prefix())
	require.Equal(t, fmt.Sprintf("root@tcp(%s)/%s%%d", a.Addr(), a.Prefix()), a.DSN())

	c, d := testrig.Redis(t), testrig.Redis(t)
	require.Equal(t, c.Addr(), d.Addr(), "one server is shared")
	require.NotEqual(t, c.Prefix(), d.Prefix())

	e, f := testrig.Consul(t), testrig.Consul(t)
	require.Equal(t, e.Addr(), f.Addr(), "one server is shared")
	require.NotEqual(t, e.Prefix(), f.Prefix())
}

func TestDatabasesAreDropped(t *testing.T) {
	t.Parallel()
	outer := testrig.MySQL(t)
	db := outer.DB(t)
	kept := outer.Prefix() + "0"
	exec(t, db, "CREATE DATABASE "+kept)

	var inner *testrig.MySQLServer
	t.Run("inner", func(t *testing.T) {
		inner = testrig.MySQL(t)
		for i := range 8 {
			exec(t, db, fmt.Sprintf("CREATE DATABASE %s%d", inner.Prefix(), i))
			exec(t, db, fmt.Sprintf("CREATE TABLE %s%d.t (id INT PRIMARY KEY)", inner.Prefix(), i))
		}
		require.Len(t, databases(t, db, inner.Prefix()), 8)
	})
	require.Empty(t, databases(t, db, inner.Prefix()))
	require.Equal(t, []string{kept}, databases(t, db, outer.Prefix()), "other tests' databases are left alone")
}

func TestKeysAreRemoved(t *testing.T) {
	t.Parallel()
	outer := testrig.Redis(t)
	kept := outer.Prefix() + "kept"
	redis(t, outer.Addr(), "SET "+kept+" 1")

	var names []string
	t.Run("inner", func(t *testing.T) {
		p := testrig.Redis(t).Prefix()
		names = []string{p + "a_0", "prepare_{" + p + "a_0}", "dead_{" + p + "a_0}"}
		for _, name := range names {
			redis(t, outer.Addr(), "SET "+name+" 1")
		}
		require.Equal(t, ":3", redis(t, outer.Addr(), "EXISTS "+strings.Join(names, " ")))
	})
	require.Equal(t, ":0", redis(t, outer.Addr(), "EXISTS "+strings.Join(names, " ")))
	require.Equal(t, ":1", redis(t, outer.Addr(), "EXISTS "+kept), "other tests' keys are left alone")
}

func TestPrivateMySQLSurvivesWhatATestDoesToIt(t *testing.T) {
	t.Parallel()
	m := testrig.StartMySQL(t, testrig.BufferPool("64M"))
	db, addr, table := m.DB(t), m.Addr(), m.Prefix()+"0.t"
	var pool int64
	require.NoError(t, db.QueryRow("SELECT @@innodb_buffer_pool_size").Scan(&pool))
	require.EqualValues(t, 64<<20, pool)
	exec(t, db, "CREATE DATABASE "+m.Prefix()+"0")
	exec(t, db, "CREATE TABLE "+table+" (id INT PRIMARY KEY)")
	exec(t, db, "INSERT INTO "+table+" VALUES (1)")

	m.Kill()
	requireDown(t, addr)
	m.Kill() // down already
	m.Start()
	exec(t, db, "INSERT INTO "+table+" VALUES (2)")

	m.Stop()
	requireDown(t, addr)
	m.Start()
	exec(t, db, "INSERT INTO "+table+" VALUES (3)")

	m.Freeze()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, db.PingContext(ctx), context.DeadlineExceeded)
	m.Thaw()

	var n int
	require.NoError(t, db.QueryRow("SELECT COUNT(*) FROM "+table).Scan(&n))
	require.Equal(t, 3, n)
	require.Equal(t, addr, m.Addr())

	m.Freeze()
	m.Stop() // a frozen server is stopped all the same
}

func TestPrivateRedisSurvivesAKill(t *testing.T) {
	t.Parallel()
	r := testrig.StartRedis(t, "--appendfsync", "always")
	key := r.Prefix() + "k"
	redis(t, r.Addr(), "SET "+key+" 42")
	r.Kill()
	requireDown(t, r.Addr())
	r.Start()
	require.Equal(t, ":1", redis(t, r.Addr(), "EXISTS "+key))
}

func TestNothingIsLeftOfAPrivateServer(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("-short: this test needs a server")
	}
	var pid, dir, addr string
	t.Run("inner", func(t *testing.T) {
		m := testrig.StartMySQL(t)
		addr = m.Addr()
		var pidFile string
		require.NoError(t, m.DB(t).QueryRow("SELECT @@pid_file").Scan(&pidFile))
		b, err := os.ReadFile(pidFile)
		require.NoError(t, err)
		pid, dir = strings.TrimSpace(string(b)), filepath.Dir(pidFile)
	})
	requireDown(t, addr)
	require.NoDirExists(t, "/proc/"+pid)
	require.NoDirExists(t, dir)
}

func TestIgnoreServersHidesThemFromALeakCheck(t *testing.T) {
	// Not parallel: a leak check sees the goroutines of the whole process.
	testrig.StartRedis(t)
	require.Error(t, goleak.Find(), "the server's goroutine is there")
	require.NoError(t, goleak.Find(testrig.IgnoreServers()))
}

// A machine without the server must turn the test red, with the way out in the message.
func TestAMissingServerFailsTheTest(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test needs a server")
	}
	t.Setenv("PATH", t.TempDir())
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	for name, start := range map[string]func(testing.TB){
		"redis-server": func(t testing.TB) { testrig.StartRedis(t) },
		"consul":       func(t testing.TB) { testrig.StartConsul(t) },
		"chromium":     func(t testing.TB) { testrig.Chromium(t) },
	} {
		got := &verdict{TB: t}
		done := make(chan struct{})
		go func() {
			defer close(done)
			start(got)
		}()
		<-done
		require.False(t, got.skipped)
		require.Contains(t, got.fatal, name+` is not installed: run "make deps"`)
	}
}

// verdict is a testing.TB that writes down how a test would have ended.
type verdict struct {
	testing.TB
	fatal   string
	skipped bool
}

func (v *verdict) Fatalf(format string, args ...any) {
	v.fatal = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (v *verdict) SkipNow()             { v.skipped = true; runtime.Goexit() }
func (v *verdict) Skip(...any)          { v.SkipNow() }
func (v *verdict) Skipf(string, ...any) { v.SkipNow() }

func exec(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	// A killed server leaves dead connections in the pool; database/sql drops each one it meets.
	_, err := db.ExecContext(t.Context(), statement)
	require.NoError(t, err)
}

func databases(t *testing.T, db *sql.DB, prefix string) []string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SHOW DATABASES LIKE '"+strings.ReplaceAll(prefix, "_", `\_`)+"%'")
	require.NoError(t, err)
	defer rows.Close()
	var names []string
	for rows.Next() {
		var name string
		require.NoError(t, rows.Scan(&name))
		names = append(names, name)
	}
	require.NoError(t, rows.Err())
	return names
}

// redis sends an inline command and returns the answer's first line.
func redis(t *testing.T, addr, command string) string {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer conn.Close()
	_, err = fmt.Fprint(conn, command, "\r\n")
	require.NoError(t, err)
	line, err := bufio.NewReader(conn).ReadString('\n')
	require.NoError(t, err)
	return strings.TrimSpace(line)
}

func requireDown(t *testing.T, addr string) {
	t.Helper()
	_, err := net.Dial("tcp", addr)
	require.ErrorContains(t, err, "connection refused")
}
