package rest_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/server/rest"
	"github.com/timeoutcenter/toc/task"
)

// newPullCenter has one business type, whose tasks are pulled: POST /youzan adds only to such.
func newPullCenter(t testing.TB) *center {
	return centerOf(t, task.BizType{ID: 1, Name: "order_close", Mode: task.ModeScan, Pull: true})
}

// wrongBodies are bodies that no door takes, with the field that each one is refused for. %s stands for the other fields.
var wrongBodies = map[string]struct{ members, field string }{
	"an id that is Latin-1":              {"\"ID\":\"caf\xe9\"", "ID"},
	"an id with half an emoji":           {`"ID":"\ud83d"`, "ID"},
	"an id with the second half alone":   {`"ID":"\ude00"`, "ID"},
	"an id with halves in the wrong way": {`"ID":"\ude00\ud83d"`, "ID"},
	"an id twice":                        {`"ID":"a","ID":"b"`, "ID"},
	"an id twice, once escaped":          {`"ID":"a","\u0049\u0044":"b"`, "ID"},
	"an id that is -1":                   {`"ID":-1`, "ID"},
	"an id that is 7.0":                  {`"ID":7.0`, "ID"},
	"an id that is 1e3":                  {`"ID":1e3`, "ID"},
	"an id that is too large a number":   {`"ID":18446744073709551616`, "ID"},
	"an id that is null":                 {`"ID":null`, "ID"},
	"an id that is true":                 {`"ID":true`, "ID"},
	"an empty id":                        {`"ID":""`, "ID"},
	"an id of 129 bytes":                 {`"ID":"` + strings.Repeat("x", 129) + `"`, "ID"},
	"a text that is Latin-1":             {"\"ID\":\"a\",\"TEXT\":\"caf\xe9\"", "TEXT"},
	"a text with half an emoji":          {`"ID":"a","TEXT":"\ud83d!"`, "TEXT"},
	"a text that is a number":            {`"ID":"a","TEXT":7}`, ""},
	"trailing data":                      {`"ID":"a"}}{`, ""},
	"trailing braces":                    {`"ID":"a"}`, ""},
	"a control character":                {"\"ID\":\"a\nb\"", ""},
	"an id with a leading zero":          {`"ID":007`, ""},
	"a comma at the end":                 {`"ID":"a",`, ""},
	"what is no JSON":                    {`id=a`, ""},
}

// door is a way in for a submit: it answers the field that a body was refused for, or "" if it is no JSON at all.
type door struct {
	name     string
	head     string // what goes before the members
	id, text string // what the fields are called here
	refused  func(t *testing.T, body string) (field string)
}

// Every door reads bodies in the same way: none puts something else into the place of what is no text.
func TestEveryDoorRefusesTheSame(t *testing.T) {
	c := newPullCenter(t)
	for _, d := range []door{
		{"/v1/tasks", `"biz_type":"order_close","delay":"1h",`, "biz_id", "attribute", func(t *testing.T, body string) string {
			a := call(c, "POST", "/v1/tasks", body)
			if a.Code == http.StatusBadRequest {
				return ""
			}
			return strings.TrimPrefix(a.problem(t, 422).locations()[0], "body.")
		}},
		{"/v1/tasks/batch", `"biz_type":"order_close","delay":"1h",`, "biz_id", "attribute", func(t *testing.T, body string) string {
			a := call(c, "POST", "/v1/tasks/batch", `{"tasks":[`+body+`]}`)
			if a.Code == http.StatusBadRequest {
				return ""
			}
			return a.read(t, 200)["results"].([]any)[0].(map[string]any)["error"].(map[string]any)["field"].(string)
		}},
		{"Kafka", `"biz_type":"order_close","delay":"1h",`, "biz_id", "attribute", func(t *testing.T, body string) string {
			_, err := rest.ReadSubmit([]byte(body))
			var wrong *task.FieldError
			require.ErrorAs(t, err, &wrong)
			return wrong.Field
		}},
		{"/youzan", `"command":"add","topic":"order_close","delay":3600,`, "id", "body", func(t *testing.T, body string) string {
			a := call(c, "POST", "/youzan", body).read(t, 200)
			require.EqualValues(t, 2, a["code"])
			field, _, _ := strings.Cut(a["error"].(string), ": ")
			if strings.Contains(a["error"].(string), "is not JSON") {
				return ""
			}
			return field
		}},
	} {
		t.Run(d.name, func(t *testing.T) {
			named := strings.NewReplacer(`"ID"`, `"`+d.id+`"`, `"TEXT"`, `"`+d.text+`"`, `\u0049\u0044`, strings.ReplaceAll(d.id, "i", `\u0069`))
			for name, w := range wrongBodies {
				got := d.refused(t, "{"+d.head+named.Replace(w.members)+"}")
				require.Equal(t, strings.NewReplacer("ID", d.id, "TEXT", d.text).Replace(w.field), got, name)
			}
		})
	}
	require.Empty(t, call(c, "GET", "/v1/tasks", "").read(t, 200)["tasks"], "nothing was stored")
}

