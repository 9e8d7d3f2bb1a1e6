package rest_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/internal/testrig/fakecenter"
	"github.com/timeoutcenter/toc/server/rest"
	"github.com/timeoutcenter/toc/task"
)

// full sends submits as one batch, and gives the answer to each as that of a request.
func full(t *testing.T, h http.Handler, bodies ...string) (list []answer) {
	a := call(h, "POST", "/v1/tasks/batch", `{"full":true,"tasks":[`+strings.Join(bodies, ",")+`]}`)
	require.Equal(t, 200, a.Code, a.Body)
	var read struct {
		Results []struct {
			Answer struct {
				Status        int
				ETag          string
				RetryAfter    int `json:"retry_after"`
				Task, Problem json.RawMessage
			}
		}
	}
	require.NoError(t, json.Unmarshal(a.Body.Bytes(), &read))
	require.Len(t, read.Results, len(bodies))
	for _, r := range read.Results {
		one := answer{httptest.NewRecorder()}
		one.Code = r.Answer.Status
		if r.Answer.ETag != "" {
			one.Header().Set("ETag", r.Answer.ETag)
		}
		if r.Answer.RetryAfter != 0 {
			one.Header().Set("Retry-After", strconv.Itoa(r.Answer.RetryAfter))
		}
		one.Body.Write(r.Answer.Task)
		one.Body.Write(r.Answer.Problem)
		list = append(list, one)
	}
	return list
}

var theTime = regexp.MustCompile(`it is \S+ now`)

// requireSameAnswer compares an answer of a batch with that of a request of its own.
func requireSameAnswer(t *testing.T, alone, together answer, name string) {
	t.Helper()
	require.Equal(t, alone.Code, together.Code, name)
	for _, header := range []string{"ETag", "Retry-After"} {
		require.Equal(t, alone.Header().Get(header), together.Header().Get(header), name)
	}
	now := func(a answer) string { return theTime.ReplaceAllString(a.Body.String(), "it is noon now") }
	require.JSONEq(t, now(alone), now(together), name)
}

// A batch with full answers each task as a request of its own would.
func TestAFullBatch(t *testing.T) {
	c := newCenter(t)
	var names, bodies []string
	for _, r := range submitRefusals() {
		if r.status == 422 && r.target == "/v1/tasks" && json.Valid([]byte(r.body)) && len(r.body) < 40_000 {
			names, bodies = append(names, r.name), append(bodies, r.body)
		}
	}
	require.Greater(t, len(bodies), 50)
	key := func(id, more string) string {
		return `{"biz_type":"order_close","biz_id":"` + id + `","delay":"1h","dedup_key":"k"` + more + `}`
	}
	c.moved(t, call(c, "POST", "/v1/tasks", key("gone", "")).read(t, 201)["job_id"].(string), task.Cancelled)
	call(c, "POST", "/v1/tasks", key("1", "")).read(t, 201)
	for _, again := range []string{key("1", ""), key("gone", ""), key("gone", `,"on_duplicate":"move"`)} {
		names, bodies = append(names, again), append(bodies, again)
	}
	for i, together := range full(t, c, bodies...) {
		requireSameAnswer(t, call(c, "POST", "/v1/tasks", bodies[i]), together, names[i])
	}

	before := c.rows(t)
	stored := full(t, c, key("2", ""), key("3", `,"attribute":"é<&>"`), bad(`"attribute":"a"`))
	require.Equal(t, before+3, c.rows(t))
	for _, a := range stored {
		v := a.read(t, 201)
		got := call(c, "GET", "/v1/tasks/"+v["job_id"].(string), "")
		require.Equal(t, v, got.read(t, 200))
		require.Equal(t, got.Header().Get("ETag"), a.Header().Get("ETag"))
	}

	many := `{"full":true,"tasks":[` + strings.Repeat(submitBody+",", 1000) + submitBody + `]}`
	require.Equal(t, []string{"body.tasks"}, call(c, "POST", "/v1/tasks/batch", many).problem(t, 422).locations())
	require.Equal(t, []string{"body.full"}, call(c, "POST", "/v1/tasks/batch", `{"full":1,"tasks":[`+submitBody+`]}`).problem(t, 422).locations())
}

// What the center refuses, and a panic, is answered in the same way.
func TestRefusalsOfAFullBatch(t *testing.T) {
	d := &fakecenter.Center{}
	h := newFake(d)
	for _, err := range []error{
		&task.FieldError{Field: "delay", Message: "is wrong"}, &task.ConflictError{Conflict: task.ConflictRunning, Until: time.Unix(1<<31, 0)},
		task.ErrUnavailable, task.ErrNotBegun, task.ErrLocked, errors.New("secret"),
	} {
		d.Err = err
		requireSameAnswer(t, call(h, "POST", "/v1/tasks", submitBody), full(t, h, submitBody)[0], err.Error())
	}
	d.Panics = true
	requireSameAnswer(t, call(h, "POST", "/v1/tasks", submitBody), full(t, h, submitBody)[0], "a panic")

	d.Panics, d.Err = false, nil
	small := rest.New(rest.Config{Center: d, Status: calm{}, MaxAnswers: 2 * 5200})
	bodies := `{"full":true,"tasks":[` + submitBody + strings.Repeat(","+submitBody, 2) + `]}`
	before := d.Calls.Load()
	require.Equal(t, "1", call(small, "POST", "/v1/tasks/batch", bodies).Header().Get("Retry-After"))
	require.Equal(t, before, d.Calls.Load(), "nothing is stored")
	full(t, small, submitBody, submitBody)
}

// AppendJSON writes what encoding/json does.
func TestBatchAnswerAppendJSON(t *testing.T) {
	shown := api.From(task.Task{JobID: 1, Attribute: "é<&>\"\u2028", ActionTime: fakecenter.Now, Created: fakecenter.Now}, "order_close")
	a := api.BatchAnswer{Results: []api.BatchResult{
		{JobID: 5}, {JobID: 6, Duplicate: true}, {Err: &api.BatchError{Field: "biz_id", Message: "<x>"}}, {},
		{Answer: &api.SubmitAnswer{Status: 201, ETag: `"a"`, Task: &shown}},
		{Answer: &api.SubmitAnswer{Status: 503, RetryAfter: 1, Problem: &api.Problem{Status: 503, Detail: "d"}}},
	}}
	require.JSONEq(t, jsonOf(t, a), string(a.AppendJSON(nil)))
}

// A lease request settles, and answers as the route for that does.
func TestALeaseSettles(t *testing.T) {
	h := newFake(newFakeCenter(t))
	const settle = `"settle":[{"lease":"1-1","do":"ack"},{"lease":"<\"é","do":"nack","retry_after":"1s","error":"e"}]`
	want := call(h, "POST", "/v1/leases/settle", "{"+settle+"}").read(t, 200)
	require.Equal(t, map[string]any{"lease": "<\"é", "result": "ok"}, want["results"].([]any)[1])
	got := call(h, "POST", "/v1/biz-types/order_close/lease", `{"max":2,`+settle+"}").read(t, 200)
	require.Equal(t, map[string]any{"tasks": []any{}, "paused": false, "results": want["results"]}, got)
	require.NotContains(t, call(h, "POST", "/v1/biz-types/order_close/lease", "").read(t, 200), "results")
}
