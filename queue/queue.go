package queue

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/timeoutcenter/toc/internal/wait"
	"github.com/timeoutcenter/toc/queue/limits"
	"github.com/timeoutcenter/toc/task"
)

// Ownership has the partitions of this node; see cluster.Ownership.
type Ownership interface {
	// Term is a number that changes each time this node takes the partition, and 0 while another node owns it. At
	// 0 the queue accepts and starts nothing of the partition; rows from an earlier term are read again. It is
	// called under the queue's lock.
	Term(partition int) uint64
}

// always owns all partitions.
type always struct{}

func (always) Term(int) uint64 { return 1 }

// Config configures a Queue.
type Config struct {
	// Capacity bounds the waiting, ready and running tasks of each business type together. Defaults to 20,000.
	Capacity int
	// Partitions is how many partitions the layout has.
	Partitions int
	// Ownership defaults to all partitions.
	Ownership Ownership
	// Limits are the limits of the business types; nil: there are none.
	Limits *limits.Limits
	// CheckAhead is how long before its time a waiting row is read again, at the latest. Defaults to 50 ms.
	CheckAhead time.Duration
	// StaleAfter is how old a row may be when its task starts; an older one is
	// read again first. Defaults to 2 s.
	StaleAfter time.Duration
	// Now is the wall clock. Defaults to time.Now.
	Now func() time.Time
	// Alarm wakes the process when a task is due; nil: it may be a millisecond late.
	Alarm *wait.Alarm
}

