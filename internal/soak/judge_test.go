package soak_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/task"
)

// at is a time of a made-up story, in seconds.
func at(s float64) time.Time { return time.Unix(1_800_000_000, int64(s*1e9)) }

// ran is a run; till 0: it never ended.
func ran(by *life, from, till float64) run {
	s := span{key: 1, from: at(from).UnixNano()}
	if till > 0 {
		s.till = at(till).UnixNano()
	}
	return run{by: by, span: s}
}

// What the verdict must see, and what it must not.
func TestVerdict(t *testing.T) {
	t.Parallel()
	one, two := &node{name: "one"}, &node{name: "two"}
	first, second, other := &life{node: one, ended: at(20)}, &life{node: one}, &life{node: two}
	killed := &fault{kind: kill, nodes: []*node{one}, life: first, explains: true, begin: at(20), end: at(22), whole: at(23)}
	restarted := &fault{kind: rolling, nodes: []*node{two}, begin: at(40), end: at(41), whole: at(42)}
	cut := &fault{kind: "cut", nodes: []*node{two}, explains: true, begin: at(50), end: at(60), whole: at(62)}
	due := func(s float64) order { return order{jobID: 1, bizType: bizTypes[0], due: at(s)} }
	changed := func(o order, c change) order { o.change = c; return o }
	cancel := func(done answer) change { return change{kind: cancelled, sent: at(9), answered: at(9.1), done: done} }
	later := func(done answer) change {
		return change{kind: rescheduled, sent: at(9), answered: at(9.1), done: done, due: at(12)}
	}

	for name, c := range map[string]struct {
		order  order
		status task.Status
		runs   []run
		want   string
	}{
		"fired":                       {due(10), task.Processed, []run{ran(first, 10, 10.1)}, "fired"},
		"lost":                        {due(10), task.Pending, nil, "lost"},
		"processed, but never ran":    {due(10), task.Processed, nil, "lost"},
		"ran, but never recorded":     {due(10), task.Pending, []run{ran(first, 10, 10.1)}, "fired wrong"},
		"early":                       {due(10), task.Processed, []run{ran(first, 9.999, 10.1)}, "fired early"},
		"early for its new time":      {changed(due(10), later(made)), task.Processed, []run{ran(first, 10, 10.1)}, "fired early"},
		"by its new time":             {changed(due(10), later(made)), task.Processed, []run{ran(first, 12, 12.1)}, "fired"},
		"by the old or the new time":  {changed(due(10), later(unknown)), task.Processed, []run{ran(first, 10, 10.1)}, "fired"},
		"refused a new time":          {changed(due(10), later(refused)), task.Processed, []run{ran(first, 10, 10.1)}, "fired"},
		"cancelled":                   {changed(due(10), cancel(made)), task.Cancelled, nil, "cancelled"},
		"cancelled, but ran":          {changed(due(10), cancel(made)), task.Cancelled, []run{ran(first, 10, 10.1)}, "cancelled ranCancelled"},
		"cancelled, ran before":       {changed(due(8), cancel(made)), task.Cancelled, []run{ran(first, 8, 8.1)}, "cancelled ranCancelled"},
		"perhaps cancelled, and lost": {changed(due(10), cancel(unknown)), task.Pending, nil, "lost"},
		"perhaps cancelled, and was":  {changed(due(10), cancel(unknown)), task.Cancelled, nil, "cancelled"},
		"a cancel refused":            {changed(due(10), cancel(refused)), task.Cancelled, nil, "lost"},
		"twice by a kill":             {due(19), task.Processed, []run{ran(first, 19.9, 0), ran(other, 23, 23.1)}, "fired"},
		"unrecorded by a kill":        {due(19), task.Processed, []run{ran(first, 19.3, 19.4), ran(other, 23, 23.1)}, "fired"},
		"twice long before a kill":    {due(10), task.Processed, []run{ran(first, 10, 10.1), ran(other, 11, 11.1)}, "fired twice"},
		"twice after a kill":          {due(21), task.Processed, []run{ran(second, 24, 24.1), ran(other, 24, 24.1)}, "fired twice"},
		"twice by another's kill":     {due(19), task.Processed, []run{ran(other, 19.9, 20.1), ran(second, 23, 23.1)}, "fired twice"},
		"twice by a restart":          {due(40), task.Processed, []run{ran(other, 40.1, 40.2), ran(second, 41, 41.1)}, "fired twice"},
		"twice by a cut":              {due(51), task.Processed, []run{ran(other, 51, 51.1), ran(second, 54, 54.1)}, "fired"},
		"three times by a cut":        {due(51), task.Processed, []run{ran(other, 51, 51.1), ran(second, 54, 54.1), ran(second, 55, 55.1)}, "fired twice"},
	} {
		t.Run(name, func(t *testing.T) {
			v := &verdict{
				fleet: &fleet{}, faults: []*fault{killed, restarted, cut}, kinds: map[string]*tally{},
				runs: map[uint64][]run{1: c.runs}, status: map[uint64]task.Status{1: c.status},
			}
			v.fleet.cfg.Store.Databases, v.fleet.cfg.Store.TablesPerDatabase, v.fleet.cfg.Cluster.Partitions = 1, 1, 1
			v.judge(&c.order)
			got := ""
			for _, found := range []struct {
				word string
				n    int
			}{{"fired", v.fired}, {"cancelled", v.cancels}, {"lost", len(v.lost)}, {"early", len(v.early)},
				{"ranCancelled", len(v.ranCancelled)}, {"wrong", len(v.wrong)}, {"twice", v.unexplained}} {
				if found.n > 0 {
					got += " " + found.word
				}
			}
			require.Equal(t, " "+c.want, got)
		})
	}
}

