// Package memnet is a network in memory, for tests in synctest bubbles: names that change their server, connections that
// fall silent, and hosts that cannot reach each other for a while.
package memnet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"
)

// Net is a network. The zero value has no servers.
type Net struct {
	mu      sync.Mutex
	servers map[string]*listener // by address, host:port
	links   []*link
	dialed  int
	cuts    map[pair]bool
	delays  map[pair]time.Duration
	stopped map[string]bool
	prompt  map[string]bool
	changed chan struct{} // closed at the next change of these; nil: nobody waits

	onChange func() // nil: none
}

// pair is two names, the lesser first.
type pair [2]string

func pairOf(a, b string) pair { return pair{min(a, b), max(a, b)} }

// Host is a machine in the network, from its start until Kill. Its servers have its name: an address is name:port.
type Host struct {
	net    *Net
	name   string
	mu     sync.Mutex
	killed bool
}

// Host starts a machine. A second one of the same name is what a machine is after a restart.
func (n *Net) Host(name string) *Host { return &Host{net: n, name: name} }

// Listen makes a server at an address. Listening again at the same address is what a name does that gets a new server: old
// connections stay at the old one.
func (n *Net) Listen(address string) net.Listener { return n.listen(nil, address) }

// Listen makes a server of this host.
func (h *Host) Listen(_, address string) (net.Listener, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.killed {
		return nil, refused("listen", address)
	}
	return h.net.listen(h, address), nil
}

func (n *Net) listen(h *Host, address string) net.Listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := &listener{host: h, address: addr(address), incoming: make(chan net.Conn), closed: make(chan struct{})}
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

// Dial connects to a server, from no host in particular.
func (n *Net) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return n.Host("").Dial(ctx, network, address)
}

// Dial connects to a server. While the way to it is cut, Dial waits.
func (h *Host) Dial(ctx context.Context, _, address string) (net.Conn, error) {
	n := h.net
	to, _, _ := net.SplitHostPort(address)
	way := pairOf(h.name, to)
	n.mu.Lock()
	if n.prompt[to] && n.isHeld(way) {
		n.mu.Unlock()
		return nil, refused("dial", address)
	}
	for !h.isKilled() && (n.cuts[way] || n.stopped[h.name]) {
		changed := n.change()
		n.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, &net.OpError{Op: "dial", Net: "memory", Addr: addr(address), Err: ctx.Err()}
		}
		n.mu.Lock()
	}
	l, prompt := n.servers[address], n.prompt[to]
	n.mu.Unlock()
	if l == nil {
		return nil, refused("dial", address)
	}
	shared := &link{way: way, address: address}
	if prompt {
		shared.promptAt = time.Now()
	}
	shared.moved = sync.NewCond(&shared.mu)
	up, down := &stream{}, &stream{}
	ours := &conn{link: shared, in: down, out: up, remote: l.address, local: addr(h.name)}
	theirs := &conn{link: shared, in: up, out: down, remote: addr(h.name), local: l.address}
	shared.ends = [2]end{{ours, h}, {theirs, l.host}}
	n.mu.Lock()
	n.links = append(slices.DeleteFunc(n.links, (*link).isOver), shared)
	n.dialed++
	n.tell(shared)
	n.mu.Unlock()
	if h.isKilled() || l.host != nil && l.host.isKilled() {
		_ = ours.Close()
		return nil, refused("dial", address)
	}
	select {
	case l.incoming <- theirs:
		return ours, nil
	case <-l.closed:
		_ = ours.Close()
		return nil, refused("dial", address)
	case <-ctx.Done():
		_ = ours.Close()
		return nil, ctx.Err()
	}
}

