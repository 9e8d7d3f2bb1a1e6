package console

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/store"
)

var noon = time.Date(2026, 1, 2, 12, 0, 30, 0, time.UTC)

func minuteAt(ago time.Duration, runs int, late ...api.LateCount) api.PulseMinute {
	return api.PulseMinute{At: api.Time(noon.Truncate(time.Minute).Add(-ago)), Runs: runs, Submitted: 2 * runs, Late: late}
}

func picturedAt(types []api.BizType, nodes ...NodePulse) *picture {
	p := summarize(nodes, types)
	p.At = noon
	return p
}

func node(name string, p api.Pulse) NodePulse { return NodePulse{Name: name, Pulse: p} }

// The sentence at the top is about all nodes.
func TestVerdict(t *testing.T) {
	onTime := node("n1", api.Pulse{Minutes: []api.PulseMinute{minuteAt(time.Minute, 200, api.LateCount{Under: .002, Runs: 199}, api.LateCount{Under: .01, Runs: 1})}})
	slow := node("n2", api.Pulse{Minutes: []api.PulseMinute{minuteAt(2*time.Minute, 50, api.LateCount{Under: 3, Runs: 50})}})
	overdue := func(seconds float64) NodePulse {
		return node("n3", api.Pulse{Overdue: 1200, BizTypes: []api.PulseType{{Name: "order_close", Overdue: 1200, Oldest: seconds}}})
	}
	failingAt := func(ago time.Duration, n int) NodePulse {
		m := minuteAt(ago, 40, api.LateCount{Under: .002, Runs: 40})
		m.Failed = n
		return node("n5", api.Pulse{Minutes: []api.PulseMinute{m}})
	}
	failing := func(n int) NodePulse { return failingAt(0, n) }
	failed, succeeding := failingAt(3*time.Minute, 31), node("n6", api.Pulse{Minutes: []api.PulseMinute{minuteAt(time.Minute, 60)}})
	retrying := api.BizType{Name: "order_close", Retrying: 340, OldestRetry: 500, LastError: "no answer"}
	longRun := node("n4", api.Pulse{Running: 2, Overdue: 2, BizTypes: []api.PulseType{{Name: "order_close", Running: 2, Overdue: 2, Oldest: 300}}})
	for name, c := range map[string]struct {
		types []api.BizType
		nodes []NodePulse
		mood  string
		says  string
	}{
		"nothing to do":          {nil, []NodePulse{node("n1", api.Pulse{})}, "idle", "nothing is overdue, and nothing was due"},
		"an hour ago":            {nil, []NodePulse{node("n1", api.Pulse{Minutes: []api.PulseMinute{minuteAt(50*time.Minute, 9, api.LateCount{Under: 5, Runs: 9})}})}, "idle", "nothing was due in the last five minutes"},
		"on time":                {nil, []NodePulse{onTime}, "ok", "of the last five minutes' 200 runs, 99 in 100 started within 2 ms of their time"},
		"one node is slow":       {nil, []NodePulse{onTime, slow}, "warn", "of the last five minutes' 250 runs, one in 100 started 2.9 s or more after its time"},
		"few and slow":           {nil, []NodePulse{slow}, "warn", "50 runs, the most late one started 3 s or more"},
		"many runs fail":         {nil, []NodePulse{failing(31)}, "bad", "Runs fail: 31 of the 40 runs that ended in the last five minutes failed."},
		"they failed before":     {nil, []NodePulse{failed, succeeding}, "warn", "Runs succeed again: 31 of the 100 runs that ended in the last five minutes failed."},
		"they failed, now late":  {nil, []NodePulse{failed, succeeding, overdue(75)}, "bad", "for 1 min 15 s. Runs succeed again: 31 of the 100 runs"},
		"they fail still":        {nil, []NodePulse{failed, failing(31)}, "bad", "Runs fail: 62 of the 80 runs"},
		"they failed, are quiet": {nil, []NodePulse{failed}, "bad", "Runs fail: 31 of the 40 runs"},
		"they failed, and wait":  {[]api.BizType{retrying}, []NodePulse{failed, succeeding}, "bad", "Runs fail: 340 tasks wait to run again"},
		"some run again":         {[]api.BizType{{Name: "coupon", Retrying: 1, OldestRetry: 9}}, []NodePulse{failing(3)}, "ok", "on time"},
		"they wait": {[]api.BizType{retrying, {Name: "coupon", Retrying: 1, OldestRetry: 61}}, []NodePulse{failing(3)}, "warn",
			"Runs fail: 341 tasks wait to run again, the oldest one, of order_close, promised 8 min 20 s ago; 3 of the 40 runs that ended in the last five minutes failed."},
		"they wait, quiet":  {[]api.BizType{retrying}, []NodePulse{node("n1", api.Pulse{})}, "warn", "Runs fail: 340 tasks wait to run again"},
		"they wait, late":   {[]api.BizType{retrying}, []NodePulse{overdue(75)}, "bad", "for 1 min 15 s. Runs fail: 340 tasks"},
		"they wait, paused": {[]api.BizType{{Name: "order_close", Retrying: 5, OldestRetry: 500, Paused: &api.Pause{}}}, []NodePulse{onTime}, "ok", "on time"},
		"some runs fail":    {nil, []NodePulse{failing(3)}, "ok", "on time"},
		"overdue":           {nil, []NodePulse{onTime, overdue(75)}, "bad", "1,200 tasks are overdue, the oldest one, of order_close, for 1 min 15 s"},
		"overdue for a bit": {nil, []NodePulse{onTime, overdue(3)}, "ok", "on time"},
		"a long run":        {nil, []NodePulse{onTime, longRun}, "ok", "on time"},
		"overdue, paused":   {[]api.BizType{{Name: "order_close", Paused: &api.Pause{By: "api"}}}, []NodePulse{onTime, overdue(75)}, "ok", "on time"},
		"silent":            {nil, []NodePulse{{Name: "n1", Err: errNoPage}}, "bad", "No node answers"},
	} {
		mood, text := picturedAt(c.types, c.nodes...).verdict()
		require.Equal(t, c.mood, mood, "%s: %s", name, text)
		require.Contains(t, text, c.says, name)
		if strings.Contains(text, "fail") {
			require.NotContains(t, text, "on time", name)
		}
	}
}

