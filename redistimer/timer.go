package redistimer

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/timeoutcenter/toc/internal/groupcommit"
	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/redistimer/slots"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// Store is what the timer needs of the task store; see store.Store.
type Store interface {
	Readable(database int) bool
	Load(ctx context.Context, ids []uint64) ([]task.Task, error)
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
	// RoundTrip: how long a claim of all slots of a server that were due took.
	RoundTrip(took time.Duration)
}

// Reasons why tasks are armed from the store.
const (
	ReasonLost    = "lost"    // Redis lost the slot, or nobody served it
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

	// StoreID names the task store, in the markers of slots: another store's slots are
	// left alone. It is "" until that is known: then nobody is told from anybody, and
	// slots are filled at each hand-over. nil: it is never known. No spaces.
	StoreID func() string

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

// Timer is the slot timer of a node. It is safe for concurrent use.
type Timer struct {
	cfg   Config
	slots *slots.Slots

	mu       sync.Mutex
	lines    map[uint64]*line // by biz_type id; guarded, and so is all in them
	topics   map[string]*line // those in lines
	closing  map[uint64]*line // not wanted any more; something of them is in hand
	stopping bool

	name      string    // of this process
	down      int       // slots that the scan engine serves because Redis is away
	strangers time.Time // when slots of another store were last told of
	unfilled  time.Time // when slots that cannot be filled were last told of
	clockTold bool      // that the clock was ahead is told
	memoryAt  time.Time // when the servers are asked for their memory again
	evicts    string    // the policy of one that may throw away what we keep there; "": none
	full      string    // how full one is that is full; "": none

	servers map[string]*server // by address
	placeAt time.Time          // when the slots are placed on them again
	hearing *server            // where wake-ups are heard
	deaf    context.CancelFunc // ends that

	calm chan struct{} // closed when a round ended or claims were settled; nil if nobody waits

	wanted     chan struct{} // closed once there is a business type to serve
	ring       chan struct{} // something changed for the next round
	repairs    chan struct{} // there are slots to repair
	silences   chan struct{} // a server fell silent
	background sync.WaitGroup

	loads []*groupcommit.Group[claim] // by database
	gone  *groupcommit.Group[uint64]  // job_ids
}

// New makes a Timer without business types; see SetTypes.
func New(cfg Config) *Timer {
	t := &Timer{
		cfg:     cfg,
		slots:   slots.New(cfg.Client, cfg.Prefix),
		name:    processName(),
		lines:   make(map[uint64]*line),
		closing: make(map[uint64]*line),
		servers: make(map[string]*server),

		wanted:   make(chan struct{}),
		ring:     make(chan struct{}, 1),
		repairs:  make(chan struct{}, 1),
		silences: make(chan struct{}, 1),
	}
	t.slots.Within = answerWithin
	if cfg.StoreID != nil {
		t.slots.StoreID = cfg.StoreID
	}
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
	g.Go(func() error { return t.probe(ctx) })
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
	t.mu.Lock()
	servers := slices.Collect(maps.Values(t.servers))
	t.mu.Unlock()
	for _, srv := range servers {
		srv.settles.Wait()
	}
	t.background.Wait() // what was not settled at once
	t.gone.Wait()
	for _, srv := range servers {
		srv.arms.Wait()
	}
	return t.cfg.Client.Close()
}

// WaitPartition waits until no claim of a partition is in hand, or until ctx ends,
// whose error it answers. Then it hands the slots over, so that the next owner need not
// fill them. The partition must not be owned any more.
func (t *Timer) WaitPartition(ctx context.Context, partition int) error {
	for {
		t.mu.Lock()
		if !t.holds(partition) {
			t.mu.Unlock()
			t.handOver(ctx, partition)
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

// holds tells whether claims of a partition are in hand or on their way. The lock is held.
func (t *Timer) holds(partition int) bool {
	for _, lines := range []map[uint64]*line{t.lines, t.closing} {
		for _, l := range lines {
			if s := &l.slots[partition]; s.asking || len(s.held) > 0 {
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

func ring(bell chan struct{}) {
	select {
	case bell <- struct{}{}:
	default:
	}
}

// Skew is by how much this node's clock is ahead of Redis's, the median over the guards that answer; false if none does.
func (t *Timer) Skew() (ahead time.Duration, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []time.Duration
	for _, srv := range t.servers {
		if len(srv.groups) == 0 {
			continue
		}
		for _, s := range srv.groups[0].slots { // guards, all of them
			if s.owned() && s.failing.IsZero() && !s.seen.IsZero() {
				list = append(list, s.skew)
			}
		}
	}
	if len(list) == 0 {
		return 0, false
	}
	slices.Sort(list)
	return list[len(list)/2], true
}
