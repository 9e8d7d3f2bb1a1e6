package sim

import (
	"slices"
	"strings"
	"time"

	"github.com/timeoutcenter/toc/internal/testrig/audit"
	"github.com/timeoutcenter/toc/task"
)

// known is a fault of the product that is known and not mended yet: a rule that it breaks, and the circumstances in which it
// does. Nothing else is forgiven. testdata/known.md has the seeds that find them.
type known struct {
	name string
	is   func(w *world, b audit.Breach) bool
}

var knownFaults = []known{
	{"coalesce compares action_time, and not the promised time", func(_ *world, b audit.Breach) bool {
		return b.Rule == "the newest tasks were coalesced"
	}},
	{"a clock that was wrong leaves tasks standing still for as long as it was wrong by", func(w *world, b audit.Breach) bool {
		switch {
		case b.Rule == "tasks were late, and no fault explains it":
			return w.stoodStill(b.Task.Due(), b.Runs[0].Span.From)
		case b.Rule == "tasks were lost" && b.Row.Status == task.Pending:
			return w.stoodStill(b.Task.Due(), b.Task.Due().UnixNano()+int64(patience))
		}
		return false
	}},
	{"a leased task that a hand moves fails, or dies, at that time without a run", func(_ *world, b audit.Breach) bool {
		return isCount(b.Rule) && edited(b, func(c *audit.Change) bool { return c.Set.Status == nil && !c.Set.Low.IsZero() })
	}},
	{"extend and release overwrite what a hand has changed", func(_ *world, b audit.Breach) bool {
		return b.Rule == "leases went on although a hand had taken the task"
	}},
	{"a lease that nobody was given counts as a failed run", func(w *world, b audit.Breach) bool {
		return isCount(b.Rule) && leaseEnded(b) && w.crashed(b.Task.Due())
	}},
	{"pull.max_in_flight is looked at, and not reserved", func(_ *world, b audit.Breach) bool {
		return b.Rule == "times more leases were out than max_in_flight"
	}},
	{"a leased task that a hand makes dead keeps its lease, and dies of it after a redrive", func(_ *world, b audit.Breach) bool {
		return isCount(b.Rule) &&
			edited(b, func(c *audit.Change) bool { return c.Kind == audit.Stopped })
	}},
	{"the limit of an operation is exceeded while a database is away", func(w *world, b audit.Breach) bool {
		return b.Rule == "operations did more than their limit" && w.hadFault(func(f *audit.Fault) bool {
			return strings.HasPrefix(f.Kind, "database") || strings.HasPrefix(f.Kind, "cut")
		})
	}},
	{"max_running is forgotten when a type is reloaded", func(w *world, b audit.Breach) bool {
		return b.Rule == "times more runs were under way than max_running" && w.hadFault(func(f *audit.Fault) bool {
			return (f.Kind == "type taken out" || f.Kind == "limits changed") && slices.Contains(f.Types, limited)
		})
	}},
}

// isCount tells that a rule is one of attempts. Who redrives a task has found it dead, so a death without a reason may show by
// that alone.
func isCount(rule string) bool {
	return rule == "tasks died that had not failed" || rule == "tasks have attempts that are not their failed runs" ||
		rule == "changes were answered that could not be"
}

// leaseEnded tells that a task failed last by the end of a lease.
func leaseEnded(b audit.Breach) bool { return strings.HasPrefix(b.Row.Error, "the lease is over") }

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
func (w *world) stoodStill(due time.Time, start int64) bool {
	var sum time.Duration
	for _, f := range w.faults {
		if f.Begin.UnixNano() < start {
			sum += f.Skew.Abs()
		}
	}
	return sum >= time.Second && start-due.UnixNano() <= int64(sum+2*time.Minute)
}

// crashed tells that a node crashed after a time.
func (w *world) crashed(since time.Time) bool {
	return w.hadFault(func(f *audit.Fault) bool { return f.Process != nil && f.End.After(since) })
}

// hadFault tells that there was such a fault.
func (w *world) hadFault(is func(f *audit.Fault) bool) bool { return slices.ContainsFunc(w.faults, is) }

// sort divides what was broken into what is known and what is new.
func (w *world) sort(breaches []audit.Breach) (isKnown, isNew []Breach) {
	for _, b := range breaches {
		i := slices.IndexFunc(knownFaults, func(k known) bool { return k.is(w, b) })
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
