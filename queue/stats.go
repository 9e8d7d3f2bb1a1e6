package queue

import "time"

// Stats counts the tasks of one business type.
type Stats struct {
	Depth        int // in memory and not started
	Running      int // started, outcome not durable yet
	ResumePoints int // partitions with tasks that did not fit
}

// Stats returns the numbers of a business type.
func (q *Queue) Stats(bizType uint64) Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	b := q.bizQueues[bizType]
	if b == nil {
		return Stats{}
	}
	return Stats{Depth: len(b.waiting) + b.readySize() + b.checking, Running: b.running, ResumePoints: len(b.resume)}
}

// EachOverdue calls f with the business type and the action_time of each task that has not started although its time has
// passed. It looks at all tasks, and holds the lock.
func (q *Queue) EachOverdue(f func(bizType uint64, due time.Time)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.cfg.Now()
	for _, e := range q.entries {
		if (e.state == waiting || e.state == checking || e.state == ready) && !e.Task.ActionTime.After(now) {
			f(e.Task.BizType, e.Task.ActionTime)
		}
	}
}

// RunningSince reports whether a task runs, or its outcome is not durable yet, and since when.
func (q *Queue) RunningSince(jobID uint64) (since time.Time, runs bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.entries[jobID]
	if e == nil || e.state != running || e.holdWanted != nil {
		return time.Time{}, false
	}
	return e.startedAt, true
}

// State is what the queue does with a task.
type State string

// The states.
const (
	Absent   State = ""         // the queue does not have it
	Waiting  State = "waiting"  // for its time, or for a worker
	Checking State = "checking" // its row is being read again
	Running  State = "running"  // a worker has taken it, and its outcome is not durable yet
	Alone    State = "alone"    // a worker has taken it, and it waits until no other such task runs; see Postpone
	Held     State = "held"     // a Hold keeps it
)

// Sight is the queue's view of a task.
type Sight struct {
	State State
	Since time.Time // of Running and Alone: when a worker took it; of Checking: when the read began
	Retry bool      // of Waiting: other tasks that failed before have all the workers that such tasks may take
}

// Look finds a task.
func (q *Queue) Look(jobID uint64) Sight {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch e := q.entries[jobID]; {
	case e == nil:
		return Sight{}
	case e.state == running && e.holdWanted != nil:
		return Sight{State: Alone, Since: e.startedAt}
	case e.state == running:
		return Sight{State: Running, Since: e.startedAt}
	case e.state == checking:
		return Sight{State: Checking, Since: e.checkBegan}
	case e.state == held:
		return Sight{State: Held}
	default:
		return Sight{State: Waiting, Retry: e.state == ready && e.class == retry && !e.bizQueue.mayRetry()}
	}
}