// What Youzan's programs send besides is left out, but it is JSON as well.
func TestYouzanLeavesOutWhatItDoesNotKnow(t *testing.T) {
	c := newPullCenter(t)
	const head = `{"command":"add","topic":"order_close","id":"a","delay":3600,`
	for _, known := range []string{`"version":{"x":["😀"]}}`, `"ttr":5}`, `"Body":"b"}`, `"x":null}`} {
		require.EqualValues(t, 0, call(c, "POST", "/youzan", head+known).read(t, 200)["code"], known)
	}
	for wrong, field := range map[string]string{
		`"x":1,"x":2}`: "x", "\"x\":\"\xe9\"}": "x", `"x":["\ud83d"]}`: "x", `"max":-1}`: "max", `"max":0}`: "max", `"max":1.5}`: "max", `"max":"2"}`: "max",
		`"ttr":5,"TTR":6}`: "TTR", `"Delay":1}`: "delay", `"TTR":-1}`: "TTR", `"TTR":1e400}`: "TTR", `"body":{}}`: "body", `"wait":"soon"}`: "wait", `"wait":true}`: "wait",
	} {
		a := call(c, "POST", "/youzan", head+wrong).read(t, 200)
		require.EqualValues(t, 2, a["code"])
		require.True(t, strings.HasPrefix(a["error"].(string), field+": "), "%s: %s", wrong, a["error"])
	}
}

// A job is found behind however many other tasks of its id.
func TestYouzanFindsAJobAmongManyTasks(t *testing.T) {
	c := newPullCenter(t)
	do := func(body string) map[string]any { return call(c, "POST", "/youzan", body).read(t, 200) }
	for range 250 {
		call(c, "POST", "/v1/tasks", `{"biz_type":"order_close","biz_id":"a","delay":"1h"}`).read(t, 201)
	}
	require.Equal(t, map[string]any{"success": false, "error": "there is no such job", "code": 1.}, do(`{"command":"delete","id":"a"}`))
	job := do(`{"command":"add","topic":"order_close","id":"a","delay":3600}`)
	require.Equal(t, job, do(`{"command":"delete","id":"a"}`))
	require.Equal(t, "cancelled", call(c, "GET", "/v1/tasks/"+job["job_id"].(string), "").read(t, 200)["status"])
	require.Equal(t, false, do(`{"command":"delete","id":"a"}`)["success"])
}

// A text of digits that is no number as it is written is a text, at every door, and comes back as it was sent; 7 and "7" are one.
func TestDigitsThatAreNoNumber(t *testing.T) {
	c := newPullCenter(t)
	jobs := make(map[string]string) // by job_id
	for _, id := range []string{`7`, `"007"`, `"07"`, `"0012345"`, `"00"`, `"0"`, `"+7"`, `" 7"`, `"7 "`, `"7.0"`, `"1e3"`, `"-1"`, `"18446744073709551616"`, `"7\u0000"`} {
		text := strings.Trim(strings.ReplaceAll(id, `\u0000`, "\x00"), `"`)
		one := `{"biz_type":"order_close","biz_id":` + id + `,"delay":"1h","dedup_key":"youzan"}`
		v := call(c, "POST", "/v1/tasks", one).read(t, 201)
		require.Equal(t, text, v["biz_id"])
		job := v["job_id"].(string)
		require.NotContains(t, jobs, job)
		jobs[job] = text

		query := url.Values{"biz_type": {"order_close"}, "biz_id": {text}, "dedup_key": {"youzan"}}
		require.Equal(t, v, call(c, "GET", "/v1/tasks/by-key?"+query.Encode(), "").read(t, 200), id)
		require.Equal(t, []any{v}, call(c, "GET", "/v1/tasks?"+url.Values{"biz_id": {text}}.Encode(), "").read(t, 200)["tasks"], id)
		batch := call(c, "POST", "/v1/tasks/batch", `{"tasks":[`+one+`]}`).read(t, 200)["results"].([]any)[0]
		require.Equal(t, map[string]any{"job_id": job, "duplicate": true}, batch, id)
		s, err := rest.ReadSubmit([]byte(one))
		require.NoError(t, err)
		again, err := c.Service.Submit(t.Context(), s) // as from Kafka
		require.NoError(t, err)
		require.Equal(t, job, again.Task.JobID.String(), id)
		a := call(c, "POST", "/youzan", `{"command":"add","topic":"order_close","id":`+id+`,"delay":5}`).read(t, 200)
		require.Equal(t, job, a["job_id"], id)
	}
	seven := call(c, "POST", "/v1/tasks", `{"biz_type":"order_close","biz_id":"7","delay":"1h","dedup_key":"youzan"}`).read(t, 200)
	require.Equal(t, "7", seven["biz_id"])
	require.EqualValues(t, 0, call(c, "POST", "/youzan", `{"command":"delete","id":"007"}`).read(t, 200)["code"])
	require.Equal(t, "pending", call(c, "GET", "/v1/tasks/"+seven["job_id"].(string), "").read(t, 200)["status"], "another job")
}
