package api_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/api"
)

// answer is what ReadJSON reads.
type answer interface{ ReadJSON(text []byte) error }

// answers returns empty answers of each kind, twice the same.
func answers() [][2]answer {
	return [][2]answer{
		{&api.Task{}, &api.Task{}},
		{&api.LeaseAnswer{}, &api.LeaseAnswer{}},
		{&api.SettleAnswer{}, &api.SettleAnswer{}},
		{&api.BatchAnswer{}, &api.BatchAnswer{}},
	}
}

// written are answers as AppendJSON writes them.
func written() [][]byte {
	t := api.From(full(), "order_close")
	odd := t
	odd.Attribute, odd.LastError, odd.BizID, odd.Status = "a\"b\\c\n\u2028é\x00\xff", "\\u0041/", api.BizID{Key: "é-\"1\""}, "x"
	odd.Timeout, odd.Created, odd.Modified = 0, api.Time{}, api.Time{}
	running := t
	running.Running = &api.Running{Node: "n", Since: t.ActionTime}
	lease := api.LeasedTask{Lease: api.Lease{JobID: 7, Number: 1 << 63}, ExpiresAt: t.ActionTime, Attempt: 2, Task: t}
	traced := lease
	traced.Traceparent, traced.Task = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", odd
	results := []api.Settled{{Lease: "a-b", Result: "ok"}, {Lease: "é", Result: "new"}}
	stored := api.SubmitAnswer{Status: 201, ETag: `"x"`, Task: &odd}
	return [][]byte{
		t.AppendJSON(nil), odd.AppendJSON(nil), running.AppendJSON(nil),
		api.LeaseAnswer{}.AppendJSON(nil),
		api.LeaseAnswer{Tasks: []api.LeasedTask{lease, traced}, Paused: true, Results: results}.AppendJSON(nil),
		api.SettleAnswer{}.AppendJSON(nil), api.SettleAnswer{Results: results}.AppendJSON(nil),
		api.BatchAnswer{Results: []api.BatchResult{{JobID: 7}, {Answer: &stored}}}.AppendJSON(nil),
		api.BatchAnswer{Results: []api.BatchResult{{JobID: 7, Duplicate: true}, {Err: &api.BatchError{Field: "f"}}}}.AppendJSON(nil),
	}
}

// requireSameRead holds ReadJSON against encoding/json.
func requireSameRead(t *testing.T, text []byte) {
	for _, pair := range answers() {
		want := json.NewDecoder(strings.NewReader(string(text))).Decode(pair[1])
		got := pair[0].ReadJSON(text)
		require.Equal(t, want, got, "%s", text)
		if want == nil {
			require.Equal(t, pair[1], pair[0], "%s", text)
		}
	}
}

func TestAnswersAreReadAsByEncodingJSON(t *testing.T) {
	for _, text := range written() {
		requireSameRead(t, text)
		requireSameRead(t, append(text, '\n'))
		for i := range text { // cut off, and with a byte more or less
			requireSameRead(t, text[:i])
			requireSameRead(t, append(append([]byte{}, text[:i]...), text[i+1:]...))
			requireSameRead(t, append(append(append([]byte{}, text[:i]...), ' '), text[i:]...))
		}
	}
}

// Answers in the form of AppendJSON take no decoder: that would make ten allocations a task.
func TestAnswersAreReadWithoutADecoder(t *testing.T) {
	a := api.LeaseAnswer{}
	one := api.LeasedTask{Lease: api.Lease{JobID: 7, Number: 9}, ExpiresAt: api.Time(time.Unix(1, 0)), Attempt: 1}
	one.Task = api.From(full(), "order_close")
	for range 100 {
		a.Tasks = append(a.Tasks, one)
	}
	text := a.AppendJSON(nil)
	require.Less(t, testing.AllocsPerRun(10, func() {
		var read api.LeaseAnswer
		_ = read.ReadJSON(text)
	}), 500.0)
}

// FuzzReadJSON holds ReadJSON against encoding/json: the same values, or the same error.
func FuzzReadJSON(f *testing.F) {
	for _, text := range written() {
		f.Add(text)
	}
	f.Add([]byte(`{"tasks":[],"paused":false,"results":[]} x`))
	f.Add([]byte(`{"results":[{"lease":"\u0041","result":"ok"},{"lease":"\ud800","result":"\q"}]}`))
	f.Fuzz(requireSameRead)
}
