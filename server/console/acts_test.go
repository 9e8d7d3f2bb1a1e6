package console_test

import (
	"fmt"
	"html"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// submit sends a form of a page, found by its button: with its hidden fields, and with others as a person would fill them in.
func (f *fake) submit(t *testing.T, page, button string, pairs ...string) (text string) {
	t.Helper()
	for _, form := range regexp.MustCompile(`(?s)<form[^>]*>.*?</form>`).FindAllString(page, -1) {
		found := regexp.MustCompile(`<button[^>]*>` + button + `</button>`).FindString(form)
		if found == "" {
			continue
		}
		action, method := attribute(form, "action"), attribute(form, "method")
		if other := attribute(found, "formaction"); other != "" {
			action = other
		}
		values := fields()
		for _, input := range regexp.MustCompile(`<input[^>]*>`).FindAllString(form, -1) {
			values.Set(attribute(input, "name"), attribute(input, "value"))
		}
		for i := 0; i+1 < len(pairs); i += 2 {
			require.Contains(t, values, pairs[i], "the form has no such field")
			values.Set(pairs[i], pairs[i+1])
		}
		if method == "get" {
			return f.get(t, action+"?"+values.Encode())
		}
		var list []string
		for name := range values {
			list = append(list, name, values.Get(name))
		}
		return f.post(t, action, list...)
	}
	require.Failf(t, "no such button", "%s in %s", button, page)
	return ""
}

func attribute(element, name string) string {
	if m := regexp.MustCompile(`\s` + name + `="([^"]*)"`).FindStringSubmatch(element); m != nil {
		return html.UnescapeString(m[1])
	}
	return ""
}

func (f *fake) requireAudit(t *testing.T, want ...store.AuditEntry) {
	t.Helper()
	got := f.audit(t)
	require.Len(t, got, len(want))
	for i, w := range want {
		require.Equal(t, intake.ByConsole, got[i].Actor)
		require.Equal(t, []any{w.Action, w.Target, w.Count}, []any{got[i].Action, got[i].Target, got[i].Count})
		require.Contains(t, got[i].Detail, w.Detail)
	}
}

// A cancel asks first, on a page that changes nothing; the audit says who did it.
func TestCancel(t *testing.T) {
	f := newFake(t)
	got := f.submitted(t, 42)
	ask := f.submit(t, f.get(t, at(got.JobID)), "Cancel")
	require.Contains(t, ask, "Cancel this task?")
	require.Contains(t, ask, "biz_id 42")
	require.Equal(t, task.Pending, f.read(t, got.JobID).Status)
	require.Empty(t, f.audit(t))
	text := f.submit(t, ask, "Cancel")
	require.Contains(t, text, "The task is cancelled: it never fires.")
	require.Contains(t, text, "Cancelled: it never fires")
	require.NotContains(t, text, ">Run now</button>")
	require.Equal(t, task.Cancelled, f.read(t, got.JobID).Status)
	f.requireAudit(t, store.AuditEntry{Action: "cancel", Target: fmt.Sprint(got.JobID), Count: 1})
}

func TestReschedule(t *testing.T) {
	f := newFake(t)
	got := f.submitted(t, 1)
	due := time.Now().Add(48 * time.Hour).UTC().Truncate(time.Second)
	text := f.submit(t, f.get(t, at(got.JobID)), "Reschedule", "action_time", due.Format("2006-01-02T15:04:05"))
	require.Contains(t, text, "The task is rescheduled.")
	require.Equal(t, due, f.read(t, got.JobID).ActionTime)
	before := time.Now()
	f.submit(t, text, "Reschedule", "delay", "30m")
	require.WithinRange(t, f.read(t, got.JobID).ActionTime, before.Add(30*time.Minute), time.Now().Add(30*time.Minute+time.Millisecond), "a delay goes before the time that the form offers")
	id := fmt.Sprint(got.JobID)
	f.requireAudit(t, store.AuditEntry{Action: "reschedule", Target: id, Count: 1, Detail: "to "}, store.AuditEntry{Action: "reschedule", Target: id, Count: 1, Detail: "to " + api.Time(due).String()})
}

func TestRunNow(t *testing.T) {
	f := newFake(t)
	got := f.submitted(t, 1)
	before := time.Now()
	text := f.submit(t, f.get(t, at(got.JobID)), "Run now")
	require.Contains(t, text, "The task is due now.")
	require.WithinRange(t, f.read(t, got.JobID).ActionTime, before, time.Now().Add(time.Millisecond))
	f.requireAudit(t, store.AuditEntry{Action: "reschedule", Target: fmt.Sprint(got.JobID), Count: 1, Detail: "run now"})
}

func TestRedriveOfOne(t *testing.T) {
	f := newFake(t)
	dead := f.died(t, 1, "connection refused")
	page := f.get(t, at(dead.JobID))
	require.Contains(t, page, "Dead, after 4 failed runs of at most 4")
	require.Contains(t, page, "connection refused")
	text := f.submit(t, page, "Redrive")
	require.Contains(t, text, "The task is redriven")
	require.Equal(t, task.Pending, f.read(t, dead.JobID).Status)
	f.requireAudit(t, store.AuditEntry{Action: "redrive", Target: fmt.Sprint(dead.JobID), Count: 1})
}

// A form acts on the task as its page showed it. If that has changed, nothing is done, and the page says so.
func TestATaskThatHasChanged(t *testing.T) {
	f := newFake(t)
	got := f.submitted(t, 1)
	etag := api.ETag(&got)
	when := 5 * time.Hour
	moved, err := f.desk.Reschedule(t.Context(), got.JobID, api.Change{Delay: &when})
	require.NoError(t, err)
	for _, act := range []string{"/cancel", "/run-now", "/reschedule"} {
		a := f.ask(t, "POST", at(got.JobID)+act, fields("if_match", etag, "delay", "1m"))
		require.Equal(t, 412, a.Code)
		require.Contains(t, a.text, "The task has changed since the page was made. Nothing was done.")
		require.Contains(t, a.text, html.EscapeString(moved.ETag), "the page shows it as it stands")
	}
	require.Equal(t, moved.ActionTime.Time(), f.read(t, got.JobID).ActionTime)
	require.Empty(t, f.audit(t))
}

// What a task's page tells: due, moved, attempts, why.
func TestStory(t *testing.T) {
	f := newFake(t)
	got := f.submitted(t, 1, func(s *api.Submit) { s.Attribute = "{\"a\":1}" })
	attempts, text, next := 2, "webhook answered 500", time.Now().Add(2*time.Hour).UTC().Truncate(time.Millisecond)
	ok, err := f.store.Move(t.Context(), store.Move{JobID: got.JobID, To: task.Pending, Set: store.Set{Attempts: &attempts, LastError: &text, ActionTime: &next, Promised: &got.ActionTime}})
	require.NoError(t, err)
	require.True(t, ok)
	page := f.get(t, at(got.JobID))
	order := 0
	for _, says := range []string{"Submitted", "2 failed runs of at most 4", "webhook answered 500", "Due: the promised time", "Runs again at this time", "Why it waits", "it has failed 2 times", "{&#34;a&#34;:1}"} {
		i := strings.Index(page, says)
		require.Greater(t, i, order, says)
		order = i
	}
	ok, err = f.store.Move(t.Context(), store.Move{JobID: got.JobID, To: task.Processed})
	require.NoError(t, err)
	require.True(t, ok)
	page = f.get(t, at(got.JobID))
	require.Contains(t, page, "Processed, and recorded")
	require.Contains(t, page, "after the promised time, its run included")
	require.NotContains(t, page, "Change it")
}

// The story has each failed run with its error and its time, once.
func TestStoryOfFailedRuns(t *testing.T) {
	f := newFake(t)
	got := f.submitted(t, 1)
	id := got.JobID
	inOrder := func(says ...string) {
		t.Helper()
		_, page, _ := strings.Cut(f.get(t, at(id)), "Its story")
		page, _, _ = strings.Cut(page, "</section>")
		for _, part := range says {
			_, after, found := strings.Cut(page, part)
			require.True(t, found, "%s in %s", part, page)
			page = after
		}
		require.NotContains(t, page, "<pre", "no more errors")
	}
	clock := func(at time.Time) string { return at.Format("15:04:05.000") }
	one := f.fails(t, id, task.Pending, "no answer")
	inOrder("Submitted", clock(one), "Run 1 of at most 4 failed<", ">no answer<", "Due: the")
	two := f.fails(t, id, task.Pending, "webhook answered 500")
	inOrder(clock(one), "Run 1 failed<", ">no answer<", clock(two), "Run 2 of at most 4 failed<", ">webhook answered 500<")
	require.NotContains(t, f.get(t, at(id)), "Last change")

	// Not tried: no run, but the last error.
	read, open := f.read(t, id), "the circuit is open"
	ok, err := f.store.Move(t.Context(), store.Move{JobID: id, Read: &read, Set: store.Set{LastError: &open}})
	require.NoError(t, err)
	require.True(t, ok)
	inOrder("Run 2 of at most 4 failed<", "Last change: 2 failed runs of at most 4<", ">the circuit is open<")

	f.fails(t, id, task.Dead, "gone")
	inOrder("Run 2 failed<", "Run 3 failed<", ">gone<", "Dead, after 3 failed runs of at most 4<")
	_, err = f.desk.Redrive(t.Context(), id)
	require.NoError(t, err)
	f.fails(t, id, task.Pending, "gone again")
	inOrder("Run 3 failed<", ">gone<", "Run 1 failed, counted anew<", ">gone again<")
	require.NoError(t, f.desk.Cancel(t.Context(), id))
	inOrder("Run 1 failed, counted anew<", ">gone again<", "Cancelled: it never fires<")

	got = f.submitted(t, 2)
	id, read = got.JobID, f.read(t, got.JobID)
	many := 2 // before the row told its runs
	ok, err = f.store.Move(t.Context(), store.Move{JobID: id, Set: store.Set{Attempts: &many}})
	require.NoError(t, err)
	require.True(t, ok)
	f.fails(t, id, task.Pending, "late")
	inOrder("Run 3 failed; the errors of earlier runs are not kept<", ">late<")

	// An operator's cancel has no error: what is there was told before.
	for biz, failed := range []bool{true, false} {
		id = f.submitted(t, uint64(3+biz)).JobID
		if failed {
			f.fails(t, id, task.Pending, "no answer")
		}
		read = f.read(t, id)
		ok, err = f.store.Move(t.Context(), store.Move{JobID: id, Read: &read, Set: store.Set{LastError: &open}})
		require.NoError(t, err)
		require.True(t, ok)
		require.Contains(t, f.get(t, at(id)), open)
		require.NoError(t, f.desk.Cancel(t.Context(), id))
		_, page, _ := strings.Cut(f.get(t, at(id)), "Cancelled: it never fires")
		page, _, _ = strings.Cut(page, "</ol>")
		require.NotContains(t, page, open)
	}
}

// Pause and resume go to the operator with what was filled in; the page shows who and why.
func TestPauseAndResume(t *testing.T) {
	f := newFake(t)
	page := f.submit(t, f.get(t, "/console/types/coupon"), "Pause", "reason", "the <shop> is down", "until", "2036-01-02T15:04:05")
	require.Contains(t, page, "The type is paused.")
	require.Contains(t, page, "the &lt;shop&gt; is down")
	require.Contains(t, page, "2036-01-02 15:04:05.000")
	require.Equal(t, "2036-01-02T15:04:05.000Z", f.center.paused["coupon"].Until.String())
	require.Contains(t, f.get(t, "/console/types?paused=yes"), "1–1 of 1 that match, of 2")
	page = f.submit(t, page, "Resume")
	require.Contains(t, page, "The type is resumed.")
	require.Nil(t, f.center.paused)
}

// What is wrong leads to the page with the button against it.
func TestAFaultLeadsToItsButton(t *testing.T) {
	f := newFake(t)
	f.center.retrying = map[string]int{"order_close": 341}
	link := `<a href="` + typeURL("order_close") + `">Is the receiver healed? Run them now</a>`
	require.Contains(t, f.get(t, "/console/"), link)
	require.Contains(t, f.get(t, typeURL("order_close")), "Run the failing ones now")
}

// The page of a type whose runs fail says so, and has the button that runs what has failed now.
func TestRetry(t *testing.T) {
	f := newFake(t)
	require.NotContains(t, f.get(t, "/console/types/order_close"), "Run the failing ones now")
	one, other := f.submitted(t, 1), f.submitted(t, 2)
	read := f.read(t, one.JobID)
	ok, err := f.store.Move(t.Context(), store.Move{JobID: one.JobID, Read: &read, Set: store.Set{Attempts: new(1), ActionTime: new(time.Now().Add(10 * time.Minute)), Promised: new(time.Now().Add(-time.Minute))}})
	require.NoError(t, err)
	require.True(t, ok)
	f.center.retrying, f.center.due = map[string]int{"order_close": 341}, true
	due := f.get(t, "/console/types/order_close")
	require.Contains(t, due, "341 tasks have failed and their pauses are over: they run, or wait for a worker or a limit.")
	require.NotContains(t, due, "Run the failing ones now")
	f.center.due = false
	require.Contains(t, f.get(t, "/console/types"), `<span class="tag">fails</span> <span class="quiet">the &lt;shop&gt; is down</span>`)
	page := f.get(t, "/console/types/order_close")
	require.Contains(t, page, "341 tasks wait to run again, the oldest one promised 1 min 15 s ago")
	require.Contains(t, page, "The last error: <q>the &lt;shop&gt; is down</q>")
	failing := f.get(t, "/console/tasks?biz_type=order_close&status=failing")
	require.Contains(t, page, `href="/console/tasks?biz_type=order_close&amp;status=failing"`)
	require.Contains(t, failing, `href="`+at(one.JobID)+`"`)
	require.NotContains(t, failing, `href="`+at(other.JobID)+`"`)
	require.Contains(t, f.ask(t, "GET", "/console/tasks?biz_id=1&status=failing", nil).text, "failing goes with a type, or alone")
	wrong := f.ask(t, "POST", typeURL("order_close")+"/retry", fields("rate", "0"))
	require.Equal(t, 422, wrong.Code)
	require.Contains(t, wrong.text, "0.01 to 100000 tasks a second")
	page = f.submit(t, page, "Run the failing ones now", "rate", "2.5")
	require.Contains(t, page, "The retry has started.")
	require.Contains(t, page, "failing tasks of order_close")
	list, err := f.desk.Operations(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, []any{store.OperationRetry, 2.5, 1}, []any{list[0].Kind, list[0].Rate, list[0].Matched})
	require.NotContains(t, page, "/undo")
}

// A change of many dead tasks counts first and asks; then it is an operation, which can be stopped and undone.
func TestManyDead(t *testing.T) {
	for _, verb := range []string{"Redrive", "Discard"} {
		t.Run(verb, func(t *testing.T) {
			f := newFake(t)
			for i := range uint64(7) {
				f.died(t, i, fmt.Sprintf("order %d is locked", i))
			}
			for i := range uint64(3) {
				f.died(t, 100+i, "connection refused")
			}
			page := f.get(t, "/console/dead")
			require.Contains(t, page, "10 dead tasks in 2 groups")
			require.Contains(t, page, "order # is locked")
			link := attribute(regexp.MustCompile(`<a href="[^"]*">order # is locked</a>`).FindString(page), "href")
			ask := f.submit(t, f.get(t, link), verb, "rate", "2.5")
			require.Contains(t, ask, verb+" all 7 that match?")
			require.Contains(t, ask, "whose error has “ is locked”")
			require.Contains(t, ask, "At 2.5 a second it takes about 2.8 s")
			require.Empty(t, f.audit(t), "nothing is done before the answer")
			text := f.submit(t, ask, verb)
			require.Contains(t, text, "The "+strings.ToLower(verb)+" has started.")
			require.Contains(t, text, "2.5/s")
			kind := strings.ToLower(verb)
			f.requireAudit(t, store.AuditEntry{Action: kind, Target: "order_close", Count: 7, Detail: `"rate":2.5`})
			list, err := f.desk.Operations(t.Context(), 0)
			require.NoError(t, err)
			require.Equal(t, []any{kind, intake.ByConsole, 2.5, 7, " is locked"}, []any{list[0].Kind, list[0].By, list[0].Rate, list[0].Matched, list[0].Filter.Error})

			text = f.submit(t, text, "Stop")
			require.Contains(t, text, "The operation is stopped.")
			require.NotContains(t, text, ">Stop</button>")
			id := fmt.Sprint(list[0].ID)
			f.requireAudit(t, store.AuditEntry{Action: "stop", Target: id}, store.AuditEntry{Action: kind, Target: "order_close", Count: 7})
			ask = f.get(t, "/console/operations/"+id+"/undo")
			require.Contains(t, ask, "Undo the "+kind+" of 0 tasks?")
			text = f.submit(t, ask, "Undo")
			require.Contains(t, text, "The undo has started.")
			require.Contains(t, text, "takes operation "+id+" back")
			require.Equal(t, "undo", f.audit(t)[0].Action)
			require.Equal(t, intake.ByConsole, f.audit(t)[0].Actor)
		})
	}
}

// What is sent is of what was asked, and is done once however often it is sent.
func TestActsAreDoneOnce(t *testing.T) {
	f := newFake(t)
	f.died(t, 1, "first line\nsecond line")
	before := f.time()
	ask := f.get(t, "/console/dead/discard?error="+escape("line\nsecond"))
	require.Contains(t, ask, "Discard all 1 that match?")
	asked := f.time()
	f.died(t, 2, "first line\nsecond line") // later
	for range 3 {
		f.submit(t, strings.ReplaceAll(ask, "line\nsecond", "line\r\nsecond"), "Discard") // as a browser sends it
	}
	list, err := f.desk.Operations(t.Context(), 0)
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, "line\nsecond", list[0].Filter.Error)
	require.WithinRange(t, list[0].Filter.Until.Time(), before.Truncate(time.Second), asked.Add(time.Second))

	id := "/console/operations/" + fmt.Sprint(list[0].ID)
	require.Contains(t, f.post(t, id+"/stop"), "The operation is stopped.")
	require.Contains(t, f.post(t, id+"/stop"), "was over already. Nothing was done.")
	require.Contains(t, f.post(t, id+"/undo"), "The undo has started.")
	require.Contains(t, f.post(t, id+"/undo"), "is taken back already. Nothing was done.")
	list, err = f.desk.Operations(t.Context(), 0)
	require.NoError(t, err)
	require.Len(t, list, 2)
	require.Len(t, f.audit(t), 3)
}

