package cluster_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/cluster"
	"github.com/timeoutcenter/toc/internal/fakeconsul"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/internal/testrig/memnet"
	"github.com/timeoutcenter/toc/sharding"
)

// ttl outlasts the moments in which a busy machine answers nothing.
const ttl = 5 * time.Second

// wide has eight databases with four partitions each.
var wide = sharding.Layout{Databases: 8, TablesPerDatabase: 32, Partitions: 32}

// testCluster has the nodes of a test. It makes sure that no partition ever has two owners.
type testCluster struct {
	t                *testing.T
	addr, prefix     string
	token            string // of direct; "": none is asked for
	connect          func() (line, *api.Config)
	fake             *fakeconsul.Consul // in a bubble, else nil
	net              *memnet.Net        // in a bubble
	twoOwnersAllowed atomic.Bool        // two owners are allowed now

	mu    sync.Mutex
	nodes []*node
}

// newTestCluster is a testCluster on the shared Consul.
func newTestCluster(t *testing.T) *testCluster {
	t.Helper()
	shared := testrig.Consul(t)
	return newTestClusterAt(t, shared.Addr(), shared.Prefix())
}

func newTestClusterAt(t *testing.T, addr, prefix string) *testCluster {
	w := &testCluster{t: t, addr: addr, prefix: prefix}
	w.connect = w.byProxy
	t.Cleanup(await.Throughout(w.checkOwners))
	return w
}

// byProxy gives a node a way to Consul of its own.
func (w *testCluster) byProxy() (line, *api.Config) {
	proxy := testrig.StartProxy(w.t, w.addr)
	return proxy, &api.Config{Address: proxy.Addr()}
}

func (w *testCluster) liveNodes() []*node {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.nodes)
}

// checkOwners checks all ownerships. A partition has two owners if one of them owns it before and after the
// other is seen to own it.
func (w *testCluster) checkOwners() {
	nodes := w.liveNodes()
	for p := range wide.Partitions {
		var owner *node
		for _, n := range nodes {
			if p >= n.cfg.Layout.Partitions || !n.Ownership().Owns(p) {
				continue
			}
			if owner != nil && owner.Ownership().Owns(p) && !w.twoOwnersAllowed.Load() {
				w.t.Errorf("partition %d is owned by %s and by %s", p, owner.name, n.name)
				return
			}
			owner = n
		}
	}
}

// node is a node of a test, and its own host, with the calls that it got.
type node struct {
	*cluster.Consul
	t     *testing.T
	name  string
	cfg   cluster.ConsulConfig
	log   *logbook
	proxy line
	end   func() // ends Run and waits for it

	deaths  atomic.Int32 // calls of Died
	mu      sync.Mutex
	drained []int // in the order of the calls
	workers []int
	unable  []int
	down    map[int]error // what Prepare answers
	hold    chan struct{} // Drain waits for it; nil: it does not wait
}

// newNode makes a node that meets the others through a proxy of its own.
func (w *testCluster) newNode(name string, change func(*cluster.ConsulConfig)) *node {
	w.t.Helper()
	n := &node{t: w.t, name: name, log: &logbook{}, down: map[int]error{}}
	var consul *api.Config
	n.proxy, consul = w.connect()
	n.cfg = cluster.ConsulConfig{
		Node: name, Address: name + ".test:8080", Layout: wide, Prefix: w.prefix, TTL: ttl,
		Consul: consul, Host: n,
		Logger: slog.New(slog.NewTextHandler(n.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if change != nil {
		change(&n.cfg)
	}
	n.Consul = cluster.NewConsul(n.cfg)
	w.mu.Lock()
	w.nodes = append(w.nodes, n)
	w.mu.Unlock()
	w.t.Cleanup(func() {
		n.halt()
		n.Release()
		if w.t.Failed() {
			n.log.mu.Lock()
			w.t.Logf("log of %s:\n%s", name, n.log.text.String())
			n.log.mu.Unlock()
		}
	})
	return n
}

// join starts a node.
func (w *testCluster) join(name string, change func(*cluster.ConsulConfig)) *node {
	w.t.Helper()
	n := w.newNode(name, change)
	require.NoError(w.t, n.Acquire(w.t.Context()))
	require.Empty(w.t, n.Ownership().Owned(), "nothing before Run")
	n.run()
	return n
}

func (n *node) run() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	n.end = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			n.t.Errorf("run %s: %v", n.name, err)
		}
	})
}

// halt ends Run without leaving.
func (n *node) halt() {
	if n.end != nil {
		n.end()
	}
}

// leave stops a node as its operator would.
func (n *node) leave() {
	n.t.Helper()
	require.NoError(n.t, n.Leave(context.Background()))
	n.halt()
	n.Release()
}

func (n *node) Prepare(_ context.Context, database int) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.down[database]
}

func (n *node) Drain(ctx context.Context, partitions []int, idle func(int)) {
	n.mu.Lock()
	n.drained = append(n.drained, partitions...)
	hold := n.hold
	n.mu.Unlock()
	for _, p := range partitions {
		if n.Ownership().Owns(p) {
			n.t.Errorf("%s drains partition %d, which it owns", n.name, p)
		}
	}
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return
		}
	}
	for _, p := range partitions {
		idle(p)
	}
}

func (n *node) Unreachable() []int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.unable
}

func (n *node) BeginWaiting() {}
func (n *node) Died()         { n.deaths.Add(1) }

func (n *node) SetWorker(worker int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.workers = append(n.workers, worker)
}

// worker is the node's last worker number.
func (n *node) worker() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.workers[len(n.workers)-1]
}

func (n *node) set(change func(*node)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change(n)
}

func (n *node) owns() int { return len(n.Ownership().Owned()) }

// eventually waits until ok. A test that fails here says what it waited for.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	await.That(t, ok, "%s", what)
}

// logged waits until a node's log has a text: a node logs after it has acted, so a test may see the act first.
func logged(t *testing.T, n *node, text string) {
	t.Helper()
	eventually(t, "the log of "+n.name+" has: "+text, func() bool { return n.log.count(text) > 0 })
}

// settled waits until the nodes own all partitions, in equal shares, and each
// sees it so.
func settled(t *testing.T, nodes ...*node) {
	t.Helper()
	least, most := wide.Partitions/len(nodes), (wide.Partitions+len(nodes)-1)/len(nodes)
	eventually(t, fmt.Sprintf("%d nodes settle", len(nodes)), func() bool {
		all := 0
		for _, n := range nodes {
			owns := n.owns()
			all += owns
			members := n.Members()
			if owns < least || owns > most || len(members) != len(nodes) {
				return false
			}
			for _, m := range members {
				if len(m.Partitions) < least || len(m.Partitions) > most {
					return false
				}
			}
		}
		return all == wide.Partitions
	})
}

// direct is a client beside the nodes.
func (w *testCluster) direct() *api.Client {
	w.t.Helper()
	transport := &http.Transport{DisableKeepAlives: true}
	if w.fake != nil {
		transport.DialContext = w.net.Dial
	}
	client, err := api.NewClient(&api.Config{Address: w.addr, Token: w.token, Transport: transport})
	require.NoError(w.t, err)
	return client
}
