package redistimer_test

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/migrations"
	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/queue/dispatch"
	"github.com/timeoutcenter/toc/redistimer"
	"github.com/timeoutcenter/toc/redistimer/slots"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
	"github.com/timeoutcenter/toc/worker"
)

// layout has two databases with two partitions each.
var layout = sharding.Layout{Databases: 2, TablesPerDatabase: 2, Partitions: 4}

// center is a store and a Redis, the nodes on them, and the runs of their tasks.
type center struct {
	t      tester
	addrs  []string
	prefix string
	server *miniredis.Miniredis // in a bubble; otherwise nil
	slots  *slots.Slots
	redis  redis.UniversalClient
	store  *store.Store

	biz      redistimer.BizType
	capacity int                                                                 // of the queues
	storeID  string                                                              // of all nodes
	tick     time.Duration                                                       // 0: so long that only reads each minute find rows
	outage   time.Duration                                                       // after which the scan engine serves a slot; 0: a minute
	reading  func(partition int, q store.Due, real *store.Store) *store.DuePages // of the nodes; nil: the store's
	modeScan bool                                                                // nodes have no type of mode redis
	nodes    []*node
	username string       // of their connections, without a password
	ahead    atomic.Int64 // nanoseconds by which the clock of their timers is ahead

	// process is the processor. It may be changed before the first node starts.
	process func(ctx context.Context, t task.Task) error

	mu      sync.Mutex
	runs    map[uint64][]run
	early   []string
	rearmed map[string]int
	expired int
}

// tester is a test, or one case of the model test.
type tester interface {
	require.TestingT
	await.T
}

// run is one run of a task.
type run struct {
	at   time.Time
	task task.Task
}

const closeOrders = "close_orders"

// slotPlace gives a test a Redis: addresses, of which several are a cluster, and a prefix of its own.
type slotPlace func(t testing.TB) (addrs []string, prefix string)

func sharedRedis(t testing.TB) ([]string, string) {
	r := testrig.Redis(t)
	return []string{r.Addr()}, r.Prefix()
}

func private(server *testrig.PrivateRedis) slotPlace {
	return func(testing.TB) ([]string, string) { return []string{server.Addr()}, server.Prefix() }
}

func dial(t testing.TB, options *redis.UniversalOptions) redis.UniversalClient {
	options.ReadTimeout = await.Patience
	client := redis.NewUniversalClient(options)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

func open(t testing.TB, place slotPlace) *center {
	t.Helper()
	addrs, prefix := place(t)
	return openOn(t, nil, addrs, prefix)
}

// inBubble runs a test on an embedded Redis in a synctest bubble, where what it waits for takes no real time.
func inBubble(t *testing.T, test func(t *testing.T, c *center)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := bubbleRedis(t)
		test(t, openOn(t, server, []string{"127.0.0.1:1"}, ""))
	})
}

// bubbleRedis starts an embedded Redis without a socket, at a time for which there are job_ids.
func bubbleRedis(t *testing.T) *miniredis.Miniredis {
	time.Sleep(time.Until(sharding.Epoch.AddDate(1, 0, 0)))
	server := miniredis.NewMiniRedis()
	t.Cleanup(server.Close)
	conn, err := server.Dial() // starts it
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	return server
}

func openOn(t testing.TB, server *miniredis.Miniredis, addrs []string, prefix string) *center {
	t.Helper()
	c := &center{
		t: t, server: server, addrs: addrs, prefix: prefix, runs: map[uint64][]run{}, rearmed: map[string]int{},
		process: func(context.Context, task.Task) error { return nil },
		biz: redistimer.BizType{
			BizType: task.BizType{
				ID: 7, Name: closeOrders, Mode: task.ModeRedis, Workers: 4, Timeout: time.Minute,
				MaxRetries: 5, BackoffMin: 30 * time.Millisecond, BackoffMax: time.Second,
			},
			Topic: closeOrders, Horizon: time.Hour, Visibility: time.Minute,
		},
	}
	c.redis = dial(t, &redis.UniversalOptions{Addrs: addrs, Dialer: c.connect, PoolSize: poolSize})
	c.slots = slots.New(c.redis, prefix)
	dir := testrig.MemoryDir(t)
	var list []migrations.Database
	for i := range layout.Databases {
		db, err := sql.Open("sqlite", store.SQLiteDSN(dir, i, false))
		require.NoError(t, err)
		defer db.Close()
		list = append(list, migrations.Database{Index: i, DB: db})
	}
	require.NoError(t, migrations.Up(t.Context(), migrations.Config{Dialect: migrations.SQLite, Layout: layout, Databases: list}))
	ids, err := sharding.NewIDs(layout, 1, time.Now)
	require.NoError(t, err)
	c.store, err = store.Open(store.Config{Driver: store.SQLite, Layout: layout, Dir: dir, IDs: ids})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, c.store.Close())
		require.Empty(t, c.early)
	})
	return c
}

