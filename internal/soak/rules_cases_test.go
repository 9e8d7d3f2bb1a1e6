package soak_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/task"
)

// at is a time of a made-up story, in seconds.
func at(s float64) time.Time { return time.Unix(1_800_000_000, int64(s*1e9)) }

// made-up nodes and what happened to them.
var (
	nodeOne, nodeTwo = &node{name: "one"}, &node{name: "two"}
	firstOfOne       = &process{node: nodeOne, dir: "one.1", ended: at(20)}
	secondOfOne      = &process{node: nodeOne, dir: "one.2"}
	thirdOfOne       = &process{node: nodeOne, dir: "one.3", ended: at(25)}
	fourthOfOne      = &process{node: nodeOne, dir: "one.4", ended: at(30)}
	onlyOfTwo        = &process{node: nodeTwo, dir: "two.1"}

	madeUpFaults = []*fault{
		{kind: kill, nodes: []*node{nodeOne}, process: firstOfOne, explains: true, begin: at(20), end: at(22), whole: at(23)},
		{kind: kill, nodes: []*node{nodeOne}, process: thirdOfOne, explains: true, begin: at(25), end: at(25.1), whole: at(25.2)},
		{kind: kill, nodes: []*node{nodeOne}, process: fourthOfOne, explains: true, begin: at(30), end: at(30.1), whole: at(30.2)},
		{kind: rolling, nodes: []*node{nodeTwo}, begin: at(40), end: at(41), whole: at(42)},
		{kind: cutPrefix + "mysql", nodes: []*node{nodeTwo}, explains: true, begin: at(50), end: at(60), whole: at(62)},
	}
)

// ran is a run of a task that was due at a time; till 0: it never ended.
func ran(by *process, end uint64, due, from, till float64, attempts int64) run {
	s := span{key: 1, from: at(from).UnixNano(), end: end, seen: seen{attempts, at(due).UnixMilli(), textHash("a")}}
	if till > 0 {
		s.till = at(till).UnixNano()
	}
	return run{by, s}
}

// with changes what a run was handed.
func (r run) with(attribute string) run { r.span.seen.attribute = textHash(attribute); return r }

// stands is a row in the end.
func stands(status task.Status, due float64, attempts int64) row {
	return row{seen: seen{attempts, at(due).UnixMilli(), textHash("a")}, status: status, there: true}
}

func (r row) with(attribute string) row { r.seen.attribute = textHash(attribute); return r }

// asks is a change, answered 0.1 s after it was sent.
func asks(kind string, hand bool, sent float64, done answer, set effect) *change {
	return &change{kind: kind, hand: hand, sent: at(sent), answered: at(sent + .1), done: done, set: set}
}

func cancels(hand bool, sent float64, done answer) *change {
	return asks(cancelled, hand, sent, done, effect{status: new(task.Cancelled)})
}

func moves(hand bool, sent float64, done answer, to float64) *change {
	return asks(rescheduled, hand, sent, done, effect{low: at(to), high: at(to)})
}

func edits(sent float64, text string) *change {
	return asks(edited, true, sent, made, effect{attribute: textHash(text), hasAttribute: true})
}

func lowers(sent float64) *change { return asks(lowered, true, sent, made, effect{attempts: new(int)}) }

func redrives(sent float64) *change {
	c := asks(redriven, false, sent, made, effect{status: new(task.Pending), attempts: new(int), low: at(sent), high: at(sent + .1)})
	c.from = task.Dead
	return c
}

func locks(sent, till float64) *change {
	return &change{kind: locked, hand: true, sent: at(sent), answered: at(till)}
}

// tagged makes a change one that names a tag, which was read then.
func tagged(c *change, read float64) *change { c.asked, c.read = at(read-.1), at(read); return c }

// mismatched makes a change one whose tag was refused.
func mismatched(c *change, read float64) *change { c.mismatch = true; return tagged(c, read) }

// failures are the runs of a task that is due and fails n times, a second each; the last one ends at the n-th second after.
func failures(due float64, n int) (runs []run) {
	for i := range n {
		runs = append(runs, ran(onlyOfTwo, endFailed, due, due, due+.1, int64(i)))
		low, _ := pauses(int64(i + 1))
		due += .1 + low.Seconds() + .01
	}
	return runs
}