func TestReigns(t *testing.T) {
	t.Parallel()
	a, b := &life{}, &life{}
	reignOf := func(by *life, from, till float64) reign {
		return reign{by: by, from: at(from).UnixNano(), till: at(till).UnixNano(), ended: true}
	}
	for name, c := range map[string]struct {
		list      []reign
		conflicts int
		gap       time.Duration
	}{
		"one after the other":  {[]reign{reignOf(a, 1, 2), reignOf(b, 2.5, 3)}, 0, 500 * time.Millisecond},
		"at one instant":       {[]reign{reignOf(a, 1, 2), reignOf(b, 2, 3)}, 1, 0},
		"one within the other": {[]reign{reignOf(a, 1, 9), reignOf(b, 2, 3), reignOf(b, 4, 5)}, 2, 0},
		"the same again":       {[]reign{reignOf(a, 1, 2), reignOf(a, 4, 5)}, 0, 2 * time.Second},
		"not asked for":        {[]reign{{by: a, from: at(1).UnixNano(), till: at(2).UnixNano()}, reignOf(a, 4, 5)}, 0, 0},
		"at other times":       {[]reign{reignOf(a, 20, 21), reignOf(b, 25, 26)}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			all := reigns{nil, c.list}
			require.Len(t, all.conflicts(), c.conflicts)
			require.Equal(t, c.gap, all.gap(at(0).UnixNano(), at(10).UnixNano()))
		})
	}
}

// The answers that a node was given, as they are written down.
func TestTenures(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b, err := newBook(dir, tenuresFile)
	require.NoError(t, err)
	defer b.file.Close()
	of := newTenures(b, 4)
	of.tell(3, false)
	of.tell(3, true)
	of.tell(2, true)
	of.tell(3, true)
	of.tell(3, false)
	of.tell(3, false)
	of.tell(3, true)
	list, err := readBook(dir, tenuresFile)
	require.NoError(t, err)
	require.Len(t, list, 3)
	require.Equal(t, []uint64{3, closed, 2, 0, 3, 0}, []uint64{list[0].key, list[0].note, list[1].key, list[1].note, list[2].key, list[2].note})
	require.Less(t, list[0].from, list[0].till)
	require.LessOrEqual(t, list[0].till, list[2].from)
}
