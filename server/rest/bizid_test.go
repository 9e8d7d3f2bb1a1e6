package rest_test

import (
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/task"
)

// A biz_id that is no number is a text: it is answered as it came, and found by itself alone.
func TestABizIDMayBeAText(t *testing.T) {
	c := newCenter(t)
	for _, text := range []string{
		"6f1c0b6e-9a53-4a3f-8c6e-1d2f3a4b5c6d", "6F1C0B6E-9A53-4A3F-8C6E-1D2F3A4B5C6D", "abc", " 42", "42 ", "-1", "+1", "1.5", "0x2a", "18446744073709551616",
		"a/b?c=d&e", "é<&>'", "a%", "a\u2028", "null",
	} {
		quoted := jsonOf(t, text)
		v := call(c, "POST", "/v1/tasks", badID(quoted)).read(t, 201)
		require.Equal(t, text, v["biz_id"])
		got := call(c, "GET", "/v1/tasks/"+v["job_id"].(string), "").read(t, 200)
		require.Equal(t, v, got)
		list := call(c, "GET", "/v1/tasks?biz_id="+url.QueryEscape(text), "").read(t, 200)["tasks"].([]any)
		require.Equal(t, []any{v}, list, "this text's only")
	}
	number, _, err := task.ParseBizID("abc")
	require.NoError(t, err)
	digits := call(c, "POST", "/v1/tasks", badID(jsonOf(t, number))).read(t, 201)
	list := call(c, "GET", "/v1/tasks?biz_id="+digits["biz_id"].(string), "").read(t, 200)["tasks"].([]any)
	require.Equal(t, []any{digits}, list, "the number is not the text whose hash it is")

	twice := `{"biz_type":"order_close","biz_id":"abc","delay":"1h","dedup_key":"k"}`
	first := call(c, "POST", "/v1/tasks", twice).read(t, 201)
	require.Equal(t, first, call(c, "POST", "/v1/tasks", twice).read(t, 200))
	require.Equal(t, first, call(c, "GET", "/v1/tasks/by-key?biz_type=order_close&biz_id=abc&dedup_key=k", "").read(t, 200))
	batch := call(c, "POST", "/v1/tasks/batch", `{"tasks":[`+twice+`,`+badID(`"in a batch"`)+`]}`).read(t, 200)["results"].([]any)
	require.Equal(t, map[string]any{"job_id": first["job_id"], "duplicate": true}, batch[0])
	require.Contains(t, batch[1], "job_id")
}

func TestByKey(t *testing.T) {
	c := newCenter(t)
	const key = "?biz_type=order_close&biz_id=42&dedup_key=a%20key"
	first := call(c, "POST", "/v1/tasks", bad(`"dedup_key":"a key"`)).read(t, 201)
	require.Equal(t, first, call(c, "GET", "/v1/tasks/by-key"+key, "").read(t, 200))
	for _, other := range []string{
		"?biz_type=coupon&biz_id=42&dedup_key=a%20key", "?biz_type=order_close&biz_id=43&dedup_key=a%20key", "?biz_type=order_close&biz_id=42&dedup_key=A%20key",
	} {
		p := call(c, "GET", "/v1/tasks/by-key"+other, "").problem(t, 404)
		require.Equal(t, "no task has this biz_type, biz_id and dedup_key", p.Detail)
	}
	moved := call(c, "PATCH", "/v1/tasks/by-key"+key, `{"action_time":"2030-01-01T00:00:00Z"}`).read(t, 200)
	require.Equal(t, first["job_id"], moved["job_id"])
	require.Equal(t, "2030-01-01T00:00:00.000Z", moved["action_time"])
	require.JSONEq(t, `{"outcome":"cancelled"}`, call(c, "POST", "/v1/tasks/by-key/cancel"+key, "").Body.String())
	require.Equal(t, "already_cancelled", call(c, "PATCH", "/v1/tasks/by-key"+key, `{"delay":"1h"}`).problem(t, 409).Outcome)
	require.Equal(t, "cancelled", call(c, "GET", "/v1/tasks/by-key"+key, "").read(t, 200)["status"], "whatever its status")
}

