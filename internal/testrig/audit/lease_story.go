package audit

import (
	"fmt"
	"slices"
	"time"

	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/task"
)

// addLeases adds the leases of a task to its runs, and what requests without an answer may have written.
func (v *Verdict) addLeases(s *story) {
	if v.Leases == nil {
		return
	}
	for _, h := range v.Leases.holds(s.JobID) {
		r := Run{Lease: h, Span: Span{Key: s.JobID, From: h.Given.UnixNano(), Till: h.Expires.UnixNano(), End: EndFailed,
			Seen: Seen{Attempts: int64(h.Attempt - 1), Attribute: TextHash(h.Attribute)}}}
		r.Span.From = max(h.Asked.UnixNano(), min(h.Got.UnixNano(), r.Span.From)) // its node's clock may be wrong
		if end := h.end(); end != nil && end.Sent.Before(h.Expires) {
			r.Span.Till, r.Span.End = end.Sent.UnixNano(), map[string]uint64{client.Ack: EndOK, client.Nack: EndFailed}[string(end.Do)]
			if r.Span.End == 0 {
				r.Span.End = EndStopped
			}
		}
		if c := s.taker(h); c != nil {
			r.Span.Till = min(r.Span.Till, c.Sent.UnixNano())
		}
		s.runs = append(s.runs, r)
	}
	slices.SortFunc(s.runs, func(a, b Run) int { return int(a.Span.From - b.Span.From) })
	for _, u := range v.Leases.unheard {
		from, till := u.from.UnixNano(), u.till.Add(v.Leases.Patience).UnixNano()
		if u.bizType != s.BizType || !s.action.allowsUpTo(till/int64(time.Millisecond)+v.ahead(), from, till, 0) {
			continue // it was not due
		}
		s.action = append(s.action, write{low: u.from.UnixMilli(), high: u.till.Add(longestLease).UnixMilli(), from: from, till: till})
		// A caller that hangs up gets no lease, and the end of a node's process is no failed run. But an answer can get lost.
		if v.lostAnswer(u.left, from, till) {
			retries := int64(v.Types[s.BizType].MaxRetries)
			s.attempts = append(s.attempts, write{low: 1, high: retries + 1, from: from, till: forever})
			s.status = append(s.status, write{low: int64(task.Dead), high: int64(task.Dead), from: from, till: forever})
		}
	}
}

// longestLease is longer than any lease that consumers ask for.
const longestLease = 2 * time.Minute

// lostAnswer tells whether the answer of a node may have been lost in a span of time: on a line that was broken, or because
// its caller had gone away while it was on its way for long. The end of a node's process alone loses none.
func (v *Verdict) lostAnswer(left bool, from, till int64) bool {
	return slices.ContainsFunc(v.Faults, func(f *Fault) bool {
		over := f.Whole
		if f.Process != nil {
			over = f.End
		}
		return f.Explains && (f.Process == nil || left && f.Slow) && f.Begin.UnixNano() < till && over.UnixNano() > from
	})
}

// end is the settlement that has ended a lease, or may have; nil: none.
func (h *Hold) end() *Settle {
	var perhaps *Settle
	for i, one := range h.Settles {
		switch {
		case one.Do == client.Extend:
		case one.Result == client.SettledOK:
			return &h.Settles[i]
		case one.Result == client.SettledUnavailable && perhaps == nil:
			perhaps = &h.Settles[i]
		}
	}
	return perhaps
}

// taker is what took a leased task from its consumer: a hand moved it, cancelled it or made it dead. Nil: none did.
func (s *story) taker(h *Hold) *Change {
	for _, c := range s.InTurn() {
		if c.Hand && c.Done == Made && (!c.Set.Low.IsZero() || c.Set.Status != nil) && c.Sent.After(h.Got) && c.Answered.Before(h.Expires) &&
			(h.end() == nil || c.Answered.Before(h.end().Sent)) {
			return c
		}
	}
	return nil
}

