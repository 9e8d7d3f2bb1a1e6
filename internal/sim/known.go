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
	forgiven("a leased task that a hand moves fails, or dies, at that time without a run", audit.MovedFails),
	forgiven("extend and release overwrite what a hand has changed", audit.MovedGoesOn),
	forgiven("a leased task that a hand makes dead keeps its lease, and dies of it after a redrive", audit.DeadKeepsLease),
	forgiven("a leased task that is given back is leased again as it was before a hand's edit", audit.EditForgotten),
	forgiven("a lease that nobody was given counts as a failed run", audit.UnheardCounts),
	forgiven("several faults of leases together", audit.All),
	{"pull.max_in_flight is looked at, and not reserved", func(_ *world, b audit.Breach) bool {
		return b.Rule == "times more leases were out than max_in_flight"
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

// forgiven is a fault that the model can overlook: the order of a task's events then keeps the rest of the contract.
func forgiven(name string, what audit.Forgiven) known {
	return known{name, func(_ *world, b audit.Breach) bool { return b.Forgiven(what) }}
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
