package testrig

import (
	"context"
	"errors"
	"flag"
	"os"
	"strconv"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"
)

// The environment in which a test process finds the shared servers.
const (
	// EnvMySQL is host:port of a MariaDB or MySQL server.
	EnvMySQL = "TOC_TEST_MYSQL_ADDR"
	// EnvDatabase is what the rig starts where EnvMySQL names no server: mariadb, or mysql, the one of scripts/mysql.sh.
	EnvDatabase = "TOC_TEST_DATABASE"
	// EnvMySQLAuth is user or user:password for it, with the right to create databases. Defaults to root.
	EnvMySQLAuth = "TOC_TEST_MYSQL_AUTH"
	// EnvRedis is host:port of a Redis server.
	EnvRedis = "TOC_TEST_REDIS_ADDR"
	// EnvConsul is host:port of the HTTP API of a Consul agent.
	EnvConsul = "TOC_TEST_CONSUL_ADDR"
)

// Servers are the shared servers of a test run, one of each kind. One whose address stands in the environment is
// taken as it is: it is neither started nor ended. A browser is started by the first test that asks, since few do.
type Servers struct {
	mysql, redis, consul, chromium shared
}

// NewServers describes the servers and starts none; mysql goes to MariaDB's or MySQL's command line.
func NewServers(mysql ...Option) *Servers {
	return &Servers{
		mysql:    shared{env: EnvMySQL, find: func() (engine, error) { return findMySQL(mysql...) }},
		redis:    shared{env: EnvRedis, find: func() (engine, error) { return findRedis() }},
		consul:   shared{env: EnvConsul, find: func() (engine, error) { return findConsul() }},
		chromium: shared{find: func() (engine, error) { return findChromium() }},
	}
}

func (s *Servers) all() []*shared { return []*shared{&s.mysql, &s.redis, &s.consul} }

// Start starts all of them but the browser at the same time. After an error the started ones wait for Close.
func (s *Servers) Start(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, one := range s.all() {
		g.Go(func() error {
			_, err := one.addr(ctx)
			return err
		})
	}
	return g.Wait()
}

// Env is what a process needs in its environment to use these servers, as NAME=address. Valid after Start.
func (s *Servers) Env() []string {
	var env []string
	for _, one := range s.all() {
		env = append(env, one.env+"="+one.at)
	}
	return env
}

// Close ends the servers that were started and removes their data.
func (s *Servers) Close() error {
	var errs []error
	for _, one := range append(s.all(), &s.chromium) {
		errs = append(errs, one.close())
	}
	return errors.Join(errs...)
}

// shared is one of the Servers: somebody else's when the environment names one, else our own from the first use on.
type shared struct {
	env  string // none: it is always our own
	find func() (engine, error)

	mu  sync.Mutex
	at  string // host:port, once known
	own *server
	err error // the first failure is everyone's: a minute of waiting per test would help nobody
}

func (s *shared) addr(ctx context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at == "" && s.err == nil {
		s.at, s.err = s.open(ctx)
	}
	return s.at, s.err
}

func (s *shared) open(ctx context.Context) (string, error) {
	if at := os.Getenv(s.env); s.env != "" && at != "" {
		return at, nil
	}
	e, err := s.find()
	if err != nil {
		return "", err
	}
	if s.own, err = launch(ctx, e); err != nil {
		return "", err
	}
	return s.own.addr(), nil
}

func (s *shared) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.own == nil {
		return nil
	}
	err := s.own.discard()
	s.own, s.at = nil, ""
	return err
}

// ofThisProcess is the rig's one global: the testing package has no other place for what lives as long as a test
// process and is shared by its tests.
var ofThisProcess = NewServers()

// Main is the TestMain of a package whose tests use the rig:
//
//	func TestMain(m *testing.M) { testrig.Main(m) }
//
// It runs the tests, ends the servers that this process started, and fails when the tests left a goroutine behind.
// Without it the servers end all the same, with the process, but their directories stay until the next run.
func Main(m *testing.M, opts ...goleak.Option) {
	// go-redis looks for a server that is away once a second, and sees only then that its pool is closed.
	probe := goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial")
	goleak.VerifyTestMain(closing{m}, append(opts, probe)...)
}

// needsServer leaves a test out of the short form, which runs what needs no server.
func needsServer(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: this test needs a server")
	}
}

// envTests chooses how much a test run proves: "all" in `make test-all`.
const envTests = "TOC_TEST_RUN"

// OnlyInAll leaves a test to `make test-all`. why names the test that proves the same in `make test`, or says
// that no change of code but a rare one can break it.
func OnlyInAll(t testing.TB, why string) {
	t.Helper()
	if os.Getenv(envTests) != "all" {
		t.Skip("make test-all runs it: " + why)
	}
}

// SideBySide has so many tests of a package run at a time, for tests that mostly wait for servers, faults and due times.
// Call it before Main; -parallel wins over it.
func SideBySide(tests int) { _ = flag.Set("test.parallel", strconv.Itoa(tests)) }

type closing struct{ m *testing.M }

func (c closing) Run() int {
	code := c.m.Run()
	if err := ofThisProcess.Close(); err != nil {
		os.Stderr.WriteString("testrig: end servers: " + err.Error() + "\n")
		return max(code, 1)
	}
	return code
}

// IgnoreServers is for a test that looks for leaked goroutines itself (goleak.VerifyNone): it hides the one that each
// running server has in this process.
func IgnoreServers() goleak.Option {
	return goleak.IgnoreAnyFunction("github.com/timeoutcenter/toc/internal/testrig/child.(*Process).live")
}
