package queue

import "time"

// Lateness is how late a processor was called, by what took the time. Each part is at least 0, and their sum is the time
// of the call minus action_time, or 0 if that is negative.
type Lateness struct {
	Find  time.Duration // until a scan had read the task, with this action_time, or Redis had given it; again after a check that failed
	Check time.Duration // until its row was read right before its time, or after the claim
	Wait  time.Duration // until a worker took it: all were busy, or a limit was reached
	Start time.Duration // until the call: the mark of a suspect's start, and one more look at the row
}

// Total is the sum of the parts.
func (l Lateness) Total() time.Duration { return l.Find + l.Check + l.Wait + l.Start }

// Called returns how late the call of a taken entry's processor is, which begins now. first is false if it has been
// called before.
func (e *Entry) Called(now time.Time) (l Lateness, first bool) {
	first, e.called = !e.called, true
	due := e.Task.ActionTime
	late := now.Sub(due)
	found := max(0, e.offeredAt.Sub(due))
	taken := max(found, e.takenAt.Sub(due))
	if late < taken { // the clock was set back
		return Lateness{Find: max(0, late)}, first
	}
	check := min(e.checked, taken-found)
	return Lateness{Find: found, Check: check, Wait: taken - found - check, Start: late - taken}, first
}