// poolSize lets no call wait for a connection: the client waits with timers that bubbles must not share.
const poolSize = 1000

// connect opens a connection to the Redis of the center.
func (c *center) connect(ctx context.Context, network, addr string) (net.Conn, error) {
	if c.server == nil {
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	ours, its := net.Pipe()
	c.server.Server().ServeConn(newLooseConn(its))
	return newLooseConn(ours), nil
}

// looseConn is an end of a net.Pipe whose writes do not wait for the reader, as those of a socket do not. What is written takes
// a moment to arrive: otherwise the clock of a bubble would stand still while a timer asks Redis whether a millisecond is over.
type looseConn struct {
	net.Conn
	out    chan []byte
	closed chan struct{}
	once   sync.Once
}

func newLooseConn(conn net.Conn) *looseConn {
	c := &looseConn{Conn: conn, out: make(chan []byte, 1000), closed: make(chan struct{})}
	go func() {
		defer c.Close()
		for {
			select {
			case p := <-c.out:
				time.Sleep(100 * time.Microsecond) // in a bubble
				if _, err := conn.Write(p); err != nil {
					return
				}
			case <-c.closed:
				return
			}
		}
	}()
	return c
}

func (c *looseConn) Write(p []byte) (int, error) {
	select {
	case c.out <- bytes.Clone(p):
		return len(p), nil
	case <-c.closed:
		return 0, net.ErrClosed
	}
}

func (c *looseConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// node is a Timer with a queue, a runner and an intake.
type node struct {
	*redistimer.Timer
	c     *center
	desk  *intake.Service
	queue *queue.Queue
	owned *ownership
	link  *link
	store *mortal

	lanes      chan []*worker.Lane
	stop       context.CancelFunc
	cancelRuns context.CancelFunc
	unarmed    chan task.Task // tasks that the timer could not arm
	stopped    chan error     // of the timer
	ran        chan error     // of the runner
	over       bool
}

// start starts a node that owns these partitions.
func (c *center) start(partitions ...int) *node {
	c.t.Helper()
	owned := newOwnership(partitions)
	n := &node{
		c: c, owned: owned, link: &link{connect: c.connect}, store: &mortal{Store: c.store, reading: c.reading},
		queue:   queue.New(queue.Config{Capacity: c.capacity, Partitions: layout.Partitions, Ownership: owned}),
		unarmed: make(chan task.Task, 1000),
		lanes:   make(chan []*worker.Lane, 1), stopped: make(chan error, 1), ran: make(chan error, 1),
	}
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	client := redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs: c.addrs, Username: c.username, Password: c.username, Dialer: n.link.dial, PoolSize: poolSize, DialerRetries: 1, MaxRetries: 1, ContextTimeoutEnabled: true,
	})
	n.Timer = redistimer.New(redistimer.Config{
		Client: client, Prefix: c.prefix, Store: n.store, Queue: n.queue, Ownership: n.owned, Layout: layout, Observer: c,
		StoreID:     func() string { return c.storeID },
		OutageAfter: cmp.Or(c.outage, time.Minute), Tick: cmp.Or(c.tick, time.Hour), Nodes: n, Now: c.now, Logger: quiet,
	})
	types, err := task.NewTypes(c.biz.BizType)
	require.NoError(c.t, err)
	n.desk = intake.New(intake.Config{
		Store: n.store, Queue: n.queue, Layout: layout, Catalog: task.NewCatalog(types), Observer: c, Now: time.Now,
		Dispatch: dispatch.New(dispatch.Config{Layout: layout, Queue: n.queue, Store: n.store, Timer: n.Timer}),
	})
	runner := worker.New(worker.Config{
		Queue: n.queue, Store: n.store, Layout: layout, Observer: c, Ownership: owned, Now: time.Now, Logger: quiet,
	})
	if !c.modeScan {
		n.SetTypes([]redistimer.BizType{c.biz})
	}
	n.lanes <- []*worker.Lane{{BizType: c.biz.BizType, Processor: processor.Func(c.run)}}

	ctx, stop := context.WithCancel(context.Background())
	runCtx, cancelRuns := context.WithCancel(context.Background())
	n.stop, n.cancelRuns = stop, cancelRuns
	c.nodes = append(c.nodes, n)
	go func() { n.ran <- runner.Run(runCtx, n.lanes) }()
	go func() { n.stopped <- n.Timer.Run(ctx) }()
	if t, ok := c.t.(testing.TB); ok {
		t.Cleanup(n.end)
	}
	return n
}

