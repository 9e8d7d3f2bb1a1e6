package rest_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/server/rest"
	"github.com/timeoutcenter/toc/task"
)

func TestSubmitAnswersTheTask(t *testing.T) {
	c := newCenter(t)
	a := call(c, "POST", "/v1/tasks", `{"biz_type":"coupon","biz_id":"18446744073709551615","action_time":"2030-01-02T05:04:05.0670001+02:00",
		"attribute":"{\"a\":\"é\\u0000\\ud83d\\ude00<&>\"}","dedup_key":"k"}`)
	v := a.read(t, 201)
	require.Equal(t, "application/json", a.Header().Get("Content-Type"))
	require.Equal(t, "/v1/tasks/"+v["job_id"].(string), a.Header().Get("Location"))
	require.Equal(t, "coupon", v["biz_type"])
	require.Equal(t, "18446744073709551615", v["biz_id"])
	require.Equal(t, "pending", v["status"])
	require.Equal(t, "2030-01-02T03:04:05.068Z", v["action_time"], "UTC, rounded up")
	require.Equal(t, `{"a":"é\u0000\ud83d\ude00<&>"}`, v["attribute"])
	require.Equal(t, "k", v["dedup_key"])
	require.EqualValues(t, 0, v["attempts"])
	require.NotContains(t, v, "last_error")

	got := call(c, "GET", a.Header().Get("Location"), "")
	require.Equal(t, 200, got.Code)
	require.Equal(t, a.Body.String(), got.Body.String(), "GET answers the same")
	require.Equal(t, 200, call(c, "HEAD", a.Header().Get("Location"), "").Code)
}

func TestIDsKeepAll64Bits(t *testing.T) {
	c := newCenter(t)
	for _, id := range []string{
		"0", "1", "9007199254740991", "9007199254740993", "9223372036854775807", "9223372036854775808", "18446744073709551615",
	} {
		for _, form := range []string{id, `"` + id + `"`} {
			v := call(c, "POST", "/v1/tasks", badID(form)).read(t, 201)
			require.Equal(t, id, v["biz_id"])
		}
		require.Len(t, call(c, "GET", "/v1/tasks?biz_id="+id, "").read(t, 200)["tasks"], 2)
	}
}

func TestTimesThatAreRight(t *testing.T) {
	c, now := newCenter(t), time.Now()
	h := rest.New(rest.Config{Status: calm{}, Center: c.With(func(cfg *intake.Config) { cfg.Now = func() time.Time { return now } })})
	for _, body := range []string{
		at(now.Add(-4 * time.Second)), at(now), at(now.AddDate(9, 11, 0)), badTime(`"delay":"0"`), badTime(`"delay":"0s"`),
		badTime(`"delay":"1.5h"`), badTime(`"delay":"1h30m5s250ms"`), badTime(`"delay":"87600h"`), badTime(`"action_time":"2030-01-01T00:00:00-12:30"`),
	} {
		call(h, "POST", "/v1/tasks", body).read(t, 201)
	}
	v := call(h, "POST", "/v1/tasks", badTime(`"delay":"10ms"`)).read(t, 201)
	due, err := time.Parse(time.RFC3339, v["action_time"].(string))
	require.NoError(t, err)
	require.Equal(t, task.CeilMilli(now.Add(10*time.Millisecond)).UTC(), due.UTC())
}

func TestLargestTextsThatFit(t *testing.T) {
	c := newCenter(t)
	attribute, key := strings.Repeat("é", 2048), strings.Repeat("é", 32)
	v := call(c, "POST", "/v1/tasks", bad(`"attribute":"`+attribute+`","dedup_key":"`+key+`"`)).read(t, 201)
	require.Equal(t, attribute, v["attribute"])
	require.Equal(t, key, v["dedup_key"])
}

