package audit

import (
	"time"

	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/task"
)

// story is all that is known of a task: what was asked, what ran, and how its row stands in the end.
type story struct {
	*History
	runs []Run
	row  Row
	// What may stand in the columns of its row, at each time.
	status, action, attempts, attribute register
}

// tell puts a task's story together.
func (v *Verdict) tell(h *History) *story {
	s := &story{History: h, runs: v.Runs[h.JobID], row: v.Rows[h.JobID]}
	for _, try := range h.Submits {
		sent, answered := try.Sent.UnixNano(), min(try.Answered.UnixNano(), h.Known.UnixNano()) // stored by then, whichever try it was
		put := func(r *register, value int64) {
			*r = append(*r, write{low: value, high: value, from: sent, till: answered, sure: len(h.Submits) == 1})
		}
		put(&s.status, int64(task.Pending))
		put(&s.action, try.Due.UnixMilli())
		put(&s.attempts, 0)
		put(&s.attribute, int64(TextHash(h.Attribute)))
	}
	for _, c := range h.InTurn() {
		v.addChange(s, c)
	}
	v.addLeases(s)
	for i, r := range s.runs {
		if r.Lease != nil {
			v.addSettlement(s, i)
		} else {
			v.addOutcome(s, i)
		}
	}
	s.addCuts(v)
	v.addPolicies(s)
	v.addOperations(s)
	return s
}

func (v *Verdict) addChange(s *story, c *Change) {
	if c.Done == Refused {
		return
	}
	put := func(r *register, low, high int64) {
		w := write{low: low, high: high, from: c.Sent.UnixNano(), till: c.Answered.UnixNano(), sure: c.Done == Made, hand: c.Hand}
		if !w.sure {
			w.till = c.Answered.Add(Undecided).UnixNano()
		}
		*r = append(*r, w)
	}
	if c.Set.Status != nil {
		put(&s.status, int64(*c.Set.Status), int64(*c.Set.Status))
	}
	if !c.Set.Low.IsZero() {
		low, high := c.Set.Low.UnixMilli(), c.Set.High.UnixMilli()
		if c.Kind == Redriven && !c.Hand { // to now, by the clock of the node
			low, high = low-v.ahead(), high+v.ahead()
		}
		put(&s.action, low, high)
	}
	if c.Set.Attempts != nil {
		put(&s.attempts, int64(*c.Set.Attempts), int64(*c.Set.Attempts))
	}
	if c.Set.HasAttribute {
		put(&s.attribute, int64(c.Set.Attribute), int64(c.Set.Attribute))
	}
}

// addOutcome adds what the product writes at the end of a run. It surely does so, unless a fault kept it from that, or
// somebody may have edited the row since it was read. A column that a hand surely edited during the run stays as edited.
func (v *Verdict) addOutcome(s *story, i int) {
	r, b := s.runs[i], v.Types[s.BizType]
	if r.Span.Till == 0 { // it ended with its process
		return
	}
	sure := r.Span.End != EndStopped
	by := v.recordedBy(r)
	for _, f := range v.explanations(r) {
		sure, by = false, max(by, f.Whole.UnixNano()+int64(v.Within.Record))
	}
	if i+1 < len(s.runs) && sure && s.runs[i+1].Span.From > r.Span.Till { // no run begins before that
		by = min(by, s.runs[i+1].Span.From-1)
	}
	perhaps := s.edits(func(c *Change) bool {
		end := c.Answered
		if c.Done == Unknown {
			end = end.Add(Undecided)
		}
		return (c.Hand || c.Done == Unknown) && c.Sent.UnixNano() <= by && end.UnixNano() >= r.Span.From-v.slack(r)
	})
	surely := s.edits(func(c *Change) bool {
		return c.Hand && c.Done == Made && c.Sent.UnixNano() > r.Span.From && c.Answered.UnixNano() < r.Span.Till
	})
	if surely.status {
		return
	}
	put := func(to *register, sure bool, low, high int64) {
		*to = append(*to, write{low: low, high: high, from: r.Span.Till, till: by, sure: sure && !perhaps.status})
	}
	if r.Span.End == EndOK {
		put(&s.status, sure, int64(task.Processed), int64(task.Processed))
		return
	}
	n, end := r.Span.Seen.Attempts+1, r.Span.Till/int64(time.Millisecond)
	if !surely.attempts {
		put(&s.attempts, sure && !perhaps.attempts, n, n)
	}
	late := 2 * time.Second
	if !sure {
		late = time.Minute
	}
	retries := int64(b.MaxRetries)
	low, high := pauses(b.Backoff, n)
	if n > retries && !surely.attempts && !surely.action {
		put(&s.status, sure && !perhaps.attempts && !perhaps.action, int64(task.Dead), int64(task.Dead))
		sure, late = false, time.Minute // it does not move, or was edited and did not die
	}
	if n > retries {
		low, high = b.Backoff.Min, b.Backoff.Max // by attempts that were edited
	}
	if !surely.action {
		put(&s.action, sure && !perhaps.action, end+low.Milliseconds()-v.ahead(), end+(high+late).Milliseconds()+v.ahead())
	}
}

// pauses is how long a task waits after its n-th failed run.
func pauses(b configs.Backoff, n int64) (low, high time.Duration) {
	base := b.Min << (n - 1)
	if base >= b.Max {
		return b.Max * 3 / 4, b.Max
	}
	return base, min(base*5/4, b.Max)
}

// columns are some of a row's.
type columns struct{ status, action, attempts bool }

// edits tells which columns the changes of a kind write, those included of which nobody knows.
func (s *story) edits(match func(*Change) bool) (all columns) {
	for _, c := range s.Changes {
		if c.Done == Refused || !match(c) {
			continue
		}
		all.status = all.status || c.Set.Status != nil
		all.attempts = all.attempts || c.Set.Attempts != nil
		all.action = all.action || !c.Set.Low.IsZero()
	}
	return all
}

// addCuts lets a task be dead whose runs had no end, as far as the product can know, often enough. Ends of processes that
// fell between its time and its start, or between two starts, are laid to it, too: one on suspicion, as if it had been
// started unseen, and one that came when its start was written down and had not begun. But never without a start of its own.
func (s *story) addCuts(v *Verdict) {
	own := map[*Fault]bool{}
	for _, r := range s.runs {
		if r.Lease != nil {
			continue
		}
		for _, f := range v.explanations(r) {
			own[f] = true
		}
	}
	mostCuts := v.Types[s.BizType].Cuts // how many starts without an end a task survives, less one
	cuts, suspected := 0, map[*Fault]bool{}
	die := func(at int64) {
		if cuts+min(len(suspected), mostCuts-1) >= mostCuts {
			s.status = append(s.status, write{low: int64(task.Dead), high: int64(task.Dead), from: at, till: forever})
		}
	}
	for i, r := range s.runs {
		if r.Lease != nil || r.Span.Till != 0 && len(v.explanations(r)) == 0 {
			continue
		}
		for _, f := range v.Faults {
			if f.Explains && !own[f] && f.End.UnixMilli() >= r.Span.Seen.Action && f.Begin.UnixNano() <= r.Span.From {
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
