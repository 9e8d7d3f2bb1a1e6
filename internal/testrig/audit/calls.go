package audit

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/task"
)

// call is something that was done to a task at one instant of a span of time: by a caller, a hand, a consumer or the center.
type call struct {
	what       string
	from, till int64
	// silently: the center may have taken a silent step just before.
	silently bool
	// mayBeNever: it may take effect at any time, or never.
	mayBeNever bool
	step       func(r row) []row
}

// inTheEnd is when the row was read in the end. What has had no answer by then may still take effect.
const inTheEnd = forever - 1

// one makes the result of a step of what the model gives.
func one(r row, ok bool) []row {
	if !ok {
		return nil
	}
	return []row{r}
}

// history is the model of a task, and all calls of it.
func (v *Verdict) history(s *story) (*model, []*call) {
	m := &model{bizType: v.Types[s.BizType], ahead: v.ahead(), cut: v.cutSince(s), marked: forever, reads: map[*Change]uint64{}}
	for _, f := range v.Faults {
		m.marked = min(m.marked, f.Begin.UnixNano())
	}
	m.steps = append(v.policies(s), v.operations(s, m)...)
	m.unheard = v.unheard(s)
	h := &calls{Verdict: v, story: s, model: m}
	h.addSubmit()
	for _, c := range s.InTurn() {
		h.addChange(c)
	}
	for i, r := range s.runs {
		if r.Lease != nil {
			h.addLease(i+1, r)
		} else {
			h.addRun(i+1, r)
		}
	}
	return m, append(h.list, theEnd(func(r row) bool { return !s.row.There || r.stands(s.row) }))
}

// theEnd is the row being read in the end.
func theEnd(fits func(r row) bool) *call {
	return &call{what: "the row in the end", from: inTheEnd, till: inTheEnd, silently: true, step: func(r row) []row {
		ok := fits(r)
		r.over = true
		return one(r, ok)
	}}
}

// calls collects the calls of a task.
type calls struct {
	*Verdict
	*story
	model *model
	list  []*call
}

// add adds a call that needs a row of some kind, which a silent step of the center may have made.
func (h *calls) add(what string, from, till int64, step func(r row) []row) {
	h.list = append(h.list, &call{what: what, from: from, till: till, silently: true, step: step})
}

// maybe adds a call that may have taken effect at any time since, or never.
func (h *calls) maybe(what string, from int64, step func(r row) []row) {
	h.list = append(h.list, &call{what: what, from: from, till: forever, mayBeNever: true, step: step})
}

// addSubmit adds the submit. One of its tries has stored the task.
func (h *calls) addSubmit() {
	h.add("submit", h.Submits[0].Sent.UnixNano(), h.Known.UnixNano(), func(r row) (list []row) {
		for _, try := range h.Submits {
			due := try.Due.UnixMilli()
			list = append(list, row{stored: true, low: due, high: due, attribute: TextHash(h.Attribute)})
		}
		return list
	})
}

func (h *calls) addChange(c *Change) {
	what, sent, answered, m := c.String(), c.Sent.UnixNano(), c.Answered.UnixNano(), h.model
	if !c.Read.IsZero() {
		bit := uint64(1) << len(m.reads)
		m.reads[c] = bit
		h.add("GET", c.Asked.UnixNano(), c.Read.UnixNano(), func(r row) []row {
			r.tags |= bit
			return one(r, r.stored)
		})
	}
	switch {
	case c.Done == Made:
		h.add(what, sent, answered, func(r row) []row { return one(m.change(r, c)) })
	case c.Done == Unknown:
		h.maybe(what, sent, func(r row) []row {
			after := one(m.change(r, c))
			if h.mayComeLate(c) {
				zombie := *c
				zombie.Hand = true
				after = append(after, one(m.change(r, &zombie))...)
			}
			return after
		})
	case c.Conflict == task.ConflictRunning: // others may read the record of a run's end before its node has the store's answer
		h.add(what, sent-int64(time.Second), answered, func(r row) []row { return one(r, m.refuses(r, c)) })
	case c.Mismatch || c.ByState:
		h.add(what, sent, answered, func(r row) []row { return one(r, m.refuses(r, c)) })
	}
}