const (
	lost, early, cancel, again = "tasks were lost", "tasks ran early", "cancelled tasks ran", "tasks ran again, and no fault explains it"
	kept                       = "acknowledged changes were not kept"
	attempts                   = "tasks have attempts that are not their failed runs"
	died                       = "tasks died that had not failed"
	poisonous                  = "poisons ended too many processes"
	tags                       = "changes were made of tasks that were not as their tag said"
	refusals                   = "tags were refused that still held"
	answers                    = "changes were answered that could not be"
	late                       = "tasks were late, and no fault explains it"
)

// What each rule must see, and what it must not.
func TestRules(t *testing.T) {
	t.Parallel()
	ok, fail := uint64(endOK), uint64(endFailed)
	dying := failures(10, maxRetries+1)
	lastDue := float64(dying[maxRetries].span.seen.action-at(0).UnixMilli()) / 1000
	ended := func(by *process, from float64) run { return ran(by, 0, 10, from, 0, 0) }
	for name, c := range map[string]struct {
		due     float64
		changes []*change
		runs    []run
		row     row
		want    []string
	}{
		"fired":                    {10, nil, []run{ran(firstOfOne, ok, 10, 10, 10.1, 0)}, stands(task.Processed, 10, 0), nil},
		"never ran":                {10, nil, nil, stands(task.Pending, 10, 0), []string{lost}},
		"gone":                     {10, nil, []run{ran(firstOfOne, ok, 10, 10, 10.1, 0)}, row{}, []string{lost}},
		"processed, but never ran": {10, nil, nil, stands(task.Processed, 10, 0), []string{lost}},
		"ran, but not recorded":    {10, nil, []run{ran(firstOfOne, ok, 10, 10, 10.1, 0)}, stands(task.Pending, 10, 0), []string{lost}},
		"processed, but failed":    {10, nil, failures(10, 1), stands(task.Processed, 10, 1), []string{lost, kept}},
		"early":                    {10, nil, []run{ran(firstOfOne, ok, 10, 9.999, 10.1, 0)}, stands(task.Processed, 10, 0), []string{early}},
		"with a time of its own":   {10, nil, []run{ran(firstOfOne, ok, 9, 9, 9.1, 0)}, stands(task.Processed, 10, 0), []string{kept}},
		"late":                     {70, nil, []run{ran(onlyOfTwo, ok, 70, 81, 81.1, 0)}, stands(task.Processed, 70, 0), []string{late}},
		"late by a fault":          {45, nil, []run{ran(onlyOfTwo, ok, 45, 61, 61.1, 0)}, stands(task.Processed, 45, 0), nil},

		"cancelled":                   {10, []*change{cancels(false, 9, made)}, nil, stands(task.Cancelled, 10, 0), nil},
		"cancelled, but ran":          {10, []*change{cancels(false, 9, made)}, []run{ran(firstOfOne, ok, 10, 10, 10.1, 0)}, stands(task.Cancelled, 10, 0), []string{cancel, kept}},
		"cancelled while it ran":      {9, []*change{cancels(false, 9.1, made)}, []run{ran(firstOfOne, ok, 9, 9, 9.5, 0)}, stands(task.Cancelled, 9, 0), []string{cancel, kept}},
		"cancelled after it ran":      {8, []*change{cancels(false, 12, made)}, []run{ran(firstOfOne, ok, 8, 8, 8.1, 0)}, stands(task.Cancelled, 8, 0), []string{answers}},
		"cancel undone":               {10, []*change{cancels(false, 9, made)}, nil, stands(task.Pending, 10, 0), []string{lost}},
		"perhaps cancelled, and lost": {10, []*change{cancels(false, 9, unknown)}, nil, stands(task.Pending, 10, 0), []string{lost}},
		"perhaps cancelled, and was":  {10, []*change{cancels(false, 9, unknown)}, nil, stands(task.Cancelled, 10, 0), nil},
		"a cancel refused":            {10, []*change{cancels(false, 9, refused)}, nil, stands(task.Cancelled, 10, 0), []string{kept}},
		"cancelled by hand":           {10, []*change{cancels(true, 8, made)}, nil, stands(task.Cancelled, 10, 0), nil},
		"cancelled by hand, too late": {10, []*change{cancels(true, 9.8, made)}, []run{ran(firstOfOne, ok, 10, 10, 10.1, 0)}, stands(task.Cancelled, 10, 0), nil},
		"cancelled by hand, but ran":  {10, []*change{cancels(true, 8, made)}, []run{ran(firstOfOne, ok, 10, 10, 10.1, 0)}, stands(task.Cancelled, 10, 0), []string{cancel, kept}},
		"cancelled by hand, overwritten": {10, []*change{cancels(true, 10.05, made)}, []run{ran(firstOfOne, fail, 10, 10, 11, 0), ran(firstOfOne, ok, 11.1, 11.9, 12, 1)},
			stands(task.Processed, 11.1, 1), []string{cancel, kept, attempts}},

		"moved":                       {10, []*change{moves(false, 9, made, 12)}, []run{ran(firstOfOne, ok, 12, 12, 12.1, 0)}, stands(task.Processed, 12, 0), nil},
		"moved, but ran before":       {10, []*change{moves(false, 9, made, 12)}, []run{ran(firstOfOne, ok, 10, 10, 10.1, 0)}, stands(task.Processed, 12, 0), []string{kept}},
		"perhaps moved":               {10, []*change{moves(false, 9, unknown, 12)}, []run{ran(firstOfOne, ok, 10, 10, 10.1, 0)}, stands(task.Processed, 10, 0), nil},
		"a move refused":              {10, []*change{moves(false, 9, refused, 12)}, []run{ran(firstOfOne, ok, 12, 12, 12.1, 0)}, stands(task.Processed, 12, 0), []string{kept}},
		"moved by hand while it runs": {10, []*change{moves(true, 10.5, made, 15)}, []run{ran(firstOfOne, fail, 10, 10, 11, 0), ran(firstOfOne, ok, 15, 15, 15.1, 1)}, stands(task.Processed, 15, 1), nil},
		"moved by hand, and overwritten by a failed run": {10, []*change{moves(true, 10.5, made, 15)},
			[]run{ran(firstOfOne, fail, 10, 10, 11, 0), ran(firstOfOne, ok, 11.1, 11.1, 11.2, 1)}, stands(task.Processed, 11.1, 1), []string{kept}},
		"moved by hand before, and overwritten": {10, []*change{moves(true, 5, made, 15)},
			[]run{ran(firstOfOne, ok, 10, 10, 10.1, 0)}, stands(task.Processed, 10, 0), []string{kept}},
		"edited":            {10, []*change{edits(8, "b")}, []run{ran(firstOfOne, ok, 10, 10, 10.1, 0).with("b")}, stands(task.Processed, 10, 0).with("b"), nil},
		"an edit undone":    {10, []*change{edits(8, "b")}, []run{ran(firstOfOne, ok, 10, 10, 10.1, 0)}, stands(task.Processed, 10, 0), []string{kept}},
		"an edit forgotten": {10, []*change{edits(8, "b")}, []run{ran(firstOfOne, ok, 10, 10, 10.1, 0).with("b")}, stands(task.Processed, 10, 0), []string{kept}},

		"failed once":            {10, nil, []run{ran(firstOfOne, fail, 10, 10, 10.1, 0), ran(firstOfOne, ok, 10.2, 10.2, 10.3, 1)}, stands(task.Processed, 10.2, 1), nil},
		"too soon after failing": {10, nil, []run{ran(firstOfOne, fail, 10, 10, 10.1, 0), ran(firstOfOne, ok, 10.15, 10.15, 10.3, 1)}, stands(task.Processed, 10.15, 1), []string{kept}},
		"a failed run forgotten": {10, nil, []run{ran(firstOfOne, fail, 10, 10, 10.1, 0), ran(firstOfOne, ok, 10.2, 10.2, 10.3, 0)}, stands(task.Processed, 10.2, 0), []string{attempts}},
		"an attempt too many":    {10, nil, []run{ran(firstOfOne, ok, 10, 10, 10.1, 1)}, stands(task.Processed, 10, 1), []string{attempts}},
		"a cut that is counted": {10, nil, []run{ended(firstOfOne, 19.9), ran(onlyOfTwo, ok, 10, 23, 23.1, 1)}, stands(task.Processed, 10, 1),
			[]string{attempts}},
		"lowered by hand":              {10, []*change{lowers(12)}, append(failures(10, 2), ran(onlyOfTwo, ok, 10.41, 13.5, 13.6, 0)), stands(task.Processed, 10.41, 0), []string{kept}},
		"lowered by hand, and ignored": {10, []*change{lowers(15)}, append(failures(10, 1), ran(onlyOfTwo, ok, 10.21, 20, 20.1, 1)), stands(task.Processed, 10.21, 1), []string{attempts}},

		"dead":                        {10, nil, dying, stands(task.Dead, lastDue, maxRetries+1), nil},
		"dead too soon":               {10, nil, failures(10, 2), stands(task.Dead, 10.21, 2), []string{died, kept}},
		"dead without a run":          {10, nil, nil, stands(task.Dead, 10, 0), []string{died}},
		"dead by its cuts":            {10, nil, []run{ended(firstOfOne, 19.9), ended(firstOfOne, 19.9), ended(firstOfOne, 19.9)}, stands(task.Dead, 10, 0), nil},
		"dead by two and a suspicion": {19, nil, []run{ran(thirdOfOne, 0, 19, 24.9, 0, 0), ran(fourthOfOne, 0, 19, 29.9, 0, 0)}, stands(task.Dead, 19, 0), nil},
		"dead by two and one unseen":  {10, nil, []run{ended(firstOfOne, 19.9), ran(thirdOfOne, 0, 10, 24.9, 0, 0)}, stands(task.Dead, 10, 0), nil},
		"dead by two without one":     {24, nil, []run{ran(thirdOfOne, 0, 24, 24.9, 0, 0), ran(fourthOfOne, 0, 24, 29.9, 0, 0)}, stands(task.Dead, 24, 0), []string{died}},
		"dead by one and two ends":    {19, nil, []run{ran(fourthOfOne, 0, 19, 29.9, 0, 0)}, stands(task.Dead, 19, 0), nil},
		"dead by one and an end":      {24, nil, []run{ran(fourthOfOne, 0, 24, 29.9, 0, 0)}, stands(task.Dead, 24, 0), []string{died}},
		"dead by ends alone":          {19, nil, nil, stands(task.Dead, 19, 0), []string{died}},
		"dead by too few of them":     {10, nil, []run{ended(firstOfOne, 19.9)}, stands(task.Dead, 10, 0), []string{died}},
		"redriven": {10, []*change{redrives(30)}, append(slices.Clone(dying), ran(onlyOfTwo, ok, 30.05, 30.05, 30.2, 0)),
			stands(task.Processed, 30.05, 0), nil},
		"a redrive forgotten":      {10, []*change{redrives(30)}, dying, stands(task.Dead, lastDue, maxRetries+1), []string{kept, attempts, died}},
		"redriven without a death": {10, []*change{redrives(30)}, []run{ran(onlyOfTwo, ok, 10, 10, 10.1, 0)}, stands(task.Processed, 30.05, 0), []string{lost, answers}},
		"ran though dead":          {10, nil, append(slices.Clone(dying), ran(onlyOfTwo, ok, lastDue, 30, 30.1, maxRetries+1)), stands(task.Processed, lastDue, maxRetries+1), []string{again}},

		"twice by a kill":          {19, nil, []run{ran(firstOfOne, 0, 19, 19.9, 0, 0), ran(onlyOfTwo, ok, 19, 23, 23.1, 0)}, stands(task.Processed, 19, 0), nil},
		"unrecorded by a kill":     {19, nil, []run{ran(firstOfOne, ok, 19, 19.3, 19.4, 0), ran(onlyOfTwo, ok, 19, 23, 23.1, 0)}, stands(task.Processed, 19, 0), nil},
		"twice long before a kill": {10, nil, []run{ran(firstOfOne, ok, 10, 10, 10.1, 0), ran(onlyOfTwo, ok, 10, 11, 11.1, 0)}, stands(task.Processed, 10, 0), []string{again}},
		"twice after a kill":       {23, nil, []run{ran(secondOfOne, ok, 23, 24, 24.1, 0), ran(onlyOfTwo, ok, 23, 24.2, 24.3, 0)}, stands(task.Processed, 23, 0), []string{again}},
		"twice by another's kill":  {19, nil, []run{ran(onlyOfTwo, ok, 19, 19.9, 20.1, 0), ran(secondOfOne, ok, 19, 23, 23.1, 0)}, stands(task.Processed, 19, 0), []string{again}},
		"twice by a restart":       {40, nil, []run{ran(onlyOfTwo, ok, 40, 40.1, 40.2, 0), ran(secondOfOne, ok, 40, 41, 41.1, 0)}, stands(task.Processed, 40, 0), []string{again}},
		"twice by a cut":           {51, nil, []run{ran(onlyOfTwo, ok, 51, 51, 51.1, 0), ran(secondOfOne, ok, 51, 54, 54.1, 0)}, stands(task.Processed, 51, 0), nil},
		"three times by a cut": {51, nil, []run{ran(onlyOfTwo, ok, 51, 51, 51.1, 0), ran(secondOfOne, ok, 51, 54, 54.1, 0), ran(secondOfOne, ok, 51, 55, 55.1, 0)},
			stands(task.Processed, 51, 0), []string{again}},
		"at the same time": {30, nil, []run{ran(onlyOfTwo, fail, 30, 30, 31, 0), ran(secondOfOne, ok, 30, 30.5, 30.6, 0)}, stands(task.Processed, 30, 0), []string{again, kept, attempts}},

		"by a tag":                   {10, []*change{tagged(moves(false, 5, made, 12), 4)}, []run{ran(firstOfOne, ok, 12, 12, 12.1, 0)}, stands(task.Processed, 12, 0), nil},
		"by a tag of before":         {10, []*change{moves(true, 4.5, made, 11), tagged(moves(false, 5, made, 12), 4)}, []run{ran(firstOfOne, ok, 12, 12, 12.1, 0)}, stands(task.Processed, 12, 0), []string{tags}},
		"a tag of before, refused":   {10, []*change{moves(true, 4.5, made, 11), mismatched(moves(false, 5, refused, 12), 4)}, []run{ran(firstOfOne, ok, 11, 11, 11.1, 0)}, stands(task.Processed, 11, 0), nil},
		"a tag that held, refused":   {10, []*change{moves(true, 3, made, 11), mismatched(moves(false, 5, refused, 12), 4)}, []run{ran(firstOfOne, ok, 11, 11, 11.1, 0)}, stands(task.Processed, 11, 0), []string{refusals}},
		"a tag refused after a run":  {10, []*change{mismatched(moves(false, 10.3, refused, 12), 10.05)}, []run{ran(firstOfOne, ok, 10, 10, 10.1, 0)}, stands(task.Processed, 10, 0), nil},
		"a tag refused during a run": {10, []*change{mismatched(moves(false, 10.3, refused, 12), 10.1)}, []run{ran(firstOfOne, ok, 10, 10, 10.5, 0)}, stands(task.Processed, 10, 0), []string{refusals}},
		"a locked row":               {10, []*change{locks(9, 18)}, []run{ran(firstOfOne, ok, 10, 10, 10.1, 0)}, stands(task.Processed, 10, 0), nil},
		"cancelled, unlocked":        {10, []*change{locks(9, 14), cancels(true, 14.2, made)}, []run{ran(onlyOfTwo, ok, 10, 10, 10.1, 0)}, stands(task.Cancelled, 10, 0), nil},
	} {
		t.Run(name, func(t *testing.T) {
			v := &verdict{fleet: &fleet{}, faults: madeUpFaults, kinds: map[string]*tally{}, broken: map[string][]string{},
				runs: map[uint64][]run{1: c.runs}, rows: map[uint64]row{1: c.row}, locks: map[int][]*change{}}
			v.fleet.cfg.Store.Databases, v.fleet.cfg.Store.TablesPerDatabase, v.fleet.cfg.Cluster.Partitions = 1, 1, 1
			for _, change := range c.changes {
				if change.kind == locked {
					v.locks[0] = append(v.locks[0], change)
				}
			}
			v.judge(v.tell(&history{jobID: 1, bizType: bizTypes[0], attribute: "a", changes: c.changes, known: at(1),
				submits: []submitTry{{sent: at(0), answered: at(1), due: at(c.due)}}}))
			found := []string{}
			for _, r := range rules {
				if len(v.broken[r.broken]) > 0 {
					found = append(found, r.broken)
				}
			}
			require.ElementsMatch(t, append([]string{}, c.want...), found, "%v", v.broken)
		})
	}
}

