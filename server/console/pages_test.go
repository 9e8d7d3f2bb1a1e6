package console_test

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/app/metrics"
	"github.com/timeoutcenter/toc/server/console"
	"github.com/timeoutcenter/toc/task"
)

// everyPage lists a page of each kind, by its address.
func everyPage(jobID, deadID task.Task, operation string) []string {
	return []string{
		"/console/", "/console/forecast", "/console/forecast?span=168h&biz_type=coupon", "/console/types", "/console/types/order_close", "/console/types/coupon",
		"/console/tasks", "/console/tasks?biz_id=1", "/console/tasks?status=dead&biz_type=order_close", at(jobID.JobID), at(deadID.JobID), at(jobID.JobID) + "/cancel",
		"/console/dead", "/console/dead?error=refused", "/console/dead/redrive?biz_type=order_close", "/console/dead/discard", "/console/operations", "/console/operations/" + operation + "/undo",
		"/console/cluster", "/console/audit",
	}
}

// filled is a fake with a pending task, a dead one, and an operation.
func filled(t testing.TB) (f *fake, pages []string) {
	f = newFake(t)
	pending, dead := f.submitted(t, 1), f.died(t, 2, "connection refused")
	got, err := f.desk.DiscardDead(t.Context(), api.DeadRequest{BizType: "coupon", Rate: 1})
	require.NoError(t, err)
	return f, everyPage(pending, dead, fmt.Sprint(got.Operation))
}

// Each page stands by itself: a heading, the ways to the others, nothing that a strict policy would refuse.
func TestPages(t *testing.T) {
	f, pages := filled(t)
	for _, p := range pages {
		a := f.ask(t, "GET", p, nil)
		require.Equal(t, 200, a.Code, "%s: %s", p, a.text)
		require.Equal(t, 1, strings.Count(a.text, "<h1"), p)
		require.Equal(t, 1, strings.Count(a.text, "<main"), p)
		require.Contains(t, a.text, `<nav aria-label="Console">`, p)
		for _, to := range []string{"/console/", "/console/forecast", "/console/types", "/console/tasks", "/console/dead", "/console/operations", "/console/cluster", "/console/audit"} {
			require.Contains(t, a.text, `<a href="`+to+`"`, p)
		}
		require.NotRegexp(t, `<[^>]+\s(style|on[a-z]+)=`, a.text, p)
		require.NotRegexp(t, `<script>|<style`, a.text, p)
		require.NotRegexp(t, `(src|href|action)="(https?:)?//`, a.text, p)
		require.NotContains(t, a.text, "ZgotmplZ", p)
		require.NotContains(t, a.text, token, p)
		for _, id := range repeated(regexp.MustCompile(`\sid="([^"]*)"`).FindAllStringSubmatch(a.text, -1)) {
			require.Fail(t, "two elements share an id", "%s: %s", p, id)
		}
		for _, input := range regexp.MustCompile(`<(input|select)[^>]*>`).FindAllString(a.text, -1) {
			require.Contains(t, input, "name=", p)
		}
		for _, button := range regexp.MustCompile(`<button[^>]*>([^<]*)</button>`).FindAllStringSubmatch(a.text, -1) {
			require.NotEmpty(t, strings.TrimSpace(button[1]), p)
		}
		require.Empty(t, f.log.String())
	}
}

func repeated(found [][]string) (list []string) {
	seen := make(map[string]bool)
	for _, m := range found {
		if seen[m[1]] {
			list = append(list, m[1])
		}
		seen[m[1]] = true
	}
	return list
}

// The headers let nothing in, also with an error, an asset and live parts.
func TestHeaders(t *testing.T) {
	f, pages := filled(t)
	for _, p := range append(pages, "/console/nothing", "/console/assets/console.js", "/console/assets/none", "/console/live?topic=none", "/console/login", "/console/tasks?job_id=x") {
		h := f.ask(t, "GET", p, nil).Header()
		require.Equal(t, "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
			h.Get("Content-Security-Policy"), p)
		require.Equal(t, "nosniff", h.Get("X-Content-Type-Options"), p)
		require.Equal(t, "same-origin", h.Get("Referrer-Policy"), p)
		require.Equal(t, "same-origin", h.Get("Cross-Origin-Opener-Policy"), p)
	}
	require.Equal(t, "no-store", f.ask(t, "GET", "/console/", nil).Header().Get("Cache-Control"))
}

