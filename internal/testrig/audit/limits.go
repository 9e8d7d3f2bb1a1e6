package audit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/timeoutcenter/toc/configs"
)

// Reload is when business types were put in force.
type Reload struct {
	At    time.Time
	Types []configs.BizType
}

// reloading is how long a reload may take on all nodes.
const reloading = 5 * time.Second

// limitAt gives the greatest value that a limit of a business type had around a time; 0: there was none.
func (v *Verdict) limitAt(at int64, bizType string, limit func(configs.BizType) int) int {
	most, current := 0, limit(v.Types[bizType])
	for i, r := range v.Reloads {
		value := 0
		if k := slices.IndexFunc(r.Types, func(b configs.BizType) bool { return b.Name == bizType }); k >= 0 {
			value = limit(r.Types[k])
		}
		switch when := r.At.UnixNano(); {
		case i == 0 || when <= at-int64(reloading):
			current = value
		case when <= at+int64(time.Second):
			if value == 0 {
				return 0
			}
			most = max(most, value)
		}
	}
	if current == 0 {
		return 0
	}
	return max(most, current)
}

// Operation is a redrive, a discard or an undo of dead tasks, or a retry of failing ones, as those know it who asked for it.
type Operation struct {
	Kind           string // redrive, discard, undo or retry
	BizType        string // empty: all
	Limit          int    // 0: none
	Sent, Answered time.Time
	ID             uint64 // 0: it had no rate, or no answer
	// State, Done and Ended are how it stands in the end, if it has an ID.
	State string
	Done  int
	Ended time.Time
}

// askLimits asks what is promised of many tasks at once.
func (v *Verdict) askLimits() {
	byType := map[string][]Run{}
	for _, s := range v.stories {
		byType[s.BizType] = append(byType[s.BizType], s.runs...)
	}
	for name, runs := range byType {
		for i := range runs {
			if h := runs[i].Lease; h != nil { // by the clock of its node it may be over earlier
				runs[i].Span.Till = min(runs[i].Span.Till, h.Expires.Add(-h.shifted).UnixNano()) - int64(v.skewDuring(h))
			}
		}
		slices.SortFunc(runs, func(a, b Run) int {
			return cmp.Or(cmp.Compare(a.Span.From, b.Span.From), cmp.Compare(a.over(), b.over())) // one that is over at once makes room
		})
		if v.Types[name].Processor == configs.ProcessorPull {
			v.askAtOnce("times more leases were out than max_in_flight", name, runs, func(b configs.BizType) int { return b.Pull.MaxInFlight * max(1, v.Nodes) })
		} else {
			v.askAtOnce("times more runs were under way than max_running", name, runs, func(b configs.BizType) int { return b.MaxRunning })
		}
		v.askRate(name, runs)
	}
	for _, o := range v.Operations {
		what := fmt.Sprintf("%s %d of %s at %s", o.Kind, o.ID, o.BizType, Clock(o.Sent.UnixNano()))
		if o.Limit > 0 && o.Done > o.Limit {
			v.Blame("operations did more than their limit", fmt.Sprintf("%s: %d, limit %d", what, o.Done, o.Limit))
		}
		if o.State == "running" {
			v.Blame("operations did not end", what)
		}
	}
}

// askAtOnce: at each start no more runs are under way than the limit. One that its process did not end is over with that. Runs that
// started before the limit was lowered count on their own node only, so they do not count here.
func (v *Verdict) askAtOnce(broken, bizType string, runs []Run, limit func(configs.BizType) int) {
	type started struct {
		Run
		limit int
	}
	var open, worst []started
	for _, r := range runs {
		most := v.limitAt(r.Span.From, bizType, limit)
		open = slices.DeleteFunc(open, func(o started) bool { return o.over() <= r.Span.From })
		open = append(open, started{r, most})
		counted := slices.Clone(open)
		counted = slices.DeleteFunc(counted, func(o started) bool { return o.limit == 0 || o.limit > most })
		if len(counted) > max(most, len(worst)) {
			worst = counted
		}
	}
	if len(worst) > 0 {
		last := worst[len(worst)-1]
		text := fmt.Sprintf("%s: %d at %s, limit %d:", bizType, len(worst), Clock(last.Span.From), last.limit)
		for _, o := range worst {
			text += fmt.Sprintf(" on %s from %s to %s,", o.By, Clock(o.Span.From), Clock(o.over()))
		}
		v.Blame(broken, strings.TrimSuffix(text, ","))
	}
}

// over is when a run is surely over.
func (r Run) over() int64 {
	if r.Span.Till == 0 {
		return r.By.Ended.UnixNano()
	}
	return r.Span.Till
}

// askRate: within ten seconds no more runs start than that many seconds' worth of the rate, and a little that was saved up.
func (v *Verdict) askRate(bizType string, runs []Run) {
	const window, saved = 10, 2 // seconds
	rate := func(b configs.BizType) int { return b.RateLimit }
	first, worst, at := 0, 0, int64(0)
	for i, r := range runs {
		for runs[first].Span.From <= r.Span.From-int64(window*time.Second) {
			first++
		}
		limit, before := v.limitAt(r.Span.From, bizType, rate), v.limitAt(runs[first].Span.From, bizType, rate)
		if limit == 0 || before == 0 {
			continue
		}
		limit = max(limit, before) // it may have been lowered within the window
		if n := i - first + 1; n > limit*(window+saved) && n > worst {
			worst, at = n, r.Span.From
		}
	}
	if worst > 0 {
		v.Blame("times more runs started than rate_limit", fmt.Sprintf("%s: %d in %d s before %s, limit %d/s", bizType, worst, window, Clock(at), v.limitAt(at, bizType, rate)))
	}
}
