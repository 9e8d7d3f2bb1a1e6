package queue

import (
	"context"
	"time"

	"github.com/timeoutcenter/toc/task"
)

// Hold keeps workers from starting a task while its row is changed.
type Hold struct {
	queue    *Queue
	entry    *Entry
	previous *Entry // the entry that was in the queue before; nil if there was none
}

// Hold takes hold of a task, whether or not it is in the queue. It returns a task.ConflictError (running) if
// the task has started and its outcome is not durable yet. If another caller holds the task, Hold waits.
//
// The caller must end the hold by exactly one of Restore, Remove and Requeue.
func (q *Queue) Hold(ctx context.Context, jobID uint64, partition int) (*Hold, error) {
	for {
		q.mu.Lock()
		e := q.entries[jobID]
		switch {
		case e == nil:
			h := q.insertHold(jobID, partition, nil)
			q.mu.Unlock()
			return h, nil
		case e.state == running && e.holdWanted == nil:
			q.mu.Unlock()
			return nil, &task.ConflictError{JobID: jobID, Conflict: task.ConflictRunning}
		case e.state == held, e.state == running:
			e.wantHold()
			free := e.awaitRemoved()
			q.mu.Unlock()
			select {
			case <-free:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		default:
			h := q.insertHold(jobID, partition, e)
			q.mu.Unlock()
			return h, nil
		}
	}
}

// Partition is the partition of the task.
func (h *Hold) Partition() int { return h.entry.Partition }

// Ended returns a channel that is closed when a task that runs now leaves the queue; nil: it does not run.
func (q *Queue) Ended(jobID uint64) <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.entries[jobID]
	if e == nil || e.state != running {
		return nil
	}
	return e.awaitRemoved()
}

// Recorded returns a channel that is closed when the outcome of a run that has ended is durable; nil: no run of the task has ended
// whose outcome is not.
func (q *Queue) Recorded(jobID uint64) <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.entries[jobID]
	if e == nil || !e.hasEnded {
		return nil
	}
	return e.awaitRemoved()
}

func (e *Entry) awaitRemoved() <-chan struct{} {
	if e.removed == nil {
		e.removed = make(chan struct{})
	}
	return e.removed
}

// wantHold closes holdWanted, once.
func (e *Entry) wantHold() {
	if e.holdWanted == nil {
		return
	}
	select {
	case <-e.holdWanted:
	default:
		close(e.holdWanted)
	}
}

// insertHold puts a placeholder in the task's place.
func (q *Queue) insertHold(jobID uint64, partition int, was *Entry) *Hold {
	if was != nil {
		q.remove(was)
	}
	e := &Entry{Item: Item{Task: task.Task{JobID: jobID}, Partition: partition}, state: held, term: q.cfg.Ownership.Term(partition)}
	q.insertEntry(e)
	return &Hold{queue: q, entry: e, previous: was}
}

func (h *Hold) removePlaceholder() {
	h.queue.deleteEntry(h.entry)
}

// Restore ends a hold that changed nothing. The entry goes back into the queue as it was. If there was none, a
// row that was offered during the hold takes its place.
func (h *Hold) Restore() {
	q := h.queue
	var back released
	q.mu.Lock()
	h.removePlaceholder()
	switch {
	case h.previous != nil:
		back = q.offerInTerm(h.previous.term, &h.previous.Item)
		if e := q.entries[h.previous.Task.JobID]; e != nil {
			e.readAt, e.offeredAt, e.checked = h.previous.readAt, h.previous.offeredAt, h.previous.checked
		}
	case h.entry.wasOffered:
		back = q.offerInTerm(h.entry.term, &h.entry.Item)
	}
	q.mu.Unlock()
	back.notify()
}

// Remove ends a hold after which the task does not run from this queue: it is not pending any more, or it is
// due much later.
func (h *Hold) Remove() {
	q := h.queue
	q.mu.Lock()
	h.removePlaceholder()
	q.addTombstone(h.entry.Partition, h.entry.Task.JobID)
	q.mu.Unlock()
	h.releasePrevious()
}

// Requeue ends a hold and offers the task. fresh means that its row was read during the hold. If it was not, is too old when the task
// starts, or the partition belonged to another node meanwhile, the row is read again.
func (h *Hold) Requeue(it Item, fresh bool) {
	q := h.queue
	q.mu.Lock()
	h.removePlaceholder()
	q.addTombstone(h.entry.Partition, h.entry.Task.JobID)
	back := q.offerInTerm(h.entry.term, &it)
	if e := q.entries[it.Task.JobID]; e != nil && !fresh {
		e.readAt = time.Time{}
	}
	q.mu.Unlock()
	back.notify()
	h.releasePrevious()
}

// releasePrevious calls the receipt of the entry that was in the queue before the hold.
func (h *Hold) releasePrevious() {
	if h.previous != nil {
		released{h.previous}.notify()
	}
}
