package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fake is a server that answers each request alike and keeps the last one.
type fake struct {
	*httptest.Server
	status  int
	body    string
	request string
}

func newFake(t *testing.T, status int, body string) *fake {
	f := &fake{status: status, body: body}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent, _ := io.ReadAll(r.Body)
		f.request = strings.TrimSpace(fmt.Sprintf("%s %s\n%s", r.Method, r.URL, sent))
		for _, name := range []string{"Authorization", "If-Match"} {
			if value := r.Header.Get(name); value != "" {
				f.request += "\n" + name + ": " + value
			}
		}
		kind := "application/json"
		switch {
		case strings.HasPrefix(f.body, "<"):
			kind = "text/html"
		case f.status > 299:
			kind = "application/problem+json"
		}
		w.Header().Set("Content-Type", kind)
		if strings.Contains(f.body, `"gmt_modified"`) && !strings.Contains(f.body, `"tasks"`) {
			w.Header().Set("ETag", `"ys2jcA5Gxu2UQyFi"`)
		}
		w.WriteHeader(f.status)
		_, _ = io.WriteString(w, f.body)
	}))
	t.Cleanup(f.Close)
	return f
}

// What a server may answer.
const (
	pendingTask = `{"job_id":"413351953711104","biz_type":"order_close","biz_id":"42","status":"pending","action_time":"2026-01-02T15:34:04.999Z",` +
		`"attempts":0,"gmt_create":"2026-01-02T15:04:03.000Z","gmt_modified":"2026-01-02T15:04:03.000Z"}`
	deadTask = `{"job_id":"413351953711105","biz_type":"coupon","biz_id":"18446744073709551615","status":"dead","action_time":"2025-12-24T00:00:00.000Z",` +
		`"attribute":"{\"order\":\"42\"}","attempts":17,"last_error":"no answer\n\u001b[31mred","dedup_key":"k-1","gmt_create":"2025-12-23T00:00:00.000Z","gmt_modified":"2026-01-02T15:04:05.000Z"}`
	runningTask = `{"job_id":"413351953711104","biz_type":"order_close","biz_id":"6f1c\u001b[31m","status":"pending","action_time":"2026-01-02T15:34:04.999Z",` +
		`"due_time":"2026-01-02T15:04:04.999Z","timeout":"1.5s","attempts":1,"gmt_create":"2026-01-02T15:04:03.000Z","gmt_modified":"2026-01-02T15:04:03.000Z",` +
		`"running":{"node":"node-1","since":"2026-01-02T15:04:03.001Z"}}`
	changed  = `{"title":"Precondition Failed","status":412,"detail":"task 1 is not as you have seen it","task":` + pendingTask + `}`
	notFound = `{"title":"Not Found","status":404,"detail":"no task has this job_id"}`
	conflict = `{"title":"Conflict","status":409,"detail":"task 1 cannot be changed: running","outcome":"running"}`
	invalid  = `{"title":"Unprocessable Entity","status":422,"detail":"validation failed",` +
		`"errors":[{"location":"body.biz_type","message":"\"nosuch\" is not configured; there are: order_close"}]}`
	whyAnswer = `{"state":"pending","where":"store","node":"node-1","next":"2026-01-02T15:34:04.999Z","because":[` +
		`"it has failed once and waits for its back-off until 2026-01-02T15:34:04.999Z; the last error: \u001b[31mred","it is only in the store: a scan reads it in time"],` +
		`"failed_runs":[{"attempt":1,"at":"2026-01-02T15:02:01.000Z","error":"no answer"},{"attempt":2,"at":"2026-01-02T15:03:01.000Z","error":"\u001b[31mred"}]}`
	redriveOperation = `{"id":"1882669783454408957","kind":"redrive","by":"api","filter":{"biz_type":"coupon","error":"re\u001b[31mfused"},"rate":2.5,` +
		`"state":"stopped","matched":7,"done":3,"skipped":1,"started":"2026-01-02T15:04:03.000Z","ended":"2026-01-02T15:04:04.000Z"}`
	undoOperation = `{"id":"1882669783454408999","kind":"undo","by":"api","undoes":"1882669783454408957","filter":{},"rate":0,` +
		`"state":"running","matched":3,"done":0,"skipped":0,"started":"2026-01-02T15:04:04.500Z"}`
	threeNodes = `{"node":"n2","partitions":16,"nodes":[{"name":"n1","address":"10.0.0.7:8080","partitions":[0,1,2,3,8]},` +
		`{"name":"n2","address":"10.0.0.8:8080","partitions":[4,5,6,7,9,11]},{"name":"joining","address":"10.0.0.9:8080","partitions":[]}]}`
	unworked = `{"node":"n2","partitions":4,"nodes":[{"name":"n1","address":"10.0.0.7:8080","partitions":[0,1,2,3]},{"name":"n2","address":"10.0.0.8:8080","partitions":[]}],` +
		`"unworked":[{"partitions":[0,1,2,3],"node":"n1","address":"10.0.0.7:8080","session":"adf4238a","reason":"node n1 (10.0.0.7:8080) holds them and has not answered"}]}`
	outdated = `{"node":"n2","partitions":4,"outdated":"consul does not answer since 9s: partitions stopped","nodes":[{"name":"n1","address":"10.0.0.7:8080","partitions":[0,1,2,3]}]}`
	oneNode  = `{"node":"n1","partitions":4,"nodes":[{"name":"n1","address":"127.0.0.1:8080","partitions":[3,2,1,0]}]}`
)

