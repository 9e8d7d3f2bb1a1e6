package audit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/task"
)

// leased is a lease of a task, the n-th, for five seconds.
func leased(n int, given float64, settles ...Settle) *Hold {
	h := &Hold{Attempt: n, Given: at(given), Expires: at(given + 5), Asked: at(given), Got: at(given), Attribute: "a"}
	h.first = h.Expires
	for _, one := range settles {
		if one.Do == client.Extend && one.Result == client.SettledOK {
			h.Expires = one.Sent.Add(time.Duration(one.TTR))
		}
	}
	h.Settles = settles
	return h
}

// settles is a settlement at a time, with its result.
func settles(do string, sent float64, result string) Settle {
	s := Settle{Sent: at(sent), Answered: at(sent), Result: result}
	s.Do = api.Do(do)
	if do == client.Extend {
		s.TTR = api.Duration(5 * time.Second)
	}
	return s
}

// What the rules say of leases.
func TestLeaseRules(t *testing.T) {
	t.Parallel()
	const ok = client.SettledOK
	const crowded = "times more leases were out than max_in_flight"
	kills := func(sent float64) *Change { return asks(Stopped, true, sent, Made, Effect{Status: new(task.Dead)}) }
	once := configs.BizType{Name: "pulled", Processor: configs.ProcessorPull, Cuts: 3, Backoff: configs.Backoff{Min: time.Second, Max: time.Second}, Pull: configs.Pull{MaxInFlight: 1}}
	for name, c := range map[string]struct {
		retries int
		changes []*Change
		holds   []*Hold
		row     Row
		want    []string
	}{
		"acknowledged":             {0, nil, []*Hold{leased(1, 10, settles(client.Ack, 11, ok))}, stands(task.Processed, 10, 0), nil},
		"processed, but only held": {0, nil, []*Hold{leased(1, 10, settles(client.Ack, 11, client.SettledLost))}, stands(task.Processed, 10, 0), []string{order}},
		"given early":              {0, nil, []*Hold{leased(1, 9, settles(client.Ack, 11, ok))}, stands(task.Processed, 10, 0), []string{order}},
		"dead by its end":          {0, nil, []*Hold{leased(1, 10)}, stands(task.Dead, 10, 1), nil},
		"handed out twice":         {1, nil, []*Hold{leased(1, 10), leased(2, 12, settles(client.Ack, 13, ok))}, stands(task.Processed, 10, 0), []string{order, crowded}},
		"given back":               {1, nil, []*Hold{leased(1, 10, settles(client.Release, 11, ok)), leased(1, 11, settles(client.Ack, 12, ok))}, stands(task.Processed, 10, 0), nil},
		"too soon after a nack":    {1, nil, []*Hold{leased(1, 10, settles(client.Nack, 11, ok)), leased(2, 11.5, settles(client.Ack, 12, ok))}, stands(task.Processed, 10, 1), []string{order}},
		"nobody was given it":      {0, nil, nil, stands(task.Dead, 10, 1), []string{order}},
		"moved, and dead of it":    {0, []*Change{moves(true, 11, Made, 30)}, []*Hold{leased(1, 10)}, stands(task.Dead, 30, 1), []string{order}},
		"moved, and left alone":    {0, []*Change{moves(true, 11, Made, 30)}, []*Hold{leased(1, 10), leased(1, 30, settles(client.Ack, 31, ok))}, stands(task.Processed, 30, 0), nil},
		"moved, and extended": {0, []*Change{moves(true, 11, Made, 30)}, []*Hold{leased(1, 10, settles(client.Extend, 12, ok), settles(client.Ack, 13, ok))},
			stands(task.Processed, 30, 0), []string{order}},
		"killed, redriven, and dead again": {0, []*Change{kills(11), redrives(12)}, []*Hold{leased(1, 10)}, stands(task.Dead, 12.05, 1), []string{order}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := once
			b.MaxRetries = c.retries
			center := madeUpCenter()
			center.Types = Types([]configs.BizType{b})
			l := &Leases{tasks: map[uint64]*leasedTask{1: {holds: c.holds}}}
			v := Judge(Evidence{Center: center, Leases: l, Rows: map[uint64]Row{1: c.row}, Histories: []*History{{JobID: 1, BizType: b.Name, Attribute: "a",
				Changes: c.changes, Known: at(1), Submits: []SubmitTry{{Sent: at(0), Answered: at(1), Due: at(10)}}}}})
			found := []string{}
			for rule := range v.Broken {
				found = append(found, rule)
			}
			require.ElementsMatch(t, append([]string{}, c.want...), found, "%v", v.Broken)
		})
	}
}

