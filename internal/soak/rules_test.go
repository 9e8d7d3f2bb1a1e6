package soak_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/timeoutcenter/toc/task"
)

// rule is one promise of the product, asked of one task: what is wrong with it, or nothing.
type rule struct {
	broken string // in a sentence after a number
	ask    func(v *verdict, s *story) string
}

// rules are all promises about a single task. That a partition never has two owners is audit_test.go's.
var rules = []rule{
	{"tasks were lost", (*verdict).askLost},
	{"tasks ran early", (*verdict).askEarly},
	{"cancelled tasks ran", (*verdict).askCancelled},
	{"tasks ran again, and no fault explains it", (*verdict).askAgain},
	{"acknowledged changes were not kept", (*verdict).askKept},
	{"tasks have attempts that are not their failed runs", (*verdict).askAttempts},
	{"tasks died that had not failed", (*verdict).askDied},
	{"poisons ended too many processes", (*verdict).askPoison},
	{"changes were made of tasks that were not as their tag said", (*verdict).askTags},
	{"tags were refused that still held", (*verdict).askRefusedTags},
	{"changes were answered that could not be", (*verdict).askAnswers},
	{"tasks were late, and no fault explains it", (*verdict).askLate},
}

const now = forever

func word(status int64) string { return task.Status(status).String() }

// askLost: a task that was acknowledged ends, and in a way that its story allows.
func (v *verdict) askLost(s *story) string {
	switch {
	case !s.row.there:
		return "its row is gone"
	case s.row.status == task.Pending:
		return "still pending"
	case s.row.status == task.Processed && !s.status.allows(int64(task.Processed), now, now, 0):
		return "processed, but no run ended well since"
	}
	return ""
}

// askEarly: a run begins at the action_time that its processor is handed, or after it.
func (v *verdict) askEarly(s *story) string {
	for i, r := range s.runs {
		if due := r.span.seen.action * int64(time.Millisecond); r.span.from < due {
			return fmt.Sprintf("run %d began %s early", i+1, time.Duration(due-r.span.from))
		}
	}
	return ""
}

// askCancelled: what was cancelled does not start, and what runs is not called cancelled.
func (v *verdict) askCancelled(s *story) string {
	for i, r := range s.runs {
		if v.endedBefore(s, r) == int64(task.Cancelled) {
			return fmt.Sprintf("run %d began after it was cancelled", i+1)
		}
		for _, c := range s.changes {
			if !c.hand && c.done == made && c.kind == cancelled && v.during(r, c) {
				return fmt.Sprintf("cancelled while run %d was under way", i+1)
			}
		}
	}
	return ""
}

// during tells whether a run lasted from before a change until after it, by a node that knew what it did.
func (v *verdict) during(r run, c *change) bool {
	return r.span.from < c.sent.UnixNano() && r.span.till > c.answered.UnixNano() && len(v.explanations(r)) == 0
}

// endedBefore gives the status because of which a run should not have begun; 0: it could.
func (v *verdict) endedBefore(s *story, r run) int64 {
	slack := v.slack(r)
	if s.status.allows(int64(task.Pending), r.span.from, r.span.from, slack) {
		return 0
	}
	last, _ := s.status.last(r.span.from, slack)
	return last.low
}

// askAgain: no run of a task begins while another is under way, nor after one that ended it.
func (v *verdict) askAgain(s *story) string {
	for i, r := range s.runs {
		switch ended := v.endedBefore(s, r); task.Status(ended) {
		case task.Processed, task.Dead:
			return fmt.Sprintf("run %d began although the task was %s", i+1, word(ended))
		}
		if i == 0 {
			continue
		}
		if before := s.runs[i-1]; (before.span.till > r.span.from || before.span.till == 0) && len(v.explanations(before)) == 0 && len(v.explanations(r)) == 0 {
			return fmt.Sprintf("run %d began while run %d was under way", i+1, i)
		}
	}
	return ""
}