func TestSameDedupKeyAnswersTheFirstTask(t *testing.T) {
	c := newCenter(t)
	first := call(c, "POST", "/v1/tasks", bad(`"dedup_key":"k","attribute":"first"`))
	first.read(t, 201)
	again := call(c, "POST", "/v1/tasks", `{"biz_type":"order_close","biz_id":42,"delay":"9h","dedup_key":"k","attribute":"second"}`)
	again.read(t, 200)
	require.Equal(t, first.Body.String(), again.Body.String())
	require.Equal(t, 1, c.rows(t))

	call(c, "POST", "/v1/tasks", `{"biz_type":"coupon","biz_id":42,"delay":"9h","dedup_key":"k"}`).read(t, 201)
	call(c, "POST", "/v1/tasks", bad(`"dedup_key":"K"`)).read(t, 201)
	require.Equal(t, 3, c.rows(t), "another biz_type or another case is another task")
}

func TestBatch(t *testing.T) {
	c := newCenter(t)
	first := call(c, "POST", "/v1/tasks", bad(`"dedup_key":"k"`)).read(t, 201)["job_id"]
	a := call(c, "POST", "/v1/tasks/batch", `{"tasks":[`+bad(`"attribute":"a"`)+`,{"biz_type":"nope","biz_id":1,"delay":"1h"}, 7 ,`+bad(`"dedup_key":"k"`)+`]}`)
	results := a.read(t, 200)["results"].([]any)
	require.Len(t, results, 4)
	id := results[0].(map[string]any)["job_id"].(string)
	require.Equal(t, map[string]any{"job_id": id}, results[0])
	require.Equal(t, "a", call(c, "GET", "/v1/tasks/"+id, "").read(t, 200)["attribute"])
	require.Equal(t, map[string]any{"error": map[string]any{
		"field": "biz_type", "message": `"nope" is not configured; there are: order_close, coupon`,
	}}, results[1])
	require.Equal(t, map[string]any{"error": map[string]any{"field": "", "message": "must be an object, not a number"}}, results[2])
	require.Equal(t, map[string]any{"job_id": first, "duplicate": true}, results[3])
	require.Equal(t, 2, c.rows(t))
}

func TestBatchOfTenThousand(t *testing.T) {
	d := newFakeCenter(t)
	v := call(newFake(d), "POST", "/v1/tasks/batch", `{"tasks":[`+strings.Repeat(submitBody+",", 9_999)+submitBody+`]}`).read(t, 200)
	require.Len(t, v["results"], 10_000)
	require.EqualValues(t, 10_000, d.Calls.Load())
}

func TestListGoesThroughAllPages(t *testing.T) {
	c := newCenter(t)
	var want []string
	for range 5 {
		want = append(want, c.submitted(t, 42))
	}
	call(c, "POST", "/v1/tasks", `{"biz_type":"coupon","biz_id":42,"delay":"1h"}`).read(t, 201)
	c.submitted(t, 43)
	c.moved(t, want[4], task.Dead)

	var got []string
	target := "/v1/tasks?biz_id=42&biz_type=order_close&limit=2"
	for cursor := ""; ; {
		v := call(c, "GET", target+cursor, "").read(t, 200)
		for _, one := range v["tasks"].([]any) {
			got = append(got, one.(map[string]any)["job_id"].(string))
		}
		next, more := v["next_cursor"].(string)
		if !more {
			require.NotContains(t, v, "next_cursor")
			break
		}
		cursor = "&cursor=" + next
	}
	require.Equal(t, want, got)
	require.Len(t, call(c, "GET", "/v1/tasks?biz_id=42", "").read(t, 200)["tasks"], 6)
	require.Len(t, call(c, "GET", "/v1/tasks?biz_id=42&status=dead", "").read(t, 200)["tasks"], 1)
	require.JSONEq(t, `{"tasks":[]}`, call(c, "GET", "/v1/tasks?biz_id=44", "").Body.String())
}