// An asset may be kept for ever under the address that pages have; it is another one for other contents.
func TestAssets(t *testing.T) {
	f := newFake(t)
	text := f.get(t, "/console/")
	for _, name := range []string{"console.css", "console.js", "icon.svg"} {
		found := regexp.MustCompile(`"(/console/assets/` + regexp.QuoteMeta(name) + `\?v=[0-9a-f]+)"`).FindStringSubmatch(text)
		require.NotNil(t, found, name)
		a := f.ask(t, "GET", found[1], nil)
		require.Equal(t, 200, a.Code)
		require.Contains(t, a.Header().Get("Cache-Control"), "immutable")
		require.NotContains(t, a.text, "://"+"cdn")
		again := f.ask(t, "GET", found[1], nil, "If-None-Match", a.Header().Get("ETag"))
		require.Equal(t, 304, again.Code)
		require.NotContains(t, f.ask(t, "GET", "/console/assets/"+name, nil).Header().Get("Cache-Control"), "immutable")
	}
	require.Equal(t, 404, f.ask(t, "GET", "/console/assets/..%2fpage.go", nil).Code)
}

// A GET changes nothing, whatever its address.
func TestNoGETChangesAnything(t *testing.T) {
	f, pages := filled(t)
	tasks := func() string {
		var all []api.Task
		for _, status := range []string{"pending", "processed", "cancelled", "dead"} {
			p, err := f.desk.ListAll(t.Context(), api.ListAll{Status: status})
			require.NoError(t, err)
			all = append(all, p.Tasks...)
		}
		return fmt.Sprint(all)
	}
	operations := func() string {
		list, err := f.desk.Operations(t.Context(), 0)
		require.NoError(t, err)
		return fmt.Sprint(list)
	}
	before, operated, audited := tasks(), operations(), len(f.audit(t))
	var acts []string
	for _, p := range pages {
		path, _, _ := strings.Cut(p, "?")
		for _, act := range []string{"", "/cancel", "/reschedule?delay=1s", "/run-now", "/redrive", "/pause?reason=x", "/resume", "/discard", "/stop", "/undo"} {
			acts = append(acts, strings.TrimSuffix(path, "/")+act)
		}
	}
	for _, method := range []string{"GET", "HEAD"} {
		for _, p := range append(acts, "/console/logout") {
			require.NotEqual(t, 500, f.ask(t, method, p, nil).Code, p)
		}
	}
	require.Equal(t, before, tasks())
	require.Equal(t, operated, operations())
	require.Len(t, f.audit(t), audited)
	require.Nil(t, f.center.paused)
}

// A POST that a browser sends for another site is refused, and nothing is done.
func TestForeignPostsAreRefused(t *testing.T) {
	f := newFake(t)
	got := f.submitted(t, 1)
	for _, headers := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "https://evil.example"}, {"Origin", "null"}} {
		for _, p := range []string{at(got.JobID) + "/cancel", "/console/types/order_close/pause", "/console/login", "/console/dead/discard"} {
			require.Equal(t, 403, f.ask(t, "POST", p, fields("token", token), headers...).Code, "%s %s", p, headers)
		}
	}
	require.Equal(t, task.Pending, f.read(t, got.JobID).Status)
	require.Nil(t, f.center.paused)
	require.Equal(t, 303, f.ask(t, "POST", at(got.JobID)+"/cancel", nil, "Sec-Fetch-Site", "same-origin").Code)
}