// due_time is what was promised: a failed run does not move it, a reschedule and a redrive do.
func TestDueTimeAndTimeout(t *testing.T) {
	c := newCenter(t)
	v := call(c, "POST", "/v1/tasks", `{"biz_type":"order_close","biz_id":7,"action_time":"2030-01-01T00:00:00Z","timeout":"1m0.0005s"}`).read(t, 201)
	one := "/v1/tasks/" + v["job_id"].(string)
	require.Equal(t, "2030-01-01T00:00:00.000Z", v["due_time"])
	require.Equal(t, "1m0.001s", v["timeout"], "rounded up")

	c.byHand(t, "UPDATE %s SET action_time = '2030-01-01 00:01:00.000', due_time = '2030-01-01 00:00:00.000', attempts = 1") // as a failed run does
	v = call(c, "GET", one, "").read(t, 200)
	require.Equal(t, "2030-01-01T00:01:00.000Z", v["action_time"])
	require.Equal(t, "2030-01-01T00:00:00.000Z", v["due_time"])

	v = call(c, "PATCH", one, `{"timeout":"24h","attribute":"x"}`).read(t, 200)
	require.Equal(t, "2030-01-01T00:00:00.000Z", v["due_time"], "no new time, no new promise")
	require.Equal(t, "24h0m0s", v["timeout"])
	v = call(c, "PATCH", one, `{"action_time":"2031-01-01T00:00:00Z","timeout":"1ms"}`).read(t, 200)
	require.Equal(t, "2031-01-01T00:00:00.000Z", v["due_time"])
	require.Equal(t, "1ms", v["timeout"])

	c.byHand(t, "UPDATE %s SET due_time = '2030-01-01 00:00:00.000', status = 4")
	v = call(c, "POST", one+"/redrive", "").read(t, 200)
	require.Equal(t, v["action_time"], v["due_time"])
	require.NotContains(t, call(c, "GET", "/v1/tasks/"+c.submitted(t, 8), "").read(t, 200), "timeout", "its type's")
}

// A task that runs is shown to run, and its tag is the one it had before.
func TestWhereATaskRuns(t *testing.T) {
	c := newCenter(t)
	lane := c.Queue.AddType(task.BizType{ID: 1})
	t.Cleanup(c.Queue.Close)
	first := call(c, "POST", "/v1/tasks", bad(`"dedup_key":"k"`))
	v := first.read(t, 201)
	one := "/v1/tasks/" + v["job_id"].(string)
	require.NotContains(t, call(c, "GET", one, "").read(t, 200), "running")

	found, err := c.Service.GetByKey(t.Context(), keyOf("42", "k"))
	require.NoError(t, err)
	row, err := found.Task(1)
	require.NoError(t, err)
	due := row
	due.ActionTime = time.Now().Add(-time.Second)
	before := time.Now().Truncate(time.Millisecond)
	c.Queue.Offer(nil, queue.Item{Task: due, Partition: layout.Partition(layout.Shard(row.BizID))})
	taken, err := lane.Take(t.Context(), 1)
	require.NoError(t, err)
	for _, target := range []string{one, "/v1/tasks/by-key?biz_type=order_close&biz_id=42&dedup_key=k"} {
		a := call(c, "GET", target, "")
		running := a.read(t, 200)["running"].(map[string]any)
		require.Equal(t, "n1", running["node"])
		since, err := time.Parse(time.RFC3339, running["since"].(string))
		require.NoError(t, err)
		require.WithinRange(t, since, before, time.Now())
		require.Equal(t, first.tag(t), a.tag(t), "that it runs is no change")
	}
	require.NotContains(t, call(c, "GET", "/v1/tasks?biz_id=42", "").Body.String(), "running", "not in lists")
	require.Equal(t, "running", call(c, "PATCH", one, `{"delay":"1h"}`, "If-Match", first.tag(t)).problem(t, 409).Outcome)
	call(c, "PATCH", one, `{"delay":"1h"}`, "If-Match", `"x"`).problem(t, 412)

	c.moved(t, v["job_id"].(string), task.Processed)
	require.NotContains(t, call(c, "GET", one, "").read(t, 200), "running", "only pending tasks run")
	c.Queue.Done(taken[0], row, false)
}

