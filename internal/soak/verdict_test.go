package soak_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/task"
)

// run is a run of a task.
type run struct {
	by       *life
	span     span
	attempts uint64
}

// readRuns reads the runs of all processes, by job_id, in the order of their beginning.
func readRuns(f *fleet) map[uint64][]run {
	all := map[uint64][]run{}
	for _, n := range f.nodes {
		for _, l := range n.lives {
			list, err := readBook(l.dir, runsFile)
			require.NoError(f.t, err)
			for _, s := range list {
				all[s.key] = append(all[s.key], run{l, s, s.note})
			}
		}
	}
	for _, list := range all {
		slices.SortFunc(list, func(a, b run) int { return cmp.Compare(a.span.from, b.span.from) })
	}
	return all
}

// What a run has before and after it, that a fault may catch as well.
const (
	starting  = 500 * time.Millisecond // the task was found pending, and is on its way to its processor
	recording = 3 * time.Second        // the outcome is on its way to the store: milliseconds, unless the machine is busy
)

// during tells whether a fault hit a run, or its recording.
func (r run) during(f *fault) bool {
	if f.life != nil && f.life != r.by || !slices.Contains(f.nodes, r.by.node) {
		return false
	}
	end := r.span.till
	if end == 0 {
		end = r.by.ended.UnixNano()
	}
	return r.span.from-int64(starting) <= f.end.UnixNano() && end+int64(recording) >= f.begin.UnixNano()
}

// explain gives the fault because of which a run may not be on record.
func (v *verdict) explain(r run) *fault {
	for _, f := range v.faults {
		if f.explains && r.during(f) {
			return f
		}
	}
	return nil
}

