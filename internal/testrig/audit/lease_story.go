package audit

import (
	"slices"
	"time"

	"github.com/timeoutcenter/toc/client"
)

// addLeases adds the leases of a task to its runs.
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
}

// longestLease is longer than any lease that consumers ask for.
const longestLease = 2 * time.Minute

// countsSince is since when a lease that reached no consumer may count as a failed run. Its answer may have been lost on a broken
// line, or because its caller had gone away while the answer was on its way for long. forever: it may not count.
func (v *Verdict) countsSince(s *story, u unheard, from, till int64) int64 {
	since := int64(forever)
	for _, f := range v.Faults {
		if f.Explains && (u.left || f.Process == nil) && f.Begin.UnixNano() < till && f.Whole.UnixNano() > from {
			since = min(since, v.lostSince(s, u, f))
		}
	}
	return since
}

// lostSince is since when a fault may have lost the answer to a request. The owner of a task asks the node that passes a lease on
// whether it is there: while that one stands still, no lease ends as a failed run.
func (v *Verdict) lostSince(s *story, u unheard, f *Fault) int64 {
	begin, end := f.Begin.UnixNano(), f.End.UnixNano()
	owner := v.Tenures.throughout(v.Partition(s.JobID), begin-int64(longestLease), end)
	switch {
	case !f.Frozen || owner == nil || u.at == nil:
		return begin
	case !f.Hits(owner) && !f.Hits(u.at):
		return forever
	}
	return end
}

// isReturned reports whether the process that gave a lease, and that would end it, has received the release from its consumer.
func (v *Verdict) isReturned(s *story, h *Hold) bool {
	return v.skewDuring(h) == 0 && slices.ContainsFunc(h.Settles, func(one Settle) bool {
		return one.Do == client.Release && one.Result == client.SettledUnavailable && one.By != nil && one.Answered.Before(h.over()) &&
			one.By == v.Tenures.throughout(v.Partition(s.JobID), h.Asked.UnixNano(), h.over().Add(Undecided).UnixNano())
	})
}

// lostGiver reports whether a node may have ended, or been taken for ended, since it gave a lease or passed it on. An earlier end
// counts, too, for as long as the next owners of its partitions may mistake each other's leases for its leases. That is until all
// tasks that were due at its end are done. The lease of a task that a hand has ended runs out when the task is pending again.
func (v *Verdict) lostGiver(s *story, h *Hold) bool {
	const settled = 2 * time.Minute
	ended := s.taker(h) != nil
	return slices.ContainsFunc(v.Faults, func(f *Fault) bool {
		return (f.Explains || f.Leaves || f.Process != nil) && (ended || f.Begin.Before(h.Expires)) && f.Whole.Add(settled).After(h.Asked)
	})
}

// changesHands reports whether the partition of a task got another owner about a time: a lease that ends before its task has an owner again
// is no attempt.
func (v *Verdict) changesHands(s *story, at int64) bool {
	return len(v.Tenures) > 0 && v.Tenures.throughout(v.Partition(s.JobID), at, at+int64(v.Within.Record)) == nil
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

// over is when a lease that nobody settles ends at the earliest, by a clock that is right.
func (h *Hold) over() time.Time {
	over := h.first
	for _, one := range h.Settles {
		if one.Do != client.Extend || one.Result == client.SettledLost {
			continue
		}
		end := one.Sent.Add(time.Duration(one.TTR))
		if one.Result == client.SettledOK || end.Before(over) {
			over = end
		}
	}
	return over
}

// skewDuring is how far a clock may have been wrong while a consumer had a lease: any node may end it.
func (v *Verdict) skewDuring(h *Hold) (most time.Duration) {
	for _, f := range v.Faults {
		if f.Begin.Before(h.Expires) && f.Whole.After(h.Asked) {
			most = max(most, f.Skew.Abs())
		}
	}
	return most
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