// askKept: what somebody was told to be done is there, for each run and in the end.
func (v *verdict) askKept(s *story) string {
	for i, r := range s.runs {
		slack := v.slack(r)
		if !s.action.allows(r.span.seen.action, r.span.from, r.span.from, slack) {
			return fmt.Sprintf("run %d had the action_time %s", i+1, clock(r.span.seen.action*int64(time.Millisecond)))
		}
		if !s.attribute.allows(int64(r.span.seen.attribute), r.span.from, r.span.from, slack) {
			return fmt.Sprintf("run %d had another attribute", i+1)
		}
	}
	switch {
	case !s.row.there:
		return ""
	case !s.action.allows(s.row.action, now, now, 0):
		return "its action_time is " + clock(s.row.action*int64(time.Millisecond))
	case !s.attribute.allows(int64(s.row.attribute), now, now, 0):
		return "its attribute is another"
	case s.row.status == task.Cancelled && !s.status.allows(int64(task.Cancelled), now, now, 0):
		return "cancelled, but not by us, or not in the end"
	}
	return ""
}

// askAttempts: attempts rise by one with each run that failed, and by nothing else. No failed run is forgotten but one
// whose attempts somebody edited meanwhile.
func (v *verdict) askAttempts(s *story) string {
	for i, r := range s.runs {
		if !s.attempts.allows(r.span.seen.attempts, r.span.from, r.span.from, v.slack(r)) {
			return fmt.Sprintf("run %d had %d attempts", i+1, r.span.seen.attempts)
		}
	}
	if s.row.there && !s.attempts.allows(s.row.attempts, now, now, 0) {
		return fmt.Sprintf("its attempts are %d", s.row.attempts)
	}
	return ""
}

// askDied: dead is what failed with its retries used up, or was started often enough without an end.
func (v *verdict) askDied(s *story) string {
	if s.row.there && s.row.status == task.Dead && !s.status.allows(int64(task.Dead), now, now, 0) {
		return "dead without a reason"
	}
	return ""
}

// askPoison: a task that ends its process ends few of them.
func (v *verdict) askPoison(s *story) string {
	if s.history.attribute != poison {
		return ""
	}
	ends := 0
	for _, r := range s.runs {
		if r.span.till == 0 {
			ends++
		}
	}
	if ends > mostCuts {
		return fmt.Sprintf("it ended %d processes", ends)
	}
	return ""
}

// askTags: a change that names a tag is not made if another was made since the tag was read.
func (v *verdict) askTags(s *story) string {
	for _, c := range s.changes {
		if c.read.IsZero() || c.done != made {
			continue
		}
		for _, other := range s.changes {
			if other.done == made && other.sent.After(c.read) && other.answered.Before(c.sent) {
				return "made by a tag that was read at " + clock(c.read.UnixNano()) + ", although there was a " + other.kind + " since"
			}
		}
	}
	return ""
}

// askRefusedTags: a tag is refused only if the row was written since it was read, by a change or as a run's outcome.
func (v *verdict) askRefusedTags(s *story) string {
	for _, c := range s.changes {
		since := func(from, till int64) bool { return from <= c.answered.UnixNano() && till >= c.asked.UnixNano() }
		if !c.mismatch ||
			slices.ContainsFunc(s.changes, func(other *change) bool {
				end := other.answered
				if other.done == unknown {
					end = end.Add(undecided)
				}
				return other.done != refused && since(other.sent.UnixNano(), end.UnixNano())
			}) ||
			slices.ContainsFunc(s.runs, func(r run) bool {
				if r.span.till == 0 {
					return true // it may have died of it since
				}
				by := v.recordedBy(r)
				for _, f := range v.explanations(r) {
					by = max(by, f.whole.UnixNano()+int64(within.record))
				}
				return since(r.span.till, by)
			}) {
			continue
		}
		return "refused the tag that was read at " + clock(c.read.UnixNano()) + ", although nothing was written since"
	}
	return ""
}

// askAnswers: a change is made of a task that is as it must be for that: a cancel of one that is pending, and so on.
func (v *verdict) askAnswers(s *story) string {
	for _, c := range s.changes {
		if c.done == made && !s.status.allows(int64(c.from), c.sent.UnixNano(), c.answered.UnixNano(), 0) {
			return fmt.Sprintf("a %s was made although it could not be %s", c.kind, c.from)
		}
	}
	return ""
}

// askLate: a task whose time nobody changed starts soon after it, unless a fault fell in between. A row that a hand has
// locked holds up nobody else.
func (v *verdict) askLate(s *story) string {
	if len(s.changes) > 0 || len(s.runs) == 0 || len(s.submits) != 1 {
		return ""
	}
	due, start := max(s.due().UnixNano(), s.known.UnixNano()), s.runs[0].span.from
	if late := time.Duration(start - due); late > within.late && v.faultBetween(due, start) == nil {
		return fmt.Sprintf("%s late", late)
	}
	return ""
}
