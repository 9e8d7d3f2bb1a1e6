package e2e

import (
	"slices"
	"testing"

	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/server/console/e2e/browser"
)

// stop is where the key Tab stops.
type stop struct {
	Name    string
	Visible bool // on the screen, and marked as what has the focus
}

// marked is the element that has the focus. It is marked if it has an outline of two pixels or more. The picker of a field
// for a date is a stop of its own inside of it, which the browser marks itself.
const marked = `(() => {
	const e = document.activeElement;
	if (!e || e === document.body) return {Name: "", Visible: false};
	const box = e.getBoundingClientRect(), style = getComputedStyle(e);
	const picker = e.type === "datetime-local" && !e.matches(":focus-visible");
	return {
		Name: (e.getAttribute("aria-label") || (e.labels && e.labels.length && e.labels[0].innerText) || e.innerText || e.name || "").trim().split("\n")[0],
		Visible: box.width > 0 && box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth
			&& (picker || style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2),
	};
})()`

// stops presses Tab until the focus leaves the page, and tells where it stopped.
func stops(t *testing.T, tab *browser.Tab) (list []stop) {
	t.Helper()
	for range 200 {
		tab.Key(kb.Tab)
		at := browser.Eval[stop](tab, marked)
		if at.Name == "" && len(list) > 0 {
			return list
		}
		list = append(list, at)
	}
	require.Fail(t, "the focus does not leave the page", "%v", list)
	return nil
}

// Every act can be reached by the key Tab, and what has the focus is seen.
func TestTheKeyTabReachesEveryAct(t *testing.T) {
	t.Parallel()
	s := tell(t)
	_, err := s.api.DiscardDead(t.Context(), client.DiscardDead{BizType: mails, Error: "no such customer", Rate: 0.01})
	require.NoError(t, err)
	list, err := s.api.Operations(t.Context(), 0)
	require.NoError(t, err)
	tab := s.open(t, browser.View{})
	reaches := func(path string, acts ...string) {
		tab.Go(path)
		found := stops(t, tab)
		require.Equal(t, "To the content", found[0].Name, "%s: the first stop skips the navigation", path)
		for _, at := range found {
			require.True(t, at.Visible, "%s: nobody sees that %q has the focus", path, at.Name)
		}
		for _, act := range acts {
			require.True(t, slices.ContainsFunc(found, func(at stop) bool { return at.Name == act }), "%s: Tab does not reach %q, only %v", path, act, found)
		}
	}
	reaches("/console/operations", "Stop operation "+list[0].ID.String()) // first: it ends
	for path, acts := range map[string][]string{
		"/console/":                 {"To the content", "Log out", "Hold still"},
		"/console/types/" + orders:  {"Reason", "Pause"},
		"/console/types/" + coupons: {"Resume"},

		"/console/tasks?biz_id=" + s.pending.BizID.String(): {"job_id", "Find", s.pending.JobID.String()},
		taskPage(s.pending):             {"New action_time (UTC)", "Reschedule", "Run now", "Cancel"},
		taskPage(s.pending) + "/cancel": {"Cancel", "Keep the task"},
		taskPage(s.dead):                {"Redrive"},
		"/console/dead":                 {"Show", "Redrive", "Discard"},
		"/console/dead/discard":         {"Discard", "Leave as it is"},
		"/console/cluster":              {"Which partitions"},
		"/console/audit":                {"Action", "Show"},
	} {
		reaches(path, acts...)
	}
}

// A type is paused without a mouse: Tab to the button, Enter.
func TestAnActByKeyboard(t *testing.T) {
	t.Parallel()
	c := start(t)
	tab := c.open(t, browser.View{})
	tab.Go("/console/types/" + orders)
	to := func(name string) {
		for range 200 {
			tab.Key(kb.Tab)
			if browser.Eval[stop](tab, marked).Name == name {
				return
			}
		}
		require.Fail(t, "Tab does not reach it", name)
	}
	to("Reason")
	tab.Key("by keyboard")
	to("Pause")
	tab.Key(kb.Enter)
	tab.Sees("The type is paused.", "by keyboard")
	require.Equal(t, "by keyboard", c.bizType(t, orders).Paused.Reason)

	tab.Go("/console/types/" + orders)
	tab.Key(kb.Tab)
	tab.Key(kb.Enter)
	require.Equal(t, "main", browser.Eval[string](tab, "document.activeElement.id"), "the first stop leads past the navigation")
}
