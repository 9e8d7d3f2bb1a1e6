package audit

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/task"
)

// at is a time of a made-up story, in seconds.
func at(s float64) time.Time { return time.Unix(1_800_000_000, int64(s*1e9)) }

// made-up nodes and what happened to them.
var (
	firstOfOne    = &Process{Node: "one", Name: "one.1", Ended: at(20)}
	secondOfOne   = &Process{Node: "one", Name: "one.2"}
	thirdOfOne    = &Process{Node: "one", Name: "one.3", Ended: at(25)}
	fourthOfOne   = &Process{Node: "one", Name: "one.4", Ended: at(30)}
	onlyOfTwo     = &Process{Node: "two", Name: "two.1"}
	firstOfThree  = &Process{Node: "three", Name: "three.1", Ended: at(164)}
	secondOfThree = &Process{Node: "three", Name: "three.2", Ended: at(170)}

	madeUpFaults = []*Fault{
		{Kind: "SIGKILL", Nodes: []string{"one"}, Process: firstOfOne, Explains: true, Begin: at(20), End: at(22), Whole: at(23)},
		{Kind: "SIGKILL", Nodes: []string{"one"}, Process: thirdOfOne, Explains: true, Begin: at(25), End: at(25.1), Whole: at(25.2)},
		{Kind: "SIGKILL", Nodes: []string{"one"}, Process: fourthOfOne, Explains: true, Begin: at(30), End: at(30.1), Whole: at(30.2)},
		{Kind: "SIGTERM", Nodes: []string{"two"}, Begin: at(40), End: at(41), Whole: at(42)},
		{Kind: "cut from mysql", Nodes: []string{"two"}, Explains: true, Begin: at(50), End: at(60), Whole: at(62)},
		{Kind: "cut from mysql", Nodes: []string{"three"}, Explains: true, Begin: at(150), End: at(160), Whole: at(162)},
		{Kind: "SIGKILL", Nodes: []string{"three"}, Explains: true, Begin: at(164), End: at(165), Whole: at(166)},
		{Kind: "SIGKILL", Nodes: []string{"three"}, Explains: true, Begin: at(170), End: at(171), Whole: at(172)},
	}
)

// madeUp is the business type of the made-up tasks.
var madeUp = configs.BizType{Name: "made-up", MaxRetries: 4, Cuts: 3, Backoff: configs.Backoff{Min: 100 * time.Millisecond, Max: time.Second}}

// madeUpRuns is how many runs of it fail until it is dead.
const madeUpRuns = 5

func madeUpCenter() Center {
	return Center{Layout: sharding.Layout{Databases: 1, TablesPerDatabase: 1, Partitions: 1}, Types: Types([]configs.BizType{madeUp}),
		Within: Windows{Start: 500 * time.Millisecond, Record: 3 * time.Second, Hand: 1500 * time.Millisecond, Adopt: 10 * time.Second, Late: 10 * time.Second}}
}

// ran is a run of a task that was due at a time; till 0: it never ended.
func ran(by *Process, end uint64, due, from, till float64, attempts int64) Run {
	s := Span{Key: 1, From: at(from).UnixNano(), End: end, Seen: Seen{attempts, at(due).UnixMilli(), TextHash("a")}}
	if till > 0 {
		s.Till = at(till).UnixNano()
	}
	return Run{By: by, Span: s}
}

// with changes what a run was handed.
func (r Run) with(attribute string) Run { r.Span.Seen.Attribute = TextHash(attribute); return r }

// stands is a row in the end.
func stands(status task.Status, due float64, attempts int64) Row {
	return Row{Seen: Seen{attempts, at(due).UnixMilli(), TextHash("a")}, Status: status, There: true}
}

func (r Row) with(attribute string) Row { r.Seen.Attribute = TextHash(attribute); return r }

// asks is a change, answered 0.1 s after it was sent.
func asks(kind string, hand bool, sent float64, done Answer, set Effect) *Change {
	return &Change{Kind: kind, Hand: hand, Sent: at(sent), Answered: at(sent + .1), Done: done, Set: set}
}

func cancels(hand bool, sent float64, done Answer) *Change {
	return asks(Cancelled, hand, sent, done, Effect{Status: new(task.Cancelled)})
}

