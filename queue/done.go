package queue

import (
	"time"

	"github.com/timeoutcenter/toc/task"
)

// RunsEnded lets other tasks run in the place of runs that have ended, before their outcomes are durable. It reports whether a
// business type has nothing else in the queue, and whether the ended runs of one leave others too little room.
func (q *Queue) RunsEnded(entries ...*Entry) (isLast, isTight bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, e := range entries {
		b := e.bizQueue
		b.free(e)
		e.hasEnded = true
		b.ended++
		isLast = isLast || b.ended == b.size()
		isTight = isTight || b.ended > b.capacity/endedPart
	}
	return isLast, isTight
}

// endedPart: ended runs may take one place in so many of a business type's queue, and wait for others to be recorded with them.
const endedPart = 3

// Done ends the run of an entry whose outcome is durable, and calls its receipt. row is the task as it is in
// the store now. If requeue is true and the task is to run again, it goes back into the queue.
func (q *Queue) Done(e *Entry, row task.Task, requeue bool) {
	var back released
	q.mu.Lock()
	q.removeWithTombstone(e)
	if requeue {
		back = q.offerInTerm(e.term, &Item{Task: row, Partition: e.Partition})
		if next := q.entries[e.Task.JobID]; next != nil {
			next.readAt = e.readAt // row has only the run's own changes; an edit by SQL since then shows in the next read
		}
	}
	q.mu.Unlock()
	back.notify()
	if e.Receipt != nil {
		e.Receipt.Ack(row)
	}
}

// Return releases an entry that was taken but not started.
func (q *Queue) Return(e *Entry) {
	q.mu.Lock()
	q.remove(e)
	q.mu.Unlock()
	released{e}.notify()
}

// PutBack gives back an entry that was taken but not started, to be taken again.
func (q *Queue) PutBack(e *Entry) {
	var back released
	q.mu.Lock()
	if b := e.bizQueue; !q.mayStart(e) || q.closed {
		q.remove(e)
		back = released{e}
	} else {
		b.running--
		b.free(e)
		e.retryCall, e.state = nil, ready
		q.enqueue(e)
	}
	q.mu.Unlock()
	back.notify()
}

// MayStart reports whether a taken entry may still start: its business type is still there and not paused, and its
// partition has been this node's all the time.
func (q *Queue) MayStart(e *Entry) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.mayStart(e)
}

// IsStale reports whether the row of a taken entry must be read again, for Start: the steps since Take took long, or the entry is
// postponed.
func (q *Queue) IsStale(e *Entry) bool {
	return e.holdWanted != nil || q.cfg.Now().Sub(e.readAt) > q.cfg.StaleAfter
}

func (q *Queue) mayStart(e *Entry) bool {
	return !e.bizQueue.closed && !e.bizQueue.paused && q.cfg.Ownership.Term(e.Partition) == e.term
}

// Postpone delays the start of a taken entry. Until Start the entry does not count as running. The returned
// channel is closed when a caller wants a Hold of the task. That caller waits until the entry is passed to
// Return.
func (q *Queue) Postpone(e *Entry) (holdWanted <-chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e.holdWanted = make(chan struct{})
	return e.holdWanted
}

// Start starts a taken entry with its row as it was just read. read is the time at which that read began. Start
// returns false if the task must not start: a Hold is wanted, or MayStart is false.
func (q *Queue) Start(e *Entry, row task.Task, read time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case <-e.holdWanted:
		return false
	default:
	}
	if !q.mayStart(e) {
		return false
	}
	e.Task, e.holdWanted = row, nil
	e.startedAt, e.readAt = q.cfg.Now(), read
	return true
}
