package testrig

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// unlucky is an engine whose first port is taken between the search for it and the start.
type unlucky struct {
	engine
	taken int
	tries int
}

func (u *unlucky) command(dir string, port int) *exec.Cmd {
	if u.tries++; u.tries == 1 {
		port = u.taken
	}
	return u.engine.command(dir, port)
}

func TestATakenPortIsTriedAgain(t *testing.T) {
	needsServer(t)
	t.Parallel()
	mysql, err := findMySQL()
	require.NoError(t, err)
	redis, err := findRedis()
	require.NoError(t, err)
	consul, err := findConsul()
	require.NoError(t, err)
	for _, e := range []engine{mysql, redis, consul} {
		t.Run(e.name(), func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			defer l.Close()

			u := &unlucky{engine: e, taken: l.Addr().(*net.TCPAddr).Port}
			s, err := launch(t.Context(), u)
			require.NoError(t, err)
			require.GreaterOrEqual(t, u.tries, 2) // the next neighbour may be taken, too, by a program of this machine
			require.NoError(t, s.discard())
		})
	}
}

// One of the other ports is taken that a server has besides its first: a cluster node's bus, Consul's two.
func TestATakenNeighbourIsTriedAgain(t *testing.T) {
	needsServer(t)
	t.Parallel()
	redis, err := findRedis()
	require.NoError(t, err)
	consul, err := findConsul()
	require.NoError(t, err)
	for name, c := range map[string]struct {
		engine engine
		first  func(neighbour int) int
	}{
		"redis bus":   {redisNode{redis}, busPort},
		"consul rpc":  {consul, func(p int) int { rpc, _ := consulPorts(p); return rpc }},
		"consul serf": {consul, func(p int) int { _, serf := consulPorts(p); return serf }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			defer l.Close()

			// A neighbour's neighbour is the port itself.
			u := &unlucky{engine: c.engine, taken: c.first(l.Addr().(*net.TCPAddr).Port)}
			s, err := launch(t.Context(), u)
			require.NoError(t, err)
			require.GreaterOrEqual(t, u.tries, 2) // the next neighbour may be taken, too, by a program of this machine
			require.NoError(t, s.discard())
		})
	}
}

// A stranger that answers on our port is not taken for our server.
func TestReadyKnowsItsOwn(t *testing.T) {
	needsServer(t)
	t.Parallel()
	redis, err := findRedis()
	require.NoError(t, err)
	stranger, err := launch(t.Context(), redis)
	require.NoError(t, err)
	defer func() { require.NoError(t, stranger.discard()) }()
	require.NoError(t, redis.ready(t.Context(), stranger.dir(), stranger.port, stranger.proc.Pid()))
	require.ErrorContains(t, redis.ready(t.Context(), stranger.dir(), stranger.port, 1), "another server")

	mysql, err := findMySQL()
	require.NoError(t, err)
	db, err := launch(t.Context(), mysql)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.discard()) }()
	require.ErrorContains(t, mysql.ready(t.Context(), t.TempDir(), db.port, db.proc.Pid()), "another server")

	consul, err := findConsul()
	require.NoError(t, err)
	agent, err := launch(t.Context(), consul)
	require.NoError(t, err)
	defer func() { require.NoError(t, agent.discard()) }()
	require.ErrorContains(t, consul.ready(t.Context(), t.TempDir(), agent.port, agent.proc.Pid()), "another server")
}

func TestAServerThatCannotStartSaysWhy(t *testing.T) {
	needsServer(t)
	t.Parallel()
	e, err := findMySQL("--no-such-flag")
	require.NoError(t, err)
	_, err = launch(t.Context(), e)
	require.ErrorContains(t, err, "no-such-flag", "the server's own words")
}

func TestServersStartOnceAndAreGoneAfterClose(t *testing.T) {
	needsServer(t)
	t.Setenv(EnvMySQL, "")
	t.Setenv(EnvRedis, "")
	t.Setenv(EnvConsul, "")
	s := NewServers()
	t.Cleanup(func() { _ = s.Close() }) // should the test fail half-way
	require.NoError(t, s.Start(t.Context()))
	require.Equal(t, []string{
		EnvMySQL + "=" + s.mysql.own.addr(),
		EnvRedis + "=" + s.redis.own.addr(),
		EnvConsul + "=" + s.consul.own.addr(),
	}, s.Env())

	first := s.mysql.own
	again, err := s.mysql.addr(t.Context())
	require.NoError(t, err)
	require.Equal(t, first.addr(), again)
	require.Same(t, first, s.mysql.own)

	require.NoError(t, s.Close())
	_, err = net.Dial("tcp", again)
	require.Error(t, err)
	require.NoDirExists(t, first.dir())
}

func TestServersOfTheEnvironmentAreTakenAsTheyAre(t *testing.T) {
	t.Setenv(EnvMySQL, "db.example:3306")
	t.Setenv(EnvRedis, "redis.example:6379")
	t.Setenv(EnvConsul, "consul.example:8500")
	s := NewServers()
	require.NoError(t, s.Start(t.Context()))
	require.Equal(t, []string{
		EnvMySQL + "=db.example:3306", EnvRedis + "=redis.example:6379", EnvConsul + "=consul.example:8500",
	}, s.Env())
	require.NoError(t, s.Close())
}

func TestAFailureToStartIsRemembered(t *testing.T) {
	t.Setenv(EnvRedis, "")
	calls := 0
	s := shared{env: EnvRedis, find: func() (engine, error) { calls++; return nil, ErrNotInstalled }}
	for range 3 {
		_, err := s.addr(context.Background())
		require.ErrorIs(t, err, ErrNotInstalled)
	}
	require.Equal(t, 1, calls)
}

func TestSweepRemovesWhatDeadProcessesLeft(t *testing.T) {
	base := t.TempDir()
	t.Setenv("TMPDIR", base)
	old := time.Now().Add(-time.Hour)

	orphan := filepath.Join(base, "toc-testrig-orphan")
	young := filepath.Join(base, "toc-testrig-young")
	other := filepath.Join(base, "someone-elses")
	for _, dir := range []string{orphan, young, other} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "data"), 0o700))
	}
	owned, err := newWorkdir()
	require.NoError(t, err)
	for _, dir := range []string{orphan, other, owned.path} {
		require.NoError(t, os.Chtimes(dir, old, old))
	}

	next, err := newWorkdir()
	require.NoError(t, err)
	require.NoDirExists(t, orphan)
	require.DirExists(t, young, "perhaps about to be locked")
	require.DirExists(t, owned.path, "its owner lives")
	require.DirExists(t, other, "not ours")

	require.NoError(t, owned.remove())
	require.NoError(t, next.remove())
	require.NoDirExists(t, owned.path)
}
