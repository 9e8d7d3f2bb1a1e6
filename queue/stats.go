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
	return Stats{Depth: len(b.waiting) + len(b.ready) + b.checking, Running: b.running, ResumePoints: len(b.resume)}
}

// OldestDue is the earliest action_time of a business type in the queue; zero if it has no task there.
func (q *Queue) OldestDue(bizType uint64) time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	var oldest time.Time
	for _, e := range q.entries {
		if e.state != held && e.Task.BizType == bizType && (oldest.IsZero() || e.Task.ActionTime.Before(oldest)) {
			oldest = e.Task.ActionTime
		}
	}
	return oldest
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
