package queue

import (
	"container/heap"
	"context"
	"errors"
	"time"

	"github.com/timeoutcenter/toc/task"
)

// ErrClosed answers Take when the lane is closed.
var ErrClosed = errors.New("the lane is closed")

// lane holds the tasks of one business type.
type lane struct {
	bizType  uint64
	capacity int
	waiting  nearHeap // in memory before their time, by runAt
	farthest farHeap  // the same, the last one first
	ready    nearHeap // start as soon as they are due
	checking int
	running  int

	behind map[int]task.Key // by partition: where to read on, since rows were turned away
	room   chan struct{}    // closed when there is room again; nil if nobody waits

	leader chan struct{} // one token: the worker that waits for the next due task
	wake   wake          // the leader's bell
	closed bool
}

func (l *lane) size() int { return len(l.waiting) + len(l.ready) + l.checking + l.running }

func (l *lane) full() bool { return l.size() >= l.capacity }

// hasRoom has slack, so that a lane is refilled in batches and not row by row.
func (l *lane) hasRoom() bool { return l.size() <= l.capacity-max(1, l.capacity/4) }

// nearer tells whether a task at that place would displace the farthest one.
func (l *lane) nearer(k task.Key, now time.Time) bool {
	if len(l.farthest) == 0 {
		return false
	}
	farthest := l.farthest[0].runAt
	return now.Before(farthest) && k.ActionTime.Before(farthest)
}

func (l *lane) pushWaiting(e *Entry) {
	heap.Push(&l.waiting, e)
	heap.Push(&l.farthest, e)
}

func (l *lane) removeWaiting(e *Entry) {
	heap.Remove(&l.waiting, e.near)
	heap.Remove(&l.farthest, e.far)
}

func (l *lane) pushReady(e *Entry) { heap.Push(&l.ready, e) }

func (l *lane) removeReady(e *Entry) { heap.Remove(&l.ready, e.near) }

// leaveBehind remembers that a task stays in the store. A claimed one stays with
// its engine.
func (l *lane) leaveBehind(it *Item) {
	if !it.Claimed {
		l.leaveFrom(it.Partition, task.KeyOf(&it.Task))
	}
}

func (l *lane) leaveFrom(partition int, k task.Key) {
	if have, ok := l.behind[partition]; !ok || k.Before(have) {
		l.behind[partition] = k
	}
}

// Lane is the open lane of a business type, as its workers see it. A lane that
// was closed stays closed, also when the business type gets another one.
type Lane struct {
	queue *Queue
	lane  *lane
}

// SetLane opens the lane of a business type, or gives the one that is open.
func (q *Queue) SetLane(bizType uint64) Lane {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l := q.lanes[bizType]; l != nil || q.closed {
		return Lane{q, l}
	}
	l := &lane{
		bizType:  bizType,
		capacity: q.cfg.Capacity,
		behind:   make(map[int]task.Key),
		leader:   make(chan struct{}, 1),
		wake:     newWake(),
	}
	l.leader <- struct{}{}
	q.lanes[bizType] = l
	return Lane{q, l}
}

// Capacity is how many tasks the lane of a business type holds; 0 if none is open.
func (q *Queue) Capacity(bizType uint64) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l := q.lanes[bizType]; l != nil && !l.closed {
		return l.capacity
	}
	return 0
}

// CloseLane closes the lane of a business type: what has not started is given
// back, workers end. Running tasks go on and stay known to the queue.
func (q *Queue) CloseLane(bizType uint64) {
	q.mu.Lock()
	var back left
	if l := q.lanes[bizType]; l != nil {
		back = q.closeLane(l)
		delete(q.lanes, bizType)
	}
	q.mu.Unlock()
	back.tell()
}

func (q *Queue) closeLane(l *lane) (back left) {
	for _, e := range q.entries {
		if e.lane == l && (e.state == waiting || e.state == ready || e.state == checking) {
			back = append(back, e)
		}
	}
	for _, e := range back {
		q.forget(e)
	}
	l.closed = true
	l.behind = make(map[int]task.Key)
	if l.room != nil {
		close(l.room)
		l.room = nil
	}
	l.wake.ring()
	return back
}