// Only a task that has a later one is coalesced: later is what was promised for later.
func TestCoalesceRule(t *testing.T) {
	t.Parallel()
	b := configs.BizType{Name: "c", Coalesce: configs.CoalesceBizID, Cuts: 3, Backoff: madeUp.Backoff}
	row := stands(task.Cancelled, 10, 0)
	row.Error, row.Modified = "coalesced", at(12)
	for name, c := range map[string]struct {
		other float64
		want  int
	}{"by a later one": {11, 0}, "by an earlier one": {9, 1}, "by one that was not due yet": {13, 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			center := madeUpCenter()
			center.Types = Types([]configs.BizType{b})
			history := func(id uint64, due float64) *History {
				return &History{JobID: id, BizType: "c", BizID: 7, Attribute: "a", Known: at(1), Submits: []SubmitTry{{Sent: at(0), Answered: at(1), Due: at(due)}}}
			}
			v := Judge(Evidence{Center: center, Histories: []*History{history(1, 10), history(2, c.other)},
				Runs: map[uint64][]Run{2: {ran(onlyOfTwo, EndOK, c.other, c.other, c.other+.1, 0)}},
				Rows: map[uint64]Row{1: row, 2: stands(task.Processed, c.other, 0)}})
			require.Len(t, v.Broken["the newest tasks were coalesced"], c.want)
			require.Len(t, v.Broken, c.want, "%v", v.Broken)
		})
	}
}

// A lease whose answer was slow ends when its node says so, though a clock was wrong before.
func TestMaxInFlightRule(t *testing.T) {
	t.Parallel()
	b := configs.BizType{Name: "pulled", Processor: configs.ProcessorPull, Cuts: 3, MaxRetries: 3, Backoff: madeUp.Backoff, Pull: configs.Pull{MaxInFlight: 1}}
	for name, c := range map[string]struct {
		next float64 // when another task is leased
		want int
	}{"before its end": {14, 1}, "after its end": {16, 0}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := Evidence{Center: madeUpCenter(), Rows: map[uint64]Row{},
				Faults: []*Fault{{Kind: "clock is wrong", Skew: time.Second, Nodes: []string{"two"}, Begin: at(2), End: at(3), Whole: at(4)}}}
			e.Types = Types([]configs.BizType{b})
			slow, next := leased(1, 10), leased(1, c.next, settles(client.Ack, c.next+1, client.SettledOK))
			slow.Got = at(13)
			e.Leases = &Leases{tasks: map[uint64]*leasedTask{1: {holds: []*Hold{slow}}, 2: {holds: []*Hold{next}}}}
			for id := range uint64(3) {
				e.Histories = append(e.Histories, &History{JobID: id, BizType: b.Name, Attribute: "a", Known: at(1),
					Submits: []SubmitTry{{Sent: at(0), Answered: at(1), Due: at(10)}}})
			}
			require.Len(t, Judge(e).Broken["times more leases were out than max_in_flight"], c.want)
		})
	}
}

// What is promised of many tasks at once.
func TestLimitRules(t *testing.T) {
	t.Parallel()
	b := configs.BizType{Name: "limited", MaxRunning: 1, Cuts: 3, Backoff: madeUp.Backoff}
	judge := func(reloads []Reload, operations ...Operation) map[string][]string {
		e := Evidence{Center: madeUpCenter(), Reloads: reloads, Operations: operations, Runs: map[uint64][]Run{}, Rows: map[uint64]Row{}}
		e.Layout = sharding.Layout{Databases: 1, TablesPerDatabase: 1, Partitions: 1}
		e.Types = Types([]configs.BizType{b})
		for id := range uint64(2) {
			due := 10 + float64(id)/2
			e.Histories = append(e.Histories, &History{JobID: id, BizType: b.Name, Attribute: "a", Known: at(1), Submits: []SubmitTry{{Sent: at(0), Answered: at(1), Due: at(due)}}})
			e.Runs[id] = []Run{ran(onlyOfTwo, EndOK, due, due, due+1, 0)}
			e.Rows[id] = stands(task.Processed, due, 0)
		}
		return Judge(e).Broken
	}
	unlimited := b
	unlimited.MaxRunning = 0
	require.Len(t, judge(nil), 1)
	require.Len(t, judge([]Reload{{at(0), []configs.BizType{b}}}), 1)
	require.Empty(t, judge([]Reload{{at(0), []configs.BizType{b}}, {at(3), nil}}), "it has none for a while")
	require.Empty(t, judge([]Reload{{at(0), []configs.BizType{unlimited}}}))
	free := []Reload{{at(0), nil}}
	require.Empty(t, judge(free, Operation{Kind: "redrive", Limit: 2, Done: 2, State: "done", ID: 1}))
	require.Len(t, judge(free, Operation{Kind: "redrive", Limit: 2, Done: 3, State: "done", ID: 1}), 1)
	require.Len(t, judge(free, Operation{Kind: "redrive", State: "running", ID: 1}), 1)
}