// mayComeLate reports whether a fault may have held up the statement of a change without an answer. If its node has lost the partition
// meanwhile, the database makes the change all the same, like a hand's: the next owner may have read the row, and may run the task.
func (h *calls) mayComeLate(c *Change) bool {
	return slices.ContainsFunc(h.Faults, func(f *Fault) bool { return !f.Begin.After(c.Answered) && !f.Whole.Before(c.Sent) })
}

// addRun adds a run: the row is read for it, it starts, and it ends.
func (h *calls) addRun(n int, r Run) {
	m, s := h.model, r.Span
	what := fmt.Sprintf("run %d", n)
	due, ahead := s.Seen.Action*int64(time.Millisecond), h.aheadAt(r)
	faults := h.explanations(r)
	hit := len(faults) > 0
	read := s.From - h.slack(r)
	h.add("row read for "+what, read, s.From, func(r row) []row { return one(m.handed(r, n, s.Seen, read)) })
	h.list = append(h.list, &call{what: what + " starts", from: read, till: s.From, step: func(r row) []row {
		if due > s.From+ahead {
			return nil // early
		}
		return one(m.starts(r, n, hit))
	}})
	ends := func(r row) row { return m.ends(r, n, s, hit || s.End == EndStopped) }
	switch {
	case s.Till == 0 || s.End == EndStopped || hit:
		since := r.over() // when it is off the record
		for _, f := range faults {
			since = min(since, max(s.From, f.Begin.UnixNano()))
		}
		h.maybe(what+" leaves no record", since, func(r row) []row { return []row{r.leaves(n)} })
		if s.Till != 0 {
			until := s.Till + int64(Undecided)
			for _, f := range faults {
				until = max(until, f.Whole.Add(Undecided).UnixNano())
			}
			h.list = append(h.list, &call{what: what + " ends", from: s.Till, till: until, step: func(r row) []row { return []row{ends(r), r} }})
		}
	default:
		h.add(what+" ends", s.Till, h.recordedBy(r), func(r row) []row { return []row{ends(r)} })
	}
}

// addLease adds a lease, its settlements, and its end.
func (h *calls) addLease(n int, r Run) {
	m, l := h.model, r.Lease
	what := fmt.Sprintf("lease %d", n)
	due := (r.Span.From+h.aheadAt(r))/int64(time.Millisecond) + 1
	read := r.Span.From - h.slack(r)
	h.add(what, l.Asked.UnixNano(), l.Got.UnixNano(), func(r row) []row { return one(m.leased(r, n, l, due, read)) })
	var unsure *Settle // several tries of one settlement are one
	for _, s := range l.Settles {
		does := what + ": " + string(s.Do)
		sent, answered := s.Sent.UnixNano(), s.Answered.UnixNano()
		switch s.Result {
		case client.SettledOK:
			h.add(does, sent, answered, func(r row) []row { return one(m.settled(r, n, l, s)) })
		case client.SettledLost:
			h.add(does+", lost", sent, answered, func(r row) []row { return one(r, m.isLost(r, n, s)) })
		case client.SettledUnavailable:
			if unsure != nil && unsure.Do == s.Do {
				unsure.Answered = s.Answered
				continue
			}
			try := s
			unsure = &try
			h.maybe(does+", unsure", sent, func(r row) []row { return one(m.settled(r, n, l, try)) })
		}
	}
	over := l.over().Add(-h.skewDuring(l)).UnixNano()
	gone := h.lostGiver(h.story, l) || h.changesHands(h.story, over) || slices.ContainsFunc(l.Settles, func(s Settle) bool { return s.Do == client.Release && s.Result == client.SettledUnavailable })
	returned := h.isReturned(h.story, l)
	h.maybe(what+" runs out", over, func(r row) []row { return m.runsOut(r, n, l, gone, returned, over) })
}

// policies are the steps that a business type takes with tasks that wait for long. Separate rules check whether they were right.
func (v *Verdict) policies(s *story) (list []silent) {
	b := v.Types[s.BizType]
	becomes := func(status task.Status) {
		list = append(list, silent{s.Submits[0].Sent.UnixNano(), forever, isPending, func(r row) row { r.status = status; return r }})
	}
	if b.Coalesce == configs.CoalesceBizID || b.ExpireAfter > 0 && b.OnExpire == configs.OnExpireSkip {
		becomes(task.Cancelled)
	}
	if b.ExpireAfter > 0 && b.OnExpire == configs.OnExpireDead {
		becomes(task.Dead)
	}
	return list
}

