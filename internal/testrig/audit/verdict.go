package audit

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/timeoutcenter/toc/task"
)

// Run is a run of a task. A lease is one, too.
type Run struct {
	By    *Process // nil: a consumer
	Span  Span
	Lease *Hold // nil: a processor has run it
}

func (r Run) by() string {
	if r.Lease != nil {
		return "leased"
	}
	return "ran on " + r.By.String()
}

// recordedBy is when the outcome of a run is on record, unless a fault kept it from that. A transaction that somebody
// left open may hold up its row, and for a moment others of its database.
func (v *Verdict) recordedBy(r Run) int64 {
	by := r.Span.Till
	if by == 0 {
		by = r.By.Ended.UnixNano()
	}
	by += int64(v.Within.Record)
	for _, lock := range v.locks[v.Database(r.Span.Key)] {
		if lock.Sent.UnixNano() <= by && lock.Answered.UnixNano() >= r.Span.From {
			by = max(by, lock.Answered.UnixNano()+int64(v.Within.Record))
		}
	}
	return by
}

// explanations are the faults because of which a run may not be on record.
func (v *Verdict) explanations(r Run) (list []*Fault) {
	for _, f := range v.Faults {
		if f.Explains && f.Overlaps(r.By, r.Span.From-int64(v.Within.Start), v.recordedBy(r)) {
			list = append(list, f)
		}
	}
	return list
}

// faultBetween gives a fault that lasted at some time between the two.
func (v *Verdict) faultBetween(bizType string, from, till int64) *Fault {
	for _, f := range v.Faults {
		if f.hampers(bizType, from, till) {
			return f
		}
	}
	return nil
}

// calmBetween is how much of a span of time no fault held up a business type.
func (v *Verdict) calmBetween(bizType string, from, till int64) (calm time.Duration) {
	list := slices.SortedFunc(slices.Values(v.Faults), func(a, b *Fault) int { return a.Begin.Compare(b.Begin) })
	for _, f := range list {
		if f.Types != nil && !slices.Contains(f.Types, bizType) {
			continue
		}
		if begin := min(f.Begin.UnixNano(), till); begin > from {
			calm += time.Duration(begin - from)
		}
		from = max(from, f.Whole.UnixNano())
	}
	return calm + time.Duration(max(0, till-from))
}

// tally is what became of the tasks of one kind of fault.
type tally struct {
	count        int
	unowned      time.Duration // the longest that a partition had no owner
	whole        time.Duration // from the fault's end until all was well, the longest
	tasks, twice int
	late         []time.Duration
	latest       *story
	latestBy     time.Duration
	again        *story // one that ran twice
}

// Evidence is what is known of a center in the end.
type Evidence struct {
	Center
	Faults    []*Fault
	Histories []*History
	Runs      map[uint64][]Run // by job_id, in the order of their beginning
	Rows      map[uint64]Row   // by job_id
	Tenures   Tenures
	// Leases is what the consumers know; nil: there are none.
	Leases *Leases
	// Operations are those of the operators.
	Operations []Operation
	// Reloads are the business types that were put in force while the nodes ran, in order.
	Reloads []Reload
	// Artifacts is the folder for drawings of histories that break the contract; empty: none are drawn.
	Artifacts string
	Goals     map[string]time.Duration // how late tasks are at most, by the fault that makes them so; missing them is no mistake
}

// Verdict holds what was promised against what ran.
type Verdict struct {
	Evidence
	stories []*story
	locks   map[int][]*Change // transactions that were left open, by database
	rivals  map[rival][]*History

	drawn, undecided int // histories
	kinds            map[string]*tally
	Broken           map[string][]string // what is not as it should be, by rule
	// Breaches are the same, with what is known of the task.
	Breaches []Breach
}

const calm = "no fault"

