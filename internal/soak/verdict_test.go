package soak_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/task"
)

// run is a run of a task.
type run struct {
	by   *process
	span span
}

// readRuns reads the runs of all processes, by job_id, in the order of their beginning.
func readRuns(f *fleet) map[uint64][]run {
	all := map[uint64][]run{}
	for _, n := range f.nodes {
		for _, p := range n.processes {
			list, err := readLedger(p.dir, runsFile)
			require.NoError(f.t, err)
			for _, s := range list {
				all[s.key] = append(all[s.key], run{p, s})
			}
		}
	}
	for _, list := range all {
		slices.SortFunc(list, func(a, b run) int { return cmp.Compare(a.span.from, b.span.from) })
	}
	return all
}

// hits tells whether a fault was one of this process.
func (f *fault) hits(p *process) bool {
	return (f.process == nil || f.process == p) && slices.Contains(f.nodes, p.node)
}

// overlaps tells whether a fault hit a process at some time between the two.
func (f *fault) overlaps(p *process, from, till int64) bool {
	return f.hits(p) && from <= f.end.UnixNano() && till >= f.begin.UnixNano()
}

// recordedBy is when the outcome of a run is on record, unless a fault kept it from that. A transaction that somebody
// left open may hold up its row, and for a moment others of its database.
func (v *verdict) recordedBy(r run) int64 {
	by := r.span.till
	if by == 0 {
		by = r.by.ended.UnixNano()
	}
	by += int64(within.record)
	for _, lock := range v.locks[v.database(r.span.key)] {
		if lock.sent.UnixNano() <= by && lock.answered.UnixNano() >= r.span.from {
			by = max(by, lock.answered.UnixNano()+int64(within.record))
		}
	}
	return by
}

// explanations are the faults because of which a run may not be on record.
func (v *verdict) explanations(r run) (list []*fault) {
	for _, f := range v.faults {
		if f.explains && f.overlaps(r.by, r.span.from-int64(within.start), v.recordedBy(r)) {
			list = append(list, f)
		}
	}
	return list
}

// faultBetween gives a fault that lasted at some time between the two.
func (v *verdict) faultBetween(from, till int64) *fault {
	for _, f := range v.faults {
		if from < f.whole.UnixNano() && till > f.begin.UnixNano() {
			return f
		}
	}
	return nil
}

