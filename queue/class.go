package queue

import (
	"time"

	"github.com/timeoutcenter/toc/queue/limits"
	"github.com/timeoutcenter/toc/task"
)

// class is a kind of ready tasks, each with its own order and limits.
type class uint8

const (
	firstRun class = iota // not run before
	retry                 // failed before
	lateRun               // not run before, and so late that catch_up limits them; they start when no other is due
	expired               // the lease of a consumer is over: no run, so no limit holds
	classes
)

const (
	limitedSeconds = 2 // of the tasks of a limited type are in memory; the others stay with their engine
	leastLimited   = 8 // tasks are in memory nevertheless
	perPermit      = 8 // tasks are in memory for each permit
	retryPart      = 4 // one worker in so many may run tasks that failed before
)

// setBounds sets the bounds of a business type's queue.
func (b *bizQueue) setBounds(t *task.BizType) {
	bound := func(most, perSecond int) int { return min(most, max(leastLimited, limitedSeconds*perSecond)) }
	if t.Workers > 0 {
		b.maxRetryCalls = max(1, t.Workers/retryPart)
	}
	if t.RateLimit > 0 {
		b.capacity = bound(b.capacity, t.RateLimit)
	}
	if t.MaxRunning > 0 {
		b.capacity = min(b.capacity, max(leastLimited, perPermit*t.MaxRunning))
	}
	if t.CatchUp > 0 {
		b.maxLate = max(1, bound(b.capacity/2, t.CatchUp))
	}
}

// isLate reports whether a task that is due at a time belongs to the backlog that catch_up limits.
func (b *bizQueue) isLate(due, now time.Time) bool {
	return b.maxLate > 0 && now.Sub(due) > limits.LateAfter
}

func (b *bizQueue) hasLateRoom() bool { return b.late <= b.maxLate-max(1, b.maxLate/4) }

func (b *bizQueue) setLate(e *Entry) {
	e.late = true
	b.late++
}

func (b *bizQueue) clearLate(e *Entry) {
	if e.late {
		e.late = false
		b.late--
	}
}

// taking is one call of take.
type taking struct {
	*bizQueue
	door      *door
	now       time.Time
	max       int
	wait      time.Duration // until a task that waits can start; −1: unknown
	leave     [2]int        // leave of the limits that is not used yet: for others, and for late tasks
	refused   [classes]bool // a limit refused the class
	retryCall *int          // of its retries; nil: there are none
}

// next returns the task to start next; nil: none may start now.
func (t *taking) next() (best *Entry) {
	t.findLate()
	for c := range t.ready {
		if len(t.ready[c]) == 0 || t.refused[c] || !t.door.leads(class(c)) || class(c) == retry && t.retryCall == nil && !t.mayRetry() {
			continue
		}
		switch e := t.ready[c][0]; {
		case e.runAt.After(t.now):
			t.waitFor(e.runAt.Sub(t.now))
		case best == nil || class(c) != lateRun && e.before(best):
			best = e
		}
	}
	return best
}

func (t *taking) waitFor(d time.Duration) {
	if t.wait < 0 || d < t.wait {
		t.wait = d
	}
}

// findLate moves tasks that have become late behind the others.
func (t *taking) findLate() {
	for t.maxLate > 0 && len(t.ready[firstRun]) > 0 {
		e := t.ready[firstRun][0]
		if !t.isLate(e.Task.ActionTime, t.now) {
			return
		}
		t.removeReady(e)
		t.setLate(e)
		t.pushReady(e)
	}
}

func (b *bizQueue) mayRetry() bool { return b.maxRetryCalls == 0 || b.retryCalls < b.maxRetryCalls }

// may reports whether the limits let a task start. If not, its class is left out from now on.
func (t *taking) may(e *Entry) bool {
	if t.limit == nil || e.class == expired {
		return true
	}
	late := 0
	if t.isLate(e.Task.ActionTime, t.now) {
		late = 1
	}
	if t.leave[late] > 0 {
		return true
	}
	n, by, wait := t.limit.Take(t.max, t.readySize(), late == 1)
	if t.leave[late] = n; n > 0 {
		return true
	}
	t.waitFor(wait)
	if t.refused[e.class] = true; by != limits.CatchUp {
		t.refused = [classes]bool{true, true, true, false}
	}
	return false
}

// start takes a task that may start.
func (t *taking) start(e *Entry) {
	if t.limit != nil && e.class != expired {
		late := 0
		if t.isLate(e.Task.ActionTime, t.now) {
			late = 1
		}
		t.leave[late]--
	}
	t.clearLate(e)
	if e.Task.Attempts > 0 && e.class != expired {
		if t.retryCall == nil {
			t.retryCall = new(int)
			t.retryCalls++
		}
		*t.retryCall++
		e.retryCall = t.retryCall
	}
	e.state, e.startedAt, e.takenAt = running, t.now, t.now
	e.isFree = false
	t.running++
	t.max--
}

// end gives back the leave that was not used.
func (t *taking) end() {
	for late, n := range t.leave {
		if n > 0 {
			t.limit.GiveBack(n, late == 1)
		}
	}
}

// free lets another task run in the place of one whose run has ended.
func (b *bizQueue) free(e *Entry) {
	if e.isFree {
		return
	}
	e.isFree = true
	if b.limit != nil && e.class != expired {
		b.limit.End()
		b.wakeLeaders()
	}
	if e.retryCall == nil {
		return
	}
	if *e.retryCall--; *e.retryCall == 0 {
		b.retryCalls--
		b.wakeLeaders()
	}
}