// An act whose form cannot be read, or has a field that is misspelt, is refused: without its filter it would be of everything.
func TestFormsThatCannotBeRead(t *testing.T) {
	f := newFake(t)
	f.died(t, 1, "refused")
	for _, path := range []string{"/console/dead/discard", "/console/dead/redrive", typeURL("order_close") + "/pause", typeURL("order_close") + "/resume", "/console/operations/1/stop"} {
		for _, kind := range []string{"multipart/form-data; boundary=x", "text/plain", "application/json"} {
			require.Equal(t, 415, f.ask(t, "POST", path, fields("biz_type", "order_close"), "Content-Type", kind).Code, path)
		}
	}
	require.Equal(t, 422, f.ask(t, "POST", "/console/dead/discard", fields("biztype", "nobody")).Code)
	require.Equal(t, 422, f.ask(t, "GET", "/console/dead/discard?biztype=nobody", nil).Code)
	require.Equal(t, 422, f.ask(t, "GET", "/console/dead/discard?biz_type=%zz", nil).Code)
	require.Equal(t, 422, f.ask(t, "POST", typeURL("order_close")+"/pause", fields("untl", "2036-01-02T15:04:05Z")).Code)
	list, err := f.desk.Operations(t.Context(), 0)
	require.NoError(t, err)
	require.Empty(t, list)
	require.Nil(t, f.center.paused)
}