// readStalls makes faults of what stood still though nobody was told to.
func readStalls(f *fleet, known []*fault) (list []*fault) {
	for _, n := range f.nodes {
		for _, p := range n.processes {
			stalls, err := readLedger(p.dir, stallsFile)
			require.NoError(f.t, err)
			for _, s := range stalls {
				if !slices.ContainsFunc(known, func(f *fault) bool { return f.overlaps(p, s.from, s.till+int64(within.record)) }) {
					list = append(list, &fault{kind: "stood still", nodes: []*node{n}, process: p, explains: true,
						begin: time.Unix(0, s.from), end: time.Unix(0, s.till), whole: time.Unix(0, s.till)})
				}
			}
		}
	}
	return list
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

// verdict holds what was promised against what ran.
type verdict struct {
	fleet   *fleet
	faults  []*fault
	stories []*story
	runs    map[uint64][]run
	rows    map[uint64]row
	locks   map[int][]*change // transactions that were left open, by database
	tenures tenures

	kinds  map[string]*tally
	broken map[string][]string // what is not as it should be, by rule
}

const calm = "no fault"

func newVerdict(f *fleet, faults []*fault, histories []*history) *verdict {
	v := &verdict{fleet: f, faults: slices.Concat(faults, f.ended), runs: readRuns(f), rows: readRows(f), tenures: readTenures(f),
		locks: map[int][]*change{}, kinds: map[string]*tally{}, broken: map[string][]string{}}
	v.faults = append(v.faults, readStalls(f, v.faults)...)
	for _, f := range v.faults {
		k := v.kind(f)
		k.count++
		k.unowned = max(k.unowned, v.tenures.gap(f.begin.UnixNano(), f.whole.UnixNano()))
		k.whole = max(k.whole, f.whole.Sub(f.end))
	}
	known := make(map[uint64]bool, len(histories))
	for _, h := range histories {
		known[h.jobID] = true
		for _, c := range h.changes {
			if c.kind == locked {
				d := v.database(h.jobID)
				v.locks[d] = append(v.locks[d], c)
			}
		}
	}
	for _, h := range histories {
		v.judge(v.tell(h))
	}
	for id, r := range v.rows {
		if !known[id] {
			v.blame("tasks are in the store that nobody submitted", fmt.Sprintf("task %d (%s)", id, r.status))
		}
	}
	for _, c := range v.tenures.conflicts() {
		v.blame("partitions had two owners", c.String())
	}
	return v
}

func (v *verdict) blame(broken, what string) { v.broken[broken] = append(v.broken[broken], what) }

// judge asks all rules of one task.
func (v *verdict) judge(s *story) {
	v.stories = append(v.stories, s)
	for _, r := range rules {
		if wrong := r.ask(v, s); wrong != "" {
			v.blame(r.broken, wrong+": "+v.text(s))
		}
	}
	if len(s.runs) > 0 {
		v.count(s)
	}
}

func (v *verdict) database(jobID uint64) int {
	layout := v.fleet.layout()
	shard, _ := layout.ShardOf(jobID)
	return layout.Database(shard)
}

// kind gives the tally of a fault; nil: of calm times.
func (v *verdict) kind(f *fault) *tally {
	name := calm
	if f != nil {
		name = f.kind
	}
	if v.kinds[name] == nil {
		v.kinds[name] = &tally{}
	}
	return v.kinds[name]
}

// count puts a task into the table: under the fault that made it late or run twice.
func (v *verdict) count(s *story) {
	if len(s.changes) == 0 {
		due := s.due().UnixNano()
		late := time.Duration(s.runs[0].span.from - due)
		k := v.kind(v.faultBetween(due, s.runs[0].span.from))
		k.tasks++
		k.late = append(k.late, late)
		if late > k.latestBy {
			k.latest, k.latestBy = s, late
		}
	}
	for i, r := range s.runs[1:] {
		if before := s.runs[i]; before.span.end == endOK || before.span.seen.attempts == r.span.seen.attempts {
			if list := v.explanations(before); len(list) > 0 {
				k := v.kind(list[0])
				k.twice++
				k.again = s
			}
			return
		}
	}
}

// text tells all that is known of a task.
func (v *verdict) text(s *story) string {
	var text strings.Builder
	layout := v.fleet.layout()
	shard, _ := layout.ShardOf(s.jobID)
	fmt.Fprintf(&text, "%s task %d (partition %d)", s.bizType, s.jobID, layout.Partition(shard))
	for _, try := range s.submits {
		fmt.Fprintf(&text, " due %s", clock(try.due.UnixNano()))
	}
	fmt.Fprintf(&text, ", taken by %v at %s, now %s at %s, attempts %d", s.at, clock(s.known.UnixNano()), s.row.status,
		clock(s.row.action*int64(time.Millisecond)), s.row.attempts)
	for _, c := range s.inTurn() {
		by := "API"
		if c.hand {
			by = "hand"
		}
		fmt.Fprintf(&text, "; %s by %s %s", c.kind, by, []string{"refused", "unknown", "made"}[c.done])
		if !c.set.low.IsZero() {
			fmt.Fprintf(&text, " to %s", clock(c.set.low.UnixNano()))
		}
		if c.set.attempts != nil {
			fmt.Fprintf(&text, " attempts %d", *c.set.attempts)
		}
		if !c.read.IsZero() {
			fmt.Fprintf(&text, ", tag of %s", clock(c.read.UnixNano()))
		}
		fmt.Fprintf(&text, ", sent %s, answered %s", clock(c.sent.UnixNano()), clock(c.answered.UnixNano()))
	}
	for _, r := range s.runs {
		fmt.Fprintf(&text, "; ran on %s from %s to %s (%s), action_time %s, attempts %d", r.by, clock(r.span.from), clock(r.span.till),
			[]string{"no end", "ok", "failed", "stopped"}[r.span.end], clock(r.span.seen.action*int64(time.Millisecond)), r.span.seen.attempts)
		for _, f := range v.explanations(r) {
			fmt.Fprintf(&text, " [%s]", f)
		}
	}
	return text.String()
}

// table is what happened, for people.
func (v *verdict) table() string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "fault\ttimes\tno owner\twhole after\ttasks\tp50\tp99\tmax\ttwice\t")
	names := slices.Sorted(maps.Keys(v.kinds))
	for _, name := range names {
		k := v.kinds[name]
		slices.Sort(k.late)
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%d\t%s\t%s\t%s\t%d\t\n", name, k.count, ms(k.unowned), ms(k.whole), k.tasks,
			ms(quantile(k.late, .5)), ms(quantile(k.late, .99)), ms(quantile(k.late, 1)), k.twice)
	}
	_ = w.Flush()
	fmt.Fprintln(&text, v.numbers())
	for _, name := range names {
		k := v.kinds[name]
		if k.latest == nil {
			continue
		}
		goal := map[string]time.Duration{rolling: 1500 * time.Millisecond, kill: 8 * time.Second}[name]
		warning := ""
		if goal > 0 && k.latestBy > goal {
			warning = fmt.Sprintf(", WARNING: more than %s", goal)
		}
		fmt.Fprintf(&text, "latest of %s (%s%s): %s\n", name, ms(k.latestBy), warning, v.text(k.latest))
		if k.again != nil {
			fmt.Fprintf(&text, "twice by %s: %s\n", name, v.text(k.again))
		}
	}
	return text.String()
}

// numbers says how much of each there was.
func (v *verdict) numbers() string {
	ends, changes, runs := map[task.Status]int{}, map[string]int{}, map[uint64]int{}
	for _, s := range v.stories {
		ends[s.row.status]++
		for _, c := range s.changes {
			who := "API "
			if c.hand {
				who = "hand "
			}
			if c.done == made {
				changes[who+c.kind]++
			}
		}
		for _, r := range s.runs {
			runs[r.span.end]++
		}
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%d tasks: %d processed, %d cancelled, %d dead, %d pending; %d runs well, %d failed, %d without an end; changes made:",
		len(v.stories), ends[task.Processed], ends[task.Cancelled], ends[task.Dead], ends[task.Pending], runs[endOK], runs[endFailed], runs[0])
	for _, kind := range slices.Sorted(maps.Keys(changes)) {
		fmt.Fprintf(&text, " %s %d,", kind, changes[kind])
	}
	return strings.TrimSuffix(text.String(), ",")
}

func ms(d time.Duration) time.Duration { return d.Round(time.Millisecond) }

// quantile reads a sorted list.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}