// Each command line, what the server answers, and what then is seen: the exit
// code, the output, and what was asked.
func TestClientCommands(t *testing.T) {
	t.Setenv("TOC_TOKEN", "")
	for _, c := range []struct {
		name   string
		status int
		answer string
		args   string
	}{
		{"submit-in", 201, pendingTask, "submit --biz-type order_close --biz-id 42 --in 30m"},
		{"submit-at", 201, pendingTask, "submit --biz-type order_close --biz-id 42 --at 2026-01-02T16:34:04.999+01:00 --attribute x=1 --dedup-key k-1"},
		{"submit-duplicate", 200, pendingTask, "submit --biz-type order_close --biz-id 42 --in 0s --dedup-key k-1"},
		{"submit-duplicate-json", 200, pendingTask, "submit --biz-type order_close --biz-id 42 --in 0s --dedup-key k-1 --json"},
		{"submit-json", 201, pendingTask + "\n", "submit --biz-type order_close --biz-id 42 --in 30m --json"},
		{"submit-refused", 422, invalid, "submit --biz-type nosuch --biz-id 42 --in 30m"},
		{"submit-refused-json", 422, invalid, "submit --biz-type nosuch --biz-id 42 --in 30m --json"},
		{"get", 200, pendingTask, "get 413351953711104"},
		{"get-running", 200, runningTask, "get 413351953711104"},
		{"get-by-key", 200, pendingTask, "get --biz-type order_close --biz-id 6f1c&1 --dedup-key k-1"},
		{"get-by-key-json", 200, runningTask, "get --biz-type order_close --biz-id 42 --dedup-key k-1 --json"},
		{"cancel-by-key", 200, `{"outcome":"cancelled"}`, "cancel --biz-type order_close --biz-id 6f1c --dedup-key k-1 --if-match ys2jcA5Gxu2UQyFi"},
		{"cancel-changed", 412, changed, "cancel 1 --if-match x"},
		{"cancel-changed-json", 412, changed, "cancel 1 --if-match x --json"},
		{"reschedule-attribute", 200, pendingTask, "reschedule 413351953711104 --attribute x"},
		{"reschedule-by-key", 200, pendingTask, "reschedule --biz-type order_close --biz-id 42 --dedup-key k-1 --in 5m --timeout 1.5s --if-match \"x\""},
		{"redrive-if", 200, pendingTask, "redrive 413351953711104 --if-match *"},
		{"submit-text", 201, pendingTask, "submit --biz-type order_close --biz-id 6f1c0b6e-9a53 --in 30m --timeout 1.5s"},
		{"submit-move", 200, pendingTask, "submit --biz-type order_close --biz-id 42 --in 30m --dedup-key k-1 --on-duplicate move"},
		{"submit-again", 201, pendingTask, "submit --biz-type order_close --biz-id 42 --at 2026-01-01T15:04:05Z --past fire --dedup-key k-1 --on-duplicate again"},
		{"submit-digits", 201, pendingTask, "submit --biz-type order_close --biz-id 007 --in 30m"},
		{"reschedule-past", 200, pendingTask, "reschedule 413351953711104 --at 2026-01-01T15:04:05Z --past fire"},
		{"list-text", 200, `{"tasks":[` + runningTask + `]}`, "list --biz-id 6f1c0b6e-9a53"},
		{"why", 200, whyAnswer, "why 413351953711104"},
		{"why-json", 200, whyAnswer, "why 413351953711104 --json"},
		{"why-none", 404, notFound, "why 1"},
		{"get-dead", 200, deadTask, "get 413351953711105"},
		{"get-json", 200, deadTask, "get 413351953711105 --json"},
		{"get-none", 404, notFound, "get 1"},
		{"cancel", 200, `{"outcome":"cancelled"}`, "cancel 413351953711104"},
		{"cancel-json", 200, `{"outcome":"cancelled"}`, "cancel 413351953711104 --json"},
		{"cancel-running", 409, conflict, "cancel 1"},
		{"cancel-running-json", 409, conflict, "cancel 1 --json"},
		{"reschedule-in", 200, pendingTask, "reschedule 413351953711104 --in 0s"},
		{"reschedule-at", 200, pendingTask, "reschedule 413351953711104 --at 2026-01-02T15:34:04Z --attribute="},
		{"redrive", 200, pendingTask, "redrive 413351953711104"},
		{"list", 200, `{"tasks":[` + pendingTask + "," + deadTask + `]}`, "list --biz-id 42"},
		{"list-more", 200, `{"tasks":[` + pendingTask + `],"next_cursor":"dAAAAAAAAAAB"}`,
			"list --biz-id 42 --biz-type order_close --status pending --limit 1 --cursor abc"},
		{"list-none", 200, `{"tasks":[]}`, "list --biz-id 42"},
		{"list-json", 200, `{"tasks":[],"next_cursor":"dAAAAAAAAAAB"}`, "list --biz-id 42 --json"},
		{"dead-list", 200, `{"tasks":[` + deadTask + `]}`, "dead list --biz-type coupon --limit 1000"},
		{"dead-redrive", 200, `{"matched":7,"redriven":5}`, "dead redrive --biz-type coupon --limit 5"},
		{"dead-redrive-all", 200, `{"matched":7,"redriven":7}`, "dead redrive"},
		{"dead-redrive-dry", 200, `{"matched":7,"redriven":0}`, "dead redrive --dry-run"},
		{"dead-redrive-json", 200, `{"matched":7,"redriven":7}`, "dead redrive --json"},
		{"dead-redrive-rate", 202, `{"matched":7,"operation":"1882669783454408957"}`, "dead redrive --biz-type coupon --error refused --rate 2.5"},
		{"dead-discard-rate-json", 202, `{"matched":7,"operation":"1882669783454408957"}`, "dead discard --rate 1000 --json"},
		{"operations", 200, `{"operations":[` + undoOperation + "," + redriveOperation + `]}`, "operations --limit 2"},
		{"operations-json", 200, `{"operations":[` + redriveOperation + `]}`, "operations --json"},
		{"operations-none", 200, `{"operations":[]}`, "operations"},
		{"operations-stop", 200, redriveOperation, "operations stop 1882669783454408957"},
		{"operations-undo", 200, undoOperation, "operations undo 1882669783454408957"},
		{"operations-undo-none", 404, strings.Replace(notFound, "task has this job_id", "operation has this id", 1), "operations undo 7"},
		{"cluster", 200, threeNodes, "cluster"},
		{"cluster-one", 200, oneNode, "cluster"},
		{"cluster-unworked", 200, unworked, "cluster"},
		{"cluster-outdated", 200, outdated, "cluster"},
		{"cluster-json", 200, threeNodes, "cluster --json"},
		{"no-token", 401, `{"title":"Unauthorized","status":401,"detail":"a bearer token is needed"}`, "cluster"},
		{"proxy", 502, "<html>Bad Gateway</html>", "cluster --json"},
		{"no-center", 200, "<html>Welcome</html>", "cluster --json"},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := newFake(t, c.status, c.answer)
			r := toc(append(strings.Fields(c.args), "--server", server.URL+"/")...)
			seen := fmt.Sprintf("$ toc %s\n%s%sexit code %d\n\n%s\n", c.args, r.out, r.err, r.code, server.request)
			golden(t, "client/"+c.name, strings.ReplaceAll(seen, server.URL, "http://SERVER"))
		})
	}
}