func TestCancelAndItsConflicts(t *testing.T) {
	c := newCenter(t)
	id := c.submitted(t, 1)
	require.JSONEq(t, `{"outcome":"cancelled"}`, call(c, "POST", "/v1/tasks/"+id+"/cancel", "").Body.String())
	require.Equal(t, "cancelled", call(c, "GET", "/v1/tasks/"+id, "").read(t, 200)["status"])

	for outcome, to := range map[string]task.Status{"already_cancelled": task.Cancelled, "already_processed": task.Processed, "dead": task.Dead} {
		id := c.submitted(t, 2)
		c.moved(t, id, to)
		for _, r := range [][3]string{{"POST", "/cancel", ""}, {"PATCH", "", `{"delay":"1h"}`}, {"POST", "/redrive", ""}} {
			if outcome == "dead" && r[1] == "/redrive" {
				continue
			}
			a := call(c, r[0], "/v1/tasks/"+id+r[1], r[2])
			require.Equal(t, outcome, a.problem(t, 409).Outcome)
		}
		require.Equal(t, to.String(), call(c, "GET", "/v1/tasks/"+id, "").read(t, 200)["status"])
	}
}

func TestChange(t *testing.T) {
	c := newCenter(t)
	id := c.submitted(t, 1)
	v := call(c, "PATCH", "/v1/tasks/"+id, `{"action_time":"2030-01-01T00:00:00Z","attribute":"b"}`).read(t, 200)
	require.Equal(t, "2030-01-01T00:00:00.000Z", v["action_time"])
	require.Equal(t, "b", v["attribute"])

	v = call(c, "PATCH", "/v1/tasks/"+id, `{"attribute":""}`).read(t, 200)
	require.Equal(t, "2030-01-01T00:00:00.000Z", v["action_time"], "what is not given stays")
	require.NotContains(t, v, "attribute", "an empty column is left out")

	v = call(c, "PATCH", "/v1/tasks/"+id, `{"delay":"1h"}`).read(t, 200)
	require.NotEqual(t, "2030-01-01T00:00:00.000Z", v["action_time"])
}