// A limit is asked for, and a filter that matches nothing has nothing to confirm.
func TestSomeDead(t *testing.T) {
	f := newFake(t)
	for i := range uint64(5) {
		f.died(t, i, "connection refused")
	}
	ask := f.get(t, "/console/dead/redrive?limit=2")
	require.Contains(t, ask, "Redrive the first 2 of 5 that match?")
	f.submit(t, ask, "Redrive")
	list, err := f.desk.Operations(t.Context(), 0)
	require.NoError(t, err)
	require.Equal(t, 2, list[0].Filter.Limit)
	none := f.get(t, "/console/dead/discard?error=nobody")
	require.Contains(t, none, "No dead task matches.")
	require.NotContains(t, none, ">Discard</button>")
	require.Contains(t, f.get(t, "/console/dead?error=nobody"), "No dead task matches.")
}

// The audit is found by actor, action and time, page by page.
func TestAudit(t *testing.T) {
	f := newFake(t)
	got := f.submitted(t, 9)
	for range 51 {
		f.desk.Record(t.Context(), store.AuditEntry{Actor: "api", Action: "pause", Target: "order_close"})
	}
	f.desk.Record(t.Context(), store.AuditEntry{Actor: "console", Action: "cancel", Target: fmt.Sprint(got.JobID), Count: 1})
	page := f.get(t, "/console/audit")
	require.Contains(t, page, `<a href="`+at(got.JobID)+`">`)
	require.Contains(t, page, `<a href="/console/types/order_close">`)
	next := attribute(regexp.MustCompile(`<a href="[^"]*" rel="next">`).FindString(page), "href")
	require.Equal(t, 2, strings.Count(f.get(t, next), "<strong>pause</strong>"))
	require.Equal(t, 1, strings.Count(f.get(t, "/console/audit?actor=console"), "<strong>"))
	require.Equal(t, 1, strings.Count(f.get(t, "/console/audit?action=cancel"), "<strong>"))
	require.Contains(t, f.get(t, "/console/audit?to=2001-01-01T00:00:00"), "No entry matches.")
}
