package rest_test

import (
	"fmt"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/testrig/await"
)

// Of ten callers that submit the key of an ended task at once, one gets 201; the others get 200 with its task.
func TestAgain(t *testing.T) {
	c := newCenter(t)
	const one = `{"biz_type":"order_close","biz_id":"o-1","delay":"1h","dedup_key":"k","on_duplicate":"again"}`
	const byKey = "/v1/tasks/by-key?biz_type=order_close&biz_id=o-1&dedup_key=k"
	last := call(c, "POST", "/v1/tasks", one).read(t, 201)["job_id"]
	for range 3 {
		require.Equal(t, last, call(c, "POST", "/v1/tasks", one).read(t, 200)["job_id"], "it is pending")
		call(c, "POST", "/v1/tasks/by-key/cancel?biz_type=order_close&biz_id=o-1&dedup_key=k", "").read(t, 200)
		require.Equal(t, last, call(c, "POST", "/v1/tasks", `{"biz_type":"order_close","biz_id":"o-1","delay":"1h","dedup_key":"k"}`).read(t, 200)["job_id"], "keep")

		answers := make([]answer, 10)
		var wg sync.WaitGroup
		for i := range answers {
			wg.Go(func() { answers[i] = call(c, "POST", "/v1/tasks", one) })
		}
		wg.Wait()
		ids, created := map[any]bool{}, 0
		for _, a := range answers {
			if a.Code == 201 {
				created++
			}
			ids[a.read(t, a.Code)["job_id"]] = true
			require.Contains(t, []int{200, 201}, a.Code)
		}
		require.Equal(t, 1, created)
		require.Len(t, ids, 1)
		now := call(c, "GET", byKey, "").read(t, 200)["job_id"]
		require.Contains(t, ids, now)
		old := call(c, "GET", "/v1/tasks/"+last.(string), "").read(t, 200)
		require.Equal(t, "cancelled", old["status"])
		require.NotContains(t, old, "dedup_key")
		last = now
	}
	moved := call(c, "PATCH", byKey, `{"delay":"2h"}`).read(t, 200)
	require.Equal(t, last, moved["job_id"])
	call(c, "POST", "/v1/tasks/"+last.(string)+"/cancel", "").read(t, 200)
	results := call(c, "POST", "/v1/tasks/batch", `{"tasks":[`+one+`,`+one+`]}`).read(t, 200)["results"].([]any)
	require.NotContains(t, results[0], "duplicate")
	require.NotEqual(t, last, results[0].(map[string]any)["job_id"])
	require.Equal(t, map[string]any{"job_id": results[0].(map[string]any)["job_id"], "duplicate": true}, results[1])
}

func TestPast(t *testing.T) {
	c := newCenter(t)
	const late = `"biz_type":"order_close","biz_id":1,"action_time":"2020-01-02T03:04:05.006Z"`
	call(c, "POST", "/v1/tasks", `{`+late+`}`).problem(t, 422)
	require.Equal(t, []string{"body.action_time"}, call(c, "POST", "/v1/tasks", `{`+late+`,"past":"refuse"}`).problem(t, 422).locations())
	require.Equal(t, []string{"body.past"}, call(c, "POST", "/v1/tasks", `{`+late+`,"past":"burn"}`).problem(t, 422).locations())
	v := call(c, "POST", "/v1/tasks", `{`+late+`,"past":"fire"}`).read(t, 201)
	require.Equal(t, "2020-01-02T03:04:05.006Z", v["due_time"])
	require.Equal(t, "pending", v["status"])
	results := call(c, "POST", "/v1/tasks/batch", `{"tasks":[{`+late+`},{`+late+`,"past":"fire"}]}`).read(t, 200)["results"].([]any)
	require.Equal(t, "action_time", results[0].(map[string]any)["error"].(map[string]any)["field"])
	require.Contains(t, results[1], "job_id")

	one := "/v1/tasks/" + c.submitted(t, 2)
	require.Equal(t, []string{"body.action_time"}, call(c, "PATCH", one, `{"action_time":"2020-01-02T03:04:05Z"}`).problem(t, 422).locations())
	require.Equal(t, []string{"body.action_time"}, call(c, "PATCH", one, `{"past":"fire"}`).problem(t, 422).locations(), "nothing to change")
	require.Equal(t, "2020-01-02T03:04:05.000Z", call(c, "PATCH", one, `{"action_time":"2020-01-02T03:04:05Z","past":"fire"}`).read(t, 200)["due_time"])
}

// Who moves each pending task on by an hour, page by page, comes to an end and has met each task once.
func TestAWalkEnds(t *testing.T) {
	c := newCenter(t)
	const tasks = 60
	for i := range tasks {
		call(c, "POST", "/v1/tasks", fmt.Sprintf(`{"biz_type":"order_close","biz_id":%d,"delay":"%dm"}`, i%7, 1+i%50)).read(t, 201)
	}
	seen := map[string]bool{}
	for _, query := range []url.Values{{"status": {"pending"}, "limit": {"9"}}, {"biz_id": {"3"}, "limit": {"2"}}} {
		clear(seen)
		began := time.Now()
		for pages := 0; ; pages++ {
			require.Less(t, pages, tasks)
			page := call(c, "GET", "/v1/tasks?"+query.Encode(), "").read(t, 200)
			for _, one := range page["tasks"].([]any) {
				id := one.(map[string]any)["job_id"].(string)
				require.NotContains(t, seen, id)
				seen[id] = true
				call(c, "PATCH", "/v1/tasks/"+id, `{"delay":"2h"}`).read(t, 200)
				if query.Has("biz_id") {
					await.That(t, func() bool { return time.Since(began) > time.Millisecond }, "the millisecond of the first page is over")
					call(c, "POST", "/v1/tasks", `{"biz_type":"order_close","biz_id":3,"delay":"1m"}`).read(t, 201)
				}
			}
			if page["next_cursor"] == nil {
				break
			}
			query.Set("cursor", page["next_cursor"].(string))
		}
		if query.Has("biz_id") {
			require.Len(t, seen, (tasks+3)/7)
		} else {
			require.Len(t, seen, tasks)
		}
	}
}
