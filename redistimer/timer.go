package redistimer

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/timeoutcenter/toc/groupcommit"
	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// Store is what the timer needs of the task store; see store.Store.
type Store interface {
	Load(ctx context.Context, ids []uint64) ([]task.Task, error)
	Move(ctx context.Context, m store.Move) (applied bool, err error)
	DuePages(partition int, q store.Due) *store.DuePages
}

// Ownership tells which partitions are this node's; see cluster.Ownership.
type Ownership interface {
	Owns(partition int) bool
	Term(partition int) uint64
	Watch() <-chan struct{}
}

// Observer is told what happens, for the metrics.
type Observer interface {
	// Rearmed: tasks were put into a slot from the store; see the Reasons.
	Rearmed(b task.BizType, reason string, tasks int)
	// ArmFailed: tasks were stored whose arming failed; the sweep finds them.
	ArmFailed(b task.BizType, tasks int)
	// ClaimsExpired: claims that nobody settled were rolled back.
	ClaimsExpired(b task.BizType, tasks int)
	// Died: a task used up its attempts without an outcome.
	Died(b task.BizType)
	// RoundTrip: how long a claim of all slots that were due took.
	RoundTrip(took time.Duration)
}

// Reasons why tasks are armed from the store.
const (
	ReasonLost    = "lost"    // the slot had no marker, or Redis was replaced
	ReasonHorizon = "horizon" // their time has come near enough
	ReasonSweep   = "sweep"   // overdue, and Redis did not know them
)

// Reasons lists all reasons.
var Reasons = []string{ReasonLost, ReasonHorizon, ReasonSweep}

// Config is what a Timer works with.
type Config struct {
	Client    redis.UniversalClient // closed by Run
	Prefix    string                // stands before every topic
	Store     Store
	Queue     *queue.Queue
	Ownership Ownership
	Layout    sharding.Layout
	Observer  Observer

	// OutageAfter is how long a slot may be out of reach before the scan engine
	// serves it.
	OutageAfter time.Duration
	// Unarmed is told of tasks that could not be armed, of whichever partition. It
	// must not block. May be nil.
	Unarmed func(tasks []task.Task)
	// Handover is called when tasks of redis-mode types became the scan engine's:
	// it must look for them. It must not block.
	Handover func()
	Now      func() time.Time
	Logger   *slog.Logger
}

// What paces the claims. Tasks are claimed and loaded a little ahead and wait
// for their own millisecond in memory, so the round trips cost no lateness; and
// as there is that time, claims wait for each other and share their round trips.
const (
	ahead     = 200 * time.Millisecond // claimed so long before they are due
	beat      = 50 * time.Millisecond  // least time between two rounds, but for the urgent
	poll      = 3 * time.Second        // every slot is looked at so often, whatever its head
	retry     = time.Second            // and one that is out of reach so often
	giveBack  = 250 * time.Millisecond // pause of a task that the queue did not take
	maxInHand = 8192                   // claimed and unsettled tasks of a type, about
	maxClaim  = 256                    // ids a claim of a slot takes
	minClaim  = 16                     // and when many slots are due and none has a backlog
	sounding  = 8                      // slots asked first when many are due
)

// Timer is the slot timer of a node. It is safe for concurrent use.
type Timer struct {
	cfg   Config
	slots *Slots

	mu       sync.Mutex
	lines    map[uint64]*line // by biz_type id; guarded, and so is all in them
	closing  map[uint64]*line // not wanted any more; something of them is in hand
	stopping bool

	identity   string    // of the Redis servers, as last seen
	identified time.Time // when that was
	down       int       // slots that the scan engine serves

	asking bool          // a round is under way
	calm   chan struct{} // closed when a round ended or claims were settled; nil if nobody waits

	wanted     chan struct{} // closed once there is a business type to serve
	ring       chan struct{} // something changed for the next round
	repairs    chan struct{} // there are slots to repair
	background sync.WaitGroup

	arms    *groupcommit.Group[*arming]
	arming  atomic.Int64 // tasks in them
	settles *groupcommit.Group[settling]
	loads   []*groupcommit.Group[claim] // by database
	gone    *groupcommit.Group[uint64]  // job_ids
}