// readStalls makes faults of what stood still though nobody was told to.
func readStalls(f *fleet, known []*fault) (list []*fault) {
	for _, n := range f.nodes {
		for _, l := range n.lives {
			stalls, err := readBook(l.dir, stallsFile)
			require.NoError(f.t, err)
			for _, s := range stalls {
				still := run{by: l, span: s}
				if !slices.ContainsFunc(known, still.during) {
					list = append(list, &fault{kind: "stood still", nodes: []*node{n}, life: l, explains: true,
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
	late         map[string][]time.Duration // by biz_type
	latest       *order
	latestBy     time.Duration
	again        *order // one that ran twice
}

// verdict holds what was promised against what ran.
type verdict struct {
	fleet  *fleet
	faults []*fault
	orders []*order
	runs   map[uint64][]run
	status map[uint64]task.Status
	reigns reigns

	kinds                                    map[string]*tally
	fired, cancels, reschedules, unexplained int
	lost, early, ranCancelled, wrong         []string // what is not as it should be
	twice                                    []string
}

const calm = "no fault"

func newVerdict(f *fleet, faults []*fault, orders []*order) *verdict {
	v := &verdict{fleet: f, faults: faults, orders: orders, runs: readRuns(f), status: readStatus(f), reigns: readReigns(f),
		kinds: map[string]*tally{}}
	v.faults = append(v.faults, readStalls(f, faults)...)
	for _, f := range v.faults {
		k := v.kind(f)
		k.count++
		k.unowned = max(k.unowned, v.reigns.gap(f.begin.UnixNano(), f.whole.UnixNano()))
		k.whole = max(k.whole, f.whole.Sub(f.end))
	}
	for _, o := range orders {
		v.judge(o)
	}
	known := make(map[uint64]bool, len(orders))
	for _, o := range orders {
		known[o.jobID] = true
	}
	for id, s := range v.status {
		if !known[id] {
			v.wrong = append(v.wrong, fmt.Sprintf("task %d (%s) is in the store, but nobody submitted it", id, s))
		}
	}
	return v
}

// kind gives the tally of a fault; nil: of calm times.
func (v *verdict) kind(f *fault) *tally {
	name := calm
	if f != nil {
		name = f.kind
	}
	if v.kinds[name] == nil {
		v.kinds[name] = &tally{late: map[string][]time.Duration{}}
	}
	return v.kinds[name]
}

// judge looks at one task.
func (v *verdict) judge(o *order) {
	runs, status := v.runs[o.jobID], v.status[o.jobID]
	switch {
	case o.change.kind == cancelled && o.change.done == made:
		v.judgeCancelled(o, runs)
		return
	case len(runs) == 0 && o.change.kind == cancelled && o.change.done == unknown && status == task.Cancelled:
		v.cancels++
		return
	case len(runs) == 0:
		v.lost = append(v.lost, v.story(o))
		return
	case status != task.Processed && (o.change.kind != cancelled || o.change.done != unknown):
		v.wrong = append(v.wrong, "not processed in the end: "+v.story(o))
	}
	v.fired++
	if o.change.kind == rescheduled && o.change.done == made {
		v.reschedules++
	}
	for _, r := range runs {
		if r.span.from < o.earliest(r.span.from) {
			v.early = append(v.early, v.story(o))
			break
		}
	}
	v.judgeLateness(o, runs[0])
	if len(runs) > 1 {
		v.judgeTwice(o, runs)
	}
}

func (v *verdict) judgeCancelled(o *order, runs []run) {
	v.cancels++
	for _, r := range runs {
		// A run that a kill kept off the record may have been before.
		if r.span.from >= o.change.sent.UnixNano() || v.explain(r) == nil {
			v.ranCancelled = append(v.ranCancelled, v.story(o))
			return
		}
	}
	if v.status[o.jobID] != task.Cancelled {
		v.wrong = append(v.wrong, "not cancelled in the end: "+v.story(o))
	}
}

// earliest is the time before which a run that began then should not have begun.
func (o *order) earliest(at int64) int64 {
	due := o.due.UnixNano()
	if c := o.change; c.kind == rescheduled && c.done != refused && at >= c.sent.UnixNano() {
		if c.done == made && at > c.answered.UnixNano() {
			return c.due.UnixNano()
		}
		return min(due, c.due.UnixNano())
	}
	return due
}

// expected is the time at which a task should run.
func (o *order) expected() time.Time {
	c := o.change
	if c.kind == rescheduled && (c.done == made || c.done == unknown && c.due.After(o.due)) {
		return c.due
	}
	return o.due
}

func (v *verdict) judgeLateness(o *order, first run) {
	due := o.expected()
	late := time.Duration(first.span.from - due.UnixNano())
	var by *fault
	for _, f := range v.faults {
		if due.Before(f.whole) && first.span.from > f.begin.UnixNano() {
			by = f
			break
		}
	}
	k := v.kind(by)
	k.tasks++
	k.late[o.bizType] = append(k.late[o.bizType], late)
	if late > k.latestBy {
		k.latest, k.latestBy = o, late
	}
}

// judgeTwice asks for each run but the last why it was not the last.
func (v *verdict) judgeTwice(o *order, runs []run) {
	explained := 0
	var why *fault // of the first that is explained: the last one needs no reason
	for _, r := range runs {
		if f := v.explain(r); f != nil {
			explained++
			why = cmp.Or(why, f)
		}
	}
	if explained < len(runs)-1 {
		v.unexplained++
		v.twice = append(v.twice, v.story(o))
		return
	}
	k := v.kind(why)
	k.twice++
	k.again = o
}

// story tells all that is known of a task.
func (v *verdict) story(o *order) string {
	var text strings.Builder
	shard := sharding.Layout{Databases: v.fleet.cfg.Store.Databases, TablesPerDatabase: v.fleet.cfg.Store.TablesPerDatabase,
		Partitions: v.fleet.cfg.Cluster.Partitions}
	fmt.Fprintf(&text, "%s task %d (partition %d) due %s, taken by %s at %s (submit %d), now %s", o.bizType, o.jobID,
		shard.Partition(shard.Shard(o.bizID)), clock(o.due.UnixNano()), o.at, clock(o.known.UnixNano()), o.tries, v.status[o.jobID])
	if c := o.change; c.kind != noChange {
		fmt.Fprintf(&text, "; %s %s to %s, sent %s, answered %s", []string{"", "cancel", "reschedule"}[c.kind],
			[]string{"refused", "unknown", "made"}[c.done], clock(c.due.UnixNano()), clock(c.sent.UnixNano()), clock(c.answered.UnixNano()))
	}
	for _, r := range v.runs[o.jobID] {
		fmt.Fprintf(&text, "; ran on %s from %s to %s, attempts %d", r.by, clock(r.span.from), clock(r.span.till), r.attempts)
		if f := v.explain(r); f != nil {
			fmt.Fprintf(&text, " (%s)", f)
		}
	}
	return text.String()
}

// table is what happened, for people.
func (v *verdict) table() string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "fault\ttimes\tno owner\twhole after\ttasks\tscan p99\tmax\tredis p99\tmax\ttwice\t")
	names := slices.Sorted(maps.Keys(v.kinds))
	for _, name := range names {
		k := v.kinds[name]
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%d\t", name, k.count, ms(k.unowned), ms(k.whole), k.tasks)
		for _, b := range bizTypes {
			slices.Sort(k.late[b])
			fmt.Fprintf(w, "%s\t%s\t", ms(quantile(k.late[b], .99)), ms(quantile(k.late[b], 1)))
		}
		fmt.Fprintf(w, "%d\t\n", k.twice)
	}
	_ = w.Flush()
	fmt.Fprintf(&text, "submitted %d, fired %d, cancelled %d, rescheduled %d, lost %d, early %d, cancelled but ran %d, twice unexplained %d\n",
		len(v.orders), v.fired, v.cancels, v.reschedules, len(v.lost), len(v.early), len(v.ranCancelled), v.unexplained)
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
		fmt.Fprintf(&text, "latest of %s (%s%s): %s\n", name, ms(k.latestBy), warning, v.story(k.latest))
		if k.again != nil {
			fmt.Fprintf(&text, "twice by %s: %s\n", name, v.story(k.again))
		}
	}
	return text.String()
}

func ms(d time.Duration) time.Duration { return d.Round(time.Millisecond) }

// quantile reads a sorted list.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// readStatus reads what the store says of each task, by plain SQL.
func readStatus(f *fleet) map[uint64]task.Status {
	list, err := app.Databases(f.cfg, true)
	require.NoError(f.t, err)
	defer func() { require.NoError(f.t, app.CloseDatabases(list)) }()
	found := make([]map[uint64]task.Status, len(list))
	g, ctx := errgroup.WithContext(context.WithoutCancel(f.t.Context()))
	for i, d := range list {
		found[i] = map[uint64]task.Status{}
		g.Go(func() error {
			rows, err := d.DB.QueryContext(ctx, eachTable(f, "SELECT job_id, status FROM %s"))
			if err != nil {
				return err
			}
			defer rows.Close()
			for rows.Next() {
				var id uint64
				var s task.Status
				if err := rows.Scan(&id, &s); err != nil {
					return err
				}
				found[i][id] = s
			}
			return rows.Err()
		})
	}
	require.NoError(f.t, g.Wait())
	all := map[uint64]task.Status{}
	for _, one := range found {
		maps.Copy(all, one)
	}
	return all
}

// eachTable makes one query over the tables of a database.
func eachTable(f *fleet, query string) string {
	parts := make([]string, f.cfg.Store.TablesPerDatabase)
	for i := range parts {
		parts[i] = fmt.Sprintf(query, sharding.TableName(i))
	}
	return strings.Join(parts, " UNION ALL ")
}

// awaitDone waits until nothing is pending.
func (f *fleet) awaitDone(patience time.Duration) {
	f.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		pending := 0
		for _, s := range readStatus(f) {
			if s == task.Pending {
				pending++
			}
		}
		if pending == 0 {
			return
		}
		if time.Now().After(deadline) { // the verdict says which
			f.t.Errorf("%d tasks are still pending after %s", pending, patience)
			return
		}
		<-time.After(250 * time.Millisecond) // the store tells nobody
	}
}
