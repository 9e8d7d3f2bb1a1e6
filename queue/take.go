package queue

import (
	"context"
	"errors"
	"time"

	"github.com/timeoutcenter/toc/internal/wait"
)

// ErrClosed is returned by Take when the business type was removed or the queue was closed.
var ErrClosed = errors.New("the queue of this business type is closed")

// ErrFull is returned by Take when the Room of the Source has no place.
var ErrFull = errors.New("no more tasks of this business type may be taken now")

// Room bounds how many tasks are taken. A place is reserved before a task is taken, so that callers at the same time do not
// take more.
type Room interface {
	Reserve(max int) int // reserves up to max places, and returns how many
	Free(n int)          // gives back places that were not needed
}

// door is where callers of Take wait.
type door struct {
	leader  chan struct{} // one token: its holder waits for the next due task
	signal  wait.Signal   // wakes the leader
	classes [classes]bool // that are taken here
}

func newDoor(list ...class) *door {
	d := &door{leader: make(chan struct{}, 1), signal: wait.NewSignal()}
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
	b.work.signal.Set()
	b.leases.signal.Set()
}

// Source is the queue of one business type, for its workers, which take due tasks from it. After RemoveType it stays closed, even if
// the business type is added again.
type Source struct {
	queue    *Queue
	bizQueue *bizQueue
	door     *door // nil: closed
	room     Room  // nil: without bounds
}

// Within returns the Source with bounds: each task that it takes has a reserved place.
func (c Source) Within(room Room) Source {
	c.room = room
	return c
}

// Expired is the part of the queue of a pull type that has the tasks whose leases are over; the Source itself has the
// others then.
func (c Source) Expired() Source {
	if c.bizQueue != nil {
		c.door = c.bizQueue.leases
	}
	return c
}

func (q *Queue) source(b *bizQueue) Source {
	c := Source{queue: q, bizQueue: b}
	if b != nil {
		c.door = b.work
	}
	return c
}

// Take waits until a task is due and takes it, with up to max−1 others that are due as well. The tasks are
// running until Done. Take returns ErrClosed when the business type was removed, or ctx's error.
//
// One worker of a business type, the leader, waits for the next due time. The others wait to become leader. So
// a due task wakes one worker, not all of them.
func (c Source) Take(ctx context.Context, max int) (taken []*Entry, err error) {
	err = c.lead(ctx, func() (done bool, wait time.Duration, err error) {
		taken, wait, err = c.TakeNow(max)
		return len(taken) > 0, wait, err
	})
	return taken, err
}

// TakeNow takes up to max tasks that are due. If there is none it returns the time until the next one; −1: it is unknown.
func (c Source) TakeNow(max int) (taken []*Entry, wait time.Duration, err error) {
	if c.door == nil {
		return nil, 0, ErrClosed
	}
	if c.room != nil {
		if max = c.room.Reserve(max); max == 0 {
			return nil, 0, ErrFull
		}
		defer func() { c.room.Free(max - len(taken)) }()
	}
	taken, lost, wait, err := c.queue.take(c.bizQueue, c.door, max)
	lost.notify()
	return taken, wait, err
}

// TakeDue takes up to max tasks that are due. If there is none but rows of due tasks are being read again, it waits for these
// until ctx ends.
func (c Source) TakeDue(ctx context.Context, max int) (taken []*Entry, err error) {
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
func (c Source) AwaitDue(ctx context.Context) error {
	return c.lead(ctx, func() (due bool, wait time.Duration, err error) { return c.queue.nextDue(c.bizQueue, c.door) })
}

// lead waits to become leader, and then until look is done.
func (c Source) lead(ctx context.Context, look func() (done bool, wait time.Duration, err error)) error {
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
		if err := await(ctx, c.door.signal, wait, c.queue.cfg.Alarm); err != nil {
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
