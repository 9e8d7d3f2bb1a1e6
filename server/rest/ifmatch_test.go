package rest_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/task"
)

// tag checks that an answer with a task names its state, and gives the name.
func (a answer) tag(t testing.TB) string {
	t.Helper()
	require.Regexp(t, `^"[A-Za-z0-9_-]{16}"$`, a.Header().Get("ETag"))
	return a.Header().Get("ETag")
}

// All answers of a task in one state name it alike.
func TestEveryTaskAnswerHasAnETag(t *testing.T) {
	c := newCenter(t)
	submit := bad(`"dedup_key":"k","timeout":"1.5s","attribute":"é"`)
	const byKey = "/v1/tasks/by-key?biz_type=order_close&biz_id=42&dedup_key=k"
	first := call(c, "POST", "/v1/tasks", submit)
	one := "/v1/tasks/" + first.read(t, 201)["job_id"].(string)
	for _, same := range []answer{call(c, "GET", one, ""), call(c, "HEAD", one, ""), call(c, "GET", byKey, ""), call(c, "POST", "/v1/tasks", submit)} {
		require.Equal(t, first.tag(t), same.tag(t))
	}
	seen := map[string]bool{first.tag(t): true}
	for _, change := range [][3]string{
		{"PATCH", one, `{"delay":"2h"}`}, {"PATCH", one, `{"attribute":"b"}`}, {"PATCH", byKey, `{"timeout":"2s"}`}, {"PATCH", byKey, `{"timeout":"2s"}`},
	} {
		changed := call(c, change[0], change[1], change[2])
		changed.read(t, 200)
		require.False(t, seen[changed.tag(t)], "%v", change)
		seen[changed.tag(t)] = true
		require.Equal(t, changed.tag(t), call(c, "GET", one, "").tag(t))
	}
	c.moved(t, strings.TrimPrefix(one, "/v1/tasks/"), task.Dead)
	require.Equal(t, call(c, "POST", one+"/redrive", "").tag(t), call(c, "GET", one, "").tag(t))
}

// A hand leaves gmt_modified as it was, in SQLite; the tag changes all the same.
func TestAChangeBySQLChangesTheETag(t *testing.T) {
	c := newCenter(t)
	one := "/v1/tasks/" + c.submitted(t, 7)
	seen := map[string]string{call(c, "GET", one, "").tag(t): "nothing"}
	for _, set := range []string{
		"action_time = '2030-01-02 03:04:05.678'", "attribute = 'x'", "attempts = 3", "last_error = 'e'", "due_time = '2029-01-02 03:04:05.678'",
		"timeout_ms = 1500", "gmt_modified = '2030-01-02 03:04:05.678'", "status = 4",
	} {
		c.byHand(t, "UPDATE %s SET "+set)
		tag := call(c, "GET", one, "").tag(t)
		require.Empty(t, seen[tag], set)
		seen[tag] = set
	}
}

// A change that names a state of the task is made of that state or not at all.
func TestIfMatch(t *testing.T) {
	c := newCenter(t)
	const key = "?biz_type=order_close&biz_id=42&dedup_key="
	for _, r := range []struct{ name, method, path, body string }{
		{"change", "PATCH", "", `{"attribute":"b"}`}, {"cancel", "POST", "/cancel", ""}, {"redrive", "POST", "/redrive", ""},
		{"change by key", "PATCH", "by-key", `{"attribute":"b"}`}, {"cancel by key", "POST", "by-key/cancel", ""},
	} {
		t.Run(r.name, func(t *testing.T) {
			first := call(c, "POST", "/v1/tasks", bad(`"dedup_key":"`+r.name+`"`))
			id := first.read(t, 201)["job_id"].(string)
			if r.name == "redrive" {
				c.moved(t, id, task.Dead)
			}
			one := "/v1/tasks/" + id
			target := one + r.path
			if rest, byKey := strings.CutPrefix(r.path, "by-key"); byKey {
				target = "/v1/tasks/by-key" + rest + key + strings.ReplaceAll(r.name, " ", "%20")
			}
			now := call(c, "GET", one, "")
			for _, other := range []string{`"x"`, `""`, `W/` + now.tag(t), `"a", "b",`, `"*"`, `"` + strings.Repeat("x", 3000) + `"`} {
				refused := call(c, r.method, target, r.body, "If-Match", other)
				require.JSONEq(t, now.Body.String(), string(refused.problem(t, 412).Task), "the task as it stands")
				require.Equal(t, now.tag(t), refused.tag(t))
				require.Equal(t, now.Body.String(), call(c, "GET", one, "").Body.String(), "nothing is changed")
			}
			for _, malformed := range []string{"", "x", `"x`, `x"`, `"a" "b"`, `"a";"b"`, `*, "a"`, `"a", *`, "w/\"a\"", "\"a\tb\"", ",", "**"} {
				p := call(c, r.method, target, r.body, "If-Match", malformed).problem(t, 422)
				require.Equal(t, []string{"header.If-Match"}, p.locations(), malformed)
			}
			require.Equal(t, now.Body.String(), call(c, "GET", one, "").Body.String())
			done := call(c, r.method, target, r.body, "If-Match", ` "x" , W/"y",,`+now.tag(t))
			require.Equal(t, 200, done.Code, done.Body)

			gone := call(c, r.method, target, r.body, "If-Match", now.tag(t)).problem(t, 412)
			require.JSONEq(t, call(c, "GET", one, "").Body.String(), string(gone.Task), "made once")
			switch any := call(c, r.method, target, r.body, "If-Match", "*"); r.body {
			case "":
				any.problem(t, 409)
			default:
				any.read(t, 200)
			}
		})
	}

	both := call(c, "PATCH", "/v1/tasks/1", `{"delay":1}`, "If-Match", "x").problem(t, 422)
	require.Equal(t, []string{"header.If-Match", "body.delay"}, both.locations(), "all faults are named")
	call(c, "PATCH", "/v1/tasks/1", `{"delay":"1h"}`, "If-Match", "*").problem(t, 404)
}

func TestIfMatchInSeveralLines(t *testing.T) {
	c := newCenter(t)
	one := "/v1/tasks/" + c.submitted(t, 7)
	r := httptest.NewRequest("POST", one+"/cancel", nil)
	r.Header["If-Match"] = []string{`"x"`, call(c, "GET", one, "").tag(t)}
	require.Equal(t, http.StatusOK, record(c, r).Code)
}

// Of many who have seen the same state, one changes it.
func TestOneOfManyWinsWithOneTag(t *testing.T) {
	c := newCenter(t)
	one := "/v1/tasks/" + c.submitted(t, 7)
	for range 5 {
		tag := call(c, "GET", one, "").tag(t)
		codes := make([]int, 16)
		var all sync.WaitGroup
		for i := range codes {
			all.Go(func() { codes[i] = call(c, "PATCH", one, `{"attribute":"mine"}`, "If-Match", tag).Code })
		}
		all.Wait()
		count := map[int]int{}
		for _, code := range codes {
			count[code]++
		}
		require.Equal(t, map[int]int{200: 1, 412: len(codes) - 1}, count)
	}
}
