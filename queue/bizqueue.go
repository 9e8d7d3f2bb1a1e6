package queue

import (
	"container/heap"
	"slices"
	"time"

	"github.com/timeoutcenter/toc/internal/wait"
	"github.com/timeoutcenter/toc/queue/limits"
	"github.com/timeoutcenter/toc/task"
)

// bizQueue holds the tasks of one business type.
type bizQueue struct {
	bizType  uint64
	capacity int
	waiting  earliestHeap          // read before their time, by checkTime
	latest   latestHeap            // the same entries, the latest first
	ready    [classes]earliestHeap // start as soon as they are due
	checking int
	rereads  int // entries that were due and too old to start: their rows are being read again
	running  int
	ended    int // of those, runs that have ended, and whose outcomes are not durable

	checks        wait.Rate
	hasManyChecks bool

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

func (b *bizQueue) size() int { return len(b.waiting) + b.readySize() + b.checking + b.running }

func (b *bizQueue) readySize() (n int) {
	for i := range b.ready {
		n += len(b.ready[i])
	}
	return n
}

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

func (b *bizQueue) pushWaiting(e *Entry, check time.Time) {
	e.at = check.UnixNano()
	heap.Push(&b.waiting, e)
	heap.Push(&b.latest, e)
}

func (b *bizQueue) removeWaiting(e *Entry) {
	heap.Remove(&b.waiting, e.index)
	heap.Remove(&b.latest, e.latestIndex)
}

func (b *bizQueue) pushReady(e *Entry) {
	e.class, e.at = firstRun, e.runAt.UnixNano()
	switch {
	case e.Task.HasLease():
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

// AddType adds the queue of a business type, or returns the one that is there. Of its workers, a quarter at most run
// tasks that have failed before: a receiver that hangs must not stop first runs.
func (q *Queue) AddType(t task.BizType) Source {
	q.mu.Lock()
	defer q.mu.Unlock()
	if b := q.bizQueues[t.ID]; b != nil || q.closed {
		return q.source(b)
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
	q.adoptRuns(b)
	q.bizQueues[t.ID] = b
	return q.source(b)
}

// adoptRuns counts the runs that started before their type had limits.
func (q *Queue) adoptRuns(b *bizQueue) {
	if b.limit == nil {
		return
	}
	var before []*bizQueue
	n := 0
	for _, e := range q.entries {
		if e.state == running && !e.isFree && e.Task.BizType == b.bizType && e.class != expired && e.bizQueue.limit == nil {
			before = append(before, e.bizQueue)
			n++
		}
	}
	for _, old := range before {
		old.limit = b.limit
	}
	b.limit.Adopt(n)
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