func isPending(r row) bool { return r.status == task.Pending }
func isDead(r row) bool    { return r.status == task.Dead }

// operations are what operators may have done to the task, among others.
func (v *Verdict) operations(s *story, m *model) (list []silent) {
	for _, o := range v.Operations {
		if o.BizType != "" && o.BizType != s.BizType {
			continue
		}
		one := silent{from: o.Sent.UnixNano(), till: max(o.Answered.Add(Undecided).UnixNano(), o.Ended.UnixNano()), is: isDead}
		switch o.Kind {
		case "redrive":
			one.do = func(r row) row {
				r.status, r.attempts, r.promised, r.lease = task.Pending, 0, span{}, 0
				return m.at(r, one.from/int64(time.Millisecond)-1000, one.till/int64(time.Millisecond))
			}
		case "discard":
			one.do = func(r row) row { r.status, r.discarded = task.Cancelled, true; return r }
		case "retry":
			one.is = func(r row) bool { return isPending(r) && r.attempts != 0 }
			one.do = func(r row) row {
				return m.at(m.keepsPromise(r), one.from/int64(time.Millisecond)-1000, one.till/int64(time.Millisecond))
			}
		case "undo":
			one.is = func(r row) bool { return isPending(r) || r.discarded }
			one.do = func(r row) row {
				if r.status == task.Cancelled {
					r.status = task.Dead
					return r
				}
				r.status, r.attempts, r.low, r.high, r.promised, r.lease = task.Dead, anyAttempts, 0, never, span{0, never}, 0
				return r
			}
		}
		list = append(list, one)
	}
	return list
}

// unheard are the requests for leases without an answer by which the task may have been leased.
func (v *Verdict) unheard(s *story) (list []lostLease) {
	if v.Leases == nil || v.Types[s.BizType].Processor != configs.ProcessorPull {
		return nil
	}
	first, last := s.Submits[0].Sent.UnixNano(), int64(forever)
	if !s.row.Modified.IsZero() {
		last = s.row.Modified.UnixNano() + v.ahead()*int64(time.Millisecond) + int64(time.Second) // a lease is a write
	}
	add := func(l lostLease) {
		if l.till >= first && l.from <= last {
			list = append(list, l)
		}
	}
	for _, u := range v.Leases.unheard {
		if from, till := u.from.UnixNano(), u.till.Add(v.Leases.Patience).UnixNano(); u.bizType == s.BizType && till >= first {
			// A caller that hangs up gets no lease, and the end of a node's process is no failed run. But an answer can get lost.
			add(lostLease{from, till, v.countsSince(s, u, from, till)})
		}
	}
	// A node gives back each task that was leased too late for an answer, for any cause of the delay. If it cannot, because the
	// owner stands still, the lease may count as a failed run.
	for _, lock := range v.locks[v.Database(s.JobID)] {
		add(lostLease{lock.Sent.UnixNano(), lock.Answered.Add(v.Within.Record).UnixNano(), forever})
	}
	for _, f := range v.Faults {
		counts := int64(forever)
		if owner := v.Tenures.throughout(v.Partition(s.JobID), f.Begin.UnixNano(), f.End.UnixNano()); f.Frozen && (owner == nil || f.Hits(owner)) {
			counts = f.End.UnixNano()
		}
		add(lostLease{f.Begin.UnixNano(), f.Whole.UnixNano(), counts})
	}
	slices.SortFunc(list, func(a, b lostLease) int { return cmp.Compare(a.from, b.from) })
	// Overlapping requests are as good as one: consumers ask all the time, and each request alone would be a branch of the search.
	var merged []lostLease
	for _, u := range list {
		i := len(merged) - 1
		for i >= 0 && (merged[i].countsSince != u.countsSince || merged[i].till < u.from) {
			i--
		}
		if i >= 0 {
			merged[i].till = max(merged[i].till, u.till)
		} else {
			merged = append(merged, u)
		}
	}
	return merged
}
