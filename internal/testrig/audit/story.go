package audit

import (
	"slices"
	"time"

	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/task"
)

// story is all that is known of a task: what was asked, what ran, and how its row stands in the end.
type story struct {
	*History
	runs []Run
	row  Row
}

// A story has the leases of a task among its runs.
func (v *Verdict) tell(h *History) *story {
	s := &story{History: h, runs: v.Runs[h.JobID], row: v.Rows[h.JobID]}
	v.addLeases(s)
	return s
}

// pauses is how long a task waits after its n-th failed run.
func pauses(b configs.Backoff, n int64) (low, high time.Duration) {
	base := b.Min << (n - 1)
	if base >= b.Max {
		return b.Max * 3 / 4, b.Max
	}
	return base, min(base*5/4, b.Max)
}

// cutSince is when a task may be dead at the earliest because enough of its runs had no end, as far as the product can see. The
// end of a process between the task's time and its start, or between two starts, may count against the task, too. It counts on
// suspicion, as if the task had been started unseen, or because it came when a start was written down and had not begun. If no run
// of the task has started, it takes as many such ends as it would take starts.
func (v *Verdict) cutSince(s *story) int64 {
	own := map[*Fault]bool{} // the faults that ended runs; one that was over before may have cost the node its partition
	for _, r := range s.runs {
		if r.Lease != nil {
			continue
		}
		for _, f := range v.explanations(r) {
			own[f] = own[f] || f.End.UnixNano() > r.Span.From
		}
	}
	mostCuts := v.Types[s.BizType].Cuts // how many starts without an end a task survives, less one
	cuts, suspected, since := 0, map[*Fault]bool{}, v.unseenCuts(s)
	due := s.Due() // when the task was first due: it may have been moved since
	for _, c := range s.InTurn() {
		if !c.Set.Low.IsZero() && c.Set.Low.Before(due) {
			due = c.Set.Low
		}
	}
	die := func(at int64) {
		if cuts+min(len(suspected), mostCuts-1) >= mostCuts {
			since = min(since, at)
		}
	}
	for i, r := range s.runs {
		if r.Lease != nil || r.Span.Till != 0 && len(v.explanations(r)) == 0 {
			continue
		}
		for _, f := range v.Faults {
			if f.Explains && !own[f] && f.Whole.UnixMilli() >= min(due.UnixMilli(), r.Span.Seen.Action) && f.Begin.UnixNano() <= r.Span.From {
				suspected[f] = true
			}
		}
		cuts++
		die(r.Span.From)
		next := int64(forever)
		if i+1 < len(s.runs) {
			next = s.runs[i+1].Span.From
		}
		for _, f := range v.Faults {
			if at := f.Begin.UnixNano(); f.Process != nil && f.Explains && !own[f] && at > r.Span.From && at < next {
				suspected[f] = true
				die(at)
				break // the process after that would have started it
			}
		}
	}
	return since
}

// unseenCuts is when a task may be dead at the earliest although no run of it has begun: each of its starts was written down, and its
// process ended before the run began. Such an end comes while the task waits to be started: soon after its time, or after a fault.
func (v *Verdict) unseenCuts(s *story) int64 {
	first, ends, due := int64(forever), 0, s.Due()
	if s.row.Status == task.Dead {
		due = time.UnixMilli(s.row.Seen.Action) // it may have been moved
	}
	waits := due
	for _, r := range s.runs {
		if r.Lease == nil {
			first = min(first, r.Span.From)
		}
	}
	for _, f := range slices.SortedFunc(slices.Values(v.Faults), func(a, b *Fault) int { return a.Begin.Compare(b.Begin) }) {
		at := f.Begin.UnixNano()
		if at >= first || !f.Begin.Before(waits.Add(v.Within.Late)) {
			break
		}
		if f.Process != nil && f.Explains && !f.End.Before(due) {
			if ends++; ends == v.Types[s.BizType].Cuts {
				return at
			}
		}
		if f.Whole.After(waits) {
			waits = f.Whole
		}
	}
	return forever
}

// slack is how much earlier than its start a run's row may have been read: windows.hand, and the faults that hit the node
// in that time.
func (v *Verdict) slack(r Run) int64 {
	since := r.Span.From - int64(v.Within.Hand)
	for again := true; again; {
		again = false
		for _, f := range v.Faults {
			begin := f.Begin.UnixNano() - int64(v.Within.Hand)
			if f.Hits(r.By) && f.Begin.UnixNano() <= r.Span.From && f.Whole.UnixNano() >= since && begin < since {
				since, again = begin, true
			}
		}
	}
	return r.Span.From - since
}
