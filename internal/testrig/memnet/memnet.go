// Package memnet is a network in memory, for tests in synctest bubbles: names that change their server, and connections
// that fall silent.
package memnet

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
)

// Net is a network. The zero value has no servers.
type Net struct {
	mu      sync.Mutex
	servers map[string]*listener // by address, host:port
	links   []*link
}

// Listen makes a server at an address. Listening again at the same address is what a name does that gets a new server: old
// connections stay at the old one.
func (n *Net) Listen(address string) net.Listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := &listener{address: addr(address), incoming: make(chan net.Conn), closed: make(chan struct{})}
	if n.servers == nil {
		n.servers = make(map[string]*listener)
	}
	n.servers[address] = l
	return l
}

// Alias gives a server a second address.
func (n *Net) Alias(alias, address string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.servers[alias] = n.servers[address]
}

// Dial connects to a server.
func (n *Net) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	n.mu.Lock()
	l := n.servers[address]
	n.mu.Unlock()
	if l == nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: fmt.Errorf("no server at %s", address)}
	}
	ours, theirs := net.Pipe()
	shared := &link{address: address}
	select {
	case l.incoming <- &conn{Conn: theirs, link: shared}:
	case <-l.closed:
		return nil, &net.OpError{Op: "dial", Net: network, Err: net.ErrClosed}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.links = append(n.links, shared)
	return &conn{Conn: ours, link: shared, isDialer: true}, nil
}

// Silence makes all present connections drop each byte from now on. New ones work.
func (n *Net) Silence() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.links {
		l.silent.Store(true)
	}
}

// Dialed is how many connections were made.
func (n *Net) Dialed() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.links)
}

// Open is how many connections those who made them have not closed.
func (n *Net) Open() int { return n.open(func(*link) bool { return true }) }

// OpenTo is how many of them lead to an address.
func (n *Net) OpenTo(address string) int {
	return n.open(func(l *link) bool { return l.address == address })
}

func (n *Net) open(counts func(*link) bool) (open int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.links {
		if !l.closed.Load() && counts(l) {
			open++
		}
	}
	return open
}

type listener struct {
	address  addr
	incoming chan net.Conn
	once     sync.Once
	closed   chan struct{}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.incoming:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *listener) Addr() net.Addr { return l.address }

type addr string

func (addr) Network() string  { return "memory" }
func (a addr) String() string { return string(a) }

// link is what both ends of a connection share.
type link struct {
	address        string
	silent, closed atomic.Bool
}

// conn is an end of a connection. Its Write does not wait for the reader, as a socket's does not.
type conn struct {
	net.Conn
	link     *link
	isDialer bool // the end of who made the connection

	mu      sync.Mutex
	pending []byte
	sending bool
	err     error // of sending
}

func (c *conn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return 0, c.err
	}
	if c.link.silent.Load() {
		return len(p), nil
	}
	c.pending = append(c.pending, p...)
	if !c.sending {
		c.sending = true
		go c.send()
	}
	return len(p), nil
}

// Close ends the connection.
func (c *conn) Close() error {
	if c.isDialer {
		c.link.closed.Store(true)
	}
	return c.Conn.Close()
}

// send writes until nothing is pending.
func (c *conn) send() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.pending) > 0 && c.err == nil {
		batch := c.pending
		c.pending = nil
		c.mu.Unlock()
		_, err := c.Conn.Write(batch)
		c.mu.Lock()
		c.err = err
	}
	c.sending = false
}
