package audit

import (
	"fmt"
	"time"

	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/task"
)

// rule is one promise of the product, asked of one task: what is wrong with it, or nothing.
type rule struct {
	broken string // in a sentence after a number
	ask    func(v *Verdict, s *story) string
}

// rules are the promises about a single task. The model has the promises about the order of events; the others are about time and
// numbers. File tenure.go finds partitions with two owners, and limits.go has the limits.
var rules = []rule{
	{Unlinearizable, (*Verdict).askLinearizable},
	{"tasks were lost", (*Verdict).askLost},
	{"poisons ended too many processes", (*Verdict).askPoison},
	{"tasks were late, and no fault explains it", (*Verdict).askLate},
	{"tasks of mode redis were later than their fault makes them", (*Verdict).askPrompt},
	{"the newest tasks were coalesced", (*Verdict).askCoalesced},
	{"tasks expired in time", (*Verdict).askExpired},
}

// Unlinearizable is the rule that the model asks.
const Unlinearizable = "tasks have no order of events that keeps the contract"

// askLost: a task that was acknowledged ends.
func (v *Verdict) askLost(s *story) string {
	switch {
	case !s.row.There:
		return "its row is gone"
	case s.row.Status == task.Pending:
		return "still pending"
	}
	return ""
}

// askPoison: a task that ends its process ends few processes. Each redrive, and each run that has an outcome, begins the count
// again: after it the task may end as many once more.
func (v *Verdict) askPoison(s *story) string {
	if !s.Poison {
		return ""
	}
	ends, chances := 0, 1
	for _, r := range s.runs {
		if r.Span.Till == 0 {
			ends++
		} else {
			chances++
		}
	}
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

// askLate: a task whose time nobody changed starts soon after it, unless a fault fell in between. A row that a hand has
// locked holds up nobody else.
func (v *Verdict) askLate(s *story) string {
	due, start, ok := v.plainStart(s)
	if late := time.Duration(start - due); ok && late > v.Within.Late &&
		(v.faultBetween(s.BizType, due, start) == nil || v.Within.Calm > 0 && v.calmBetween(s.BizType, due, start) > v.Within.Calm) {
		return fmt.Sprintf("%s late", late)
	}
	return ""
}

// plainStart gives when a task was due and when it first ran, if nobody changed its time and nothing limits its type.
func (v *Verdict) plainStart(s *story) (due, start int64, ok bool) {
	b := v.Types[s.BizType]
	limited := b.RateLimit > 0 || b.MaxRunning > 0 || b.CatchUp > 0 || b.Processor == configs.ProcessorPull
	if len(s.Changes) > 0 || len(s.runs) == 0 || len(s.Submits) != 1 || limited {
		return 0, 0, false
	}
	return max(s.Due().UnixNano(), s.Known.UnixNano()), s.runs[0].Span.From, true
}

// askPrompt: a task of mode redis, submitted by the API, starts at its time; if faults of one kind fell in between, not much later.
func (v *Verdict) askPrompt(s *story) string {
	due, start, ok := v.plainStart(s)
	if !ok || v.Within.Prompt == nil || s.At == nil || v.modeAt(s.BizType, start) != configs.ModeRedis {
		return ""
	}
	kind := calm
	for _, f := range v.Faults {
		if f.hampers(s.BizType, due, start) {
			if kind != calm && kind != f.Kind {
				return ""
			}
			kind = f.Kind
		}
	}
	for _, lock := range v.locks[v.Database(s.JobID)] { // SQLite's locks are of the whole database
		if lock.Sent.UnixNano() < start && lock.Answered.UnixNano() > due-int64(time.Second) {
			return ""
		}
	}
	if most, ok := v.Within.Prompt[kind]; ok && time.Duration(start-due) > most {
		return fmt.Sprintf("%s late, by %s", time.Duration(start-due), kind)
	}
	return ""
}

// modeAt is the mode of a business type at a time.
func (v *Verdict) modeAt(bizType string, at int64) (mode string) {
	for _, r := range v.Reloads {
		for _, b := range r.Types {
			if b.Name == bizType && r.At.UnixNano() <= at {
				mode = b.Mode
			}
		}
	}
	return mode
}
