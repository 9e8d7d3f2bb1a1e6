package rest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/server/rest"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// FuzzSubmit sends any body to POST /v1/tasks of a real desk. It never panics
// and never answers 5xx; what is accepted is exactly one task with the fields
// that encoding/json reads from the body; what is refused is none.
func FuzzSubmit(f *testing.F) {
	f.Add([]byte(submitBody))
	f.Add([]byte(badID(`"00\u0037"`)))
	f.Add([]byte(bad(`"timeout":"1.0005s","dedup_key":"k","on_duplicate":"move"`)))
	for _, text := range []string{"-1", "+1", " 42", "abc", "0x2a", "18446744073709551616", "6f1c0b6e-9a53-4a3f-8c6e-1d2f3a4b5c6d", `\u00e9\"`} {
		f.Add([]byte(badID(`"` + text + `"`)))
	}
	f.Add([]byte(`{"biz_type":"coupon","biz_id":18446744073709551615,"action_time":"2030-01-02T05:04:05.067+02:00","attribute":"\ud83d\ude00"}`))
	for _, r := range submitRefusals() {
		if len(r.body) < 1000 {
			f.Add([]byte(r.body))
		}
	}
	s := &memory{}
	h := rest.New(rest.Config{Status: calm{}, Center: newCenter(f).With(func(cfg *intake.Config) { cfg.Store = s })})
	f.Fuzz(func(t *testing.T, body []byte) {
		s.tasks = nil
		a := call(h, "POST", "/v1/tasks", string(body), "Content-Type", "application/json")
		switch a.Code {
		case 201:
			require.Len(t, s.tasks, 1)
			got := a.read(t, 201)
			requireSame(t, body, got)
			stored := api.BizID{Number: s.tasks[0].BizID, Key: s.tasks[0].BizKey}
			require.Equal(t, got["biz_id"], stored.String())
			again, err := api.ParseBizID(stored.String())
			require.NoError(t, err)
			require.Equal(t, stored, again)
			require.Equal(t, got["action_time"], api.Time(s.tasks[0].ActionTime).String())
		case 400, 422:
			require.Empty(t, s.tasks)
			require.NotEmpty(t, a.problem(t, a.Code).locations())
		default:
			require.Fail(t, "unexpected status", "%d %s", a.Code, a.Body)
		}
	})
}

// memory is a store that keeps what it gets.
type memory struct {
	intake.Store // nil: what a submit does not need
	tasks        []task.Task
}

func (*memory) NewID(uint64) uint64 { return 1 }

func (m *memory) InsertAgain(_ context.Context, tasks []task.Task, _ func(int) bool, _ func([]int, []store.Inserted)) (results []store.Inserted) {
	m.tasks = append(m.tasks, tasks...)
	for _, t := range tasks {
		results = append(results, store.Inserted{Task: t})
	}
	return results
}