// Whatever somebody stores, pages show it as text.
func TestHTMLIsInert(t *testing.T) {
	const evil = `"><img src=x onerror=alert(1)>'</script><script>alert(2)</script>{{.}}`
	f := newFake(t, task.BizType{ID: 1, Name: "order_close"}, task.BizType{ID: 2, Name: evil})
	pending := f.submitted(t, 0, func(s *api.Submit) { s.BizKey, s.Attribute, s.DedupKey, s.BizType = evil, evil, evil[:60], evil })
	dead := f.died(t, 3, evil)
	f.fails(t, pending.JobID, task.Pending, "first "+evil)
	f.fails(t, pending.JobID, task.Pending, evil)
	require.Contains(t, f.get(t, at(pending.JobID)), "first &#34;&gt;&lt;img")
	_, err := f.desk.Pause(t.Context(), evil, api.AskPause{Reason: evil})
	require.NoError(t, err)
	f.desk.Record(t.Context(), entry(evil))
	_, err = f.desk.RedriveDead(t.Context(), api.DeadRequest{BizType: evil, Error: evil, Rate: 1})
	require.NoError(t, err)
	f.center.say(console.NodePulse{Name: evil, Address: evil, Partitions: []int{1}, Pulse: api.Pulse{Ready: true, Degraded: []string{evil},
		BizTypes: []api.PulseType{{Name: evil, Overdue: 3, Oldest: 99}}, Databases: []api.PulseServer{{Fault: evil}}, Clocks: []api.PulseClock{{Of: evil, Name: evil, Ahead: 1}}}},
		console.NodePulse{Name: "n2", Err: errors.New(evil)})
	shown := 0
	for _, p := range []string{
		"/console/", "/console/forecast", "/console/types", typeURL(evil), "/console/tasks", "/console/tasks?biz_id=" + escape(evil), "/console/tasks?q=" + escape(evil), at(pending.JobID), at(pending.JobID) + "/cancel",
		at(dead.JobID), "/console/dead", "/console/dead?error=" + escape(evil), "/console/dead/discard?error=" + escape(evil), "/console/operations", "/console/cluster", "/console/audit", "/console/audit?actor=" + escape(evil),
		"/console/tasks?job_id=" + escape(evil), "/console/forecast?span=" + escape(evil), "/console/types?q=" + escape(evil), "/console/login?next=" + escape(evil), "/console/" + escape(evil),
	} {
		a := f.ask(t, "GET", p, nil)
		require.NotContains(t, a.text, "<img src=x", p)
		require.NotContains(t, a.text, "<script>alert", p)
		require.NotContains(t, a.text, `"><`+"img", p)
		require.NotContains(t, a.Header().Get("Location"), "evil", p)
		if strings.Contains(a.text, "img src=x onerror") {
			shown++
		}
	}
	require.Greater(t, shown, 12, "it is shown as text")
	require.NotContains(t, f.log.String(), "page not made")
}