func (c *center) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

// moved passes changes of rows to the timer.
func (n *node) moved(kind dispatch.Kind, rows ...task.Task) {
	list := make([]dispatch.Change, len(rows))
	for i := range rows {
		list[i] = dispatch.Change{Kind: kind, Row: &rows[i], JobID: rows[i].JobID, Status: rows[i].Status}
	}
	n.Moved(list)
}

// Notify makes the node the dispatch.Nodes of its timer.
func (n *node) Notify(tasks ...task.Task) {
	for _, row := range tasks {
		n.unarmed <- row
	}
}

// allPartitions lists all partitions.
var allPartitions = []int{0, 1, 2, 3}

// end stops a node in the order of the program: runs end and are recorded.
func (n *node) end() {
	if n.over {
		return
	}
	n.over = true
	defer time.AfterFunc(await.Patience, n.cancelRuns).Stop() // a failed test may have left runs behind
	n.stop()
	require.ErrorIs(n.c.t, <-n.stopped, context.Canceled)
	close(n.lanes)
	n.queue.Close()
	err := <-n.ran
	n.cancelRuns()
	if closed := n.Close(); !errors.Is(closed, net.ErrClosed) { // what turn has closed
		err = errors.Join(err, closed)
	}
	if !n.store.dead.Load() {
		require.NoError(n.c.t, err)
	}
}

// crash ends a node as if it were killed: it reaches neither the store nor Redis any more.
func (n *node) crash() {
	n.store.dead.Store(true)
	n.link.cut()
	n.cancelRuns()
	n.end()
}

// run is the processor of all nodes.
func (c *center) run(ctx context.Context, t task.Task) error {
	now := time.Now()
	c.mu.Lock()
	c.runs[t.JobID] = append(c.runs[t.JobID], run{now, t})
	if now.Before(t.ActionTime) {
		c.early = append(c.early, fmt.Sprintf("task %d ran %s early", t.JobID, t.ActionTime.Sub(now)))
	}
	c.mu.Unlock()
	return c.process(ctx, t)
}

func (c *center) runsOf(id uint64) []run {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]run(nil), c.runs[id]...)
}

// submit submits a task that is due after a delay.
func (n *node) submit(bizID uint64, delay time.Duration) task.Task {
	n.c.t.Helper()
	got, err := n.desk.Submit(context.Background(), api.Submit{BizType: closeOrders, BizID: bizID, Delay: delay, Now: true})
	require.NoError(n.c.t, err)
	row, err := got.Task.Task(n.c.biz.ID)
	require.NoError(n.c.t, err)
	return row
}

// eventually waits until cond holds. what says what is wrong if it never does.
func (c *center) eventually(cond func() bool, what string, args ...any) {
	c.t.Helper()
	await.That(c.t, cond, "the end of: "+what, args...)
}

// settled waits until a task has a status in the store, and is in no queue of its slot but the dead one.
func (c *center) settled(id uint64, status task.Status) task.Task {
	c.t.Helper()
	var row task.Task
	c.eventually(func() bool { row = c.row(id); return row.Status == status }, "task %d is not %s", id, status)
	if status != task.Pending {
		c.eventually(func() bool {
			stored, prepared := c.has(id)
			return !stored && !prepared
		}, "task %d is still in its slot", id)
	}
	return row
}

func (c *center) row(id uint64) task.Task {
	row, err := c.store.Get(context.Background(), id)
	require.NoError(c.t, err)
	return row
}

func (c *center) slot(id uint64) slots.Slot {
	shard, _ := layout.ShardOf(id)
	return slots.Slot{Topic: c.biz.Topic, Partition: layout.Partition(shard)}
}

// has reports in which queues Redis has a task.
func (c *center) has(id uint64) (stored, prepared bool) {
	s := c.slot(id)
	return c.score(c.slots.StoreKey(s), id) != 0, c.score(c.slots.PrepareKey(s), id) != 0
}