// A poison may end as many processes as cuts are allowed, and not one more.
func TestPoisonRule(t *testing.T) {
	t.Parallel()
	v := &verdict{}
	s := &story{history: &history{attribute: poison}}
	for range mostCuts {
		s.runs = append(s.runs, ran(firstOfOne, 0, 10, 10, 0, 0))
	}
	require.Empty(t, v.askPoison(s))
	s.runs = append(s.runs, ran(firstOfOne, endOK, 10, 10, 10.1, 0))
	require.Empty(t, v.askPoison(s), "one that ended")
	s.runs = append(s.runs, ran(firstOfOne, 0, 10, 10, 0, 0))
	require.NotEmpty(t, v.askPoison(s))
}

func TestTenures(t *testing.T) {
	t.Parallel()
	a, b := &process{}, &process{}
	tenureOf := func(by *process, from, till float64) tenure {
		return tenure{by: by, from: at(from).UnixNano(), till: at(till).UnixNano(), ended: true}
	}
	for name, c := range map[string]struct {
		list      []tenure
		conflicts int
		gap       time.Duration
	}{
		"one after the other":  {[]tenure{tenureOf(a, 1, 2), tenureOf(b, 2.5, 3)}, 0, 500 * time.Millisecond},
		"at one instant":       {[]tenure{tenureOf(a, 1, 2), tenureOf(b, 2, 3)}, 1, 0},
		"one within the other": {[]tenure{tenureOf(a, 1, 9), tenureOf(b, 2, 3), tenureOf(b, 4, 5)}, 2, 0},
		"the same again":       {[]tenure{tenureOf(a, 1, 2), tenureOf(a, 4, 5)}, 0, 2 * time.Second},
		"not asked for":        {[]tenure{{by: a, from: at(1).UnixNano(), till: at(2).UnixNano()}, tenureOf(a, 4, 5)}, 0, 0},
		"at other times":       {[]tenure{tenureOf(a, 20, 21), tenureOf(b, 25, 26)}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			all := tenures{nil, c.list}
			require.Len(t, all.conflicts(), c.conflicts)
			require.Equal(t, c.gap, all.gap(at(0).UnixNano(), at(10).UnixNano()))
		})
	}
}

