package audit

import (
	"fmt"
	"slices"
	"time"

	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/task"
)

// rule is one promise of the product, asked of one task: what is wrong with it, or nothing.
type rule struct {
	broken string // in a sentence after a number
	ask    func(v *Verdict, s *story) string
}

// rules are all promises about a single task. That a partition never has two owners is tenure.go's, and limits are limits.go's.
var rules = []rule{
	{"tasks were lost", (*Verdict).askLost},
	{"tasks ran early", (*Verdict).askEarly},
	{"cancelled tasks ran", (*Verdict).askCancelled},
	{"tasks ran again, and no fault explains it", (*Verdict).askAgain},
	{"acknowledged changes were not kept", (*Verdict).askKept},
	{"tasks have attempts that are not their failed runs", (*Verdict).askAttempts},
	{"tasks died that had not failed", (*Verdict).askDied},
	{"poisons ended too many processes", (*Verdict).askPoison},
	{"changes were made of tasks that were not as their tag said", (*Verdict).askTags},
	{"tags were refused that still held", (*Verdict).askRefusedTags},
	{"changes were answered that could not be", (*Verdict).askAnswers},
	{"tasks were late, and no fault explains it", (*Verdict).askLate},
	{coalesced, (*Verdict).askCoalesced},
	{"tasks expired in time", (*Verdict).askExpired},
	{"leases went on although a hand had taken the task", (*Verdict).askTaken},
	{"leases were called lost before their end", (*Verdict).askLostLeases},
}

const now = forever

func word(status int64) string { return task.Status(status).String() }

// askLost: a task that was acknowledged ends, and in a way that its story allows.
func (v *Verdict) askLost(s *story) string {
	switch {
	case !s.row.There:
		return "its row is gone"
	case s.row.Status == task.Pending:
		return "still pending"
	case s.row.Status == task.Processed && !s.status.allows(int64(task.Processed), now, now, 0):
		return "processed, but no run ended well since"
	}
	return ""
}

// askEarly: a run begins at the action_time that its processor is handed, or after it.
func (v *Verdict) askEarly(s *story) string {
	for i, r := range s.runs {
		if r.Lease != nil {
			if !s.action.allowsUpTo((r.Span.From+v.aheadAt(r))/int64(time.Millisecond)+1, r.Span.From, r.Lease.Got.UnixNano(), v.slack(r)) {
				return fmt.Sprintf("lease %d was given early, or while another consumer had the task", i+1)
			}
			continue
		}
		if due := r.Span.Seen.Action * int64(time.Millisecond); r.Span.From+v.aheadAt(r) < due {
			return fmt.Sprintf("run %d began %s early", i+1, time.Duration(due-r.Span.From))
		}
	}
	return ""
}

// askCancelled: what was cancelled does not start, and what runs is not called cancelled.
func (v *Verdict) askCancelled(s *story) string {
	for i, r := range s.runs {
		if v.endedBefore(s, r) == int64(task.Cancelled) {
			return fmt.Sprintf("run %d began after it was cancelled", i+1)
		}
		for _, c := range s.Changes {
			if !c.Hand && c.Done == Made && c.Kind == Cancelled && v.during(r, c) {
				return fmt.Sprintf("cancelled while run %d was under way", i+1)
			}
		}
	}
	return ""
}

// during tells whether a run lasted from before a change until after it, by a node that knew what it did.
func (v *Verdict) during(r Run, c *Change) bool {
	return r.Span.From < c.Sent.UnixNano() && r.Span.Till > c.Answered.UnixNano() && len(v.explanations(r)) == 0
}

// endedBefore gives the status because of which a run should not have begun; 0: it could.
func (v *Verdict) endedBefore(s *story, r Run) int64 {
	slack := v.slack(r)
	if s.status.allows(int64(task.Pending), r.Span.From, r.Span.From, slack) {
		return 0
	}
	last, _ := s.status.last(r.Span.From, slack)
	return last.low
}

// askAgain: no run of a task begins while another is under way, nor after one that ended it.
func (v *Verdict) askAgain(s *story) string {
	for i, r := range s.runs {
		switch ended := v.endedBefore(s, r); task.Status(ended) {
		case task.Processed, task.Dead:
			return fmt.Sprintf("run %d began although the task was %s", i+1, word(ended))
		}
		if i == 0 {
			continue
		}
		if before := s.runs[i-1]; (before.Span.Till > r.Span.From || before.Span.Till == 0) && len(v.explanations(before)) == 0 && len(v.explanations(r)) == 0 {
			return fmt.Sprintf("run %d began while run %d was under way", i+1, i)
		}
	}
	return ""
}