// Nodes are added up by the minute and by the type; a fault that several have stands once.
func TestPaint(t *testing.T) {
	p := picturedAt([]api.BizType{{Name: "a", Retrying: 2, OldestRetry: 75, LastError: "no answer"}, {Name: "b", Paused: &api.Pause{}}},
		node("n1", api.Pulse{Degraded: []string{"redis is away", "x"}, Waiting: 1, Running: 2, Overdue: 3, Minutes: []api.PulseMinute{minuteAt(0, 5)},
			BizTypes: []api.PulseType{{Name: "a", Overdue: 1, Oldest: 9}, {Name: "b", Overdue: 2, Oldest: 99, Running: 2}}}),
		node("n2", api.Pulse{Degraded: []string{"redis is away"}, Waiting: 10, Minutes: []api.PulseMinute{minuteAt(0, 7), minuteAt(time.Minute, 1)}, BizTypes: []api.PulseType{{Name: "a", Overdue: 4, Oldest: 5}}}),
		NodePulse{Name: "n3", Err: errNoPage})
	require.Equal(t, []faultLine{{"redis is away", []string{"n1", "n2"}, ""}, {"x", []string{"n1"}, ""},
		{"does not answer: there is no such page", []string{"n3"}, ""},
		{"Runs of a fail: 2 tasks wait to run again, the oldest one promised 1 min 15 s ago. The last error: no answer", nil, "a"}}, p.Faults)
	require.Equal(t, []int{11, 2, 3, 1}, []int{p.Waiting, p.Running, p.Overdue, p.Silent})
	require.Equal(t, "a", p.Types[0].Name)
	require.Equal(t, 5, p.Types[0].Overdue)
	require.NotNil(t, p.Types[1].Paused)
	require.InDelta(t, 9, p.Oldest, 0, "the oldest that is not paused")
	hour := p.hour()
	require.Len(t, hour, 60)
	require.Equal(t, []int{1, 12}, []int{hour[58].Runs, hour[59].Runs})
	require.Equal(t, 24, hour[59].Submitted)
}

func TestQuantile(t *testing.T) {
	require.True(t, math.IsNaN(lateness{}.quantile(.5)))
	l := lateness{.001: 90, .002: 9, 3600: 1}
	require.LessOrEqual(t, l.quantile(.5), .001)
	require.LessOrEqual(t, l.quantile(.99), .002)
	require.Greater(t, l.quantile(.999), 2000.)
	require.InDelta(t, 1, lateness{1: 1, math.Inf(1): 9}.quantile(.99), .001, "no more is known than the last bound")
}

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0 s", 400 * time.Microsecond: "0.4 ms", 4400 * time.Microsecond: "4.4 ms", 40 * time.Millisecond: "40 ms", 999 * time.Millisecond: "999 ms", 999900 * time.Microsecond: "1 s",
		1500 * time.Millisecond: "1.5 s", 40 * time.Second: "40 s", 75 * time.Second: "1 min 15 s", time.Hour: "1 h", 200 * time.Minute: "3 h 20 min", 50 * time.Hour: "2 d 2 h", -time.Second: "-1 s",
	} {
		require.Equal(t, want, span(d), d)
	}
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 12403: "12,403", 1234567: "1,234,567", -1234: "-1,234"} {
		require.Equal(t, want, num(n))
	}
}