// The answers that a node was given, as they are written down.
func TestTenureLog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, err := newLedger(dir, tenuresFile)
	require.NoError(t, err)
	defer l.file.Close()
	of := newTenureLog(l, 4)
	of.record(3, false)
	of.record(3, true)
	of.record(2, true)
	of.record(3, true)
	of.record(3, false)
	of.record(3, false)
	of.record(3, true)
	list, err := readLedger(dir, tenuresFile)
	require.NoError(t, err)
	require.Len(t, list, 3)
	require.Equal(t, []uint64{3, closed, 2, 0, 3, 0}, []uint64{list[0].key, list[0].end, list[1].key, list[1].end, list[2].key, list[2].end})
	require.Less(t, list[0].from, list[0].till)
	require.LessOrEqual(t, list[0].till, list[2].from)
}

// A run as it is written down, before and after.
func TestLedger(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, err := newLedger(dir, runsFile)
	require.NoError(t, err)
	defer l.file.Close()
	s := span{key: 1<<63 - 1, from: 5, seen: seen{attempts: 3, action: 7, attribute: textHash(strings.Repeat("x", 99))}}
	place := l.add(s)
	list, err := readLedger(dir, runsFile)
	require.NoError(t, err)
	require.Equal(t, []span{s}, list)
	s.till, s.end = 9, endFailed
	l.set(place, s)
	list, err = readLedger(dir, runsFile)
	require.NoError(t, err)
	require.Equal(t, []span{s}, list)
}
