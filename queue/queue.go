package queue

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/timeoutcenter/toc/task"
)

// Config shapes a queue.
type Config struct {
	// Capacity bounds each lane: waiting, ready and running tasks together.
	// Defaults to 10,000.
	Capacity int
	// Partitions is how many partitions the layout has.
	Partitions int
	// Term is a number that is another one each time this node takes a partition, and
	// 0 while it is another's; see cluster.Ownership. Then nothing of it is taken in
	// and nothing starts, and what is known of it from an earlier term is read again.
	// Asked under the queue's lock. Defaults to 1.
	Term func(partition int) uint64
	// CheckAhead is how long before its time a waiting row is read again.
	// Defaults to 50 ms.
	CheckAhead time.Duration
	// StaleAfter is how old a row may be when its task starts; an older one is
	// read again first. Defaults to 1 s.
	StaleAfter time.Duration
	// Now is the wall clock. Defaults to time.Now.
	Now func() time.Time
}

// WithDefaults fills what is left out.
func (c Config) WithDefaults() Config {
	if c.Capacity == 0 {
		c.Capacity = 10_000
	}
	if c.CheckAhead == 0 {
		c.CheckAhead = 50 * time.Millisecond
	}
	if c.StaleAfter == 0 {
		c.StaleAfter = time.Second
	}
	if c.Term == nil {
		c.Term = func(int) uint64 { return 1 }
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// Queue is the in-memory queue of a node. It is safe for concurrent use.
type Queue struct {
	cfg Config

	mu      sync.Mutex
	entries map[uint64]*Entry // by job_id: everything that is not gone
	lanes   map[uint64]*lane  // by biz_type id
	reads   []reads           // by partition
	inHand  []int             // entries by partition
	emptied chan struct{}     // closed when a partition has none left; nil if nobody waits
	seq     uint64            // see tick
	closed  bool

	check  wake // somebody waits in NextChecks
	refill wake // somebody waits in NextRefill
	idle   wake // somebody waits in WaitIdle
}

// New makes an empty queue without lanes.
func New(cfg Config) *Queue {
	cfg = cfg.WithDefaults()
	return &Queue{
		cfg:     cfg,
		entries: make(map[uint64]*Entry),
		lanes:   make(map[uint64]*lane),
		reads:   make([]reads, cfg.Partitions),
		inHand:  make([]int, cfg.Partitions),
		check:   newWake(),
		refill:  newWake(),
		idle:    newWake(),
	}
}

// wake is a bell with memory of one ring. Who hears it and leaves something to
// do rings again for the next one.
type wake chan struct{}

func newWake() wake { return make(wake, 1) }

func (w wake) ring() {
	select {
	case w <- struct{}{}:
	default:
	}
}

// wait returns at a ring, when the timer has run for d (d < 0: never), or when
// ctx ends, whose error it answers.
func (w wake) wait(ctx context.Context, d time.Duration) error {
	var expired <-chan time.Time
	if d >= 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		expired = t.C
	}
	select {
	case <-w:
	case <-expired:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// left is what must be told to receipts once the lock is released.
type left []*Entry

func (l left) tell() {
	for _, e := range l {
		if e.Receipt != nil {
			e.Receipt.GivenBack(e.Task)
		}
	}
}

// Offer puts tasks into their lanes. The rows must have been read under r, or
// (r nil) be known not to be stale: just committed, and held until now. Tasks
// that are there already are brought up to date; tasks of business types without
// a lane are ignored. What a full lane turns away is given back and remembered
// for NextRefill; turnedAway names the business types concerned.
func (q *Queue) Offer(r *Read, items ...Item) (turnedAway []uint64) {
	var back left
	q.mu.Lock()
	now := q.cfg.Now()
	for i := range items {
		var fits bool
		if back, fits = q.offer(r, &items[i], now, back); !fits && !slices.Contains(turnedAway, items[i].Task.BizType) {
			turnedAway = append(turnedAway, items[i].Task.BizType)
		}
	}
	q.mu.Unlock()
	back.tell()
	return turnedAway
}

func (q *Queue) offer(r *Read, it *Item, now time.Time, back left) (_ left, fits bool) {
	l := q.lanes[it.Task.BizType]
	term := q.cfg.Term(it.Partition)
	if l == nil || q.closed || term == 0 {
		return append(back, &Entry{Item: *it}), true
	}
	if r != nil && (r.term != term || q.reads[it.Partition].stale(it.Task.JobID, r.began)) {
		return append(back, &Entry{Item: *it}), true
	}
	read := now
	if r != nil {
		read = r.at
	}
	if e := q.entries[it.Task.JobID]; e != nil {
		switch e.state {
		case waiting, ready:
			e.term = term
			q.refresh(e, &it.Task, now, read)
		case checking:
			e.term = term
		case held:
			e.Task, e.missed = it.Task, true
		}
		return append(back, &Entry{Item: *it}), true // the first receipt stays in force
	}

	e := &Entry{Item: *it, lane: l, read: read, term: term}
	due := it.Task.ActionTime
	switch {
	case !due.After(now):
		e.state, e.runAt = ready, now
	case it.Claimed && due.Before(now.Add(q.cfg.StaleAfter)): // was just read, no need to read it again
		e.state, e.runAt = ready, due
	default:
		e.state, e.runAt = waiting, due
	}
	e.seq = q.tick()
	if l.full() {
		if len(l.farthest) == 0 || !e.before(l.farthest[0]) {
			l.leaveBehind(it)
			q.refill.ring()
			return append(back, e), false
		}
		farthest := l.farthest[0]
		q.forget(farthest)
		l.leaveBehind(&farthest.Item)
		back = append(back, farthest)
	}
	q.keep(e)
	q.enqueue(e)
	return back, true
}

// refresh takes over what a row says now: an admin may have moved or edited the
// task by hand.
func (q *Queue) refresh(e *Entry, t *task.Task, now, read time.Time) {
	moved := !e.Task.ActionTime.Equal(t.ActionTime)
	e.Task, e.read = *t, read
	if !moved {
		return
	}
	q.dequeue(e)
	if t.ActionTime.After(now) {
		e.state, e.runAt = waiting, t.ActionTime
	} else {
		e.state, e.runAt = ready, now
	}
	q.enqueue(e)
}

// offerOf offers what was known to be so in a term of the partition. If that is
// over, the row is read again instead.
func (q *Queue) offerOf(term uint64, it *Item) (back left) {
	if term == q.cfg.Term(it.Partition) {
		back, _ = q.offer(nil, it, q.cfg.Now(), nil)
		return back
	}
	if l := q.lanes[it.Task.BizType]; l != nil && !l.closed {
		l.leaveBehind(it)
		q.refill.ring()
	}
	return left{&Entry{Item: *it}}
}

// enqueue puts an entry, waiting or ready, into its heap and wakes who may want it.
func (q *Queue) enqueue(e *Entry) {
	l := e.lane
	switch e.state {
	case waiting:
		l.pushWaiting(e)
		if e.near == 0 {
			q.check.ring()
		}
		if e.far == 0 && len(l.behind) > 0 {
			q.refill.ring() // what was left behind may be nearer
		}
	case ready:
		l.pushReady(e)
		if e.near == 0 {
			l.wake.ring()
		}
	}
}

// dequeue takes an entry out of its heap.
func (q *Queue) dequeue(e *Entry) {
	switch e.state {
	case waiting:
		e.lane.removeWaiting(e)
	case ready:
		e.lane.removeReady(e)
	}
}

// forget lets an entry go. If its partition is being read, a tombstone keeps
// stale rows of it out.
func (q *Queue) forget(e *Entry) {
	q.dequeue(e)
	switch e.state {
	case checking:
		e.lane.checking--
	case running:
		e.lane.running--
	}
	if e.state != running {
		e.lane.wake.ring() // the leader may have counted on it
	}
	q.drop(e)
	q.roomIn(e.lane)
}

// keep and drop are the only places where entries come and go.
func (q *Queue) keep(e *Entry) {
	q.entries[e.Task.JobID] = e
	q.inHand[e.Partition]++
}

func (q *Queue) drop(e *Entry) {
	e.state = gone
	if e.free != nil {
		close(e.free)
	}
	delete(q.entries, e.Task.JobID)
	if q.inHand[e.Partition]--; q.inHand[e.Partition] == 0 && q.emptied != nil {
		close(q.emptied)
		q.emptied = nil
	}
	if len(q.entries) == 0 {
		q.idle.ring()
	}
}

// tick gives the next number of an order in which things happened.
func (q *Queue) tick() uint64 {
	q.seq++
	return q.seq
}

// bury forgets an entry whose row has changed since it was read.
func (q *Queue) bury(e *Entry) {
	q.forget(e)
	q.tombstone(e.Partition, e.Task.JobID)
}

// roomIn tells those who wait for room in a lane.
func (q *Queue) roomIn(l *lane) {
	if l.hasRoom() {
		if len(l.behind) > 0 {
			q.refill.ring()
		}
		if l.room != nil {
			close(l.room)
			l.room = nil
		}
	}
}

// DropPartitions gives back all tasks that have not started, of partitions that
// are another node's now.
func (q *Queue) DropPartitions(lost func(partition int) bool) {
	var back left
	q.mu.Lock()
	for _, e := range q.entries {
		if (e.state == waiting || e.state == ready || e.state == checking) && lost(e.Partition) {
			q.forget(e)
			back = append(back, e)
		}
	}
	for _, l := range q.lanes {
		maps.DeleteFunc(l.behind, func(p int, _ task.Key) bool { return lost(p) })
	}
	q.mu.Unlock()
	back.tell()
}

// WaitPartition waits until nothing of a partition is in the queue, running or
// held, or until ctx ends, whose error it answers.
func (q *Queue) WaitPartition(ctx context.Context, partition int) error {
	for {
		q.mu.Lock()
		if q.inHand[partition] == 0 {
			q.mu.Unlock()
			return nil
		}
		if q.emptied == nil {
			q.emptied = make(chan struct{})
		}
		emptied := q.emptied
		q.mu.Unlock()
		select {
		case <-emptied:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Close stops the queue: nothing is taken in any more, what has not started is
// given back untouched, and Take ends for every worker. Running tasks go on.
func (q *Queue) Close() {
	q.mu.Lock()
	q.closed = true
	var back left
	for _, l := range q.lanes {
		back = append(back, q.closeLane(l)...)
	}
	q.mu.Unlock()
	back.tell()
}

// WaitIdle waits until the queue is empty. After Close that is: until no task is
// running or held.
func (q *Queue) WaitIdle(ctx context.Context) error {
	for {
		q.mu.Lock()
		n := len(q.entries)
		q.mu.Unlock()
		if n == 0 {
			q.idle.ring() // for others who wait
			return nil
		}
		if err := q.idle.wait(ctx, -1); err != nil {
			return err
		}
	}
}
