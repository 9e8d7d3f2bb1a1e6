package queue

import (
	"container/heap"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/timeoutcenter/toc/limits"
	"github.com/timeoutcenter/toc/task"
)

// ErrClosed is returned by Take when the business type was removed or the queue was closed.
var ErrClosed = errors.New("the queue of this business type is closed")

// bizQueue holds the tasks of one business type.
type bizQueue struct {
	bizType  uint64
	capacity int
	waiting  earliestHeap          // read before their time, by runAt
	latest   latestHeap            // the same entries, the latest first
	ready    [classes]earliestHeap // start as soon as they are due
	checking int
	rereads  int // entries that were due and too old to start: their rows are being read again
	running  int

	retryCalls    int          // calls of Take whose tasks, run before, have not all ended
	maxRetryCalls int          // 0: no limit
	limit         *limits.Type // nil: none
	late          int          // number of entries that are late
	maxLate       int          // 0: catch_up is not set

	resume map[int]task.Key // by partition: where to resume reading, because tasks did not fit
	room   chan struct{}    // closed when there is room again; nil if no caller waits

	work   *door // of the tasks to run
	leases *door // of the leases that are over; the same door unless consumers pull
	closed bool
	paused bool // it takes no tasks; see SetPaused
}

// door is where callers of Take wait.
type door struct {
	leader  chan struct{} // one token: its holder waits for the next due task
	signal  signal        // wakes the leader
	classes [classes]bool // that are taken here
}

func newDoor(list ...class) *door {
	d := &door{leader: make(chan struct{}, 1), signal: newSignal()}
	d.leader <- struct{}{}
	for _, c := range list {
		d.classes[c] = true
	}
	return d
}

func (d *door) leads(c class) bool { return d.classes[c] }

func (b *bizQueue) doorOf(e *Entry) *door {
	if e.class == expired {
		return b.leases
	}
	return b.work
}

// wakeLeaders makes the leaders look again.
func (b *bizQueue) wakeLeaders() {
	b.work.signal.set()
	b.leases.signal.set()
}

func (b *bizQueue) size() int { return len(b.waiting) + b.readySize() + b.checking + b.running }

func (b *bizQueue) readySize() (n int) {
	for i := range b.ready {
		n += len(b.ready[i])
	}
	return n
}

func (b *bizQueue) full() bool { return b.size() >= b.capacity }

// hasRoom demands some slack, so that a full queue is refilled in batches and not row by row.
func (b *bizQueue) hasRoom() bool { return b.size() <= b.capacity-max(1, b.capacity/4) }

// wouldDisplace reports whether a task with this key would displace the latest waiting one.
func (b *bizQueue) wouldDisplace(k task.Key, now time.Time) bool {
	if len(b.latest) == 0 {
		return false
	}
	latest := b.latest[0].runAt
	return now.Before(latest) && k.ActionTime.Before(latest)
}

func (b *bizQueue) pushWaiting(e *Entry) {
	heap.Push(&b.waiting, e)
	heap.Push(&b.latest, e)
}

func (b *bizQueue) removeWaiting(e *Entry) {
	heap.Remove(&b.waiting, e.index)
	heap.Remove(&b.latest, e.latestIndex)
}

func (b *bizQueue) pushReady(e *Entry) {
	e.class = firstRun
	switch {
	case e.Task.Lease != 0:
		e.class = expired
	case e.late:
		e.class = lateRun
	case e.Task.Attempts > 0:
		e.class = retry
	}
	heap.Push(&b.ready[e.class], e)
}

func (b *bizQueue) removeReady(e *Entry) { heap.Remove(&b.ready[e.class], e.index) }

// setReread counts the entries whose rows are being read again although they are due.
func (b *bizQueue) setReread(e *Entry, is bool) {
	switch {
	case is && !e.reread:
		b.rereads++
	case !is && e.reread:
		b.rereads--
	}
	e.reread = is
}