func TestTokenAndServerComeFromTheEnvironment(t *testing.T) {
	server := newFake(t, 200, oneNode)
	t.Setenv("TOC_SERVER", strings.TrimPrefix(server.URL, "http://"))
	t.Setenv("TOC_TOKEN", "secret")
	ok(t, "cluster")
	require.Equal(t, "GET /v1/cluster\nAuthorization: Bearer secret", server.request)

	other := newFake(t, 200, oneNode)
	server.request = ""
	ok(t, "cluster", "--server", other.URL)
	require.NotEmpty(t, other.request)
	require.Empty(t, server.request, "the flag goes over the environment")
}

func TestWithoutAServerItSaysHowToStartOne(t *testing.T) {
	gone := httptest.NewServer(nil)
	gone.Close()
	for _, flags := range [][]string{{}, {"--json"}} {
		r := toc(append([]string{"get", "1", "--server", gone.URL}, flags...)...)
		require.Equal(t, 1, r.code)
		require.Empty(t, r.out)
		require.Contains(t, r.err, gone.URL)
		require.Contains(t, r.err, "connection refused")
		require.Contains(t, r.err, "toc serve")
	}
}

func TestAnAnswerThatBreaksOffIsAFailure(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		_, _ = io.WriteString(w, oneNode)
	}))
	defer server.Close()
	r := toc("cluster", "--json", "--server", server.URL)
	require.Equal(t, 1, r.code)
	require.Contains(t, r.err, "read answer")
}

func TestOutputThatCannotBeWrittenIsAFailure(t *testing.T) {
	server := newFake(t, 200, pendingTask)
	for _, flags := range [][]string{{}, {"--json"}} {
		var stderr strings.Builder
		code := run(append([]string{"get", "1", "--server", server.URL}, flags...), full{}, &stderr, time.Now)
		require.Equal(t, 1, code)
		require.Contains(t, stderr.String(), "disk full")
	}
}