func moves(hand bool, sent float64, done Answer, to float64) *Change {
	return asks(Rescheduled, hand, sent, done, Effect{Low: at(to), High: at(to)})
}

func edits(sent float64, text string) *Change {
	return asks(Edited, true, sent, Made, Effect{Attribute: TextHash(text), HasAttribute: true})
}

func lowers(sent float64) *Change { return asks(Lowered, true, sent, Made, Effect{Attempts: new(int)}) }

func redrives(sent float64) *Change {
	c := asks(Redriven, false, sent, Made, Effect{Status: new(task.Pending), Attempts: new(int), Low: at(sent), High: at(sent + .1)})
	c.From = task.Dead
	return c
}

func locks(sent, till float64) *Change {
	return &Change{Kind: Locked, Hand: true, Sent: at(sent), Answered: at(till)}
}

// tagged makes a change one that names a tag, which was read then.
func tagged(c *Change, read float64) *Change { c.Asked, c.Read = at(read-.1), at(read); return c }

// mismatched makes a change one whose tag was refused.
func mismatched(c *Change, read float64) *Change { c.Mismatch = true; return tagged(c, read) }

// failures are the runs of a task that is due and fails n times, a second each; the last one ends at the n-th second after.
func failures(due float64, n int) (runs []Run) {
	for i := range n {
		runs = append(runs, ran(onlyOfTwo, EndFailed, due, due, due+.1, int64(i)))
		low, _ := pauses(madeUp.Backoff, int64(i+1))
		due += .1 + low.Seconds() + .01
	}
	return runs
}

const (
	lost  = "tasks were lost"
	order = Unlinearizable
	late  = "tasks were late, and no fault explains it"
)