// setResumeAfter records that a task stays in the store. A claimed task stays with its engine instead.
func (b *bizQueue) setResumeAfter(it *Item) {
	if !it.Claimed {
		b.setResume(it.Partition, task.KeyOf(&it.Task))
	}
}

func (b *bizQueue) setResume(partition int, k task.Key) {
	if have, ok := b.resume[partition]; !ok || k.Before(have) {
		b.resume[partition] = k
	}
}

// Consumer is the queue of one business type as its workers see it. After RemoveType it stays closed, even if
// the business type is added again.
type Consumer struct {
	queue    *Queue
	bizQueue *bizQueue
	door     *door // nil: closed
}

// Expired is the part of the queue of a pull type that has the tasks whose leases are over; the Consumer itself has the
// others then.
func (c Consumer) Expired() Consumer {
	if c.bizQueue != nil {
		c.door = c.bizQueue.leases
	}
	return c
}

func (q *Queue) consumer(b *bizQueue) Consumer {
	c := Consumer{queue: q, bizQueue: b}
	if b != nil {
		c.door = b.work
	}
	return c
}

// AddType adds the queue of a business type, or returns the one that is there. Of its workers, a quarter at most run
// tasks that have failed before: a receiver that hangs must not stop first runs.
func (q *Queue) AddType(t task.BizType) Consumer {
	q.mu.Lock()
	defer q.mu.Unlock()
	if b := q.bizQueues[t.ID]; b != nil || q.closed {
		return q.consumer(b)
	}
	b := &bizQueue{
		bizType:  t.ID,
		capacity: q.cfg.Capacity,
		limit:    q.cfg.Limits.Of(t.ID),
		resume:   make(map[int]task.Key),
		paused:   q.IsPaused(t.ID),
	}
	if t.Pull {
		b.work, b.leases = newDoor(firstRun, retry, lateRun), newDoor(expired)
	} else {
		b.work = newDoor(firstRun, retry, lateRun, expired)
		b.leases = b.work
	}
	b.setBounds(&t)
	q.bizQueues[t.ID] = b
	return q.consumer(b)
}

// Capacity is the number of tasks that the queue of a business type can hold, 0 for an unknown or paused type.
func (q *Queue) Capacity(bizType uint64) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if b := q.bizQueues[bizType]; b != nil && !b.closed && !b.paused {
		return b.capacity
	}
	return 0
}

// LateRoom is the number of late tasks that the queue of a business type with catch_up can hold, and how many more it
// can hold now; 0 for others.
func (q *Queue) LateRoom(bizType uint64) (most, free int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if b := q.bizQueues[bizType]; b != nil && !b.closed && !b.paused {
		return b.maxLate, max(0, b.maxLate-b.late)
	}
	return 0, 0
}

// RemoveType closes the queue of a business type: tasks that have not started are released, and its workers
// end. Running tasks go on and stay in the Queue.
func (q *Queue) RemoveType(bizType uint64) {
	q.mu.Lock()
	var back released
	if b := q.bizQueues[bizType]; b != nil {
		back = q.closeBizQueue(b)
		delete(q.bizQueues, bizType)
	}
	q.mu.Unlock()
	back.notify()
}

func (q *Queue) closeBizQueue(b *bizQueue) (back released) {
	back = q.empty(b)
	b.closed = true
	b.wakeLeaders()
	return back
}

// empty releases the tasks of a business type that have not started, and forgets what it has not read.
func (q *Queue) empty(b *bizQueue) (back released) {
	for _, e := range q.entries {
		if e.bizQueue == b && (e.state == waiting || e.state == ready || e.state == checking) {
			back = append(back, e)
		}
	}
	for _, e := range back {
		q.remove(e)
	}
	b.resume = make(map[int]task.Key)
	if b.room != nil {
		close(b.room)
		b.room = nil
	}
	return back
}

