package testrig

import (
	"context"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Proxy is a TCP line to a server that a test can break without touching the server. Call its methods from the test's
// own goroutine: a failed operation fails the test.
//
// It is our own because github.com/Shopify/toxiproxy (2.5.0) keeps goroutines when it is stopped with data under way:
// every test's leak check would find them. It also has no stall that loses nothing.
type Proxy struct {
	t    testing.TB
	addr string

	mu       sync.Mutex
	upstream string        // of new connections
	gate     chan struct{} // closed: data may pass
	delay    time.Duration // of what the server says
	hang     func()        // ends listener and connections; nil while cut
}

// StartProxy starts a proxy to upstream (host:port) on a free port. It ends with the test.
func StartProxy(t testing.TB, upstream string) *Proxy {
	t.Helper()
	l, err := listenFree()
	if err != nil {
		t.Fatalf("testrig: start a proxy to %s: %v", upstream, err)
	}
	p := &Proxy{t: t, addr: l.Addr().String(), upstream: upstream, gate: make(chan struct{})}
	close(p.gate)
	p.hang = p.serve(l)
	t.Cleanup(p.Cut)
	return p
}

// Addr is the host:port to dial in the server's stead. It stays the same.
func (p *Proxy) Addr() string { return p.addr }

// Turn leads new connections to another server, as a name or an address does that moves in a fail-over. Existing
// connections stay with their server.
func (p *Proxy) Turn(upstream string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.upstream = upstream
}

// Delay makes all that the server says arrive so much later.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Cut drops all connections and refuses new ones. Once it returns, nothing passes any more.
func (p *Proxy) Cut() {
	p.mu.Lock()
	hang := p.hang
	p.hang = nil
	p.mu.Unlock()
	if hang != nil {
		hang()
	}
}

// Stall keeps the connections, accepts new ones and passes nothing, as a network does that loses every packet.
func (p *Proxy) Stall() {
	p.t.Helper()
	p.set(false)
}

// Mend ends a cut or a stall. What was held back by a stall arrives now.
func (p *Proxy) Mend() {
	p.t.Helper()
	p.set(true)
}

// set opens or shuts the gate, and takes the port back after a cut.
func (p *Proxy) set(open bool) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	isOpen := false
	select {
	case <-p.gate:
		isOpen = true
	default:
	}
	switch {
	case open && !isOpen:
		close(p.gate)
	case !open && isOpen:
		p.gate = make(chan struct{})
	}
	if p.hang != nil {
		return
	}
	l, err := net.Listen("tcp", p.addr)
	if err != nil {
		p.t.Fatalf("testrig: proxy to %s: listen again: %v", p.upstream, err)
	}
	p.hang = p.serve(l)
}

// serve accepts connections until the function that it returns is called, which ends them too and waits until they are
// gone.
func (p *Proxy) serve(l net.Listener) (hang func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var carriers sync.WaitGroup
	carriers.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			carriers.Go(func() { p.carry(ctx, client) })
		}
	})
	return func() {
		cancel()
		deafen(l)
		_ = l.Close()
		carriers.Wait()
	}
}

// deafen ends the listening for all holders of the socket. A child that is just being started has every descriptor of
// ours until its exec, and to close ours alone would leave the port open for that long.
func deafen(l net.Listener) {
	if raw, err := l.(*net.TCPListener).SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = syscall.Shutdown(int(fd), syscall.SHUT_RDWR) })
	}
}

// carry serves one connection until both sides have said all, one of them breaks off, or ctx ends.
func (p *Proxy) carry(ctx context.Context, client net.Conn) {
	defer closeWith(ctx, client)()
	if !p.mayPass(ctx) {
		return
	}
	p.mu.Lock()
	upstream := p.upstream
	p.mu.Unlock()
	server, err := new(net.Dialer).DialContext(ctx, "tcp", upstream)
	if err != nil {
		return
	}
	defer closeWith(ctx, server)()

	var pumps sync.WaitGroup
	pumps.Go(func() { p.pump(ctx, server, client, p.mayPass) })
	pumps.Go(func() { p.pump(ctx, client, server, p.mayPassLater) })
	pumps.Wait()
}

// closeWith closes the connection when ctx ends or the function that it returns is called, whichever is first.
func closeWith(ctx context.Context, conn net.Conn) func() {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	return func() {
		stop()
		_ = conn.Close()
	}
}

// pump passes on what src says, its last word too. Each wait at the gate is after reading, so what is held back is no
// more than a buffer and what the kernel takes.
func (p *Proxy) pump(ctx context.Context, dst, src net.Conn, mayPass func(context.Context) bool) {
	buf := make([]byte, 32<<10)
	for {
		n, readErr := src.Read(buf)
		if !mayPass(ctx) {
			return
		}
		_, writeErr := dst.Write(buf[:n])
		switch {
		case readErr == io.EOF && writeErr == nil:
			_ = dst.(*net.TCPConn).CloseWrite()
			return
		case readErr != nil || writeErr != nil:
			_, _ = src.Close(), dst.Close() // so that the other pump ends
			return
		}
	}
}

// mayPassLater waits for the delay, and while the line is stalled.
func (p *Proxy) mayPassLater(ctx context.Context) bool {
	p.mu.Lock()
	delay := p.delay
	p.mu.Unlock()
	if delay == 0 {
		return p.mayPass(ctx)
	}
	select {
	case <-time.After(delay):
		return p.mayPass(ctx)
	case <-ctx.Done():
		return false
	}
}

// mayPass waits while the line is stalled; false when it was cut.
func (p *Proxy) mayPass(ctx context.Context) bool {
	p.mu.Lock()
	gate := p.gate
	p.mu.Unlock()
	select {
	case <-gate:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