// requireSame holds a stored task against what encoding/json reads.
func requireSame(t *testing.T, body []byte, got map[string]any) {
	require.True(t, utf8.Valid(body))
	var sent struct {
		BizType    string          `json:"biz_type"`
		BizID      json.RawMessage `json:"biz_id"`
		ActionTime *time.Time      `json:"action_time"`
		Attribute  string          `json:"attribute"`
		DedupKey   string          `json:"dedup_key"`
		Delay      *string         `json:"delay"`
		Timeout    string          `json:"timeout"`

		OnDuplicate string `json:"on_duplicate"`
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	require.NoError(t, dec.Decode(&sent))
	text := func(name string) string { s, _ := got[name].(string); return s }
	require.Equal(t, sent.BizType, got["biz_type"])
	require.Equal(t, sent.Attribute, text("attribute"))
	require.Equal(t, sent.DedupKey, text("dedup_key"))
	require.True(t, (sent.ActionTime == nil) != (sent.Delay == nil))
	if sent.ActionTime != nil {
		due, err := time.Parse(time.RFC3339, text("action_time"))
		require.NoError(t, err)
		require.WithinRange(t, due, *sent.ActionTime, sent.ActionTime.Add(time.Millisecond))
	}
	if timeout := text("timeout"); timeout+sent.Timeout != "" {
		want, err := time.ParseDuration(sent.Timeout)
		require.NoError(t, err)
		got, err := time.ParseDuration(timeout)
		require.NoError(t, err)
		require.Less(t, got-want, time.Millisecond)
		require.GreaterOrEqual(t, got, want)
	}
	digits := string(sent.BizID)
	if digits[0] == '"' {
		require.NoError(t, json.Unmarshal(sent.BizID, &digits))
	}
	require.Equal(t, strings.TrimLeft(digits, "0"), strings.TrimLeft(text("biz_id"), "0"))
}

func sum(list []int) (n int) {
	for _, one := range list {
		n += one
	}
	return n
}

// FuzzBatch sends any body to POST /v1/tasks/batch: as many results as tasks,
// as many tasks stored as results have no error.
func FuzzBatch(f *testing.F) {
	f.Add([]byte(`{"tasks":[` + submitBody + `,null,{"biz_id":1.5},[[]],"}]"]}`))
	f.Add([]byte(`{"tasks":[{"biz_type":"order_close","biz_id":1,"delay":"1h"} , {"biz_type":"order_close","biz_id":"\u0031","delay":"1h"}]}`))
	for _, r := range submitRefusals() {
		if len(r.body) < 1000 {
			f.Add([]byte(`{"tasks":[` + r.body + `]}`))
		}
	}
	d := newFakeCenter(f)
	h := rest.New(rest.Config{Center: d, Status: calm{}})
	f.Fuzz(func(t *testing.T, body []byte) {
		d.Sizes = nil
		a := call(h, "POST", "/v1/tasks/batch", string(body), "Content-Type", "application/json")
		if a.Code != 200 {
			require.Contains(t, []int{400, 422}, a.Code)
			require.NotEmpty(t, a.problem(t, a.Code).locations())
			require.Empty(t, d.Sizes)
			return
		}
		var sent struct{ Tasks []json.RawMessage }
		require.NoError(t, json.Unmarshal(body, &sent))
		var answered api.BatchAnswer
		require.NoError(t, json.Unmarshal(a.Body.Bytes(), &answered))
		require.Len(t, answered.Results, len(sent.Tasks))
		stored := 0
		for _, r := range answered.Results {
			require.NotEqual(t, r.JobID == 0, r.Err == nil)
			if r.JobID != 0 {
				stored++
			}
		}
		require.Equal(t, stored, sum(d.Sizes))
	})
}

// FuzzRequests sends any request line and headers: never a panic, never a 5xx,
// always JSON.
func FuzzRequests(f *testing.F) {
	f.Add("GET", "/v1/tasks?biz_id=1&limit=5&cursor=dAABd_CA5AAA", "application/json", "a/b;q=1,", "{}")
	f.Add("PATCH", "/v1/tasks/18446744073709551615", "application/json;charset=utf-8", "", `{"delay":"1h"}`)
	f.Add("POST", "/v1/tasks/1%2f/cancel?%zz", "+;", ";;", "")
	f.Add("GET", "/v1/dead?limit=1&limit=2&status;", ";", ",", "")
	f.Add("PATCH", "/v1/tasks/by-key?biz_type=order_close&biz_id=a%20b&dedup_key=k", "", "", `{"timeout":"1s"}`)
	h := newFake(newFakeCenter(f))
	f.Fuzz(func(t *testing.T, method, target, contentType, accept, body string) {
		r, err := http.NewRequest(method, target, bytes.NewReader([]byte(body)))
		if err != nil || target == "" || target[0] != '/' {
			return
		}
		r.Header.Set("Content-Type", contentType)
		r.Header.Set("Accept", accept)
		r.Header.Set("If-Match", accept)
		a := record(h, r)
		if a.Code == 503 && r.URL.Path == "/readyz" {
			return
		}
		require.Less(t, a.Code, 500, "%s %s: %s", method, target, a.Body)
		require.GreaterOrEqual(t, a.Code, 200)
	})
}
