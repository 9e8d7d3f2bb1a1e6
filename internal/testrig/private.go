package testrig

import (
	"context"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"github.com/timeoutcenter/toc/internal/testrig/child"
)

// PrivateMySQL is a MariaDB or MySQL server that belongs to one test, which may do to it what it likes.
type PrivateMySQL struct {
	MySQLServer
	Control
}

// StartMySQL starts a server for this test alone. Its data goes when the test ends.
func StartMySQL(t testing.TB, options ...Option) *PrivateMySQL {
	t.Helper()
	needsServer(t)
	e, err := findMySQL(options...)
	c := startPrivate(t, e, err)
	p := &PrivateMySQL{MySQLServer{addr: c.srv.addr(), auth: "root", prefix: uniquePrefix()}, c}
	if e.tls != nil {
		p.socket = socket(c.srv.dir())
	}
	return p
}

// PrivateRedis is a Redis server that belongs to one test.
type PrivateRedis struct {
	RedisServer
	Control
}

// StartRedis starts a server for this test alone. Its data goes when the test ends.
func StartRedis(t testing.TB, options ...Option) *PrivateRedis {
	t.Helper()
	needsServer(t)
	e, err := findRedis(options...)
	c := startPrivate(t, e, err)
	return &PrivateRedis{RedisServer{addr: c.srv.addr(), prefix: uniquePrefix()}, c}
}

// ConsulServer is a Consul server that belongs to one test. Keys, sessions and checks outlive Kill and Stop.
type ConsulServer struct{ Control }

// StartConsul starts a server for this test alone: some two seconds, an election's time. Its data goes when the test ends.
func StartConsul(t testing.TB, options ...Option) *ConsulServer {
	t.Helper()
	needsServer(t)
	e, err := findConsul(options...)
	return &ConsulServer{startPrivate(t, e, err)}
}

// Agent starts a Consul agent that keeps nothing and asks this server, as those beside a center do.
func (c *ConsulServer) Agent(t testing.TB, options ...Option) *ConsulServer {
	_, serf := consulPorts(c.srv.port)
	return StartConsul(t, append([]Option{"-server=false", "-bootstrap-expect=0", Option("-retry-join=" + loopback(serf)), "-retry-interval=1s"}, options...)...)
}

// Addr is host:port of the HTTP API.
func (c *ConsulServer) Addr() string { return c.srv.addr() }

func startPrivate(t testing.TB, e engine, err error) Control {
	t.Helper()
	var s *server
	if err == nil {
		s, err = launch(t.Context(), e)
	}
	if err != nil {
		t.Fatalf("testrig: this test needs a server of its own: %v", err)
	}
	return keepPrivate(t, s)
}

// keepPrivate gives a running server to the test, which ends it when it ends itself.
func keepPrivate(t testing.TB, s *server) Control {
	t.Cleanup(func() {
		if err := s.discard(); err != nil {
			t.Errorf("testrig: end %s: %v", s.engine.name(), err)
		}
	})
	return Control{t: t, srv: s}
}

// Control is a test's hand on its private server. What cannot be done fails the test, so call it from the test's own
// goroutine.
type Control struct {
	t   testing.TB
	srv *server
}

// Start starts a server that is down, on the same data and the same port, and waits until it answers.
func (c Control) Start() {
	c.t.Helper()
	c.must("start", c.srv.start(context.WithoutCancel(c.t.Context())))
}

// Stop ends the server in good order and waits until it is gone. One that is down stays so.
func (c Control) Stop() {
	c.t.Helper()
	c.must("stop", c.srv.end(syscall.SIGTERM))
}

// Kill ends the server as a power cut would (SIGKILL) and waits until it is gone. One that is down stays so.
func (c Control) Kill() {
	c.t.Helper()
	c.must("kill", c.srv.end(syscall.SIGKILL))
}

// Freeze halts the server (SIGSTOP): connections stay, answers do not come.
func (c Control) Freeze() {
	c.t.Helper()
	c.must("freeze", c.srv.freeze())
}

// Thaw lets a frozen server go on.
func (c Control) Thaw() {
	c.t.Helper()
	c.must("thaw", c.srv.thaw())
}

// NoLargerFiles lets no file of the server grow beyond so many bytes, as a disk does that is full; 0 ends that. It takes
// util-linux's prlimit.
func (c Control) NoLargerFiles(bytes int) {
	c.t.Helper()
	limit := "unlimited"
	if bytes > 0 {
		limit = strconv.Itoa(bytes)
	}
	c.must("limit the files of", c.srv.running(func(p *child.Process) error {
		return exec.CommandContext(c.t.Context(), "prlimit", "--pid", strconv.Itoa(p.Pid()), "--fsize="+limit+":").Run()
	}))
}

func (c Control) must(do string, err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatalf("testrig: %s %s: %v", do, c.srv.engine.name(), err)
	}
}
