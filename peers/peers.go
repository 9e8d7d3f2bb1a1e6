// Package peers makes the other nodes of the cluster look like desks: what a node
// may not decide itself, because another one owns the partition, is asked there
// over HTTP, and the answer comes back as if it had been given here.
//
// A change is asked once. Whatever keeps the owner from deciding, or its answer
// from arriving, is a task.ErrUnavailable: the change may or may not have been
// made. Only if no connection could be made at all is it tried a second time.
// Offers are gathered by node and sent behind everybody's back.
//
// It refuses to know how nodes find each other: two functions say which
// partitions are this node's and who owns the others.
package peers

import (
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/peerproof"
	"github.com/timeoutcenter/toc/task"
)

// Config is what Peers works with.
type Config struct {
	Node string // this node's name, which others are told
	// Proof proves to them who asks, and to this node who answers. Defaults to nothing.
	Proof *peerproof.Prover
	// Term is not 0 while this node decides about a partition; see intake.Cluster.
	Term func(partition int) uint64
	// Owner gives the node that works a partition, and the address of its HTTP API
	// (host:port, or a URL with http or https); ok is false if nobody does.
	Owner func(partition int) (name, address string, ok bool)
	// Types gives the business types in force, which answers call by name.
	Types func() *task.Types
	// Timeout bounds each question, all of it. Defaults to 2 s.
	Timeout time.Duration
	Logger  *slog.Logger // defaults to none
}

// Peers is the intake.Cluster of a node among others. It is safe for concurrent
// use.
type Peers struct {
	cfg       Config
	transport *http.Transport
	open      sync.WaitGroup // who asks or offers right now

	mu     sync.RWMutex
	nodes  map[string]*node // by name
	closed time.Time        // zero: it is not
}

var _ intake.Cluster = (*Peers)(nil)

// connections is how many there are to one node at most. They are kept.
const connections = 64

// forwarded is the header by which a node knows that a question comes from
// another one, and that it must not hand it on.
const forwarded = "Toc-Forwarded"

// New makes Peers. It connects to nobody before there is a question.
func New(cfg Config) *Peers {
	if cfg.Timeout == 0 {
		cfg.Timeout = 2 * time.Second
	}
	if cfg.Proof == nil {
		cfg.Proof = peerproof.New(cfg.Node, nil)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	dialer := net.Dialer{Timeout: cfg.Timeout}
	return &Peers{cfg: cfg, nodes: make(map[string]*node), transport: &http.Transport{ // no proxy: nodes are near
		DialContext:         dialer.DialContext,
		TLSHandshakeTimeout: cfg.Timeout,
		MaxConnsPerHost:     connections,
		MaxIdleConnsPerHost: connections,
		IdleConnTimeout:     90 * time.Second, // before the server hangs up
	}}
}

// Term is not 0 while this node decides about a partition; see intake.Cluster.
func (p *Peers) Term(partition int) uint64 { return p.cfg.Term(partition) }

// Owner gives the desk of the node that does. The error is a task.ErrUnavailable.
func (p *Peers) Owner(partition int) (intake.Peer, error) {
	name, address, ok := p.cfg.Owner(partition)
	switch {
	case !ok:
		return nil, intake.Unavailable("no node owns partition %d now", partition)
	case name == p.cfg.Node:
		return nil, intake.Unavailable("partition %d is this node's, but not being worked now", partition)
	}
	n, err := p.node(name, address)
	if err != nil {
		return nil, err
	}
	return n, nil
}

// node gives the desk of a node. One that has moved keeps what waits for it.
func (p *Peers) node(name, address string) (*node, error) {
	p.mu.RLock()
	n := p.nodes[name]
	p.mu.RUnlock()
	if n != nil && n.at.Load().address == address {
		return n, nil
	}
	at, err := p.place(name, address)
	if err != nil {
		return nil, intake.Unavailable("node %q: %v", name, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if n = p.nodes[name]; n == nil {
		n = newNode(p, name)
		p.nodes[name] = n
	}
	n.at.Store(at)
	return n, nil
}

// place is where a node can be asked.
type place struct {
	address string
	client  *client.Client
}

func (p *Peers) place(node, address string) (*place, error) {
	base := address
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	if u, err := url.Parse(base); err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("%.100q is no address; it is host:port, or a URL with http or https", address)
	}
	web := &http.Client{
		Transport: p.cfg.Proof.Transport(node, p.transport),
		// A node does not redirect; who does is none.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	name := url.PathEscape(p.cfg.Node) // fits into a header, whatever it is
	return &place{address, client.New(base, client.WithHeader(forwarded, name), client.WithHTTPClient(web))}, nil
}

// begin tells whether a question may be asked; then end must follow.
func (p *Peers) begin() bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if !p.closed.IsZero() {
		return false
	}
	p.open.Add(1)
	return true
}

func (p *Peers) end() { p.open.Done() }

// patience is how long a request may take that starts now: the time-out, and when
// Peers is closed what is left of it.
func (p *Peers) patience() time.Duration {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.closed.IsZero() {
		return p.cfg.Timeout
	}
	return time.Until(p.closed.Add(p.cfg.Timeout))
}

// Close waits for what is under way, at most about the time-out, and closes the
// connections. Whoever asks afterwards is answered with a task.ErrUnavailable.
func (p *Peers) Close() {
	p.mu.Lock()
	if p.closed.IsZero() {
		p.closed = time.Now()
	}
	nodes := slices.Collect(maps.Values(p.nodes))
	p.mu.Unlock()
	p.open.Wait()
	for _, n := range nodes {
		n.offers.Wait()
	}
	p.transport.CloseIdleConnections()
}