// Take waits until a task of the lane is due and takes it, with up to max−1
// more that are due as well. They are running until Done. It answers ErrClosed
// when the lane is closed, or ctx's error.
//
// Of all workers of a lane one, the leader, waits for the next due time; the
// others wait to become leader. So a due task wakes one worker, not all.
func (w Lane) Take(ctx context.Context, max int) ([]*Entry, error) {
	l := w.lane
	if l == nil {
		return nil, ErrClosed
	}
	select {
	case <-l.leader:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { l.leader <- struct{}{} }()
	for {
		taken, lost, wait, err := w.queue.take(l, max)
		lost.tell()
		if len(taken) > 0 || err != nil {
			return taken, err
		}
		if err := l.wake.wait(ctx, wait); err != nil {
			return nil, err
		}
	}
}

// minRun is how many tasks of one partition make a batch end with them.
const minRun = 16

// maxStale is how many rows are sent to be read again at a time. A lane with a
// long backlog reads again what it is about to run, not the whole backlog over
// and over; the next ones follow when those are back, or do not come back soon.
const maxStale = 256

// take takes what is due now, or tells how long until the next one is (−1: there
// is none). lost are tasks of partitions that are, or were meanwhile, another node's.
func (q *Queue) take(l *lane, max int) (taken []*Entry, lost left, wait time.Duration, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l.closed {
		return nil, nil, 0, ErrClosed
	}
	now := q.cfg.Now()
	run := 0 // of one partition
	for stale := 0; len(l.ready) > 0 && len(taken) < max; {
		e := l.ready[0]
		if n := len(taken); n > 0 && e.Partition != taken[n-1].Partition {
			if run >= minRun && n >= max/4 {
				break // what is of one partition shares tables when it is recorded
			}
			run = 0
		}
		run++
		if e.runAt.After(now) {
			if len(taken) == 0 {
				return nil, lost, e.runAt.Sub(now), nil
			}
			break
		}
		if q.cfg.Term(e.Partition) != e.term {
			q.forget(e)
			lost = append(lost, e)
			continue
		}
		l.removeReady(e)
		if now.Sub(e.read) > q.cfg.StaleAfter {
			e.state = waiting // NextChecks takes it at once
			q.enqueue(e)
			if stale++; stale == maxStale {
				// Those may be of a database that hangs, the next ones of another.
				return taken, lost, 4 * q.cfg.CheckAhead, nil
			}
			continue
		}
		e.state, e.began = running, now
		l.running++
		taken = append(taken, e)
	}
	return taken, lost, -1, nil
}

// WaitRoom waits until a lane has room again, for at most patience. It tells
// whether there is room.
func (q *Queue) WaitRoom(ctx context.Context, bizType uint64, patience time.Duration) bool {
	q.mu.Lock()
	l := q.lanes[bizType]
	if l == nil || l.closed {
		q.mu.Unlock()
		return false
	}
	if l.hasRoom() {
		q.mu.Unlock()
		return true
	}
	if l.room == nil {
		l.room = make(chan struct{})
	}
	room := l.room
	q.mu.Unlock()

	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-room:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// LeaveBehind remembers that a partition has tasks of the business type, from a
// place on, that were not offered.
func (q *Queue) LeaveBehind(bizType uint64, partition int, from task.Key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l := q.lanes[bizType]; l != nil && !l.closed {
		l.leaveFrom(partition, from)
		q.refill.ring()
	}
}

// ReadAnew forgets what was left behind in a partition, for all business types
// but the given ones: it is about to be read from the start.
func (q *Queue) ReadAnew(partition int, except []uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
next:
	for id, l := range q.lanes {
		for _, x := range except {
			if x == id {
				continue next
			}
		}
		delete(l.behind, partition)
	}
}

// Refill is a partition to read on, for a lane that has room again.
type Refill struct {
	BizType   uint64
	Partition int
	From      task.Key
}

// NextRefill waits until a lane that turned tasks away has room, or until what
// stayed in the store is nearer than something in the lane. It tells where to
// read on, the earliest place first.
func (q *Queue) NextRefill(ctx context.Context) (Refill, error) {
	for {
		if r, ok := q.nextRefill(); ok {
			return r, nil
		}
		if err := q.refill.wait(ctx, -1); err != nil {
			return Refill{}, err
		}
	}
}

func (q *Queue) nextRefill() (Refill, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.cfg.Now()
	for id, l := range q.lanes {
		if len(l.behind) == 0 || l.closed {
			continue
		}
		best := Refill{BizType: id, Partition: -1}
		for p, k := range l.behind {
			if best.Partition < 0 || k.Before(best.From) || (k == best.From && p < best.Partition) {
				best.Partition, best.From = p, k
			}
		}
		if !l.hasRoom() && !l.nearer(best.From, now) {
			continue
		}
		delete(l.behind, best.Partition)
		q.refill.ring() // there may be more, for another reader
		return best, true
	}
	return Refill{}, false
}