// SetPaused replaces the set of paused business types, in ascending order. What a paused type has in the queue is
// released, except what runs, and nothing more is accepted: its tasks stay in the store or in Redis. The caller
// starts a scan when a type is not paused any more.
func (q *Queue) SetPaused(bizTypes []uint64) {
	var back released
	q.mu.Lock()
	q.paused.Store(&bizTypes)
	for id, b := range q.bizQueues {
		if b.paused = q.IsPaused(id); b.paused {
			back = append(back, q.empty(b)...)
		}
	}
	q.mu.Unlock()
	back.notify()
}

// IsPaused reports whether a business type is paused.
func (q *Queue) IsPaused(bizType uint64) bool {
	list := q.paused.Load()
	if list == nil {
		return false
	}
	_, paused := slices.BinarySearch(*list, bizType)
	return paused
}

// Take waits until a task is due and takes it, with up to max−1 others that are due as well. The tasks are
// running until Done. Take returns ErrClosed when the business type was removed, or ctx's error.
//
// One worker of a business type, the leader, waits for the next due time. The others wait to become leader. So
// a due task wakes one worker, not all of them.
func (c Consumer) Take(ctx context.Context, max int) (taken []*Entry, err error) {
	err = c.lead(ctx, func() (done bool, wait time.Duration, err error) {
		taken, wait, err = c.TakeNow(max)
		return len(taken) > 0, wait, err
	})
	return taken, err
}

// TakeNow takes up to max tasks that are due. If there is none it returns the time until the next one; −1: it is unknown.
func (c Consumer) TakeNow(max int) (taken []*Entry, wait time.Duration, err error) {
	if c.door == nil {
		return nil, 0, ErrClosed
	}
	taken, lost, wait, err := c.queue.take(c.bizQueue, c.door, max)
	lost.notify()
	return taken, wait, err
}

// TakeDue takes up to max tasks that are due. If there is none but rows of due tasks are being read again, it waits for these
// until ctx ends.
func (c Consumer) TakeDue(ctx context.Context, max int) (taken []*Entry, err error) {
	look := func() (done bool, wait time.Duration, err error) {
		taken, wait, err = c.TakeNow(max)
		return len(taken) > 0 || !c.queue.rereads(c.bizQueue), wait, err
	}
	if done, _, err := look(); done || err != nil {
		return taken, err
	}
	err = c.lead(ctx, look)
	if err != nil && ctx.Err() != nil {
		err = nil
	}
	return taken, err
}

func (q *Queue) rereads(b *bizQueue) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return b.rereads > 0
}

// AwaitDue waits until a task is due, and does not take it.
func (c Consumer) AwaitDue(ctx context.Context) error {
	return c.lead(ctx, func() (due bool, wait time.Duration, err error) { return c.queue.nextDue(c.bizQueue, c.door) })
}