// Judge asks each rule of each task.
func Judge(e Evidence) *Verdict {
	v := &Verdict{Evidence: e, locks: map[int][]*Change{}, rivals: map[rival][]*History{}, kinds: map[string]*tally{}, Broken: map[string][]string{}}
	for _, f := range v.Faults {
		k := v.kind(f)
		k.count++
		k.unowned = max(k.unowned, v.Tenures.Gap(f.Begin.UnixNano(), f.Whole.UnixNano()))
		k.whole = max(k.whole, f.Whole.Sub(f.End))
	}
	known := make(map[uint64]bool, len(v.Histories))
	for _, h := range v.Histories {
		known[h.JobID] = true
		key := rival{h.BizType, h.BizID}
		v.rivals[key] = append(v.rivals[key], h)
		for _, c := range h.Changes {
			if c.Kind == Locked {
				d := v.Database(h.JobID)
				v.locks[d] = append(v.locks[d], c)
			}
		}
	}
	if i := slices.IndexFunc(v.Faults, func(f *Fault) bool { return f.Skew != 0 }); v.Leases != nil && i >= 0 {
		v.Leases.bySight(v.Faults[i].Begin)
	}
	for _, h := range v.Histories {
		v.ask(v.tell(h))
	}
	for id, r := range v.Rows {
		if !known[id] {
			v.Blame("tasks are in the store that nobody submitted", fmt.Sprintf("task %d (%s)", id, r.Status))
		}
	}
	v.askLimits()
	for _, c := range v.Tenures.Conflicts() {
		v.Blame("partitions had two owners", c.String())
	}
	return v
}

// Blame writes down what must not be.
func (v *Verdict) Blame(broken, what string) { v.blame(Breach{Rule: broken, What: what}) }

func (v *Verdict) blame(b Breach) {
	v.Broken[b.Rule] = append(v.Broken[b.Rule], b.What)
	v.Breaches = append(v.Breaches, b)
}

// Breach is a promise that was broken.
type Breach struct {
	Rule, What string
	Task       *History // nil: it is of no single task
	Runs       []Run
	Row        Row
}

// ask asks all rules of one task.
func (v *Verdict) ask(s *story) {
	v.stories = append(v.stories, s)
	for _, r := range rules {
		if wrong := r.ask(v, s); wrong != "" {
			v.blame(Breach{r.broken, wrong + ": " + v.text(s), s.History, s.runs, s.row})
		}
	}
	if len(s.runs) > 0 {
		v.count(s)
	}
}

// kind gives the tally of a fault; nil: of calm times.
func (v *Verdict) kind(f *Fault) *tally {
	name := calm
	if f != nil {
		name = f.Kind
	}
	if v.kinds[name] == nil {
		v.kinds[name] = &tally{}
	}
	return v.kinds[name]
}

// count puts a task into the table: under the fault that made it late or run twice.
func (v *Verdict) count(s *story) {
	if len(s.Changes) == 0 {
		due := s.Due().UnixNano()
		late := time.Duration(s.runs[0].Span.From - due)
		k := v.kind(v.faultBetween(s.BizType, due, s.runs[0].Span.From))
		k.tasks++
		k.late = append(k.late, late)
		if late > k.latestBy {
			k.latest, k.latestBy = s, late
		}
	}
	for i, r := range s.runs[1:] {
		if before := s.runs[i]; before.Span.End == EndOK || before.Span.Seen.Attempts == r.Span.Seen.Attempts {
			if list := v.explanations(before); len(list) > 0 {
				k := v.kind(list[0])
				k.twice++
				k.again = s
			}
			return
		}
	}
}