// askKept: what somebody was told to be done is there, for each run and in the end.
func (v *Verdict) askKept(s *story) string {
	for i, r := range s.runs {
		slack := v.slack(r)
		if r.Lease == nil && !s.action.allows(r.Span.Seen.Action, r.Span.From, r.Span.From, slack) {
			return fmt.Sprintf("run %d had the action_time %s", i+1, Clock(r.Span.Seen.Action*int64(time.Millisecond)))
		}
		if !s.attribute.allows(int64(r.Span.Seen.Attribute), r.Span.From, r.Span.From, slack) {
			return fmt.Sprintf("run %d had another attribute", i+1)
		}
	}
	switch {
	case !s.row.There:
		return ""
	case !s.action.allows(s.row.Action, now, now, 0):
		return "its action_time is " + Clock(s.row.Action*int64(time.Millisecond))
	case !s.attribute.allows(int64(s.row.Attribute), now, now, 0):
		return "its attribute is another"
	case s.row.Status == task.Cancelled && !s.status.allows(int64(task.Cancelled), now, now, 0):
		return "cancelled, but not by us, or not in the end"
	}
	return ""
}

// askAttempts: attempts rise by one with each run that failed, and by nothing else. No failed run is forgotten but one
// whose attempts somebody edited meanwhile.
func (v *Verdict) askAttempts(s *story) string {
	for i, r := range s.runs {
		if !s.attempts.allows(r.Span.Seen.Attempts, r.Span.From, r.Span.From, v.slack(r)) {
			return fmt.Sprintf("run %d had %d attempts", i+1, r.Span.Seen.Attempts)
		}
	}
	if s.row.There && !s.attempts.allows(s.row.Attempts, now, now, 0) {
		return fmt.Sprintf("its attempts are %d", s.row.Attempts)
	}
	return ""
}

// askDied: dead is what failed with its retries used up, or was started often enough without an end.
func (v *Verdict) askDied(s *story) string {
	if s.row.There && s.row.Status == task.Dead && !s.status.allows(int64(task.Dead), now, now, 0) {
		return "dead without a reason"
	}
	return ""
}

// askPoison: a task that ends its process ends few of them, and once more as many after each redrive.
func (v *Verdict) askPoison(s *story) string {
	if !s.Poison {
		return ""
	}
	ends := 0
	for _, r := range s.runs {
		if r.Span.Till == 0 {
			ends++
		}
	}
	chances := 1
	for _, o := range v.Operations {
		if o.Kind != "discard" && (o.BizType == "" || o.BizType == s.BizType) {
			chances++
		}
	}
	if ends > chances*v.Types[s.BizType].Cuts {
		return fmt.Sprintf("it ended %d processes", ends)
	}
	return ""
}

// askTags: a change that names a tag is not made if another was made since the tag was read.
func (v *Verdict) askTags(s *story) string {
	for _, c := range s.Changes {
		if c.Read.IsZero() || c.Done != Made {
			continue
		}
		for _, other := range s.Changes {
			if other.Done == Made && other.Sent.After(c.Read) && other.Answered.Before(c.Sent) {
				return "made by a tag that was read at " + Clock(c.Read.UnixNano()) + ", although there was a " + other.Kind + " since"
			}
		}
	}
	return ""
}

// askRefusedTags: a tag is refused only if the row was written since it was read, by a change or as a run's outcome.
func (v *Verdict) askRefusedTags(s *story) string {
	for _, c := range s.Changes {
		since := func(from, till int64) bool { return from <= c.Answered.UnixNano() && till >= c.Asked.UnixNano() }
		if !c.Mismatch ||
			slices.ContainsFunc(s.Changes, func(other *Change) bool {
				end := other.Answered
				if other.Done == Unknown {
					end = end.Add(Undecided)
				}
				return other.Done != Refused && since(other.Sent.UnixNano(), end.UnixNano())
			}) ||
			slices.ContainsFunc(s.runs, func(r Run) bool {
				if r.Span.Till == 0 {
					return true // it may have died of it since
				}
				by := v.recordedBy(r)
				for _, f := range v.explanations(r) {
					by = max(by, f.Whole.UnixNano()+int64(v.Within.Record))
				}
				return since(r.Span.Till, by)
			}) {
			continue
		}
		return "refused the tag that was read at " + Clock(c.Read.UnixNano()) + ", although nothing was written since"
	}
	return ""
}

// askAnswers: a change is made of a task that is as it must be for that: a cancel of one that is pending, and so on.
func (v *Verdict) askAnswers(s *story) string {
	for _, c := range s.Changes {
		if c.Done == Made && !s.status.allows(int64(c.From), c.Sent.UnixNano(), c.Answered.UnixNano(), 0) {
			return fmt.Sprintf("a %s was made although it could not be %s", c.Kind, c.From)
		}
	}
	return ""
}

// askLate: a task whose time nobody changed starts soon after it, unless a fault fell in between. A row that a hand has
// locked holds up nobody else.
func (v *Verdict) askLate(s *story) string {
	b := v.Types[s.BizType]
	limited := b.RateLimit > 0 || b.MaxRunning > 0 || b.CatchUp > 0 || b.Processor == configs.ProcessorPull
	if len(s.Changes) > 0 || len(s.runs) == 0 || len(s.Submits) != 1 || limited {
		return ""
	}
	due, start := max(s.Due().UnixNano(), s.Known.UnixNano()), s.runs[0].Span.From
	if late := time.Duration(start - due); late > v.Within.Late && (v.faultBetween(s.BizType, due, start) == nil || v.Within.Calm > 0 && v.calmBetween(s.BizType, due, start) > v.Within.Calm) {
		return fmt.Sprintf("%s late", late)
	}
	return ""
}