// score returns 0 for a member that is not there.
func (c *center) score(key string, id uint64) int64 {
	score, err := c.redis.ZScore(context.Background(), key, fmt.Sprint(id)).Result()
	if err == redis.Nil {
		return 0
	}
	require.NoError(c.t, err)
	return int64(score)
}

// depth is the number of members in the queues of all slots.
type depth struct{ Store, Prepared, Dead int64 }

func (c *center) depth() (sum depth) {
	cards, err := c.redis.Pipelined(context.Background(), func(pipe redis.Pipeliner) error {
		for p := range layout.Partitions {
			slot := slots.Slot{Topic: c.biz.Topic, Partition: p}
			for _, key := range []string{c.slots.StoreKey(slot), c.slots.PrepareKey(slot), c.slots.DeadKey(slot)} {
				pipe.ZCard(context.Background(), key)
			}
		}
		return nil
	})
	require.NoError(c.t, err)
	for i, n := range []*int64{&sum.Store, &sum.Prepared, &sum.Dead} {
		for k := i; k < len(cards); k += 3 {
			*n += cards[k].(*redis.IntCmd).Val()
		}
	}
	return sum
}

// allRead waits until the nodes have read the rows of all slots that they own.
func (c *center) allRead() {
	c.t.Helper()
	for _, n := range c.nodes {
		for p := range layout.Partitions {
			c.eventually(func() bool {
				slot, ok := n.Slot(c.biz.ID, p)
				return n.over || !ok || !slot.Unread || !n.owned.Owns(p)
			}, "slot %d is not read", p)
		}
	}
}

// The center is an observer that ignores most events.

func (c *center) Submitted(task.BizType, int)                                         {}
func (c *center) Started(task.BizType, queue.Lateness)                                {}
func (c *center) Finished(task.BizType, worker.Outcome, time.Duration, time.Duration) {}
func (c *center) Fenced(task.BizType, worker.Fence)                                   {}
func (c *center) ArmFailed(task.BizType, int)                                         {}
func (c *center) RoundTrip(time.Duration)                                             {}

func (c *center) Rearmed(_ task.BizType, reason string, tasks int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rearmed[reason] += tasks
}

func (c *center) ClaimsExpired(_ task.BizType, tasks int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expired += tasks
}

func (c *center) expiredClaims() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.expired
}

// fellBack reports whether the scan engine took over tasks since the last call.
func (n *node) fellBack() bool {
	select {
	case <-n.Watch():
		return true
	default:
		return false
	}
}

// ownership is set by the test.
type ownership struct {
	mu    sync.Mutex
	owned map[int]bool
	terms map[int]uint64
	bell  chan struct{}
}

func newOwnership(partitions []int) *ownership {
	o := &ownership{owned: map[int]bool{}, terms: map[int]uint64{}, bell: make(chan struct{}, 1)}
	for _, p := range partitions {
		o.owned[p] = true
	}
	return o
}

func (o *ownership) Owns(p int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.owned[p]
}

func (o *ownership) Term(p int) uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.owned[p] {
		return 0
	}
	return 1 + o.terms[p]
}

func (*ownership) TakenUncleanly(int) (time.Time, bool) { return time.Time{}, false }
func (*ownership) Taken(int) (time.Time, bool)          { return time.Time{}, false }
func (*ownership) Settled(int, uint64)                  {}

func (o *ownership) Watch() <-chan struct{} { return o.bell }

func (o *ownership) set(p int, mine bool) {
	o.mu.Lock()
	if mine && !o.owned[p] {
		o.terms[p]++
	}
	o.owned[p] = mine
	o.mu.Unlock()
	select {
	case o.bell <- struct{}{}:
	default:
	}
}

// link is a node's connection to Redis, which a crash cuts.
type link struct {
	connect func(ctx context.Context, network, addr string) (net.Conn, error)

	slow atomic.Int64 // nanoseconds by which answers are delayed, except wake-ups
	// silent: nothing that is sent arrives any more, from the first command on that contains silenceAt.
	silent    atomic.Bool
	silenceAt atomic.Pointer[string]

	wakesSilent atomic.Bool // no wake-up arrives any more, on no connection

	wakesFrom atomic.Pointer[string] // the server of the last subscription
	wakeUps   atomic.Int64           // that have arrived
	held      atomic.Pointer[heldCommand]

	mu    sync.Mutex
	dead  bool
	to    string // address to dial instead; "": none
	conns []*slowConn
}

