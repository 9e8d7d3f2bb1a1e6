package api_test

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/task"
)

// at is a moment in a zone east of UTC, with more digits than milliseconds.
var at = time.Date(2026, 1, 2, 23, 4, 5, 67_999_999, time.FixedZone("east", 8*3600))

func full() task.Task {
	return task.Task{
		JobID: math.MaxInt64, BizID: math.MaxUint64, BizType: 7, Status: task.Dead,
		ActionTime: at, Attribute: `{"order":"42"}`, Attempts: 3, LastError: "no answer",
		DedupKey: "k-1", Created: at.Add(-time.Hour), Modified: at, DueTime: at.Add(-time.Minute), Timeout: 1500 * time.Millisecond,
	}
}

// reference is what encoding/json makes of a task, without escapes for HTML.
func reference(t testing.TB, v api.Task) string {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	require.NoError(t, enc.Encode(v))
	return strings.TrimSuffix(out.String(), "\n")
}

func TestFullTask(t *testing.T) {
	got := api.From(full(), "order_close")
	require.Equal(t, `{"job_id":"9223372036854775807","biz_type":"order_close",`+
		`"biz_id":"18446744073709551615","status":"dead","action_time":"2026-01-02T15:04:05.067Z",`+
		`"due_time":"2026-01-02T15:03:05.067Z","timeout":"1.5s",`+
		`"attribute":"{\"order\":\"42\"}","attempts":3,"last_error":"no answer","dedup_key":"k-1",`+
		`"gmt_create":"2026-01-02T14:04:05.067Z","gmt_modified":"2026-01-02T15:04:05.067Z"}`,
		string(got.AppendJSON(nil)))
	require.Equal(t, reference(t, got), string(got.AppendJSON(nil)))
}

func TestEmptyColumnsAreLeftOut(t *testing.T) {
	got := api.From(task.Task{JobID: 5, ActionTime: at}, "coupon")
	require.Equal(t, `{"job_id":"5","biz_type":"coupon","biz_id":"0","status":"pending",`+
		`"action_time":"2026-01-02T15:04:05.067Z","due_time":"2026-01-02T15:04:05.067Z","attempts":0}`, string(got.AppendJSON(nil)))
	require.Equal(t, reference(t, got), string(got.AppendJSON(nil)))
}

func TestReadsWhatItWrites(t *testing.T) {
	wrote := api.From(full(), "order_close")
	var read api.Task
	require.NoError(t, json.Unmarshal(wrote.AppendJSON(nil), &read))
	require.Equal(t, wrote.AppendJSON(nil), read.AppendJSON(nil))
	require.Equal(t, at.UTC().Truncate(time.Millisecond), read.ActionTime.Time())
}

func TestATaskComesBack(t *testing.T) {
	milli := func(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }
	number, key, err := task.ParseBizID("order-é-42")
	require.NoError(t, err)
	for _, want := range []task.Task{full(), {JobID: 5, ActionTime: at}, {JobID: 5, BizID: number, BizKey: key, ActionTime: at}} {
		var read api.Task
		require.NoError(t, json.Unmarshal(api.From(want, "order_close").AppendJSON(nil), &read))
		got, err := read.Task(want.BizType)
		require.NoError(t, err)
		for _, at := range []*time.Time{&want.ActionTime, &want.DueTime, &want.Created, &want.Modified} {
			*at = milli(*at)
		}
		require.Equal(t, want, got)
	}
	_, err = api.Task{Status: "asleep"}.Task(1)
	require.ErrorContains(t, err, `"asleep" is unknown`)
}

func TestARunningTask(t *testing.T) {
	got := api.From(task.Task{JobID: 5, ActionTime: at}, "coupon")
	got.Running = &api.Running{Node: "node \"1\"", Since: api.Time(at)}
	require.Contains(t, string(got.AppendJSON(nil)), `,"running":{"node":"node \"1\"","since":"2026-01-02T15:04:05.067Z"}}`)
	require.Equal(t, reference(t, got), string(got.AppendJSON(nil)))
}

func TestAppendsToWhatIsThere(t *testing.T) {
	v := api.From(full(), "order_close")
	require.Equal(t, "["+reference(t, v), string(v.AppendJSON([]byte("["))))
}

func TestEveryCharacterIsEscapedAsByEncodingJSON(t *testing.T) {
	var all strings.Builder
	for c := range 0x3000 {
		all.WriteRune(rune(c))
		all.WriteByte(byte(c)) // and bytes that are no UTF-8
	}
	all.WriteString("\u2028\u2029\ufffd\U0001F600\xed\xa0\x80\xf0\x9f\x98")
	v := api.Task{Attribute: all.String()}
	require.Equal(t, reference(t, v), string(v.AppendJSON(nil)))
}

