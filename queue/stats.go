package queue

import "time"

// LaneStats is what a lane holds now.
type LaneStats struct {
	Depth   int // in memory and not started
	Running int // started, outcome not durable yet
	Behind  int // partitions with tasks that did not fit
}

// Stats tells what the lane of a business type holds.
func (q *Queue) Stats(bizType uint64) LaneStats {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lanes[bizType]
	if l == nil {
		return LaneStats{}
	}
	return LaneStats{Depth: len(l.waiting) + len(l.ready) + l.checking, Running: l.running, Behind: len(l.behind)}
}

// OldestDue is the earliest action_time in the queue, zero if it is empty.
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

// RunsSince tells since when a worker has a task: it runs, or its outcome is not durable yet.
func (q *Queue) RunsSince(jobID uint64) (since time.Time, runs bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.entries[jobID]
	if e == nil || e.state != running || e.wanted != nil {
		return time.Time{}, false
	}
	return e.began, true
}
