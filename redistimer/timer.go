package redistimer

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/timeoutcenter/toc/internal/logqueue"
	"github.com/timeoutcenter/toc/internal/wait"
	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/queue/dispatch"
	"github.com/timeoutcenter/toc/redistimer/slots"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// Store is the part of store.Store that the timer needs.
type Store interface {
	Readable(database int) bool
	Load(ctx context.Context, ids []uint64) ([]task.Task, error)
	DuePages(partition int, q store.Due) *store.DuePages
}

// Ownership reports which partitions this node owns; see cluster.Ownership.
type Ownership interface {
	Owns(partition int) bool
	Term(partition int) uint64
	Watch() <-chan struct{}
}

// Observer records events for the metrics.
type Observer interface {
	// Rearmed: tasks were put into a slot by a read; see the Reasons.
	Rearmed(b task.BizType, reason string, tasks int)
	// ArmFailed: tasks were stored whose arming failed; a read finds them.
	ArmFailed(b task.BizType, tasks int)
	// ClaimsExpired: claims that were never settled were rolled back.
	ClaimsExpired(b task.BizType, tasks int)
	// RoundTrip: the time of one round of claims at a server.
	RoundTrip(took time.Duration)
}

// Reasons why tasks are armed from the store.
const (
	ReasonLost    = "lost"    // Redis lost the slot, or it had no owner
	ReasonHorizon = "horizon" // they are now due within the horizon
	ReasonSweep   = "sweep"   // they were written since the last read, and nobody armed them
)

// Reasons lists all reasons.
var Reasons = []string{ReasonLost, ReasonHorizon, ReasonSweep}

// Config configures a Timer.
type Config struct {
	Client    redis.UniversalClient // closed by Close
	Prefix    string                // of all topics
	Store     Store
	Queue     *queue.Queue
	Ownership Ownership
	Layout    sharding.Layout
	Observer  Observer

	// StoreID returns the id of the task store. A server with another store's id is another center's. It returns ""
	// until the id is known; until then all servers count as ours. nil: the id is never known.
	StoreID func() string

	// OutageAfter is how long a slot may be unreachable before the scan engine serves it.
	OutageAfter time.Duration
	// SweepAfter is for how long a task may be overdue that a read arms in a slot with due tasks. Others are read when the slot
	// has none. Defaults to 10 s.
	SweepAfter time.Duration
	// Tick is the time between two calls of NextDue for a partition. Defaults to 10 s.
	Tick time.Duration
	// Nodes receives tasks of other nodes' partitions that could not be armed. Defaults to dispatch.SingleNode.
	Nodes  dispatch.Nodes
	Now    func() time.Time
	Logger *slog.Logger
}

// Timer is the redis engine of a node. It is safe for concurrent use.
type Timer struct{ *node }

// node is what the parts of a Timer share. Each part does one thing, and has the state that only this thing needs. They call
// each other under the one lock.
type node struct {
	cfg        Config
	slots      *slots.Slots
	pace       wait.Pace // of the polls; set by Run, before its loops
	hasTypes   chan struct{}
	fallbacks  wait.Signal // see Watch
	background sync.WaitGroup

	reader    *reader    // which rows do the slots lack?
	planner   *planner   // which slots are asked next?
	claimer   *claimer   // asks them, and loads the tasks that they give
	writer    *writer    // arms tasks, and settles claims
	health    *health    // which servers answer, and what if they do not?
	placement *placement // at which server is a slot?
	listener  *listener  // receives wake-ups

	mu         logqueue.Mutex       // guards what follows, the state of the parts, and all that it leads to
	bizTimers  map[uint64]*bizTimer // by biz_type id
	topics     map[string]*bizTimer // the same, by topic
	list       []*bizTimer          // the same; replaced, never changed
	closing    map[uint64]*bizTimer // removed types with claims in flight
	partitions []partition
	servers    map[string]*server // by address
	stopping   bool
	idle       chan struct{} // closed when a round ends or claims are settled; nil if no caller waits
}

// New makes a Timer without business types; see SetTypes.
func New(cfg Config) *Timer {
	cfg.Tick, cfg.SweepAfter = cmp.Or(cfg.Tick, 10*time.Second), cmp.Or(cfg.SweepAfter, 10*time.Second)
	cfg.Nodes = cmp.Or[dispatch.Nodes](cfg.Nodes, dispatch.SingleNode{})
	n := &node{
		cfg: cfg, slots: slots.New(cfg.Client, cfg.Prefix),
		pace: wait.PaceOf(context.Background()), hasTypes: make(chan struct{}), fallbacks: wait.NewSignal(),
		bizTimers: make(map[uint64]*bizTimer), closing: make(map[uint64]*bizTimer),
		partitions: make([]partition, cfg.Layout.Partitions), servers: make(map[string]*server),
	}
	n.slots.Timeout = callTimeout
	n.reader, n.claimer, n.writer = newReader(n), newClaimer(n), &writer{node: n}
	n.planner = &planner{node: n, replan: wait.NewSignal()}
	n.health = &health{node: n, process: processName(), failing: make(map[*slotState]struct{}), pulseNeeded: wait.NewSignal()}
	n.placement, n.listener = &placement{node: n}, &listener{node: n}
	return &Timer{n}
}

