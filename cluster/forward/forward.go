// Package forward asks other nodes, over HTTP, by package client. A change that this node may not decide goes to the
// owner of the partition, and the owner's answer comes back. Any node is asked for due tasks to lease. An exchange with another
// node returns its clock, its state and a part of its limits; see View.
//
// A change is sent once. If the owner cannot decide, or its answer does not arrive, the result is a
// task.ErrUnavailable: the change may or may not have been made. It is sent a second time only if there was no
// connection at all.
//
// Notifications about stored tasks are batched per node and sent asynchronously.
package forward

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/cluster"
	"github.com/timeoutcenter/toc/cluster/peerproof"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/internal/httppool"
	"github.com/timeoutcenter/toc/internal/outside"
	"github.com/timeoutcenter/toc/internal/wait"
	"github.com/timeoutcenter/toc/queue/dispatch"
	"github.com/timeoutcenter/toc/sharding"
)

// Cluster is the part of the cluster that a Forwarder uses; see cluster.Consul.
type Cluster interface {
	// Term is not 0 while this node decides about a partition; see intake.Cluster.
	Term(partition int) uint64
	// Owner returns the node that owns a partition; ok is false if no node does.
	Owner(partition int) (owner cluster.Member, ok bool)
	// Members lists the nodes, this one, too.
	Members() []cluster.Member
}

// Config is the configuration of a Forwarder.
type Config struct {
	Node   string // this node's name, for the other nodes
	Layout sharding.Layout
	// Proof proves this node's identity to the others, and theirs to this node.
	Proof *peerproof.Prover
	// Cluster has the owners of partitions.
	Cluster Cluster
	// Timeout bounds each request as a whole. Defaults to 2 s.
	Timeout time.Duration
	Dial    outside.Dial // makes the connections; nil: that of package net
	Logger  *slog.Logger
}

// Forwarder is the intake.Cluster of a node among others. It is safe for concurrent use.
type Forwarder struct {
	cfg       Config
	transport *httppool.Pool
	waits     *httppool.Pool // of requests that wait for a task, one a business type: they must not keep the others out
	inflight  sync.WaitGroup // requests and offers under way

	detail wait.Mutex // of Detail

	mu     sync.Mutex
	nodes  map[endpoint]*node
	peers  map[string]*peer // by the node's name
	closed time.Time        // when Close was called; zero: it was not
}

var (
	_ intake.Cluster = (*Forwarder)(nil)
	_ dispatch.Nodes = (*Forwarder)(nil)
)

// connections is the maximum number of connections to one node.
const connections = 64

// New makes a Forwarder. It connects at its first request.
func New(cfg Config) *Forwarder {
	cfg.Timeout = cmp.Or(cfg.Timeout, 2*time.Second)
	transport := &http.Transport{ // no proxy: the nodes are close to each other
		DialContext:         cfg.Dial.Within(cfg.Timeout),
		TLSHandshakeTimeout: cfg.Timeout,
		MaxConnsPerHost:     connections,
		MaxIdleConnsPerHost: connections,
	}
	waits := transport.Clone()
	waits.MaxConnsPerHost = 0
	return &Forwarder{cfg: cfg, nodes: make(map[endpoint]*node), peers: make(map[string]*peer),
		transport: httppool.New(transport), waits: httppool.New(waits)}
}

// Term is not 0 while this node decides about a partition; see intake.Cluster.
func (f *Forwarder) Term(partition int) uint64 { return f.cfg.Cluster.Term(partition) }

// Owner returns the node that owns a partition. The error is a task.ErrUnavailable.
func (f *Forwarder) Owner(partition int) (intake.Peer, error) {
	n, err := f.owner(partition)
	if err != nil {
		return nil, err
	}
	return n, nil
}

func (f *Forwarder) owner(partition int) (*node, error) {
	m, ok := f.cfg.Cluster.Owner(partition)
	switch {
	case !ok:
		return nil, intake.NotBegun("no node owns partition %d now", partition)
	case m.Name == f.cfg.Node:
		return nil, intake.NotBegun("partition %d is this node's, but not being worked now", partition)
	}
	return f.node(m)
}

func (f *Forwarder) member(name string) (cluster.Member, bool) {
	for _, m := range f.cfg.Cluster.Members() {
		if m.Name == name {
			return m, true
		}
	}
	return cluster.Member{}, false
}

// Peers are the other nodes.
func (f *Forwarder) Peers() (list []intake.Peer) {
	for _, m := range f.Others() {
		if n, err := f.node(m); err == nil {
			list = append(list, n)
		}
	}
	return list
}

func (f *Forwarder) peer(name string) *peer {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.peerLocked(name)
}

// peerLocked is peer. The caller holds mu.
func (f *Forwarder) peerLocked(name string) *peer {
	p := f.peers[name]
	if p == nil {
		p = new(peer)
		f.peers[name] = p
	}
	return p
}

// node returns another node of the cluster.
func (f *Forwarder) node(m cluster.Member) (*node, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := endpoint{m.Name, m.Address}
	n := f.nodes[at]
	if n == nil {
		owner, err := f.client(at, f.transport)
		if err != nil {
			return nil, intake.NotBegun("node %q: %v", m.Name, err)
		}
		n = newNode(f, m.Name, owner)
		n.waiter, _ = f.client(at, f.waits)
		f.nodes[at] = n
	}
	return n, nil
}

// endpoint is a node at the address of its HTTP API. A node that has moved is a new endpoint.
type endpoint struct{ node, address string }

func (f *Forwarder) client(of endpoint, transport *httppool.Pool) (*client.Client, error) {
	base := of.address
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	if u, err := url.Parse(base); err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("%.100q is no address; it is host:port, or a URL with http or https", of.address)
	}
	web := &http.Client{
		Transport: numbered{f.cfg.Proof.Transport(of.node, transport)},
		// A node does not redirect, so a redirect comes from something else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	name := url.PathEscape(f.cfg.Node) // makes any name fit into a header
	return client.New(base, client.WithHeader(api.HeaderForwarded, name), client.WithHTTPClient(web)), nil
}

// begin reports whether a request may be sent; if so, inflight.Done must follow.
func (f *Forwarder) begin() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed.IsZero() {
		return false
	}
	f.inflight.Add(1)
	return true
}

// offerTimeout is how long sending offers may take: Timeout, and after Close the rest of it.
func (f *Forwarder) offerTimeout() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed.IsZero() {
		return f.cfg.Timeout
	}
	return time.Until(f.closed.Add(f.cfg.Timeout))
}

// Close waits for requests under way, at most about Timeout, and closes the connections. Later requests return
// a task.ErrUnavailable.
func (f *Forwarder) Close() {
	f.mu.Lock()
	if f.closed.IsZero() {
		f.closed = time.Now()
	}
	f.mu.Unlock()
	f.inflight.Wait()
	for _, n := range f.nodes {
		n.offers.Wait()
	}
	f.transport.CloseIdleConnections()
	f.waits.CloseIdleConnections()
}