// What is asked for wrongly is named.
func TestWrongInput(t *testing.T) {
	f := newFake(t)
	got, dead := f.submitted(t, 1), f.died(t, 2, "x")
	for target, says := range map[string]string{
		"/console/tasks?job_id=abc":             "job_id: ",
		"/console/tasks?from=yesterday":         "from: ",
		"/console/tasks?status=asleep":          "status: ",
		"/console/tasks?biz_type=nope":          "biz_type: ",
		"/console/tasks?cursor=zzz":             "cursor: ",
		"/console/tasks?dedup_key=k":            "biz_id: ",
		"/console/forecast?span=9000h":          "span: ",
		"/console/forecast?span=0.5s":           "span: ",
		"/console/forecast?step=1s&span=31h":    "step: ",
		"/console/forecast?span=-1h":            "span: ",
		"/console/types?page=0":                 "page: ",
		"/console/dead?since=x":                 "since: ",
		"/console/dead?since=x&error=y":         "since: ",
		"/console/dead/redrive?rate=-1":         "rate: ",
		"/console/dead/redrive?rate=NaN":        "rate: ",
		"/console/dead/discard?limit=x":         "limit: ",
		"/console/dead/discard?biz_type=nobody": "biz_type: ",
		"/console/audit?to=x":                   "to: ",
		"/console/audit?cursor=!":               "cursor: ",
	} {
		a := f.ask(t, "GET", target, nil)
		require.Equal(t, 422, a.Code, "%s: %s", target, a.text)
		require.Contains(t, a.text, `<p class="note wrong" role="alert">`+says, target)
		require.NotContains(t, a.text, "is dead", target)
		require.NotContains(t, a.text, "No dead task matches", target)
	}
	for _, c := range [][]string{
		{at(got.JobID) + "/reschedule", "action_time: "},
		{at(got.JobID) + "/reschedule", "delay: ", "delay", "soon"},
		{at(got.JobID) + "/reschedule", "action_time: ", "action_time", "2001-01-01T00:00:00Z"},
		{at(got.JobID) + "/cancel", "if_match: ", "if_match", "x"},
		{"/console/types/order_close/pause", "until: ", "until", "soon"},
		{"/console/types/order_close/pause", "reason: ", "reason", strings.Repeat("x", 256)},
		{"/console/dead/redrive", "rate: ", "rate", "fast"},
		{"/console/dead/discard", "since: ", "since", "x"},
	} {
		a := f.ask(t, "POST", c[0], fields(c[2:]...))
		require.Equal(t, 422, a.Code, "%s: %s", c, a.text)
		require.Contains(t, a.text, `<p class="note wrong" role="alert">`+c[1], c)
	}
	for _, target := range []string{"/console/tasks/x", "/console/tasks/18446744073709551615", "/console/types/nope", "/console/operations/7/undo", "/console/nothing", "/console/tasks?job_id=5"} {
		a := f.ask(t, "GET", target, nil)
		require.Equal(t, 404, a.Code, target)
		require.Contains(t, a.text, `role="alert"`, target)
	}
	require.Contains(t, f.ask(t, "GET", "/console/%3Cb%3E", nil).text, "There is no such page. You asked for /console/&lt;b&gt;.")
	require.Equal(t, 404, f.ask(t, "POST", "/console/types/nope/pause", nil).Code)
	require.Equal(t, 409, f.ask(t, "POST", at(dead.JobID)+"/cancel", nil).Code, "it is dead already")
	require.Equal(t, task.Pending, f.read(t, got.JobID).Status)
	a := f.ask(t, "POST", at(got.JobID)+"/cancel", fields("if_match", strings.Repeat("x", 70_000)))
	require.Equal(t, 413, a.Code)
}

// Pages stay small with very many business types, and say what they leave out.
func TestManyTypes(t *testing.T) {
	var types []task.BizType
	for i := range uint64(1000) {
		types = append(types, task.BizType{ID: i + 1, Name: fmt.Sprintf("business_type_with_a_long_name_%04d", i), Mode: task.ModeRedis, RateLimit: 100})
	}
	f := newFake(t, types...)
	var loads []api.PulseType
	for i := range 100 {
		loads = append(loads, api.PulseType{Name: types[i*7].Name, Overdue: 1 + i, Oldest: float64(i)})
	}
	f.center.say(console.NodePulse{Name: "n1", Pulse: api.Pulse{Ready: true, BizTypes: loads}})
	for _, p := range []string{"/console/", "/console/types", "/console/types?page=20", "/console/types?sort=overdue", "/console/tasks", "/console/dead", "/console/forecast"} {
		a := f.ask(t, "GET", p, nil)
		require.Equal(t, 200, a.Code)
		require.Less(t, a.Body.Len(), 30<<10, p)
		require.Less(t, len(a.text), 150<<10, p)
	}
	text := f.get(t, "/console/types")
	require.Contains(t, text, "1–50 of 1,000")
	require.Contains(t, text, `href="/console/types?page=2"`)
	require.NotContains(t, text, "name_0050")
	require.Contains(t, f.get(t, "/console/types?page=20"), "951–1,000 of 1,000")
	require.Contains(t, f.get(t, "/console/types?q=name_0999"), "1–1 of 1 that match, of 1,000")
	require.Contains(t, f.get(t, "/console/types?sort=overdue"), types[99*7].Name)
	require.Contains(t, f.get(t, "/console/"), "88 more types")
}

