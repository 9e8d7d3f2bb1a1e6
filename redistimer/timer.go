package redistimer

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/timeoutcenter/toc/internal/groupcommit"
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
type Timer struct {
	cfg   Config
	slots *slots.Slots

	pace *wait.Pace // of the polls; set by Run, before its loops

	mu         logqueue.Mutex
	bizTimers  map[uint64]*bizTimer // by biz_type id; mu guards the timers and all their fields
	topics     map[string]*bizTimer // the same, by topic
	list       []*bizTimer          // the same; replaced, never changed
	partitions []partition
	closing    map[uint64]*bizTimer // removed types with claims in flight
	stopping   bool

	planned         time.Time               // when the last plan was made
	sweeps          []sweep                 // that ask slots
	failing         map[*slotState]struct{} // the slots for which Redis does not answer, although their servers may serve others
	name            string                  // of this process
	inFallback      int                     // number of servers, and of failing slots, that the scan engine serves because Redis is away
	unreadLogged    time.Time               // when a failed read was last logged
	lossLogged      time.Time               // the same of a slot that has lost tasks
	nextMemoryCheck time.Time               // when the servers' memory is checked next
	evictionPolicy  string                  // of a server that may evict our keys; "": none
	memoryFull      string                  // memory use of a server that is full; "": none

	servers       map[string]*server // by address
	slotCounts    map[*server]int    // of this node; nil: not counted since they were placed
	nextPlacement time.Time          // when the slots are assigned to servers again
	wakeServer    *server            // the server that we listen at for wake-ups
	stopListening context.CancelFunc // ends the subscription

	idle chan struct{} // closed when a round ends or claims are settled; nil if no caller waits

	hasTypes    chan struct{}  // closed once there is a business type to serve
	replan      wait.Signal    // the next round must be planned again
	readNeeded  []wait.Signal  // by database: a partition must be read at once
	pulseNeeded wait.Signal    // a server must be asked at once
	fallbacks   wait.Signal    // see Watch
	gaps        []atomic.Int64 // by database: the longest time between two reads of a partition lately, in nanoseconds
	background  sync.WaitGroup

	loads    []*groupcommit.Group[claim] // by loader
	removals *groupcommit.Group[removal] // tasks to remove from their slots
}

// New makes a Timer without business types; see SetTypes.
func New(cfg Config) *Timer {
	t := &Timer{
		cfg:       cfg,
		slots:     slots.New(cfg.Client, cfg.Prefix),
		name:      processName(),
		bizTimers: make(map[uint64]*bizTimer),
		closing:   make(map[uint64]*bizTimer),
		servers:   make(map[string]*server),

		failing: make(map[*slotState]struct{}),

		partitions: make([]partition, cfg.Layout.Partitions),
		gaps:       make([]atomic.Int64, cfg.Layout.Databases),

		hasTypes:    make(chan struct{}),
		replan:      wait.NewSignal(),
		pulseNeeded: wait.NewSignal(),
		fallbacks:   wait.NewSignal(),
	}
	for range cfg.Layout.Databases {
		t.readNeeded = append(t.readNeeded, wait.NewSignal())
	}
	t.cfg.Tick, t.cfg.SweepAfter = cmp.Or(cfg.Tick, 10*time.Second), cmp.Or(cfg.SweepAfter, 10*time.Second)
	if cfg.Nodes == nil {
		t.cfg.Nodes = dispatch.SingleNode{}
	}
	t.slots.Timeout = callTimeout
	t.removals = groupcommit.New(1000, 1, t.flushRemovals)
	for range loaders * cfg.Layout.Databases {
		t.loads = append(t.loads, groupcommit.New(1000, 1, t.flushLoads))
	}
	return t
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
	g.Go(func() error { return t.rounds(ctx) })
	g.Go(func() error { return t.watch(ctx) })
	g.Go(func() error { return t.pulses(ctx) })
	g.Go(func() error { return t.listen(ctx) })
	for d := range t.cfg.Layout.Databases {
		g.Go(func() error { return t.readAll(ctx, d) })
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
	for _, g := range t.loads {
		g.Wait()
	}
	t.mu.Lock()
	servers := slices.Collect(maps.Values(t.servers))
	t.mu.Unlock()
	for _, srv := range servers {
		srv.settles.Wait()
	}
	t.background.Wait() // retries of settlements
	t.removals.Wait()
	for _, srv := range servers {
		srv.arms.Wait()
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
func (t *Timer) notifyIdle() {
	if t.idle != nil {
		close(t.idle)
		t.idle = nil
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
	srv := t.serverAt(bt, partition)
	return Slot{
		Key: t.slots.StoreKey(name), Foreign: srv.foreign, Unreachable: t.unreachableSince(bt, partition), Fallback: t.isScanned(bt, partition),
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