// Pass waits as long as a packet to another host takes: its delay, and while the way is held. It is for servers that are not
// reached by a connection of this network. The error is that of ctx, or that this host was killed.
func (h *Host) Pass(ctx context.Context, to string) error {
	n := h.net
	way := pairOf(h.name, to)
	n.mu.Lock()
	delay := n.delays[way]
	for since := time.Now(); !h.isKilled(); n.mu.Lock() {
		rest := delay - time.Since(since)
		if rest <= 0 && !n.isHeld(way) {
			n.mu.Unlock()
			return nil
		}
		changed := n.change()
		n.mu.Unlock()
		var arrived <-chan time.Time
		if rest > 0 {
			arrived = time.After(rest)
		}
		select {
		case <-arrived:
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	n.mu.Unlock()
	return net.ErrClosed
}

// isHeld reports whether packets between two hosts wait. The caller holds mu.
func (n *Net) isHeld(way pair) bool { return n.cuts[way] || n.stopped[way[0]] || n.stopped[way[1]] }

func refused(op, address string) error {
	return &net.OpError{Op: op, Net: "memory", Addr: addr(address), Err: fmt.Errorf("no server at %s", address)}
}

func (h *Host) isKilled() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.killed
}

// Kill ends the host like the end of its process: its connections are gone, what it had sent arrives, and it sends no more.
func (h *Host) Kill() {
	h.mu.Lock()
	h.killed = true
	h.mu.Unlock()
	n := h.net
	n.mu.Lock()
	links := slices.Clone(n.links)
	n.mu.Unlock()
	for _, l := range links {
		for _, e := range l.ends {
			if e.host == h {
				_ = e.Close()
			}
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for address, l := range n.servers {
		if l.host == h {
			delete(n.servers, address)
			_ = l.Close()
		}
	}
	n.announce()
}

// Silence makes all present connections drop each byte from now on. New ones work.
func (n *Net) Silence() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.links {
		l.mu.Lock()
		l.silent = true
		l.mu.Unlock()
	}
}

// Prompt says that connections to a host are made in no time: they are refused while the way is held, and what is sent in the
// moment of the dial is neither held nor delayed. It is for clients that hold a mutex meanwhile, and others wait for that: in a
// bubble time stands still for ever then.
func (n *Net) Prompt(host string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.prompt == nil {
		n.prompt = make(map[string]bool)
	}
	n.prompt[host] = true
}

// Cut holds all that two hosts send each other, also on new connections, until Mend. Nothing is lost.
func (n *Net) Cut(a, b string) { n.set(func() { n.cuts[pairOf(a, b)] = true }) }

// Mend ends a Cut: what was held arrives.
func (n *Net) Mend(a, b string) { n.set(func() { delete(n.cuts, pairOf(a, b)) }) }

// Delay makes all that two hosts send each other take a time on its way; 0 is the time of a network without a delay.
func (n *Net) Delay(a, b string, d time.Duration) { n.set(func() { n.delays[pairOf(a, b)] = d }) }

// Stop holds all that a host sends and all that is sent to it, until Resume.
func (n *Net) Stop(host string) { n.set(func() { n.stopped[host] = true }) }

// Resume ends a Stop.
func (n *Net) Resume(host string) { n.set(func() { delete(n.stopped, host) }) }

// MendAll ends each Cut, Delay and Stop.
func (n *Net) MendAll() { n.set(func() { clear(n.cuts); clear(n.delays); clear(n.stopped) }) }

// IsWhole reports whether no Cut, Delay or Stop is in force.
func (n *Net) IsWhole() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, d := range n.delays {
		if d > 0 {
			return false
		}
	}
	return len(n.cuts) == 0 && len(n.stopped) == 0
}

// OnChange calls f at each of these changes. It is set before the first.
func (n *Net) OnChange(f func()) { n.onChange = f }

// set changes the rules.
func (n *Net) set(change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cuts == nil {
		n.cuts, n.delays, n.stopped = make(map[pair]bool), make(map[pair]time.Duration), make(map[string]bool)
	}
	change()
	if n.onChange != nil {
		n.onChange()
	}
	for _, l := range n.links {
		n.tell(l)
	}
	n.announce()
}

// announce wakes up those who wait for a change. The caller holds mu.
func (n *Net) announce() {
	if n.changed != nil {
		close(n.changed)
		n.changed = nil
	}
}

// change returns a channel that is closed when the rules change. The caller holds mu.
func (n *Net) change() <-chan struct{} {
	if n.changed == nil {
		n.changed = make(chan struct{})
	}
	return n.changed
}

// A link has a copy of the rules for its way. The caller holds mu.
func (n *Net) tell(l *link) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = n.isHeld(l.way)
	l.delay = n.delays[l.way]
	l.moved.Broadcast()
}

// Dialed is how many connections were made.
func (n *Net) Dialed() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dialed
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
		l.mu.Lock()
		if !l.ends[0].closed && counts(l) {
			open++
		}
		l.mu.Unlock()
	}
	return open
}

type listener struct {
	host     *Host // nil: of no host in particular
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

// errReset is of a connection whose other end is gone.
var errReset = errors.New("connection reset by peer")