// Changes of owners are told in ranges; the first look is none.
func TestOwners(t *testing.T) {
	o := newOwners()
	cluster := func(n1, n2 []int) api.Cluster {
		return api.Cluster{Partitions: 8, Nodes: []api.Node{{Name: "n1", Partitions: n1}, {Name: "n2", Partitions: n2}}}
	}
	o.note(noon, cluster([]int{0, 1, 2, 3, 4, 5, 6, 7}, nil))
	o.note(noon, cluster([]int{0, 1, 2, 3, 4, 5, 6, 7}, nil))
	require.Empty(t, o.list())
	o.note(noon, cluster([]int{0, 1, 2}, []int{3, 5, 6}))
	require.Equal(t, []ownerChange{{noon, "n1", "", 2, "4, 7"}, {noon, "n1", "n2", 3, "3, 5–6"}}, o.list())
	for i := range 100 {
		o.note(noon, cluster([]int{i % 2}, nil))
	}
	require.Len(t, o.list(), changesMost)
}

// The cells of a map cover its partitions once, row by row.
func TestCells(t *testing.T) {
	require.Equal(t, "M0 0h4v1h-4zM0 1h2v1h-2z", cells([]int{0, 1, 2, 3, 4, 5}, 4))
	require.Equal(t, "M3 0h1v1h-1zM0 2h1v1h-1z", cells([]int{3, 8}, 4))
	var odd []int
	for i := 0; i < 8192; i += 2 {
		odd = append(odd, i)
	}
	require.Less(t, len(cells(odd, 128)), 90<<10, "the most scattered map")
	require.Equal(t, rangesMost+1, strings.Count(ranges(odd), ",")+1)
}

// A chart says in words and in a table what it draws.
func TestCharts(t *testing.T) {
	p := picturedAt(nil, node("n1", api.Pulse{Minutes: []api.PulseMinute{minuteAt(time.Minute, 300, api.LateCount{Under: .005, Runs: 300}), minuteAt(0, 2, api.LateCount{Under: 30, Runs: 2})}}))
	late := lateChart(p.hour())
	require.Equal(t, []string{"100 s", "10 s", "1 s", "100 ms", "10 ms", "1 ms"}, strings.Split(strings.ReplaceAll(strings.Join(late.Ticks, "|"), "1 min 40 s", "100 s"), "|"))
	require.Contains(t, late.Words, "half of 302 runs started within")
	require.Contains(t, late.Words, "The worst minute was 12:00, with 30 s.")
	require.Len(t, late.Rows, 2)
	require.Len(t, late.Lines, 2)
	require.Len(t, late.Columns, 2)
	work := workChart(p.hour())
	require.Contains(t, work.Words, "302 runs ended, 0 of them failed, and 604 submits came in. The busiest minute was 11:59, with 300 runs.")
	require.Equal(t, []string{"600", "300", "0"}, work.Ticks)
	require.Len(t, work.Bars, 2)
	require.Contains(t, lateChart(picturedAt(nil).hour()).Words, "No run has started")
}

// A server is as the node that finds it worst says, and that node is named.
func TestServers(t *testing.T) {
	up, down := true, false
	since := api.Time(noon)
	p := picturedAt(nil,
		node("n1", api.Pulse{Databases: []api.PulseServer{{Up: true}, {Up: true, Answer: .7}, {Up: true}}, Redis: &up}),
		node("n2", api.Pulse{Databases: []api.PulseServer{{Up: true}, {Up: true}, {Fault: "is out of reach: no route", Since: since}}, Redis: &down}))
	p.Nodes[0].Name, p.Nodes[1].Name = "n1", "n2"
	require.Equal(t, []serverRow{
		{Name: "database 0", Mood: "ok", State: "answers"},
		{Name: "database 1", Mood: "warn", State: "slow: an answer takes 700 ms"},
		{Name: "database 2", Mood: "bad", State: "fails", Faults: []string{"n2: is out of reach: no route, since 2026-01-02T12:00:30.000Z"}},
		{Name: "Redis", Mood: "bad", State: "fails", Faults: []string{"n2: does not answer for all that it needs"}},
		{Name: "Consul", State: "not used"},
	}, servers(p))
}

func TestPercent(t *testing.T) {
	for _, c := range []struct {
		o    api.Operation
		want int
	}{
		{api.Operation{State: store.OperationRunning, Matched: 6361, Done: 4187, Skipped: 1}, 65},
		{api.Operation{State: store.OperationRunning, Matched: 6361, Done: 40, Filter: api.OperationFilter{Limit: 50}}, 80},
		{api.Operation{State: store.OperationRunning}, 0},
		{api.Operation{State: store.OperationStopped, Matched: 10, Done: 4}, 40},
		{api.Operation{State: store.OperationDone, Matched: 6361, Done: 4187}, 100},
		{api.Operation{State: store.OperationDone}, 100},
	} {
		require.Equal(t, c.want, percent(c.o), "%+v", c.o)
	}
}