// What each rule must see, and what it must not.
func TestRules(t *testing.T) {
	t.Parallel()
	ok, fail := uint64(EndOK), uint64(EndFailed)
	dying := failures(10, madeUpRuns)
	lastDue := float64(dying[madeUp.MaxRetries].Span.Seen.Action-at(0).UnixMilli()) / 1000
	ended := func(by *Process, from float64) Run { return ran(by, 0, 10, from, 0, 0) }
	for name, c := range map[string]struct {
		due     float64
		changes []*Change
		runs    []Run
		row     Row
		want    []string
	}{
		"fired":                    {10, nil, []Run{ran(firstOfOne, ok, 10, 10, 10.1, 0)}, stands(task.Processed, 10, 0), nil},
		"never ran":                {10, nil, nil, stands(task.Pending, 10, 0), []string{lost}},
		"gone":                     {10, nil, []Run{ran(firstOfOne, ok, 10, 10, 10.1, 0)}, Row{}, []string{lost}},
		"processed, but never ran": {10, nil, nil, stands(task.Processed, 10, 0), []string{order}},
		"ran, but not recorded":    {10, nil, []Run{ran(firstOfOne, ok, 10, 10, 10.1, 0)}, stands(task.Pending, 10, 0), []string{lost, order}},
		"processed, but failed":    {10, nil, failures(10, 1), stands(task.Processed, 10, 1), []string{order}},
		"early":                    {10, nil, []Run{ran(firstOfOne, ok, 10, 9.999, 10.1, 0)}, stands(task.Processed, 10, 0), []string{order}},
		"with a time of its own":   {10, nil, []Run{ran(firstOfOne, ok, 9, 9, 9.1, 0)}, stands(task.Processed, 10, 0), []string{order}},
		"late":                     {70, nil, []Run{ran(onlyOfTwo, ok, 70, 81, 81.1, 0)}, stands(task.Processed, 70, 0), []string{late}},
		"late by a fault":          {45, nil, []Run{ran(onlyOfTwo, ok, 45, 61, 61.1, 0)}, stands(task.Processed, 45, 0), nil},

		"cancelled":                   {10, []*Change{cancels(false, 9, Made)}, nil, stands(task.Cancelled, 10, 0), nil},
		"cancelled, but ran":          {10, []*Change{cancels(false, 9, Made)}, []Run{ran(firstOfOne, ok, 10, 10, 10.1, 0)}, stands(task.Cancelled, 10, 0), []string{order}},
		"cancelled while it ran":      {9, []*Change{cancels(false, 9.1, Made)}, []Run{ran(firstOfOne, ok, 9, 9, 9.5, 0)}, stands(task.Cancelled, 9, 0), []string{order}},
		"cancelled after it ran":      {8, []*Change{cancels(false, 12, Made)}, []Run{ran(firstOfOne, ok, 8, 8, 8.1, 0)}, stands(task.Cancelled, 8, 0), []string{order}},
		"cancel undone":               {10, []*Change{cancels(false, 9, Made)}, nil, stands(task.Pending, 10, 0), []string{lost, order}},
		"perhaps cancelled, and lost": {10, []*Change{cancels(false, 9, Unknown)}, nil, stands(task.Pending, 10, 0), []string{lost}},
		"perhaps cancelled, and was":  {10, []*Change{cancels(false, 9, Unknown)}, nil, stands(task.Cancelled, 10, 0), nil},
		"a cancel refused":            {10, []*Change{cancels(false, 9, Refused)}, nil, stands(task.Cancelled, 10, 0), []string{order}},
		"cancelled by hand":           {10, []*Change{cancels(true, 8, Made)}, nil, stands(task.Cancelled, 10, 0), nil},
		"cancelled by hand, too late": {10, []*Change{cancels(true, 9.8, Made)}, []Run{ran(firstOfOne, ok, 10, 10, 10.1, 0)}, stands(task.Cancelled, 10, 0), nil},
		"cancelled by hand, but ran":  {10, []*Change{cancels(true, 8, Made)}, []Run{ran(firstOfOne, ok, 10, 10, 10.1, 0)}, stands(task.Cancelled, 10, 0), []string{order}},
		"cancelled by hand, overwritten": {10, []*Change{cancels(true, 10.05, Made)}, []Run{ran(firstOfOne, fail, 10, 10, 11, 0), ran(firstOfOne, ok, 11.1, 11.9, 12, 1)},
			stands(task.Processed, 11.1, 1), []string{order}},

		"moved":                       {10, []*Change{moves(false, 9, Made, 12)}, []Run{ran(firstOfOne, ok, 12, 12, 12.1, 0)}, stands(task.Processed, 12, 0), nil},
		"moved, but ran before":       {10, []*Change{moves(false, 9, Made, 12)}, []Run{ran(firstOfOne, ok, 10, 10, 10.1, 0)}, stands(task.Processed, 12, 0), []string{order}},
		"perhaps moved":               {10, []*Change{moves(false, 9, Unknown, 12)}, []Run{ran(firstOfOne, ok, 10, 10, 10.1, 0)}, stands(task.Processed, 10, 0), nil},
		"a move refused":              {10, []*Change{moves(false, 9, Refused, 12)}, []Run{ran(firstOfOne, ok, 12, 12, 12.1, 0)}, stands(task.Processed, 12, 0), []string{order}},
		"moved by hand while it runs": {10, []*Change{moves(true, 10.5, Made, 15)}, []Run{ran(firstOfOne, fail, 10, 10, 11, 0), ran(firstOfOne, ok, 15, 15, 15.1, 1)}, stands(task.Processed, 15, 1), nil},
		"moved by hand, and overwritten by a failed run": {10, []*Change{moves(true, 10.5, Made, 15)},
			[]Run{ran(firstOfOne, fail, 10, 10, 11, 0), ran(firstOfOne, ok, 11.1, 11.1, 11.2, 1)}, stands(task.Processed, 11.1, 1), []string{order}},
		"moved by hand before, and overwritten": {10, []*Change{moves(true, 5, Made, 15)},
			[]Run{ran(firstOfOne, ok, 10, 10, 10.1, 0)}, stands(task.Processed, 10, 0), []string{order}},
		"edited":            {10, []*Change{edits(8, "b")}, []Run{ran(firstOfOne, ok, 10, 10, 10.1, 0).with("b")}, stands(task.Processed, 10, 0).with("b"), nil},
		"an edit undone":    {10, []*Change{edits(8, "b")}, []Run{ran(firstOfOne, ok, 10, 10, 10.1, 0)}, stands(task.Processed, 10, 0), []string{order}},
		"an edit forgotten": {10, []*Change{edits(8, "b")}, []Run{ran(firstOfOne, ok, 10, 10, 10.1, 0).with("b")}, stands(task.Processed, 10, 0), []string{order}},

		"failed once":            {10, nil, []Run{ran(firstOfOne, fail, 10, 10, 10.1, 0), ran(firstOfOne, ok, 10.2, 10.2, 10.3, 1)}, stands(task.Processed, 10.2, 1), nil},
		"too soon after failing": {10, nil, []Run{ran(firstOfOne, fail, 10, 10, 10.1, 0), ran(firstOfOne, ok, 10.15, 10.15, 10.3, 1)}, stands(task.Processed, 10.15, 1), []string{order}},
		"a failed run forgotten": {10, nil, []Run{ran(firstOfOne, fail, 10, 10, 10.1, 0), ran(firstOfOne, ok, 10.2, 10.2, 10.3, 0)}, stands(task.Processed, 10.2, 0), []string{order}},
		"an attempt too many":    {10, nil, []Run{ran(firstOfOne, ok, 10, 10, 10.1, 1)}, stands(task.Processed, 10, 1), []string{order}},
		"a cut that is counted": {10, nil, []Run{ended(firstOfOne, 19.9), ran(onlyOfTwo, ok, 10, 23, 23.1, 1)}, stands(task.Processed, 10, 1),
			[]string{order}},
		"lowered by hand":              {10, []*Change{lowers(12)}, append(failures(10, 2), ran(onlyOfTwo, ok, 10.41, 13.5, 13.6, 0)), stands(task.Processed, 10.41, 0), []string{order}},
		"lowered by hand, and ignored": {10, []*Change{lowers(15)}, append(failures(10, 1), ran(onlyOfTwo, ok, 10.21, 20, 20.1, 1)), stands(task.Processed, 10.21, 1), []string{order}},

		"dead":                         {10, nil, dying, stands(task.Dead, lastDue, madeUpRuns), nil},
		"dead too soon":                {10, nil, failures(10, 2), stands(task.Dead, 10.21, 2), []string{order}},
		"dead without a run":           {10, nil, nil, stands(task.Dead, 10, 0), []string{order}},
		"dead by its cuts":             {10, nil, []Run{ended(firstOfOne, 19.9), ended(firstOfOne, 19.9), ended(firstOfOne, 19.9)}, stands(task.Dead, 10, 0), nil},
		"dead by two and a suspicion":  {19, nil, []Run{ran(thirdOfOne, 0, 19, 24.9, 0, 0), ran(fourthOfOne, 0, 19, 29.9, 0, 0)}, stands(task.Dead, 19, 0), nil},
		"dead by two and one unseen":   {10, nil, []Run{ended(firstOfOne, 19.9), ran(thirdOfOne, 0, 10, 24.9, 0, 0)}, stands(task.Dead, 10, 0), nil},
		"dead by two without one":      {24, nil, []Run{ran(thirdOfOne, 0, 24, 24.9, 0, 0), ran(fourthOfOne, 0, 24, 29.9, 0, 0)}, stands(task.Dead, 24, 0), []string{order}},
		"dead by two after a cut":      {155, nil, []Run{ran(firstOfThree, 0, 155, 160.1, 0, 0), ran(secondOfThree, 0, 155, 169.9, 0, 0)}, stands(task.Dead, 155, 0), nil},
		"dead by two, due after a cut": {163, nil, []Run{ran(firstOfThree, 0, 163, 163.1, 0, 0), ran(secondOfThree, 0, 163, 169.9, 0, 0)}, stands(task.Dead, 163, 0), []string{order}},
		"dead by one and two ends":     {19, nil, []Run{ran(fourthOfOne, 0, 19, 29.9, 0, 0)}, stands(task.Dead, 19, 0), nil},
		"dead by one and an end":       {24, nil, []Run{ran(fourthOfOne, 0, 24, 29.9, 0, 0)}, stands(task.Dead, 24, 0), []string{order}},
		"dead by ends alone":           {19, nil, nil, stands(task.Dead, 19, 0), nil},
		"dead by two ends alone":       {24, nil, nil, stands(task.Dead, 24, 0), []string{order}},
		"dead by too few of them":      {10, nil, []Run{ended(firstOfOne, 19.9)}, stands(task.Dead, 10, 0), []string{order}},
		"redriven": {10, []*Change{redrives(30)}, append(slices.Clone(dying), ran(onlyOfTwo, ok, 30.05, 30.05, 30.2, 0)),
			stands(task.Processed, 30.05, 0), nil},
		"a redrive forgotten":      {10, []*Change{redrives(30)}, dying, stands(task.Dead, lastDue, madeUpRuns), []string{order}},
		"redriven without a death": {10, []*Change{redrives(30)}, []Run{ran(onlyOfTwo, ok, 10, 10, 10.1, 0)}, stands(task.Processed, 30.05, 0), []string{order}},
		"ran though dead":          {10, nil, append(slices.Clone(dying), ran(onlyOfTwo, ok, lastDue, 30, 30.1, madeUpRuns)), stands(task.Processed, lastDue, madeUpRuns), []string{order}},

		"twice by a kill":          {19, nil, []Run{ran(firstOfOne, 0, 19, 19.9, 0, 0), ran(onlyOfTwo, ok, 19, 23, 23.1, 0)}, stands(task.Processed, 19, 0), nil},
		"unrecorded by a kill":     {19, nil, []Run{ran(firstOfOne, ok, 19, 19.3, 19.4, 0), ran(onlyOfTwo, ok, 19, 23, 23.1, 0)}, stands(task.Processed, 19, 0), nil},
		"twice long before a kill": {10, nil, []Run{ran(firstOfOne, ok, 10, 10, 10.1, 0), ran(onlyOfTwo, ok, 10, 11, 11.1, 0)}, stands(task.Processed, 10, 0), []string{order}},
		"twice after a kill":       {23, nil, []Run{ran(secondOfOne, ok, 23, 24, 24.1, 0), ran(onlyOfTwo, ok, 23, 24.2, 24.3, 0)}, stands(task.Processed, 23, 0), []string{order}},
		"twice by another's kill":  {19, nil, []Run{ran(onlyOfTwo, ok, 19, 19.9, 20.1, 0), ran(secondOfOne, ok, 19, 23, 23.1, 0)}, stands(task.Processed, 19, 0), []string{order}},
		"twice by a restart":       {40, nil, []Run{ran(onlyOfTwo, ok, 40, 40.1, 40.2, 0), ran(secondOfOne, ok, 40, 41, 41.1, 0)}, stands(task.Processed, 40, 0), []string{order}},
		"twice by a cut":           {51, nil, []Run{ran(onlyOfTwo, ok, 51, 51, 51.1, 0), ran(secondOfOne, ok, 51, 54, 54.1, 0)}, stands(task.Processed, 51, 0), nil},
		"three times by a cut": {51, nil, []Run{ran(onlyOfTwo, ok, 51, 51, 51.1, 0), ran(secondOfOne, ok, 51, 54, 54.1, 0), ran(secondOfOne, ok, 51, 55, 55.1, 0)},
			stands(task.Processed, 51, 0), []string{order}},
		"at the same time": {30, nil, []Run{ran(onlyOfTwo, fail, 30, 30, 31, 0), ran(secondOfOne, ok, 30, 30.5, 30.6, 0)}, stands(task.Processed, 30, 0), []string{order}},

		"by a tag":                   {10, []*Change{tagged(moves(false, 5, Made, 12), 4)}, []Run{ran(firstOfOne, ok, 12, 12, 12.1, 0)}, stands(task.Processed, 12, 0), nil},
		"by a tag of before":         {10, []*Change{moves(true, 4.5, Made, 11), tagged(moves(false, 5, Made, 12), 4)}, []Run{ran(firstOfOne, ok, 12, 12, 12.1, 0)}, stands(task.Processed, 12, 0), []string{order}},
		"a tag of before, refused":   {10, []*Change{moves(true, 4.5, Made, 11), mismatched(moves(false, 5, Refused, 12), 4)}, []Run{ran(firstOfOne, ok, 11, 11, 11.1, 0)}, stands(task.Processed, 11, 0), nil},
		"a tag that held, refused":   {10, []*Change{moves(true, 3, Made, 11), mismatched(moves(false, 5, Refused, 12), 4)}, []Run{ran(firstOfOne, ok, 11, 11, 11.1, 0)}, stands(task.Processed, 11, 0), []string{order}},
		"a tag refused after a run":  {10, []*Change{mismatched(moves(false, 10.3, Refused, 12), 10.05)}, []Run{ran(firstOfOne, ok, 10, 10, 10.1, 0)}, stands(task.Processed, 10, 0), nil},
		"a tag refused during a run": {10, []*Change{mismatched(moves(false, 10.3, Refused, 12), 10.1)}, []Run{ran(firstOfOne, ok, 10, 10, 10.5, 0)}, stands(task.Processed, 10, 0), []string{order}},
		"a locked row":               {10, []*Change{locks(9, 18)}, []Run{ran(firstOfOne, ok, 10, 10, 10.1, 0)}, stands(task.Processed, 10, 0), nil},
		"cancelled, unlocked":        {10, []*Change{locks(9, 14), cancels(true, 14.2, Made)}, []Run{ran(onlyOfTwo, ok, 10, 10, 10.1, 0)}, stands(task.Cancelled, 10, 0), nil},
	} {
		t.Run(name, func(t *testing.T) {
			v := Judge(Evidence{Center: madeUpCenter(), Faults: madeUpFaults, Runs: map[uint64][]Run{1: c.runs}, Rows: map[uint64]Row{1: c.row},
				Histories: []*History{{JobID: 1, BizType: madeUp.Name, Attribute: "a", Changes: c.changes, Known: at(1),
					Submits: []SubmitTry{{Sent: at(0), Answered: at(1), Due: at(c.due)}}}}})
			found := []string{}
			for _, r := range rules {
				if len(v.Broken[r.broken]) > 0 {
					found = append(found, r.broken)
				}
			}
			require.ElementsMatch(t, append([]string{}, c.want...), found, "%v", v.Broken)
		})
	}
}