// Tasks are found in each of the ways that the API has.
func TestFind(t *testing.T) {
	f := newFake(t)
	due := time.Now().Add(3 * time.Hour).UTC().Truncate(time.Second)
	mine := f.submitted(t, 7, func(s *api.Submit) { s.DedupKey, s.ActionTime = "k 1", due })
	text := f.submitted(t, 0, func(s *api.Submit) { s.BizKey = "6f1c-é" })
	for i := range uint64(120) {
		f.submitted(t, 100+i)
	}
	for _, q := range []string{"job_id=" + fmt.Sprint(mine.JobID), "biz_type=order_close&biz_id=7&dedup_key=k+1"} {
		a := f.ask(t, "GET", "/console/tasks?"+q, nil)
		require.Equal(t, 303, a.Code, a.text)
		require.Equal(t, at(mine.JobID), a.Header().Get("Location"))
	}
	link := `href="` + at(mine.JobID) + `"`
	require.Contains(t, f.get(t, "/console/tasks?biz_id=7"), link)
	dead := f.died(t, 7, "connection refused")
	one := f.get(t, "/console/tasks?biz_id=7&status=dead")
	require.Contains(t, one, "Tasks of this biz_id with status dead")
	require.Contains(t, one, at(dead.JobID))
	require.NotContains(t, one, link)
	all := f.get(t, "/console/tasks?biz_id=7&status=processed")
	require.Contains(t, all, "No task of this biz_id is processed. These are all of its tasks")
	require.Contains(t, all, link)
	require.NotContains(t, all, " selected>processed", "the form says what is listed")
	require.Contains(t, f.get(t, "/console/tasks?biz_id=8&status=pending"), "No task matches.")
	require.Contains(t, f.get(t, "/console/tasks?biz_id=6f1c-%C3%A9"), at(text.JobID))
	const layout = "2006-01-02T15:04:05"
	within := "/console/tasks?from=" + due.Format(layout) + "&to=" + due.Add(time.Second).Format(layout)
	require.Contains(t, f.get(t, within), link)
	require.Equal(t, 1, strings.Count(f.get(t, within), `class="mono" href="/console/tasks/`))
	require.NotContains(t, f.get(t, within+"&biz_type=coupon"), link)

	seen, next := map[string]bool{}, "/console/tasks"
	for pages := 1; next != ""; pages++ {
		text := f.get(t, next)
		require.LessOrEqual(t, strings.Count(text, `<td><a class="mono"`), 50)
		for _, m := range regexp.MustCompile(`href="(/console/tasks/[0-9]+)"`).FindAllStringSubmatch(text, -1) {
			require.False(t, seen[m[1]], "no task is on two pages")
			seen[m[1]] = true
		}
		next = ""
		if m := regexp.MustCompile(`href="([^"]*)" rel="next"`).FindStringSubmatch(text); m != nil {
			next = strings.ReplaceAll(m[1], "&amp;", "&")
		}
		require.Less(t, pages, 10)
	}
	require.Len(t, seen, 122)
}

// The console is off if nobody gives one.
func TestPagesAreBehindTheAPI(t *testing.T) {
	f := newFake(t)
	require.Equal(t, http.StatusPermanentRedirect, f.ask(t, "GET", "/console", nil).Code)
	require.Equal(t, 401, f.ask(t, "GET", "/v1/cluster", nil).Code, "a session is for the console alone")
	require.Equal(t, 401, f.ask(t, "GET", "/consoles", nil).Code)
	require.True(t, slices.Contains(console.Pages(), "overview"))
}

// A type whose tasks are leased has no workers, and its page does not speak of them.
func TestTypeOfPull(t *testing.T) {
	f := newFake(t, task.BizType{ID: 5, Name: "pulled", Pull: true, TTR: time.Minute, MaxInFlight: 10_000})
	f.center.counted = metrics.OfType{Submitted: 31, Late: metrics.Distribution{Count: 1, Sum: 1}}
	for i := range f.center.counted.Parts {
		f.center.counted.Parts[i].Count = 1
	}
	page := f.get(t, "/console/types/pulled")
	for _, says := range []string{"<dt>id</dt><dd>5</dd>", "<dt>Leases at once</dt><dd>10,000 on each node</dd>", "until a consumer asked, and until its limits", "Submits: 31. Runs: "} {
		require.Contains(t, page, says)
	}
	require.NotContains(t, page, "worker")
}
