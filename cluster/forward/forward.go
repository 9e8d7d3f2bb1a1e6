// Package forward asks the node that owns a partition about its tasks: a change that this
// node may not decide goes there over HTTP, by package client, and what the owner said comes back.
//
// A change is asked once. Whatever keeps the owner from deciding, or its answer
// from arriving, is a task.ErrUnavailable: the change may or may not have been
// made. Only if no connection could be made at all is it tried a second time.
// The owners of tasks that were stored are told of them in the background, gathered by node.
package forward

import (
	"cmp"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/cluster"
	"github.com/timeoutcenter/toc/dispatch"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/peerproof"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/task"
)

// Cluster is what a Forwarder needs of the cluster; see cluster.Consul.
type Cluster interface {
	// Term is not 0 while this node decides about a partition; see intake.Cluster.
	Term(partition int) uint64
	// Owner gives the node that works a partition; ok is false if no node does.
	Owner(partition int) (owner cluster.Member, ok bool)
}

// Config is what a Forwarder works with.
type Config struct {
	Node   string // this node's name, which others are told
	Layout sharding.Layout
	// Proof proves to them who asks, and to this node who answers.
	Proof *peerproof.Prover
	// Cluster says which partitions are this node's, and which nodes own the others.
	Cluster Cluster
	Catalog *task.Catalog // the business types in force, which answers call by name
	// Timeout bounds each question, all of it. Defaults to 2 s.
	Timeout time.Duration
	Logger  *slog.Logger
}

// Forwarder is the intake.Cluster of a node among others. It is safe for concurrent use.
type Forwarder struct {
	cfg       Config
	transport *http.Transport
	inflight  sync.WaitGroup // questions and offers under way

	mu     sync.Mutex
	nodes  map[endpoint]*node
	closed time.Time // zero: it is not
}

var (
	_ intake.Cluster = (*Forwarder)(nil)
	_ dispatch.Nodes = (*Forwarder)(nil)
)

// connections is how many there are to one node at most. They are kept.
const connections = 64

// header tells a node that a question comes from another one, and that it must not hand it on.
const header = "Toc-Forwarded"

// New makes a Forwarder. It connects to nobody before there is a question.
func New(cfg Config) *Forwarder {
	cfg.Timeout = cmp.Or(cfg.Timeout, 2*time.Second)
	dialer := net.Dialer{Timeout: cfg.Timeout}
	return &Forwarder{cfg: cfg, nodes: make(map[endpoint]*node), transport: &http.Transport{ // no proxy: nodes are near
		DialContext:         dialer.DialContext,
		TLSHandshakeTimeout: cfg.Timeout,
		MaxConnsPerHost:     connections,
		MaxIdleConnsPerHost: connections,
		IdleConnTimeout:     90 * time.Second, // before the server hangs up
	}}
}

// Term is not 0 while this node decides about a partition; see intake.Cluster.
func (f *Forwarder) Term(partition int) uint64 { return f.cfg.Cluster.Term(partition) }

// Owner gives the node that does. The error is a task.ErrUnavailable.
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
		return nil, intake.Unavailable("no node owns partition %d now", partition)
	case m.Name == f.cfg.Node:
		return nil, intake.Unavailable("partition %d is this node's, but not being worked now", partition)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	at := endpoint{m.Name, m.Address}
	n := f.nodes[at]
	if n == nil {
		owner, err := f.client(at)
		if err != nil {
			return nil, intake.Unavailable("node %q: %v", m.Name, err)
		}
		n = newNode(f, m.Name, owner)
		f.nodes[at] = n
	}
	return n, nil
}

// place is a node at the address of its HTTP API; one that has moved is another node here.
type endpoint struct{ node, address string }

func (f *Forwarder) client(of endpoint) (*client.Client, error) {
	base := of.address
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	if u, err := url.Parse(base); err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("%.100q is no address; it is host:port, or a URL with http or https", of.address)
	}
	web := &http.Client{
		Transport: f.cfg.Proof.Transport(of.node, f.transport),
		// A node does not redirect; who does is none.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	name := url.PathEscape(f.cfg.Node) // fits into a header, whatever it is
	return client.New(base, client.WithHeader(header, name), client.WithHTTPClient(web)), nil
}

// begin tells whether a node may be asked; then open.Done must follow.
func (f *Forwarder) begin() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed.IsZero() {
		return false
	}
	f.inflight.Add(1)
	return true
}

// patience is how long offers may take that are sent now: the time-out, and once
// Close was called what is left of it.
func (f *Forwarder) offerTimeout() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed.IsZero() {
		return f.cfg.Timeout
	}
	return time.Until(f.closed.Add(f.cfg.Timeout))
}

// Close waits for what is under way, at most about the time-out, and closes the
// connections. Whoever asks afterwards is answered with a task.ErrUnavailable.
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
}