// A poison may end as many processes as cuts are allowed, and not one more.
func TestPoisonRule(t *testing.T) {
	t.Parallel()
	v := &Verdict{Evidence: Evidence{Center: madeUpCenter()}}
	s := &story{History: &History{BizType: madeUp.Name, Poison: true}}
	for range madeUp.Cuts {
		s.runs = append(s.runs, ran(firstOfOne, 0, 10, 10, 0, 0))
	}
	require.Empty(t, v.askPoison(s))
	s.runs = append(s.runs, ran(firstOfOne, 0, 10, 10, 0, 0))
	require.NotEmpty(t, v.askPoison(s))
	v.Operations = []Operation{{Kind: "discard"}}
	require.NotEmpty(t, v.askPoison(s), "a discard gives no chance")
	v.Operations = []Operation{{Kind: "redrive"}}
	require.Empty(t, v.askPoison(s), "a redrive does")
	v.Operations = nil
	s.runs = append(s.runs, ran(firstOfOne, EndOK, 10, 10, 10.1, 0))
	require.Empty(t, v.askPoison(s), "so does a run that ends")
}

func TestTenures(t *testing.T) {
	t.Parallel()
	a, b := &Process{}, &Process{}
	tenureOf := func(by *Process, from, till float64) Tenure {
		return Tenure{By: by, From: at(from).UnixNano(), Till: at(till).UnixNano(), Ended: true}
	}
	for name, c := range map[string]struct {
		list      []Tenure
		conflicts int
		gap       time.Duration
	}{
		"one after the other":  {[]Tenure{tenureOf(a, 1, 2), tenureOf(b, 2.5, 3)}, 0, 500 * time.Millisecond},
		"at one instant":       {[]Tenure{tenureOf(a, 1, 2), tenureOf(b, 2, 3)}, 1, 0},
		"one within the other": {[]Tenure{tenureOf(a, 1, 9), tenureOf(b, 2, 3), tenureOf(b, 4, 5)}, 2, 0},
		"the same again":       {[]Tenure{tenureOf(a, 1, 2), tenureOf(a, 4, 5)}, 0, 2 * time.Second},
		"not asked for":        {[]Tenure{{By: a, From: at(1).UnixNano(), Till: at(2).UnixNano()}, tenureOf(a, 4, 5)}, 0, 0},
		"at other times":       {[]Tenure{tenureOf(a, 20, 21), tenureOf(b, 25, 26)}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			all := Tenures{nil, c.list}
			require.Len(t, all.Conflicts(), c.conflicts)
			require.Equal(t, c.gap, all.Gap(at(0).UnixNano(), at(10).UnixNano()))
		})
	}
}