// text describes all that is known of a task.
func (v *Verdict) text(s *story) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s task %d (partition %d)", s.BizType, s.JobID, v.Partition(s.JobID))
	for _, try := range s.Submits {
		fmt.Fprintf(&text, " due %s", Clock(try.Due.UnixNano()))
	}
	fmt.Fprintf(&text, ", taken by %v at %s, now %s at %s, attempts %d", s.At, Clock(s.Known.UnixNano()), s.row.Status,
		Clock(s.row.Action*int64(time.Millisecond)), s.row.Attempts)
	if s.row.Error != "" {
		fmt.Fprintf(&text, " (%s)", s.row.Error)
	}
	for _, c := range s.InTurn() {
		by := "API"
		if c.Hand {
			by = "hand"
		}
		fmt.Fprintf(&text, "; %s by %s %s", c.Kind, by, []string{"refused", "unknown", "made"}[c.Done])
		if !c.Set.Low.IsZero() {
			fmt.Fprintf(&text, " to %s", Clock(c.Set.Low.UnixNano()))
		}
		if c.Set.Attempts != nil {
			fmt.Fprintf(&text, " attempts %d", *c.Set.Attempts)
		}
		if !c.Read.IsZero() {
			fmt.Fprintf(&text, ", tag of %s", Clock(c.Read.UnixNano()))
		}
		fmt.Fprintf(&text, ", sent %s, answered %s", Clock(c.Sent.UnixNano()), Clock(c.Answered.UnixNano()))
	}
	for _, r := range s.runs {
		fmt.Fprintf(&text, "; %s from %s to %s (%s), action_time %s, attempts %d", r.by(), Clock(r.Span.From), Clock(r.Span.Till),
			[]string{"no end", "ok", "failed", "stopped"}[r.Span.End], Clock(r.Span.Seen.Action*int64(time.Millisecond)), r.Span.Seen.Attempts)
		if h := r.Lease; h != nil {
			fmt.Fprintf(&text, ", expires %s", Clock(h.Expires.UnixNano()))
			for _, one := range h.Settles {
				fmt.Fprintf(&text, ", %s sent %s, answered %s: %s", one.Do, Clock(one.Sent.UnixNano()), Clock(one.Answered.UnixNano()), one.Result)
			}
		}
		for _, f := range v.explanations(r) {
			fmt.Fprintf(&text, " [%s]", f)
		}
	}
	return text.String()
}

// Table is what happened, for people.
func (v *Verdict) Table() string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "fault\ttimes\tno owner\twhole after\ttasks\tp50\tp99\tmax\ttwice\t")
	names := slices.Sorted(maps.Keys(v.kinds))
	for _, name := range names {
		k := v.kinds[name]
		slices.Sort(k.late)
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%d\t%s\t%s\t%s\t%d\t\n", name, k.count, Round(k.unowned), Round(k.whole), k.tasks,
			Round(Quantile(k.late, .5)), Round(Quantile(k.late, .99)), Round(Quantile(k.late, 1)), k.twice)
	}
	_ = w.Flush()
	fmt.Fprintln(&text, v.Numbers())
	for _, name := range names {
		k := v.kinds[name]
		if k.latest == nil {
			continue
		}
		goal := v.Goals[name]
		warning := ""
		if goal > 0 && k.latestBy > goal {
			warning = fmt.Sprintf(", WARNING: more than %s", goal)
		}
		fmt.Fprintf(&text, "latest of %s (%s%s): %s\n", name, Round(k.latestBy), warning, v.text(k.latest))
		if k.again != nil {
			fmt.Fprintf(&text, "twice by %s: %s\n", name, v.text(k.again))
		}
	}
	return text.String()
}

// Numbers says how much of each there was.
func (v *Verdict) Numbers() string {
	ends, changes, runs := map[task.Status]int{}, map[string]int{}, map[uint64]int{}
	for _, s := range v.stories {
		ends[s.row.Status]++
		for _, c := range s.Changes {
			who := "API "
			if c.Hand {
				who = "hand "
			}
			if c.Done == Made {
				changes[who+c.Kind]++
			}
		}
		for _, r := range s.runs {
			runs[r.Span.End]++
		}
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%d tasks: %d processed, %d cancelled, %d dead, %d pending; %d runs well, %d failed, %d without an end; changes made:",
		len(v.stories), ends[task.Processed], ends[task.Cancelled], ends[task.Dead], ends[task.Pending], runs[EndOK], runs[EndFailed], runs[0])
	for _, kind := range slices.Sorted(maps.Keys(changes)) {
		fmt.Fprintf(&text, " %s %d,", kind, changes[kind])
	}
	return fmt.Sprintf("%s; the order of %d was not decided", strings.TrimSuffix(text.String(), ","), v.undecided)
}

func Round(d time.Duration) time.Duration { return d.Round(time.Millisecond) }

// Quantile reads a sorted list.
func Quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}
