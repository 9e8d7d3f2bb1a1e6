package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/server/console/e2e/browser"
)

// hostile is what somebody might store to have it run in the browser of an operator.
const hostile = `"'><script>alert(1)</script><img/src=x/onerror=alert(2)><svg/onload=alert(3)></td></main><b/id=injected>{{.}}`

// Text that others have stored is text on every page: no element is made of it, and no dialog opens.
func TestStoredTextIsInert(t *testing.T) {
	t.Parallel()
	c := start(t, func(cfg *configs.Config) { cfg.Node.Name = hostile })
	pending := c.submit(t, client.Submit{BizType: orders, BizKey: hostile[:100], Delay: 3600e9, Attribute: hostile, DedupKey: hostile[:60]})
	dead := c.submit(t, client.Submit{BizType: mails, BizKey: hostile, Now: true, Attribute: hostile})
	c.await(t, dead, "dead", func(tk client.Task) bool { return tk.Status == "dead" })
	failed := c.submit(t, client.Submit{BizType: coupons, Now: true, Attribute: hostile + "\nonce more " + hostile})
	c.await(t, failed, "failed twice", func(tk client.Task) bool { return tk.Attempts == 2 })
	running := c.submit(t, client.Submit{BizType: reports, Now: true, Attribute: hostile})
	c.await(t, running, "running", func(tk client.Task) bool { return tk.Running != nil })
	_, err := c.api.Pause(t.Context(), coupons, client.Pause{Reason: hostile})
	require.NoError(t, err)
	_, err = c.api.RedriveDead(t.Context(), client.RedriveDead{BizType: orders, Error: hostile, Rate: 1})
	require.NoError(t, err)

	for _, view := range []browser.View{{}, {NoScript: true}} {
		t.Run(view.String(), func(t *testing.T) {
			tab := c.open(t, view)
			shown := 0
			for _, path := range []string{
				"/console/", "/console/forecast", "/console/types", "/console/types/" + coupons, "/console/tasks", "/console/tasks?status=dead", "/console/dead",
				"/console/operations", "/console/cluster", "/console/audit",
				"/console/tasks/" + pending.JobID.String(), "/console/tasks/" + dead.JobID.String(), "/console/tasks/" + failed.JobID.String(), "/console/tasks/" + running.JobID.String(),
				"/console/tasks?biz_id=" + url.QueryEscape(hostile), "/console/dead?error=" + url.QueryEscape(hostile), "/console/tasks?biz_type=" + url.QueryEscape(hostile),
				"/console/login?next=" + url.QueryEscape(hostile),
			} {
				tab.Go(path)
				if strings.Contains(tab.Text(), "<script>alert(1)") {
					shown++
				}
				require.Zero(t, browser.Eval[int](tab, `document.querySelectorAll("#injected, script:not([src]), [onerror], [onload], img[src='x']").length`), path)
				require.NotContains(t, tab.Text(), "ZgotmplZ", "%s: the template did not know what to do with it", path)
			}
			require.Greater(t, shown, 5, "it is shown as it is")
			onlyRefusals(t, tab) // of filters that make no sense
		})
	}
}

// onlyRefusals requires that the log has nothing but answers of 4xx, and forgets them.
func onlyRefusals(t *testing.T, tab *browser.Tab) {
	t.Helper()
	for _, fault := range tab.Faults() {
		require.Contains(t, fault, "Failed to load resource: the server responded with a status of 4")
	}
	tab.ForgetFaults()
}

// Another site, even one on another port of this machine, whose requests carry the cookie, cannot act.
func TestAnotherSiteCannotAct(t *testing.T) {
	t.Parallel()
	c := start(t)
	tk := c.later(t, orders)
	acts := map[string]string{
		"/console/types/" + orders + "/pause":                 "reason=evil",
		"/console/tasks/" + tk.JobID.String() + "/cancel":     "",
		"/console/tasks/" + tk.JobID.String() + "/run-now":    "",
		"/console/tasks/" + tk.JobID.String() + "/reschedule": "action_time=2027-01-01T00:00",
		"/console/dead/discard":                               "",
		"/console/logout":                                     "",
	}
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = fmt.Fprint(w, `<!doctype html><html lang="en"><title>Prizes</title><link rel="icon" href="data:,">`)
		for path, body := range acts {
			name, value, _ := strings.Cut(body, "=")
			_, _ = fmt.Fprintf(w, `<form method="post" action="%s%s"><input type="hidden" name="%s" value="%s"><button>%s</button></form>`, c.url, path, name, value, path)
		}
	}))
	defer evil.Close()
	before, err := c.api.Get(t.Context(), uint64(tk.JobID))
	require.NoError(t, err)
	tab := c.open(t, browser.View{})
	for path := range acts {
		tab.GoAway(evil.URL)
		tab.Press(path)
		tab.Until("the console has answered", func() bool { return tab.Path() == path })
		require.EqualValues(t, http.StatusForbidden, browser.Eval[int](tab, `performance.getEntriesByType("navigation")[0].responseStatus`), path)
	}
	onlyRefusals(t, tab)
	after, err := c.api.Get(t.Context(), uint64(tk.JobID))
	require.NoError(t, err)
	require.Equal(t, before, after)
	audit, err := c.api.Audit(t.Context(), client.Audit{})
	require.NoError(t, err)
	require.Empty(t, audit.Entries)
	require.Equal(t, http.StatusOK, tab.Go("/console/"))
	require.Equal(t, "/console/", tab.Path(), "still logged in")
}
