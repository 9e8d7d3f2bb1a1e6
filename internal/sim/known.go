package sim

import (
	"slices"
	"strings"
	"time"

	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/internal/testrig/audit"
	"github.com/timeoutcenter/toc/task"
)

// known is a fault of the product that is known and not mended yet: a rule that it breaks, and the circumstances in which it
// does. Nothing else is forgiven. testdata/known.md has the seeds that find them.
type known struct {
	name string
	is   func(v *audit.Verdict, b audit.Breach) bool
}

var knownFaults = []known{
	{"coalesce compares action_time, and not the promised time", func(v *audit.Verdict, b audit.Breach) bool {
		return b.Rule == "the newest tasks were coalesced" && slices.ContainsFunc(b.Rivals, func(o audit.Told) bool { return seemsLater(v, o, b.Task.Due()) })
	}},
	{"a clock that was wrong leaves tasks standing still for as long as it was wrong by", func(v *audit.Verdict, b audit.Breach) bool {
		switch {
		case b.Rule == "tasks were late, and no fault explains it":
			return stoodStill(v, b.Task.Due(), b.Runs[0].Span.From)
		case b.Rule == "tasks were lost" && b.Row.Status == task.Pending:
			return stoodStill(v, b.Task.Due(), b.Task.Due().UnixNano()+int64(patience))
		}
		return false
	}},
	{"a leased task that a hand moves fails, or dies, at that time without a run", func(_ *audit.Verdict, b audit.Breach) bool {
		return isCount(b.Rule) && edited(b, func(c *audit.Change) bool { return c.Set.Status == nil && !c.Set.Low.IsZero() })
	}},
	{"extend and release overwrite what a hand has changed", func(v *audit.Verdict, b audit.Breach) bool {
		return b.Rule == "leases went on although a hand had taken the task" && wentOnInTime(v, b)
	}},
	{"a lease that nobody was given counts as a failed run", func(v *audit.Verdict, b audit.Breach) bool {
		return isCount(b.Rule) && leasedToNobody(v, b)
	}},
	{"pull.max_in_flight is looked at, and not reserved", func(v *audit.Verdict, b audit.Breach) bool {
		return b.Rule == "times more leases were out than max_in_flight" && (leasedAtOnce(b.Runs) || forgotten(v, b))
	}},
	{"a leased task that a hand makes dead keeps its lease, and dies of it after a redrive", func(_ *audit.Verdict, b audit.Breach) bool {
		return (isCount(b.Rule) || b.Rule == "acknowledged changes were not kept") && // the failed run moves it, too
			edited(b, func(c *audit.Change) bool { return c.Kind == audit.Stopped })
	}},
	{"the limit of an operation is exceeded while a database is away", func(v *audit.Verdict, b audit.Breach) bool {
		return b.Rule == "operations did more than their limit" && hadFault(v, func(f *audit.Fault) bool {
			return slices.Contains([]string{"database is down", "database hangs", "database is slow", "cut from database-0", "a node stands still"}, f.Kind) &&
				f.Begin.Before(b.End) && f.End.After(b.Begin)
		})
	}},
	{"a task that is released is handed out as it was before a hand edited it", func(_ *audit.Verdict, b audit.Breach) bool {
		return b.Rule == "acknowledged changes were not kept" && releasedStale(b)
	}},
	{"max_running is forgotten when a type is reloaded", func(v *audit.Verdict, b audit.Breach) bool {
		return b.Rule == "times more runs were under way than max_running" && hadFault(v, func(f *audit.Fault) bool {
			return (f.Kind == "type taken out" || f.Kind == "limits changed") && slices.Contains(f.Types, limited) && f.Begin.Before(b.Begin) &&
				slices.ContainsFunc(b.Runs, func(r audit.Run) bool { return r.Span.From < f.End.UnixNano() })
		})
	}},
}

// isCount tells that a rule is one of attempts. Who redrives a task has found it dead, so a death without a reason may show by
// that alone.
func isCount(rule string) bool {
	return rule == "tasks died that had not failed" || rule == "tasks have attempts that are not their failed runs" ||
		rule == "changes were answered that could not be"
}

// seemsLater tells that a task may have an action_time after a time for another reason than that it was promised for then: a lease,
// a failed run or a redrive.
func seemsLater(v *audit.Verdict, o audit.Told, due time.Time) bool {
	const longestPause = 10 * time.Second
	failed := false
	for _, r := range o.Runs {
		failed = failed || r.Span.End != audit.EndOK
		if r.Lease != nil && r.Lease.Expires.After(due) || r.Span.End != audit.EndOK && time.Unix(0, r.Span.Till).Add(longestPause).After(due) {
			return true
		}
	}
	return slices.ContainsFunc(o.Task.InTurn(), func(c *audit.Change) bool { return c.Kind == audit.Redriven && c.Answered.After(due) }) ||
		failed && slices.ContainsFunc(v.Operations, func(op audit.Operation) bool {
			return op.Kind == "redrive" && (op.BizType == "" || op.BizType == o.Task.BizType) && (op.Ended.After(due) || op.Answered.After(due))
		})
}