// With on_duplicate a submit moves the task that has its key, if that is pending.
func TestOnDuplicate(t *testing.T) {
	c := newCenter(t)
	submit := func(members string) answer {
		return call(c, "POST", "/v1/tasks", `{"biz_type":"order_close","biz_id":"42","dedup_key":"k",`+members+`}`)
	}
	first := submit(`"delay":"1h","attribute":"a","timeout":"1s","on_duplicate":"move"`).read(t, 201)
	kept := submit(`"delay":"2h","attribute":"b","on_duplicate":"keep"`)
	require.Equal(t, first, kept.read(t, 200))

	answered := submit(`"action_time":"2030-01-01T00:00:00Z","attribute":"b","on_duplicate":"move"`)
	moved := answered.read(t, 200)
	require.Equal(t, []any{first["job_id"], "2030-01-01T00:00:00.000Z", "2030-01-01T00:00:00.000Z", "b", "1s"},
		[]any{moved["job_id"], moved["action_time"], moved["due_time"], moved["attribute"], moved["timeout"]})
	require.Equal(t, answered.tag(t), call(c, "GET", "/v1/tasks/"+first["job_id"].(string), "").tag(t))
	require.Equal(t, "2s", submit(`"delay":"1h","timeout":"2s","on_duplicate":"move"`).read(t, 200)["timeout"])

	results := call(c, "POST", "/v1/tasks/batch", `{"tasks":[
		{"biz_type":"order_close","biz_id":"42","dedup_key":"k","action_time":"2031-01-01T00:00:00Z","on_duplicate":"move"},
		{"biz_type":"order_close","biz_id":"42","dedup_key":"k","action_time":"2032-01-01T00:00:00Z","on_duplicate":"move"},
		{"biz_type":"order_close","biz_id":"42","dedup_key":"k","action_time":"2033-01-01T00:00:00Z"}]}`).read(t, 200)["results"].([]any)
	for _, r := range results {
		require.Equal(t, map[string]any{"job_id": first["job_id"], "duplicate": true}, r)
	}
	require.Equal(t, "2032-01-01T00:00:00.000Z", call(c, "GET", "/v1/tasks/"+first["job_id"].(string), "").read(t, 200)["action_time"], "in order")

	for to, outcome := range map[task.Status]string{task.Processed: "already_processed", task.Cancelled: "already_cancelled", task.Dead: "dead"} {
		key := `"dedup_key":"` + outcome + `",`
		v := call(c, "POST", "/v1/tasks", bad(key+`"attribute":"a"`)).read(t, 201)
		c.moved(t, v["job_id"].(string), to)
		before := call(c, "GET", "/v1/tasks/"+v["job_id"].(string), "").Body.String()
		again := bad(key + `"attribute":"b","on_duplicate":"move"`)
		require.Equal(t, outcome, call(c, "POST", "/v1/tasks", again).problem(t, 409).Outcome)
		results := call(c, "POST", "/v1/tasks/batch", `{"tasks":[`+again+`]}`).read(t, 200)["results"].([]any)
		e := results[0].(map[string]any)["error"].(map[string]any)
		require.Equal(t, "dedup_key", e["field"])
		require.Equal(t, outcome, e["outcome"])
		require.Equal(t, before, call(c, "GET", "/v1/tasks/"+v["job_id"].(string), "").Body.String())
		call(c, "POST", "/v1/tasks", bad(key+`"attribute":"b"`)).read(t, 200) // keep is the default
	}
	require.Equal(t, 4, c.rows(t))
}