// heldCommand is the first command with a text; it is delayed until it may go on.
type heldCommand struct {
	text          string
	reached, goOn chan struct{}
}

// hold delays the next command that contains a text.
func (l *link) hold(text string) *heldCommand {
	h := &heldCommand{text, make(chan struct{}), make(chan struct{})}
	l.held.Store(h)
	return h
}

var errCrashed = errors.New("the node has crashed")

// turn redirects to another server from now on.
func (l *link) turn(addr string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.to = addr
	for _, conn := range l.conns {
		_ = conn.Close()
	}
	l.conns = nil
}

func (l *link) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	l.mu.Lock()
	addr, connect := cmp.Or(l.to, addr), l.connect
	l.mu.Unlock()
	conn, err := connect(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		_ = conn.Close()
		return nil, errCrashed
	}
	slow := &slowConn{Conn: conn, link: l}
	l.conns = append(l.conns, slow)
	return slow, nil
}

// lead leads new connections elsewhere from now on. Those that there are stay where they are.
func (l *link) lead(connect func(ctx context.Context, network, addr string) (net.Conn, error)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.connect = connect
}

// silenceWakes makes the connections of wake-ups pass nothing any more, new ones too. The others work.
func (l *link) silenceWakes() {
	l.wakesSilent.Store(true)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		if c.wakes.Load() {
			c.silent.Store(true)
		}
	}
}

// slowConn is a connection whose answers may be delayed.
type slowConn struct {
	net.Conn
	link   *link
	wakes  atomic.Bool
	silent atomic.Bool // nothing passes any more
}

func (c *slowConn) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("subscribe")) {
		c.wakes.Store(true)
		c.silent.Store(c.link.wakesSilent.Load())
		from := c.RemoteAddr().String()
		c.link.wakesFrom.Store(&from)
	}
	if h := c.link.held.Load(); h != nil && bytes.Contains(p, []byte(h.text)) && c.link.held.CompareAndSwap(h, nil) {
		close(h.reached)
		<-h.goOn
	}
	if at := c.link.silenceAt.Load(); at != nil && bytes.Contains(p, []byte(*at)) {
		c.link.silent.Store(true)
	}
	if c.link.silent.Load() || c.silent.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c *slowConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	for err == nil && c.silent.Load() {
		n, err = c.Conn.Read(p)
	}
	if c.wakes.Load() && bytes.Contains(p[:n], []byte("message")) {
		c.link.wakeUps.Add(1)
	}
	if slow := c.link.slow.Load(); slow > 0 && !c.wakes.Load() {
		time.Sleep(time.Duration(slow)) // in a bubble
	}
	return n, err
}

func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = true
	for _, conn := range l.conns {
		_ = conn.Close()
	}
}

// mortal is the store of one node, which the node cannot reach after a crash.
type mortal struct {
	*store.Store
	dead    atomic.Bool
	loaded  atomic.Pointer[func()]                                              // called once after a Load
	read    sync.Map                                                            // the ids of all Loads
	reading func(partition int, q store.Due, real *store.Store) *store.DuePages // nil: the real store's
	down    func(database int) bool                                             // nil: none is
}

func (m *mortal) Readable(database int) bool { return m.down == nil || !m.down(database) }

func (m *mortal) DuePages(partition int, q store.Due) *store.DuePages {
	if m.reading != nil {
		return m.reading(partition, q, m.Store)
	}
	return m.Store.DuePages(partition, q)
}

func (m *mortal) Load(ctx context.Context, ids []uint64) ([]task.Task, error) {
	if m.dead.Load() {
		return nil, errCrashed
	}
	for _, id := range ids {
		m.read.Store(id, true)
	}
	rows, err := m.Store.Load(ctx, ids)
	if loaded := m.loaded.Swap(nil); loaded != nil {
		(*loaded)()
	}
	return rows, err
}

func (m *mortal) Move(ctx context.Context, move store.Move) (bool, error) {
	if m.dead.Load() {
		return false, errCrashed
	}
	return m.Store.Move(ctx, move)
}

func (m *mortal) Apply(ctx context.Context, database int, stamp time.Time, moves []store.Move) ([]bool, error) {
	if m.dead.Load() {
		return nil, errCrashed
	}
	return m.Store.Apply(ctx, database, stamp, moves)
}