// wentOnInTime tells that each extend and release that should not have been came when the lease had not ended, as far as a node
// knows that has not read what the hand has written, or has read it as the lease's end.
func wentOnInTime(v *audit.Verdict, b audit.Breach) bool {
	if hadFault(v, func(f *audit.Fault) bool { return f.Skew != 0 }) {
		return true
	}
	for _, r := range b.Runs {
		if r.Lease == nil {
			continue
		}
		expires := r.Lease.First
		for _, c := range b.Task.InTurn() {
			if c.Hand && c.Done == audit.Made && c.Sent.After(r.Lease.Got) && c.Set.Low.After(expires) {
				expires = c.Set.Low
			}
		}
		for _, one := range r.Lease.Settles {
			if one.Result != client.SettledOK {
				continue
			}
			if one.Sent.After(expires) {
				return false
			}
			if end := one.Sent.Add(time.Duration(one.TTR)); one.Do == client.Extend && end.After(expires) {
				expires = end
			}
		}
	}
	return true
}

// leasedToNobody tells that a process ended when a request for leases was under way for which a task was due, that nobody had it
// then, and that its last failure is the end of a lease or came later.
func leasedToNobody(v *audit.Verdict, b audit.Breach) bool {
	return hadFault(v, func(f *audit.Fault) bool {
		if f.Process == nil || f.Process.Ended.Before(b.Task.Due()) || !v.Leases.HadUnheard(b.Task.BizType, f.Process.Ended.Add(-time.Second), f.Process.Ended.Add(time.Second)) {
			return false
		}
		failedSince := strings.HasPrefix(b.Row.Error, "the lease is over")
		for _, r := range b.Runs {
			if r.Lease == nil || r.Lease.Got.Before(f.Process.Ended) && r.Span.Till > f.Process.Ended.UnixNano() {
				return false
			}
			failedSince = failedSince || r.Lease.Got.After(f.Process.Ended) && r.Span.End == audit.EndFailed
		}
		return failedSince
	})
}

// releasedStale tells that a hand edited the attribute of a leased task, whose consumer then released it, and that the next one got it
// at once.
func releasedStale(b audit.Breach) bool {
	for i, r := range b.Runs[:max(1, len(b.Runs))-1] {
		if r.Lease == nil || r.Span.End != audit.EndStopped || b.Runs[i+1].Span.From-r.Span.Till > int64(5*time.Second) {
			continue
		}
		if slices.ContainsFunc(b.Task.InTurn(), func(c *audit.Change) bool {
			return c.Hand && c.Done == audit.Made && c.Set.HasAttribute && c.Answered.After(r.Lease.Asked) && c.Answered.UnixNano() < r.Span.Till
		}) {
			return true
		}
	}
	return false
}

// leasedAtOnce tells that two requests got leases at the same time: each had looked when the other had not written yet.
func leasedAtOnce(runs []audit.Run) bool {
	number := func(r audit.Run) string { return r.Lease.Lease[strings.Index(r.Lease.Lease, "-"):] }
	for i, a := range runs {
		for _, b := range runs[i+1:] {
			if number(a) != number(b) && !a.Lease.Asked.After(b.Lease.Got) && !b.Lease.Asked.After(a.Lease.Got) {
				return true
			}
		}
	}
	return false
}

// forgotten tells that a process ended while its leases were out.
func forgotten(v *audit.Verdict, b audit.Breach) bool {
	return hadFault(v, func(f *audit.Fault) bool {
		return (f.Process != nil || f.Kind == "rolling restart") && f.Begin.Before(b.Begin) &&
			slices.ContainsFunc(b.Runs, func(r audit.Run) bool { return r.Span.From < f.End.UnixNano() })
	})
}

// edited tells that a hand has changed a task while it was leased.
func edited(b audit.Breach, is func(c *audit.Change) bool) bool {
	for _, c := range b.Task.InTurn() {
		if c.Hand && c.Done == audit.Made && is(c) && slices.ContainsFunc(b.Runs, func(r audit.Run) bool {
			return r.Lease != nil && !c.Sent.Before(r.Lease.Asked) && c.Sent.Before(r.Lease.Expires)
		}) {
			return true
		}
	}
	return false
}

// stoodStill tells that clocks had been wrong before a run began, together by as much as it is late.
func stoodStill(v *audit.Verdict, due time.Time, start int64) bool {
	var sum time.Duration
	for _, f := range v.Faults {
		if f.Begin.UnixNano() < start {
			sum += f.Skew.Abs()
		}
	}
	return sum >= time.Second && start-due.UnixNano() <= int64(sum+2*time.Minute)
}

// hadFault tells that there was such a fault.
func hadFault(v *audit.Verdict, is func(f *audit.Fault) bool) bool {
	return slices.ContainsFunc(v.Faults, is)
}

// sort divides what was broken into what is known and what is new.
func sort(v *audit.Verdict) (isKnown, isNew []Breach) {
	for _, b := range v.Breaches {
		i := slices.IndexFunc(knownFaults, func(k known) bool { return k.is(v, b) })
		if i < 0 {
			isNew = append(isNew, Breach{Breach: b})
		} else {
			isKnown = append(isKnown, Breach{b, knownFaults[i].name})
		}
	}
	return isKnown, isNew
}

// Breach is a promise that was broken.
type Breach struct {
	audit.Breach
	Known string // the known fault that breaks it
}