func TestTime(t *testing.T) {
	for moment, want := range map[time.Time]string{
		at: "2026-01-02T15:04:05.067Z",
		time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC):              "2026-01-02T03:04:05.000Z",
		time.Date(1969, 12, 31, 23, 59, 59, 999e6, time.UTC):     "1969-12-31T23:59:59.999Z",
		time.Date(9999, 12, 31, 23, 59, 59, 120e6, time.UTC):     "9999-12-31T23:59:59.120Z",
		time.Date(2026, 1, 1, 0, 0, 0, 1, time.FixedZone("", 1)): "2025-12-31T23:59:59.000Z",
	} {
		require.Equal(t, want, api.Time(moment).String())
	}

	var read api.Time
	require.NoError(t, json.Unmarshal([]byte(`"2026-01-02T23:04:05.067999999+08:00"`), &read))
	require.Equal(t, at.UTC(), read.Time(), "all digits are kept")
	for _, bad := range []string{`"2026-01-02"`, `"2026-01-02 15:04:05Z"`, `1767366245`, `""`} {
		require.Error(t, json.Unmarshal([]byte(bad), &read), bad)
	}
}

func TestIDReadsStringsAndNumbers(t *testing.T) {
	for text, want := range map[string]api.ID{
		`0`: 0, `"0"`: 0, `42`: 42, `"42"`: 42, `"\u0034\u0032"`: 42,
		`18446744073709551615`: math.MaxUint64, `"18446744073709551615"`: math.MaxUint64,
	} {
		var id api.ID
		require.NoError(t, json.Unmarshal([]byte(text), &id), text)
		require.Equal(t, want, id, text)
	}
}

func TestIDRefuses(t *testing.T) {
	for _, text := range []string{
		`null`, `true`, `{}`, `[1]`, `""`, `" 1"`, `"1 "`, `-1`, `"-1"`, `"+1"`, `1.0`, `"1.0"`, `1e3`, `"1e3"`,
		`"0x10"`, `"1_000"`, `"١"`, `"\ud800"`, `18446744073709551616`, `"18446744073709551616"`,
		`"` + strings.Repeat("9", 5000) + `"`,
	} {
		id := api.ID(7)
		err := json.Unmarshal([]byte(text), &id)
		require.ErrorContains(t, err, "is not an id; write a whole number from 0 to 18446744073709551615", text)
		require.Less(t, len(err.Error()), 200)
		require.EqualValues(t, 7, id, "a refused id changes nothing")
	}
}

func TestIDAsText(t *testing.T) {
	id, err := api.ParseID("42")
	require.NoError(t, err)
	require.Equal(t, "42", id.String())

	out, err := json.Marshal(map[api.ID]api.ID{42: 43})
	require.NoError(t, err)
	require.JSONEq(t, `{"42":"43"}`, string(out))

	require.NoError(t, id.UnmarshalText([]byte("44")))
	require.EqualValues(t, 44, id)
	require.ErrorContains(t, id.UnmarshalText([]byte("-1")), `"-1" is not an id`)
	require.EqualValues(t, 44, id)
}

// A biz_id is a number where it can be one, else a text; a JSON number is never a text.
func TestBizID(t *testing.T) {
	text := func(s string) api.BizID { return api.BizID{Number: task.HashBizKey(s), Key: s} }
	for value, want := range map[string]api.BizID{
		`42`: {Number: 42}, `"42"`: {Number: 42}, `18446744073709551615`: {Number: math.MaxUint64},
		`"18446744073709551616"`: text("18446744073709551616"), `"-1"`: text("-1"), `"0042"`: text("0042"), `"00"`: text("00"), `"0"`: {}, `"1.5"`: text("1.5"), `" 1"`: text(" 1"),
		`"6F1C-\u00e9"`: text("6F1C-é"), `"` + strings.Repeat("x", 128) + `"`: text(strings.Repeat("x", 128)),
	} {
		var id api.BizID
		require.NoError(t, json.Unmarshal([]byte(value), &id), value)
		require.Equal(t, want, id, value)
		back, err := json.Marshal(id)
		require.NoError(t, err)
		again := api.BizID{}
		require.NoError(t, json.Unmarshal(back, &again))
		require.Equal(t, want, again, value)
	}
	for value, says := range map[string]string{
		`null`: "is not an id", `-1`: "or a text as a string", `1.5`: "is not an id", `1e3`: "is not an id", `18446744073709551616`: "is not an id",
		`true`: "is not an id", `{}`: "is not an id", `""`: "is empty", `"` + strings.Repeat("é", 65) + `"`: "has 130 bytes; at most 128 fit",
	} {
		id := api.BizID{Number: 7}
		require.ErrorContains(t, json.Unmarshal([]byte(value), &id), says, value)
		require.Equal(t, api.BizID{Number: 7}, id)
	}

	both, err := api.BizIDOf(0, "a")
	require.NoError(t, err)
	require.Equal(t, text("a"), both)
	_, err = api.BizIDOf(1, "a")
	require.ErrorContains(t, err, "as a number and as a text")
}
