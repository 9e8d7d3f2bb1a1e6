package server

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestStartUseStop(t *testing.T) {
	scratch := t.TempDir()
	s, err := Redis.Start(t.Context(), scratch)
	require.NoError(t, err)
	used, err := RedisInfo(t.Context(), s.Addr, "used_memory")
	require.NoError(t, err)
	require.Positive(t, used)
	_, err = RedisInfo(t.Context(), s.Addr, "no_such_field")
	require.ErrorContains(t, err, "no_such_field")

	u, err := UsageOf(s.PID())
	require.NoError(t, err)
	require.Positive(t, u.Memory)
	require.FileExists(t, filepath.Join(s.dir, "appendonlydir", "appendonly.aof.manifest"))

	require.NoError(t, s.Stop())
	left, err := os.ReadDir(scratch)
	require.NoError(t, err)
	require.Empty(t, left)
	_, err = RedisInfo(t.Context(), s.Addr, "used_memory")
	require.Error(t, err)
}

func TestMariaDBTellsItsStatus(t *testing.T) {
	s, err := MariaDB.Start(t.Context(), t.TempDir())
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Stop()) }()
	n, err := MariaDBStatus(t.Context(), s.Addr, "Innodb_buffer_pool_pages_total")
	require.NoError(t, err)
	require.Positive(t, n)
	_, err = MariaDBStatus(t.Context(), s.Addr, "no_such_variable")
	require.Error(t, err)
}

func TestWhatIsNotInstalledIsMissing(t *testing.T) {
	none := Kind{Name: "none", title: "None", program: "no-such-server"}
	_, err := none.Start(t.Context(), t.TempDir())
	require.ErrorIs(t, err, ErrMissing)
	_, err = none.Version(t.Context())
	require.ErrorIs(t, err, ErrMissing)
}

func TestServerThatEndsAtOnceSaysWhy(t *testing.T) {
	broken := Redis
	broken.args = func(string, int) []string { return []string{"--port", "no-number"} }
	scratch := t.TempDir()
	_, err := broken.Start(t.Context(), scratch)
	require.ErrorContains(t, err, "no-number")
	left, err := os.ReadDir(scratch)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestVersionIsNameAndNumber(t *testing.T) {
	v, err := Redis.Version(t.Context())
	require.NoError(t, err)
	require.Regexp(t, `^Redis \d+\.\d+\.\d+$`, v)
}

func TestParseStat(t *testing.T) {
	line := "42 (a) name) (b) S 7 1 1 0 -1 4194304 1 2 3 4 100 20 3 4 20 0 1 0 99 0 0"
	s, err := parseStat(line)
	require.NoError(t, err)
	require.Equal(t, procStat{parent: 7, own: 1200 * time.Millisecond, cpu: 1270 * time.Millisecond}, s)
	for _, bad := range []string{"", "42 (x", "42 (x) S 1", "42 (x) S p 1 1 0 -1 4 1 2 3 4 1 2 3 4 20"} {
		_, err := parseStat(bad)
		require.Error(t, err, "%q", bad)
	}
}

func TestUsageKnowsItself(t *testing.T) {
	family, err := UsageOf(os.Getpid())
	require.NoError(t, err)
	require.Positive(t, family.Memory)
	_, err = UsageOf(1 << 30)
	require.Error(t, err)
}
