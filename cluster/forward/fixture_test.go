package forward_test

import (
	"bytes"
	"database/sql"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/cluster"
	"github.com/timeoutcenter/toc/cluster/forward"
	"github.com/timeoutcenter/toc/cluster/peerproof"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/migrations"
	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/queue/dispatch"
	"github.com/timeoutcenter/toc/server/rest"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var layout = sharding.Layout{Databases: 1, TablesPerDatabase: 2, Partitions: 2}

// The clients' token, and the nodes' shared secret.
const (
	token = "the-token-of-the-cluster"
	key   = "the-secret-of-the-cluster"
)

// In the tests' cluster node n1 owns the tasks of even biz_ids, n2 the others.
const ours, theirs = uint64(2), uint64(3)

func bizTypes(t testing.TB) *task.Types {
	types, err := task.NewTypes(task.BizType{ID: 1, Name: "order_close", Mode: task.ModeScan})
	require.NoError(t, err)
	return types
}

// fleet is two nodes on one store: real Services behind real servers.
type fleet struct {
	t      *testing.T
	store  *store.Store
	n1, n2 *node

	mu        sync.Mutex
	owners    [2]string
	addresses map[string]string
}

// node is one of them.
type node struct {
	*client.Client
	name     string
	service  *intake.Service
	queue    *queue.Queue
	lane     queue.Source
	forward  *forward.Forwarder
	server   *httptest.Server
	log      *log
	requests atomic.Int64
}

func newCluster(t *testing.T) *fleet {
	dir := testrig.MemoryDir(t)
	db, err := sql.Open("sqlite", store.SQLiteDSN(dir, 0, false))
	require.NoError(t, err)
	require.NoError(t, migrations.Up(t.Context(), migrations.Config{
		Dialect: migrations.SQLite, Layout: layout, Databases: []migrations.Database{{Index: 0, DB: db}},
	}))
	require.NoError(t, db.Close())
	ids, err := sharding.NewIDs(layout, 1, time.Now)
	require.NoError(t, err)
	s, err := store.Open(store.Config{Driver: store.SQLite, Layout: layout, Dir: dir, IDs: ids})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })

	c := &fleet{t: t, store: s, owners: [2]string{"n1", "n2"}, addresses: map[string]string{}}
	c.n1, c.n2 = c.node("n1"), c.node("n2")
	return c
}

// member is the cluster as one node sees it.
type member struct {
	*fleet
	name string
}

func (m member) Term(p int) uint64 {
	if m.owner(p) == m.name {
		return 1
	}
	return 0
}

func (m member) Owner(p int) (cluster.Member, bool) {
	owner := m.owner(p)
	return cluster.Member{Name: owner, Address: m.address(owner)}, owner != ""
}

func (m member) Members() (list []cluster.Member) {
	for _, name := range []string{"n1", "n2"} {
		list = append(list, cluster.Member{Name: name, Address: m.address(name)})
	}
	return list
}

// theOther owns all partitions.
type theOther cluster.Member

func (theOther) Term(int) uint64 { return 0 }

func (o theOther) Members() []cluster.Member { return []cluster.Member{cluster.Member(o)} }

func (o theOther) Owner(int) (cluster.Member, bool) { return cluster.Member(o), o.Name != "" }

func (c *fleet) node(name string) *node {
	t := c.t
	types := bizTypes(t)
	n := &node{name: name, log: &log{}, queue: queue.New(queue.Config{Partitions: layout.Partitions, StaleAfter: time.Hour})} // there are no rechecks
	n.lane = n.queue.AddType(task.BizType{ID: 1})
	proof := peerproof.New(name, func() []string { return []string{key} })
	n.forward = forward.New(forward.Config{
		Node: name, Layout: layout, Proof: proof, Logger: n.log.logger(), Timeout: time.Minute,
		Cluster: member{c, name},
	})
	n.service = intake.New(intake.Config{
		Node: name, Store: c.store, Queue: n.queue, Layout: layout, Catalog: task.NewCatalog(types), Observer: observer{},
		Dispatch: dispatch.New(dispatch.Config{
			Layout: layout, Queue: n.queue, Store: c.store, Ownership: n, Scanner: scanner{}, Nodes: n.forward,
		}),
		Cluster: n.forward, Now: time.Now,
	})
	handler := rest.New(rest.Config{Center: n.service, Status: started{}, Tokens: func() []string { return []string{token} }, Peers: proof})
	n.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.requests.Add(1)
		handler.ServeHTTP(w, r)
	}))
	c.addresses[name] = n.server.Listener.Addr().String()
	n.Client = client.New(n.server.URL, client.WithToken(token))
	t.Cleanup(func() {
		n.CloseIdleConnections()
		n.forward.Close()
		n.server.Close()
		n.queue.Close()
	})
	return n
}

// scanner is the scan engine: tasks that are due within 10 s wait in the queue of their owner.
type scanner struct{}

func (scanner) Until(uint64, int) (time.Time, bool) { return time.Now().Add(10 * time.Second), true }

func (scanner) Tick() {}

// Owns makes the node the dispatch.Ownership of its dispatcher.
func (n *node) Owns(p int) bool { return n.forward.Term(p) != 0 }

func (c *fleet) owner(p int) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.owners[p]
}

func (c *fleet) address(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.addresses[name]
}

// gives hands all partitions to a node; "" to none.
func (c *fleet) gives(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.owners = [2]string{name, name}
}

// stored is a task that no queue knows yet.
func (c *fleet) stored(bizID uint64, status task.Status) uint64 {
	c.t.Helper()
	row := c.store.Insert(c.t.Context(), []task.Task{{
		JobID: c.store.NewID(bizID), BizID: bizID, BizType: 1, ActionTime: task.CeilMilli(time.Now().Add(time.Hour)),
	}})[0]
	require.NoError(c.t, row.Err)
	if status != task.Pending {
		ok, err := c.store.Move(c.t.Context(), store.Move{JobID: row.Task.JobID, From: task.Pending, To: status})
		require.NoError(c.t, err)
		require.True(c.t, ok)
	}
	return row.Task.JobID
}

func (c *fleet) row(id uint64) task.Task {
	c.t.Helper()
	row, err := c.store.Get(c.t.Context(), id)
	require.NoError(c.t, err)
	return row
}

type observer struct{}

func (observer) Submitted(task.BizType, int) {}

// log keeps what is logged.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *log) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// one is a Forwarder that knows one other node, n2, which owns everything.
func one(t *testing.T, address string, with ...func(*forward.Config)) (*forward.Forwarder, *log) {
	l := &log{}
	cfg := forward.Config{
		Node: "n1", Layout: layout, Logger: l.logger(), Proof: peerproof.New("n1", nil),
		Cluster: theOther{Name: "n2", Address: address},
	}
	for _, w := range with {
		w(&cfg)
	}
	p := forward.New(cfg)
	t.Cleanup(p.Close)
	return p, l
}

// the is the Service of the node that owns everything.
func the(t *testing.T, p *forward.Forwarder) intake.Peer {
	t.Helper()
	owner, err := p.Owner(0)
	require.NoError(t, err)
	return owner
}

// server answers as configured, and counts its requests.
type server struct {
	*httptest.Server
	asked  atomic.Int64
	opened atomic.Int64
}

func serve(t *testing.T, answer http.HandlerFunc) *server {
	s := &server{}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		answer(w, r)
	}))
	s.Config.ConnState = s.count
	s.Start()
	t.Cleanup(s.Close)
	return s
}

// started is the rest.Status of a node that takes requests.
type started struct{ rest.Status }

func (started) Waiting() string { return "" }
