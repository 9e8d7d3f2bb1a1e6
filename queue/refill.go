package queue

import (
	"context"
	"time"

	"github.com/timeoutcenter/toc/task"
)

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
		if err := await(ctx, q.refillSignal, -1, nil); err != nil {
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
		q.refillSignal.Set() // there may be more, for another reader
		return best, true
	}
	return Refill{}, false
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

	select {
	case <-room:
		return true
	case <-time.After(timeout):
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
		q.refillSignal.Set()
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
