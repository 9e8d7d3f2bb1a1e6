package queue

import (
	"time"

	"github.com/timeoutcenter/toc/task"
)

// Done ends the run of an entry once its outcome is durable; row is the task as
// it stands in the store now. The receipt is told. If the task is to run again
// and again is true, it takes its place in the queue for that.
func (q *Queue) Done(e *Entry, row task.Task, again bool) {
	var back left
	q.mu.Lock()
	q.bury(e)
	if again {
		back = q.offerOf(e.term, &Item{Task: row, Partition: e.Partition})
		if next := q.entries[e.Task.JobID]; next != nil {
			next.read = e.read // a hand may have edited the row since: row knows only what the run changed
		}
	}
	q.mu.Unlock()
	back.tell()
	if e.Receipt != nil {
		e.Receipt.Settled(row)
	}
}

// Return gives an entry that was taken but not started back untouched.
func (q *Queue) Return(e *Entry) {
	q.mu.Lock()
	q.forget(e)
	q.mu.Unlock()
	left{e}.tell()
}

// MayStart tells of an entry that was taken whether it is to start still: its lane is
// open, and its partition was not another node's meanwhile.
func (q *Queue) MayStart(e *Entry) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.mayStart(e)
}

// IsStale tells of an entry that was taken whether its row is to be read again before it
// starts (Start): what came before that took its time.
func (q *Queue) IsStale(e *Entry) bool { return q.cfg.Now().Sub(e.read) > q.cfg.StaleAfter }

func (q *Queue) mayStart(e *Entry) bool { return !e.lane.closed && q.cfg.Term(e.Partition) == e.term }

// Postpone says of an entry that was taken that it does not start yet. Until Start it
// does not count as running: wanted is closed when somebody asks for a Hold of the task,
// who waits until it is given back (Return).
func (q *Queue) Postpone(e *Entry) (wanted <-chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e.wanted = make(chan struct{})
	return e.wanted
}

// Start says that an entry that was taken starts now, with the row as it was read just
// before, by a read that began at a time. It answers false if it must not: it is wanted,
// or may not start.
func (q *Queue) Start(e *Entry, row task.Task, read time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case <-e.wanted:
		return false
	default:
	}
	if !q.mayStart(e) {
		return false
	}
	e.Task, e.wanted = row, nil
	e.began, e.read = q.cfg.Now(), read
	return true
}