// addSettlement adds what a lease, and its end, have written.
func (v *Verdict) addSettlement(s *story, i int) {
	r, h, b := s.runs[i], s.runs[i].Lease, v.Types[s.BizType]
	first, ahead := h.First.UnixMilli(), v.ahead()
	s.action = append(s.action, write{low: first, high: first, from: r.Span.From - int64(2*time.Millisecond), till: h.Got.UnixNano(), sure: true})
	faulty := len(v.explanations(r)) > 0
	for _, one := range h.Settles {
		if one.Do == client.Extend && one.Result != client.SettledLost {
			ttr := time.Duration(one.TTR)
			s.action = append(s.action, write{low: one.Sent.Add(ttr).UnixMilli() - ahead, high: one.Answered.Add(ttr).UnixMilli() + 1 + ahead,
				from: one.Sent.UnixNano(), till: one.Answered.UnixNano(), sure: one.Result == client.SettledOK})
		}
	}
	put := func(to *register, sure bool, from, till time.Time, low, high int64) {
		*to = append(*to, write{low: low, high: high, from: from.UnixNano(), till: till.UnixNano(), sure: sure})
	}
	edited := s.edits(func(c *Change) bool {
		return (c.Hand || c.Done == Unknown) && c.Answered.After(h.Asked) && c.Sent.Before(h.Expires)
	})
	n, taker := r.Span.Seen.Attempts+1, s.taker(h)
	failed := func(from, till, low, high time.Time, sure bool) {
		put(&s.attempts, sure && !edited.attempts && !edited.status, from, till, n, n)
		if n > int64(b.MaxRetries) {
			put(&s.status, sure && !edited.status && !edited.attempts && !edited.action, from, till, int64(task.Dead), int64(task.Dead))
			sure = false
		}
		put(&s.action, sure && !edited.action && !edited.status, from, till, low.UnixMilli()-ahead, high.UnixMilli()+ahead)
	}
	end := h.end()
	if end != nil {
		sure, till := end.Result == client.SettledOK, end.Answered
		if !sure {
			till = till.Add(Undecided)
		}
		switch end.Do {
		case client.Ack:
			put(&s.status, sure && !edited.status, end.Sent, till, int64(task.Processed), int64(task.Processed))
		case client.Reject:
			put(&s.status, sure && !edited.status, end.Sent, till, int64(task.Cancelled), int64(task.Cancelled))
		case client.Release:
			put(&s.action, sure && !edited.action, end.Sent, till, end.Sent.UnixMilli()-ahead, till.UnixMilli()+1+ahead)
		case client.Nack:
			low, high := pauses(b.Backoff, min(n, 8))
			if end.RetryAfter != nil {
				low = time.Duration(*end.RetryAfter)
				high = low
			}
			failed(end.Sent, till, end.Sent.Add(low), till.Add(high+2*time.Second), sure)
		}
		if sure {
			return
		}
	}
	// It ended, and nobody had settled it. One that a hand has ended at once may count as a failed run; one that was moved has
	// not failed, nor has one that a hand has ended for good.
	over := h.Expires
	switch {
	case taker == nil:
	case taker.Set.Status == nil && !taker.Set.Low.After(taker.Sent.Add(time.Second)):
		over = taker.Sent
	default:
		return
	}
	till := over.Add(v.Within.Late)
	if i+1 < len(s.runs) && s.runs[i+1].Span.From > over.UnixNano() && taker == nil && !faulty {
		till = time.Unix(0, min(till.UnixNano(), s.runs[i+1].Span.From-1))
	}
	sure := taker == nil && !faulty && end == nil && v.faultBetween(s.BizType, over.UnixNano(), till.UnixNano()) == nil && !edited.status
	if !sure {
		till = till.Add(Undecided)
	}
	failed(over.Add(-time.Duration(ahead)*time.Millisecond-time.Second), till, over, till.Add(time.Second), sure)
}

// ahead is how far, in milliseconds, a clock of a node may have been wrong.
func (v *Verdict) ahead() int64 {
	var most time.Duration
	for _, f := range v.Faults {
		most = max(most, f.Skew.Abs())
	}
	return most.Milliseconds()
}

// aheadAt is how far, in nanoseconds, the clock of a run's node may have been ahead at its start: the node goes by it.
func (v *Verdict) aheadAt(r Run) int64 {
	var most time.Duration
	for _, f := range v.Faults {
		if f.Skew > 0 && f.Hits(r.By) && f.Begin.UnixNano() <= r.Span.From && f.Whole.UnixNano() >= r.Span.From {
			most = max(most, f.Skew)
		}
	}
	return int64(most)
}

// askLostLeases: a lease is lost when its time is over, when a settlement has ended it, or when a hand has taken it. No fault ends
// one, but clocks that are wrong.
func (v *Verdict) askLostLeases(s *story) string {
	for i, r := range s.runs {
		if r.Lease == nil || v.ahead() > 0 {
			continue
		}
		expires := r.Lease.First
		for _, one := range r.Lease.Settles {
			if one.Result == client.SettledLost && one.Answered.Before(expires) && !slices.ContainsFunc(s.Changes, func(c *Change) bool {
				return c.Done != Refused && (c.Set.Status != nil || !c.Set.Low.IsZero()) && c.Sent.Before(one.Answered) &&
					(c.Done == Unknown || c.Answered.After(r.Lease.Asked))
			}) {
				return fmt.Sprintf("lease %d was called lost at %s", i+1, Clock(one.Answered.UnixNano()))
			}
			switch {
			case one.Do == client.Extend && one.Result == client.SettledOK:
				expires = one.Sent.Add(time.Duration(one.TTR))
			case one.Do == client.Extend: // perhaps to an earlier end
				expires = earlier(expires, one.Sent.Add(time.Duration(one.TTR)))
			case one.Result != client.SettledLost:
				expires = one.Sent
			}
		}
	}
	return ""
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// askTaken: a hand that moves a leased task takes it from its consumer, who can neither extend nor release it any more.
func (v *Verdict) askTaken(s *story) string {
	for i, r := range s.runs {
		if r.Lease == nil {
			continue
		}
		for _, one := range r.Lease.Settles {
			if one.Result != client.SettledOK || one.Do != client.Extend && one.Do != client.Release {
				continue
			}
			for _, c := range s.Changes {
				if c.Hand && c.Done == Made && !c.Set.Low.IsZero() && c.Set.Status == nil && c.Sent.After(r.Lease.Got) && c.Answered.Before(one.Sent) {
					return fmt.Sprintf("lease %d: %s at %s was answered ok", i+1, one.Do, Clock(one.Sent.UnixNano()))
				}
			}
		}
	}
	return ""
}
