package queue

import (
	"context"

	"github.com/timeoutcenter/toc/task"
)

// Hold keeps one task from being started while somebody changes it.
type Hold struct {
	queue *Queue
	entry *Entry
	was   *Entry // what was in the queue before; nil if nothing was
}

// Hold takes hold of a task, in the queue or not. It answers a
// task.ConflictError (running) if the task has started and its outcome is not
// durable yet. If somebody else holds the task, it waits its turn.
//
// Exactly one of Release, Gone and Put must follow.
func (q *Queue) Hold(ctx context.Context, jobID uint64, partition int) (*Hold, error) {
	for {
		q.mu.Lock()
		e := q.entries[jobID]
		switch {
		case e == nil:
			h := q.hold(jobID, partition, nil)
			q.mu.Unlock()
			return h, nil
		case e.state == running && e.wanted == nil:
			q.mu.Unlock()
			return nil, &task.ConflictError{JobID: jobID, Conflict: task.ConflictRunning}
		case e.state == held, e.state == running:
			if e.wanted != nil && e.free == nil {
				close(e.wanted)
			}
			if e.free == nil {
				e.free = make(chan struct{})
			}
			free := e.free
			q.mu.Unlock()
			select {
			case <-free:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		default:
			h := q.hold(jobID, partition, e)
			q.mu.Unlock()
			return h, nil
		}
	}
}

// hold puts a placeholder in the task's place.
func (q *Queue) hold(jobID uint64, partition int, was *Entry) *Hold {
	if was != nil {
		q.forget(was)
	}
	e := &Entry{Item: Item{Task: task.Task{JobID: jobID}, Partition: partition}, state: held, term: q.cfg.Term(partition)}
	q.keep(e)
	return &Hold{queue: q, entry: e, was: was}
}

// release removes the placeholder.
func (h *Hold) release() {
	h.queue.drop(h.entry)
}

// Release gives the task back as it was: nothing was changed. A row that was
// offered meanwhile takes its place in the queue.
func (h *Hold) Release() {
	q := h.queue
	var back left
	q.mu.Lock()
	h.release()
	switch {
	case h.was != nil:
		back = q.offerOf(h.was.term, &h.was.Item)
		if e := q.entries[h.was.Task.JobID]; e != nil {
			e.read = h.was.read
		}
	case h.entry.missed:
		back = q.offerOf(h.entry.term, &h.entry.Item)
	}
	q.mu.Unlock()
	back.tell()
}

// Gone lets go of a task that is not to run from here: it is not pending any
// more, or it is not due soon.
func (h *Hold) Gone() {
	q := h.queue
	q.mu.Lock()
	h.release()
	q.tombstone(h.entry.Partition, h.entry.Task.JobID)
	q.mu.Unlock()
	h.giveBack()
}

// Put lets go of a task and offers it as it stands in the store now. If the
// partition was another node's meanwhile, the row is read again.
func (h *Hold) Put(it Item) {
	q := h.queue
	q.mu.Lock()
	h.release()
	q.tombstone(h.entry.Partition, h.entry.Task.JobID)
	back := q.offerOf(h.entry.term, &it)
	q.mu.Unlock()
	back.tell()
	h.giveBack()
}

// giveBack tells the receipt of the entry that was in the queue before.
func (h *Hold) giveBack() {
	if h.was != nil {
		left{h.was}.tell()
	}
}