// New makes a Timer without business types; see SetTypes.
func New(cfg Config) *Timer {
	t := &Timer{
		cfg:     cfg,
		slots:   NewSlots(cfg.Client, cfg.Prefix),
		lines:   make(map[uint64]*line),
		closing: make(map[uint64]*line),
		wanted:  make(chan struct{}),
		ring:    make(chan struct{}, 1),
		repairs: make(chan struct{}, 1),
	}
	t.arms = groupcommit.New(2000, 2, t.flushArms)
	t.settles = groupcommit.New(2000, 1, t.flushSettles)
	t.gone = groupcommit.New(1000, 1, t.flushGone)
	for range cfg.Layout.Databases {
		t.loads = append(t.loads, groupcommit.New(1000, 2, t.flushLoads))
	}
	return t
}

// Run claims due tasks of owned partitions until ctx ends. Close must follow.
func (t *Timer) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		t.mu.Lock()
		t.stopping = true // from here on, what is given back is another process's
		t.mu.Unlock()
	})
	defer stop()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return t.rounds(ctx) })
	g.Go(func() error { return t.watch(ctx) })
	g.Go(func() error { return t.repair(ctx) })
	g.Go(func() error { return t.listen(ctx) })
	err := g.Wait()
	t.mu.Lock()
	t.stopping = true // the AfterFunc may still be on its way
	t.mu.Unlock()
	return err
}

// Close waits until what was settled or given back so far is known to Redis, and
// closes the connections. The queue must be closed, and all runs recorded.
func (t *Timer) Close() error {
	for _, g := range t.loads {
		g.Wait()
	}
	t.background.Wait()
	t.settles.Wait()
	t.gone.Wait()
	t.arms.Wait()
	return t.cfg.Client.Close()
}

// WaitPartition waits until no claim of a partition is in hand, or until ctx ends,
// whose error it answers. The partition must not be owned any more.
func (t *Timer) WaitPartition(ctx context.Context, partition int) error {
	for {
		t.mu.Lock()
		if !t.asking && !t.holds(partition) {
			t.mu.Unlock()
			return nil
		}
		if t.calm == nil {
			t.calm = make(chan struct{})
		}
		calm := t.calm
		t.mu.Unlock()
		select {
		case <-calm:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// holds tells whether claims of a partition are in hand. The lock is held.
func (t *Timer) holds(partition int) bool {
	for _, lines := range []map[uint64]*line{t.lines, t.closing} {
		for _, l := range lines {
			if len(l.slots[partition].held) > 0 {
				return true
			}
		}
	}
	return false
}

// calmer wakes those who wait for claims to end. The lock is held.
func (t *Timer) calmer() {
	if t.calm != nil {
		close(t.calm)
		t.calm = nil
	}
}

// listen hears of heads that became earlier, on any node. Without business types
// nobody needs a Redis.
func (t *Timer) listen(ctx context.Context) error {
	select {
	case <-t.wanted:
	case <-ctx.Done():
		return ctx.Err()
	}
	err := t.slots.Wakes(ctx, func(slot Slot, at time.Time) { t.wake(slot, at) })
	if ctx.Err() == nil {
		t.cfg.Logger.Warn("wake-ups are not heard; slots are looked at every few seconds", "error", err)
		<-ctx.Done()
	}
	return ctx.Err()
}

func (t *Timer) wake(slot Slot, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.lines {
		if l.Topic == slot.Topic && slot.Partition >= 0 && slot.Partition < len(l.slots) {
			t.sooner(&l.slots[slot.Partition], at)
		}
	}
}

// sooner notes that a slot has a task due then. The lock is held.
func (t *Timer) sooner(s *slotState, at time.Time) {
	if !s.owned() {
		return
	}
	if s.heard.IsZero() || at.Before(s.heard) {
		s.heard = at
	}
	if s.next.IsZero() || at.Before(s.next) {
		s.next = at
		ring(t.ring)
	}
}

func ring(bell chan struct{}) {
	select {
	case bell <- struct{}{}:
	default:
	}
}
