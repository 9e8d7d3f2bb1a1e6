package cluster_test

import (
	"context"
	"net"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/consul/api"

	"github.com/timeoutcenter/toc/internal/fakeconsul"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/internal/testrig/memnet"
)

// virtually calls f in a synctest bubble, with a cluster on a Consul in memory. Time there passes only while all wait, so
// f can measure it to the millisecond, and minutes of it take none.
func virtually(t *testing.T, f func(t *testing.T, w *testCluster)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		network := new(memnet.Net)
		w := &testCluster{t: t, prefix: "toc", addr: "consul:8500", fake: fakeconsul.New(), net: network}
		t.Cleanup(w.fake.Listen(network.Listen(w.addr)))
		w.connect = func() (line, *api.Config) {
			l := &wire{to: network.Dial, gate: make(chan struct{})}
			close(l.gate)
			t.Cleanup(func() { l.Mend(); l.Cut() })
			return l, &api.Config{Address: w.addr, Transport: &http.Transport{DialContext: l.dial}}
		}
		t.Cleanup(await.Throughout(w.checkOwners))
		f(t, w)
	})
}

// frontAddress is where a server stands before Consul.
const frontAddress = "front:8500"

// front starts a server before Consul.
func (w *testCluster) front(h http.HandlerFunc) {
	_, stop := w.net.Serve(w.t, frontAddress, "http/1.1", h)
	w.t.Cleanup(stop)
}

// line is a node's way to Consul: a testrig.Proxy, or a wire in a bubble.
type line interface {
	Cut()   // ends all connections and refuses new ones
	Stall() // keeps them, and nothing passes
	Mend()  // all is well again; what was held back arrives
}

// wire is a line in memory.
type wire struct {
	to func(ctx context.Context, network, address string) (net.Conn, error)

	mu    sync.Mutex
	cut   bool
	gate  chan struct{} // closed: bytes may pass
	conns []*wired
}

func (l *wire) dial(ctx context.Context, network, address string) (net.Conn, error) {
	refused := &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	l.mu.Lock()
	cut := l.cut
	l.mu.Unlock()
	if cut {
		return nil, refused
	}
	inner, err := l.to(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c := &wired{Conn: inner, wire: l, closed: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut {
		_ = inner.Close()
		return nil, refused
	}
	l.conns = append(l.conns, c)
	return c, nil
}

func (l *wire) Cut() {
	l.mu.Lock()
	l.cut = true
	conns := l.conns
	l.conns = nil
	l.mu.Unlock()
	for _, c := range conns {
		c.end(true)
	}
}

func (l *wire) Stall() { l.set(make(chan struct{})) }
func (l *wire) Mend()  { l.set(nil) }

// set shuts the gate with a new one; nil opens it.
func (l *wire) set(gate chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = false
	isOpen := false
	select {
	case <-l.gate:
		isOpen = true
	default:
	}
	switch {
	case gate == nil && !isOpen:
		close(l.gate)
	case gate != nil && isOpen:
		l.gate = gate
	}
}

func (l *wire) shut() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gate
}

// wired is a connection by a wire.
type wired struct {
	net.Conn
	wire   *wire
	closed chan struct{}

	mu   sync.Mutex
	over bool
	late []byte // held back by a stall; nil: nothing is
}

// end closes it. What is held back still arrives, unless dropped.
func (c *wired) end(drop bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over {
		c.over = true
		close(c.closed)
	}
	if drop || c.late == nil {
		_ = c.Conn.Close()
	}
}

func (c *wired) Close() error {
	c.end(false)
	return nil
}

// Read returns what has arrived as soon as it may pass.
func (c *wired) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	select {
	case <-c.wire.shut():
		return n, err
	case <-c.closed:
		return 0, net.ErrClosed
	}
}

// Write is that of a socket: it does not wait. What a stall holds back arrives later, also if this end is closed by then.
func (c *wired) Write(p []byte) (int, error) {
	gate := c.wire.shut()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return 0, net.ErrClosed
	}
	if c.late == nil {
		select {
		case <-gate:
			return c.Conn.Write(p)
		default:
		}
		go c.sendLate(gate)
	}
	c.late = append(c.late, p...)
	return len(p), nil
}

func (c *wired) sendLate(gate <-chan struct{}) {
	<-gate
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = c.Conn.Write(c.late)
	c.late = nil
	if c.over {
		_ = c.Conn.Close()
	}
}