func TestDeadAndRedrive(t *testing.T) {
	c := newCenter(t)
	var ids []string
	for i := range 5 {
		id := c.submitted(t, uint64(i))
		c.moved(t, id, task.Dead)
		ids = append(ids, id)
	}
	v := call(c, "GET", "/v1/dead?biz_type=order_close&limit=3", "").read(t, 200)
	require.Len(t, v["tasks"], 3)
	require.Equal(t, "dead", v["tasks"].([]any)[0].(map[string]any)["status"])
	v = call(c, "GET", "/v1/dead?cursor="+v["next_cursor"].(string), "").read(t, 200)
	require.Len(t, v["tasks"], 2)
	require.NotContains(t, v, "next_cursor")

	v = call(c, "POST", "/v1/tasks/"+ids[0]+"/redrive", "").read(t, 200)
	require.Equal(t, "pending", v["status"])
	require.EqualValues(t, 0, v["attempts"])
	require.Equal(t, "pending", call(c, "POST", "/v1/tasks/"+ids[0]+"/redrive", "").problem(t, 409).Outcome)

	redrive := func(body string) string { return call(c, "POST", "/v1/dead/redrive", body).Body.String() }
	require.JSONEq(t, `{"matched":4,"redriven":0}`, redrive(`{"dry_run":true}`))
	require.JSONEq(t, `{"matched":0,"redriven":0}`, redrive(`{"biz_type":"coupon"}`))
	require.Equal(t, []string{"body.rate"}, call(c, "POST", "/v1/dead/redrive", `{"rate":0}`).problem(t, 422).locations())
	require.JSONEq(t, `{"matched":4,"redriven":0}`, redrive(`{"rate":1,"dry_run":true}`), "starts nothing")
	require.JSONEq(t, `{"operations":[]}`, call(c, "GET", "/v1/operations", "").Body.String())
	operation := call(c, "POST", "/v1/dead/redrive", `{"rate":0.5,"biz_type":"order_close"}`).read(t, 202)["operation"].(string)
	v = call(c, "POST", "/v1/operations/"+operation+"/stop", "").read(t, 200)
	require.Equal(t, "stopped", v["state"])
	require.Equal(t, map[string]any{"biz_type": "order_close"}, v["filter"])
	require.Equal(t, v, call(c, "GET", "/v1/operations/"+operation, "").read(t, 200))
	call(c, "GET", "/v1/operations/1", "").problem(t, 404)
	require.Equal(t, []string{"body.rate"}, call(c, "POST", "/v1/dead/discard", `{"rate":1e-9}`).problem(t, 422).locations())
	for range intake.MaxOperations {
		call(c, "POST", "/v1/dead/redrive", `{"rate":0.01,"biz_type":"coupon"}`).read(t, 202)
	}
	require.Contains(t, call(c, "POST", "/v1/dead/discard", `{"rate":1}`).problem(t, 409).Detail, "20 operations of this kind run")
	undo := call(c, "POST", "/v1/operations/"+operation+"/undo", "").read(t, 200)
	require.Equal(t, "undo", undo["kind"], "undos count apart")
	call(c, "POST", "/v1/dead/redrive", `{"rate":1,"dry_run":true}`).read(t, 200)
	for _, o := range call(c, "GET", "/v1/operations", "").read(t, 200)["operations"].([]any) {
		call(c, "POST", "/v1/operations/"+o.(map[string]any)["id"].(string)+"/stop", "").read(t, 200)
	}
	last := call(c, "POST", "/v1/dead/discard", `{"rate":1,"biz_type":"coupon"}`).read(t, 202)["operation"].(string)
	call(c, "POST", "/v1/operations/"+last+"/stop", "").read(t, 200)
	require.JSONEq(t, `{"matched":4,"redriven":1}`, redrive(`{"biz_type":"order_close","limit":1}`))
	require.JSONEq(t, `{"matched":3,"redriven":3}`, redrive(`{}`))
	require.JSONEq(t, `{"tasks":[]}`, call(c, "GET", "/v1/dead", "").Body.String())
}

func TestStatusRoutes(t *testing.T) {
	c := newCenter(t)
	require.JSONEq(t, `{"node":"n1","partitions":4,"nodes":[{"name":"n1","address":"127.0.0.1:8080","partitions":[0,1,2,3]},
		{"name":"n2","address":"127.0.0.1:8081","partitions":[]}]}`, call(c, "GET", "/v1/cluster", "").Body.String())
	require.JSONEq(t, `{"biz_types":[{"id":"18446744073709551615","name":"order_close","mode":"scan","processor":"log",
		"queue_depth":3,"running":2,"overdue":1,"oldest_overdue_seconds":0,"retrying":0,"oldest_retrying_seconds":0,"oldest_promise_seconds":0,"rate_limit":0,"max_running":0,"catch_up":0}]}`, call(c, "GET", "/v1/biz-types", "").Body.String())
	require.JSONEq(t, `{"status":"ok"}`, call(c, "GET", "/healthz", "").Body.String())
	require.JSONEq(t, `{"ready":true,"degraded":[]}`, call(c, "GET", "/readyz", "").Body.String())
}

// A task of a business type that was taken out of the configuration can still
// be seen.
func TestTaskOfAnUnknownType(t *testing.T) {
	c := newCenter(t)
	id := c.submitted(t, 1)
	types, err := task.NewTypes()
	require.NoError(t, err)
	h := rest.New(rest.Config{Status: calm{}, Center: c.With(func(cfg *intake.Config) { cfg.Catalog = task.NewCatalog(types) })})
	v := call(h, "GET", "/v1/tasks/"+id, "").read(t, 200)
	require.Equal(t, "1", v["biz_type"])
}