// WithDefaults replaces zero values by their defaults.
func (c Config) WithDefaults() Config {
	if c.Capacity == 0 {
		c.Capacity = 20_000
	}
	if c.CheckAhead == 0 {
		c.CheckAhead = 50 * time.Millisecond
	}
	if c.StaleAfter == 0 {
		c.StaleAfter = 2 * time.Second
	}
	if c.Ownership == nil {
		c.Ownership = always{}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// Queue is the in-memory queue of a node. It is safe for concurrent use.
type Queue struct {
	cfg Config

	mu           sync.Mutex
	entries      map[uint64]*Entry    // by job_id: all entries that have not left
	bizQueues    map[uint64]*bizQueue // by biz_type id
	reads        []reads              // by partition
	perPartition []int                // number of entries by partition
	emptied      chan struct{}        // closed when a partition becomes empty; nil if no caller waits
	seq          uint64               // see nextSeq
	closed       bool
	paused       atomic.Pointer[[]uint64] // business types, in ascending order; nil: none

	checkSignal  wait.Signal // for NextChecks
	refillSignal wait.Signal // for NextRefill
	idleSignal   wait.Signal // for WaitIdle
}

// New makes an empty queue without business types.
func New(cfg Config) *Queue {
	cfg = cfg.WithDefaults()
	return &Queue{
		cfg:          cfg,
		entries:      make(map[uint64]*Entry),
		bizQueues:    make(map[uint64]*bizQueue),
		reads:        make([]reads, cfg.Partitions),
		perPartition: make([]int, cfg.Partitions),
		checkSignal:  wait.NewSignal(),
		refillSignal: wait.NewSignal(),
		idleSignal:   wait.NewSignal(),
	}
}

// longestWait is the time after which a waiter for a time looks at the clock again: the clock may have been set meanwhile.
const longestWait = time.Second

// await returns when s is set, or d or longestWait has passed (d < 0: never). It returns ctx's error if ctx ends first. The alarm,
// if there is one, makes d exact.
func await(ctx context.Context, s wait.Signal, d time.Duration, alarm *wait.Alarm) error {
	var expired <-chan time.Time
	if d >= 0 {
		t := time.NewTimer(min(d, longestWait))
		defer t.Stop()
		expired = t.C
		if d <= longestWait {
			defer alarm.Passed(alarm.At(d))
		}
	}
	select {
	case <-s:
	case <-expired:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// released lists entries whose receipts must be called. Call notify after unlocking, so that receipts never run
// under the queue's lock.
type released []*Entry

func (r released) notify() {
	for _, e := range r {
		if e.Receipt != nil {
			e.Receipt.Release(e.Task)
		}
	}
}

// Offer puts tasks into the queues of their business types. The rows must have been read under r. Without r
// they must be known to be current: just committed, and held until now. A task that is in the queue already is
// updated. A task of an unknown business type is released. A task that does not fit is released too, and
// NextRefill will return where to read it again. Offer returns the business types that were full, or are paused.
func (q *Queue) Offer(r *Read, items ...Item) (full []uint64) {
	var back released
	q.mu.Lock()
	now := q.cfg.Now()
	for i := range items {
		var fits bool
		if back, fits = q.offer(r, &items[i], now, back); !fits && !slices.Contains(full, items[i].Task.BizType) {
			full = append(full, items[i].Task.BizType)
		}
	}
	q.mu.Unlock()
	back.notify()
	return full
}

func (q *Queue) offer(r *Read, it *Item, now time.Time, back released) (_ released, fits bool) {
	b := q.bizQueues[it.Task.BizType]
	term := q.cfg.Ownership.Term(it.Partition)
	if b == nil || q.closed || term == 0 {
		return append(back, &Entry{Item: *it}), true
	}
	if b.paused {
		return append(back, &Entry{Item: *it}), false
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
			e.Task, e.wasOffered = it.Task, true
		}
		return append(back, &Entry{Item: *it}), true // the first receipt stays in force
	}

	e := &Entry{Item: *it, bizQueue: b, readAt: read, term: term, offeredAt: now}
	due := it.Task.ActionTime
	if !it.Found.IsZero() {
		e.offeredAt, e.checked = it.Found, max(0, min(now.Sub(it.Found), now.Sub(due)))
	}
	switch {
	case !due.After(now):
		e.state, e.runAt = ready, now
	case it.Claimed && due.Before(now.Add(q.cfg.StaleAfter)): // was just read, need not be read again
		e.state, e.runAt = ready, due
	default:
		e.state, e.runAt = waiting, due
	}
	e.seq = q.nextSeq()
	if b.isLate(due, now) {
		if b.late >= b.maxLate {
			b.setResumeAfter(it)
			return append(back, e), false
		}
		b.setLate(e)
	}
	if b.size() >= b.capacity {
		if len(b.latest) == 0 || !e.before(b.latest[0]) {
			b.setResumeAfter(it)
			b.clearLate(e)
			q.refillSignal.Set()
			return append(back, e), false
		}
		latest := b.latest[0]
		q.remove(latest)
		b.setResumeAfter(&latest.Item)
		back = append(back, latest)
	}
	q.insertEntry(e)
	q.enqueue(e)
	return back, true
}

// refresh applies a newly read row: an operator may have moved or edited the task by SQL.
func (q *Queue) refresh(e *Entry, t *task.Task, now, read time.Time) {
	moved := !e.Task.ActionTime.Equal(t.ActionTime)
	e.Task, e.readAt = *t, read
	if !moved {
		return
	}
	q.dequeue(e)
	if e.reread {
		e.bizQueue.setReread(e, false)
		e.bizQueue.wakeLeaders() // one of them may wait for this entry
	}
	e.offeredAt, e.checked = now, 0
	e.bizQueue.clearLate(e)
	if t.ActionTime.After(now) {
		e.state, e.runAt = waiting, t.ActionTime
	} else {
		e.state, e.runAt = ready, now
	}
	q.enqueue(e)
}

// offerInTerm offers a task whose row was known in the given term of the partition. If that term is over, the
// row is read again instead.
func (q *Queue) offerInTerm(term uint64, it *Item) (back released) {
	if term == q.cfg.Ownership.Term(it.Partition) {
		back, _ = q.offer(nil, it, q.cfg.Now(), nil)
		return back
	}
	if b := q.bizQueues[it.Task.BizType]; b != nil && !b.closed && !b.paused {
		b.setResumeAfter(it)
		q.refillSignal.Set()
	}
	return released{&Entry{Item: *it}}
}

// enqueue puts a waiting or ready entry into its heap and wakes the goroutine that waits for such entries.
func (q *Queue) enqueue(e *Entry) {
	b := e.bizQueue
	switch e.state {
	case waiting:
		b.pushWaiting(e, q.checkTime(e))
		if e.index == 0 {
			q.checkSignal.Set()
		}
		if e.latestIndex == 0 && len(b.resume) > 0 {
			q.refillSignal.Set() // rows at the resume point may be earlier
		}
	case ready:
		b.pushReady(e)
		if e.index == 0 {
			b.doorOf(e).signal.Set()
		}
	}
}

// dequeue takes an entry out of its heap.
func (q *Queue) dequeue(e *Entry) {
	switch e.state {
	case waiting:
		e.bizQueue.removeWaiting(e)
	case ready:
		e.bizQueue.removeReady(e)
	}
}

// remove takes an entry out of the queue.
func (q *Queue) remove(e *Entry) {
	q.dequeue(e)
	switch e.state {
	case checking:
		e.bizQueue.checking--
	case running:
		e.bizQueue.running--
		e.bizQueue.free(e)
		if e.hasEnded {
			e.bizQueue.ended--
		}
	}
	e.bizQueue.setReread(e, false)
	e.bizQueue.clearLate(e)
	if e.state != running {
		e.bizQueue.wakeLeaders() // one of them may wait for this entry
	}
	q.deleteEntry(e)
	q.notifyRoom(e.bizQueue)
}

// insertEntry and deleteEntry are the only places that change the set of entries.
func (q *Queue) insertEntry(e *Entry) {
	q.entries[e.Task.JobID] = e
	q.perPartition[e.Partition]++
}

func (q *Queue) deleteEntry(e *Entry) {
	e.state = removed
	if e.removed != nil {
		close(e.removed)
	}
	delete(q.entries, e.Task.JobID)
	if q.perPartition[e.Partition]--; q.perPartition[e.Partition] == 0 && q.emptied != nil {
		close(q.emptied)
		q.emptied = nil
	}
	if len(q.entries) == 0 {
		q.idleSignal.Set()
	}
}

// nextSeq numbers events in the order in which they happen.
func (q *Queue) nextSeq() uint64 {
	q.seq++
	return q.seq
}

// removeWithTombstone removes an entry whose row has changed since it was read. Reads that are under way may
// still return the old row, which the tombstone keeps out.
func (q *Queue) removeWithTombstone(e *Entry) {
	q.remove(e)
	q.addTombstone(e.Partition, e.Task.JobID)
}

// notifyRoom wakes the callers that wait for room in a business type's queue.
func (q *Queue) notifyRoom(b *bizQueue) {
	if b.hasRoom() {
		if len(b.resume) > 0 {
			q.refillSignal.Set()
		}
		if b.room != nil {
			close(b.room)
			b.room = nil
		}
	}
}

// DropPartitions releases all tasks of lost partitions that have not started.
func (q *Queue) DropPartitions(lost func(partition int) bool) {
	var back released
	q.mu.Lock()
	for _, e := range q.entries {
		if (e.state == waiting || e.state == ready || e.state == checking) && lost(e.Partition) {
			q.remove(e)
			back = append(back, e)
		}
	}
	for _, b := range q.bizQueues {
		maps.DeleteFunc(b.resume, func(p int, _ task.Key) bool { return lost(p) })
	}
	q.mu.Unlock()
	back.notify()
}

// WaitPartition waits until the queue has no entry of a partition, running or held, and no run that is allowed by a
// limit's share of a lost partition. It returns ctx's error if
// ctx ends first.
func (q *Queue) WaitPartition(ctx context.Context, partition int) error {
	for {
		q.mu.Lock()
		if q.perPartition[partition] == 0 {
			q.mu.Unlock()
			return q.waitPermits(ctx)
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

// waitPermits waits until no run uses a permit of a lost partition.
func (q *Queue) waitPermits(ctx context.Context) error {
	for !q.cfg.Limits.Settled() {
		if err := wait.For(ctx, permitsEvery); err != nil {
			return err
		}
	}
	return nil
}

// Withholds reports whether permits of a partition are not used yet; see limits.Limits.
func (q *Queue) Withholds(partition int) bool { return q.cfg.Limits.Withholds(partition) }

// permitsEvery is the interval at which waitPermits looks.
const permitsEvery = 10 * time.Millisecond

// Close stops the queue: it accepts nothing more, releases all tasks that have not started, and ends every
// Take. Running tasks go on.
func (q *Queue) Close() {
	q.mu.Lock()
	q.closed = true
	var back released
	for _, b := range q.bizQueues {
		back = append(back, q.closeBizQueue(b)...)
	}
	q.mu.Unlock()
	back.notify()
}

// WaitIdle waits until the queue is empty. After Close only running and held tasks are left to wait for.
func (q *Queue) WaitIdle(ctx context.Context) error {
	for {
		q.mu.Lock()
		n := len(q.entries)
		q.mu.Unlock()
		if n == 0 {
			q.idleSignal.Set() // for other callers of WaitIdle
			return nil
		}
		if err := await(ctx, q.idleSignal, -1, nil); err != nil {
			return err
		}
	}
}