// lead waits to become leader, and then until look is done.
func (c Consumer) lead(ctx context.Context, look func() (done bool, wait time.Duration, err error)) error {
	if c.door == nil {
		return ErrClosed
	}
	select {
	case <-c.door.leader:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { c.door.leader <- struct{}{} }()
	for {
		done, wait, err := look()
		if done || err != nil {
			return err
		}
		if err := c.door.signal.wait(ctx, wait); err != nil {
			return err
		}
	}
}

// nextDue reports whether a task is due, or the time until the next one.
func (q *Queue) nextDue(b *bizQueue, d *door) (due bool, wait time.Duration, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if b.closed {
		return false, 0, ErrClosed
	}
	t := taking{bizQueue: b, door: d, now: q.cfg.Now(), wait: -1}
	return t.next() != nil, t.wait, nil
}

// minPartitionRun is the number of tasks of one partition after which a batch may end at the partition's last
// task.
const minPartitionRun = 16

// maxRereads limits how many stale rows are sent to be read again at once. A business type with a long backlog
// thus reads again what it is about to run, and not the whole backlog over and over. More rows follow when
// these return, or after a pause.
const maxRereads = 256

// take takes the tasks that are due now. If there is none it returns the time until the next one (−1: the queue
// is empty). lost are tasks of partitions that this node has lost, or has lost and taken again, since they were
// read.
func (q *Queue) take(b *bizQueue, d *door, max int) (taken []*Entry, lost released, wait time.Duration, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if b.closed {
		return nil, nil, 0, ErrClosed
	}
	now := q.cfg.Now()
	t := taking{bizQueue: b, door: d, now: now, max: max, wait: -1}
	defer t.end()
	run := 0 // tasks of one partition in a row
	for stale := 0; t.max > 0; {
		e := t.next()
		if e == nil {
			break
		}
		if n := len(taken); n > 0 && e.Partition != taken[n-1].Partition {
			if run >= minPartitionRun && n >= max/4 {
				break // tasks of one partition share tables when their outcomes are recorded
			}
			run = 0
		}
		run++
		if q.cfg.Ownership.Term(e.Partition) != e.term {
			q.remove(e)
			lost = append(lost, e)
			continue
		}
		if now.Sub(e.readAt) > q.cfg.StaleAfter {
			b.removeReady(e)
			e.state = waiting // NextChecks returns it at once
			b.setReread(e, true)
			q.enqueue(e)
			if stale++; stale == maxRereads {
				// Their database may hang. The next tasks may be of another one.
				t.waitFor(4 * q.cfg.CheckAhead)
				break
			}
			continue
		}
		if !t.may(e) {
			continue
		}
		b.removeReady(e)
		t.start(e)
		taken = append(taken, e)
	}
	return taken, lost, t.wait, nil
}

// WaitRoom waits until the queue of a business type has room, for at most the given time. It reports whether
// there is room.
func (q *Queue) WaitRoom(ctx context.Context, bizType uint64, timeout time.Duration) bool {
	q.mu.Lock()
	b := q.bizQueues[bizType]
	if b == nil || b.closed || b.paused {
		q.mu.Unlock()
		return false
	}
	if b.maxLate > 0 && !b.hasLateRoom() {
		q.mu.Unlock()
		return false // its fresh tasks are read apart
	}
	if b.hasRoom() {
		q.mu.Unlock()
		return true
	}
	if b.room == nil {
		b.room = make(chan struct{})
	}
	room := b.room
	q.mu.Unlock()

	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-room:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// SetResume records that a partition has tasks of the business type that were not offered, from the given key
// on.
func (q *Queue) SetResume(bizType uint64, partition int, from task.Key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if b := q.bizQueues[bizType]; b != nil && !b.closed && !b.paused {
		b.setResume(partition, from)
		q.refillSignal.set()
	}
}

// ClearResume forgets the resume points of a partition, because it is about to be read from the start. The
// business types in except keep theirs.
func (q *Queue) ClearResume(partition int, except []uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
next:
	for id, b := range q.bizQueues {
		for _, x := range except {
			if x == id {
				continue next
			}
		}
		delete(b.resume, partition)
	}
}

// Refill is the place from which to resume reading a partition for a business type.
type Refill struct {
	BizType   uint64
	Partition int
	From      task.Key
}

// NextRefill waits until a business type with a resume point has room, or until the rows there are earlier than
// a task in its full queue. It returns the earliest resume point.
func (q *Queue) NextRefill(ctx context.Context) (Refill, error) {
	for {
		if r, ok := q.nextRefill(); ok {
			return r, nil
		}
		if err := q.refillSignal.wait(ctx, -1); err != nil {
			return Refill{}, err
		}
	}
}

func (q *Queue) nextRefill() (Refill, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.cfg.Now()
	for id, b := range q.bizQueues {
		if len(b.resume) == 0 || b.closed {
			continue
		}
		best := Refill{BizType: id, Partition: -1}
		for p, k := range b.resume {
			if b.isLate(k.ActionTime, now) && !b.hasLateRoom() {
				continue
			}
			if best.Partition < 0 || k.Before(best.From) || (k == best.From && p < best.Partition) {
				best.Partition, best.From = p, k
			}
		}
		if best.Partition < 0 || !b.hasRoom() && !b.wouldDisplace(best.From, now) {
			continue
		}
		delete(b.resume, best.Partition)
		q.refillSignal.set() // there may be more, for another reader
		return best, true
	}
	return Refill{}, false
}