// Run claims due tasks of owned partitions until ctx ends. Close must follow.
func (t *Timer) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		t.mu.Lock()
		t.stopping = true // from here on, a released task is left to another process
		t.mu.Unlock()
	})
	defer stop()
	t.mu.Lock()
	t.pace = wait.PaceOf(ctx)
	t.mu.Unlock()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return t.claimer.rounds(ctx) })
	g.Go(func() error { return t.watch(ctx) })
	g.Go(func() error { return t.health.pulses(ctx) })
	g.Go(func() error { return t.listener.listen(ctx) })
	for d := range t.cfg.Layout.Databases {
		g.Go(func() error { return t.reader.readAll(ctx, d) })
	}
	err := g.Wait()
	t.mu.Lock()
	t.stopping = true // the AfterFunc may still be running
	t.mu.Unlock()
	return err
}

// Close waits until Redis has all settlements and releases so far, and closes the connections. The queue must
// be closed, and all outcomes recorded.
func (t *Timer) Close() error {
	t.mu.Lock()
	servers := slices.Collect(maps.Values(t.servers))
	t.mu.Unlock()
	for range 2 { // the ends of claims may have rows read again
		for _, g := range t.claimer.loads {
			g.Wait()
		}
		for _, srv := range servers {
			srv.settles.Wait()
			srv.writes.Wait()
		}
		t.background.Wait() // retries of settlements
	}
	return t.cfg.Client.Close()
}

// WaitPartition waits until this node has no claim of a partition, or returns ctx's error. This node must not own the
// partition any more.
func (t *Timer) WaitPartition(ctx context.Context, partition int) error {
	for {
		t.mu.Lock()
		if t.partitions[partition].busy == 0 {
			t.mu.Unlock()
			return nil
		}
		if t.idle == nil {
			t.idle = make(chan struct{})
		}
		idle := t.idle
		t.mu.Unlock()
		select {
		case <-idle:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// notifyIdle wakes the callers that wait for claims to end. The lock is held.
func (n *node) notifyIdle() {
	if n.idle != nil {
		close(n.idle)
		n.idle = nil
	}
}

// Slot is this node's view of a slot.
type Slot struct {
	Key         string    // of its store queue in Redis
	Foreign     bool      // it belongs to another store
	Unreachable time.Time // since when Redis does not serve it; zero: it does
	Cause       string    // why not, as "answers: …" or "does not answer: …"
	Fallback    bool      // for that reason the scan engine serves it
	Refusing    error     // why its server refuses writes; nil: it does not
	Unread      bool      // it is this node's, and its rows have not been read yet
}

// Slot returns the slot of a business type in a partition; ok is false if the type does not use this engine.
func (t *Timer) Slot(bizType uint64, partition int) (_ Slot, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	bt := t.bizTimers[bizType]
	if bt == nil {
		return Slot{}, false
	}
	name, p := slots.Slot{Topic: bt.Topic, Partition: partition}, &t.partitions[partition]
	srv := t.placement.serverAt(bt, partition)
	return Slot{
		Key: t.slots.StoreKey(name), Foreign: srv.foreign,
		Unreachable: t.health.unreachableSince(bt, partition), Fallback: t.health.isScanned(bt, partition),
		Refusing: srv.writeErr, Cause: srv.cause(), Unread: p.term != 0 && !p.hasRead(bt),
	}, true
}

// Find asks Redis for a pending task: whether it is in its slot, or else whether its slot lacks it, because a read should have
// put it there; and when it is to run there, if not at the time of its row.
func (t *Timer) Find(ctx context.Context, row *task.Task) (there, lacks bool, elsewhen time.Time, err error) {
	t.mu.Lock()
	bt := t.bizTimers[row.BizType]
	if bt == nil {
		t.mu.Unlock()
		return false, false, elsewhen, nil
	}
	p := t.partitionOf(row.JobID)
	slot, last := slots.Slot{Topic: bt.Topic, Partition: p}, lastRead{}
	if t.partitions[p].hasRead(bt) {
		last = t.partitions[p].lastRead
	}
	t.mu.Unlock()
	at, claimed, err := t.slots.Find(ctx, slot, row.JobID)
	if !at.IsZero() && !at.Equal(row.ActionTime) {
		elsewhen = at
	}
	there = !at.IsZero() || claimed
	lacks = err == nil && !there && !row.ActionTime.After(last.until) && row.Modified.Before(last.at)
	return there, lacks, elsewhen, err
}
