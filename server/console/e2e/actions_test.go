package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/server/console/e2e/browser"
)

// onBoth runs a test in a browser with script and in one without, each with a center of its own.
func onBoth(t *testing.T, test func(t *testing.T, c *center, tab *browser.Tab)) {
	t.Parallel()
	for _, view := range []browser.View{{}, {NoScript: true}} {
		t.Run(view.String(), func(t *testing.T) {
			t.Parallel()
			c := start(t)
			test(t, c, c.open(t, view))
		})
	}
}

// audited waits until the audit's newest entry is of this action, by the console.
func (c *center) audited(t *testing.T, tab *browser.Tab, action, target string) {
	t.Helper()
	got, err := c.api.Audit(t.Context(), client.Audit{Limit: 1})
	require.NoError(t, err)
	require.Len(t, got.Entries, 1)
	require.Equal(t, action, got.Entries[0].Action)
	require.Equal(t, target, got.Entries[0].Target)
	require.Equal(t, "console", got.Entries[0].Actor)
	tab.Go("/console/audit")
	tab.Sees(action, "console")
	if target != "" {
		tab.Sees(target)
	}
}

func (c *center) bizType(t *testing.T, name string) client.BizType {
	t.Helper()
	all, err := c.api.BizTypes(t.Context())
	require.NoError(t, err)
	for _, b := range all {
		if b.Name == name {
			return b
		}
	}
	require.Fail(t, "no such type", name)
	return client.BizType{}
}

func (c *center) get(t *testing.T, one client.Task) client.Task {
	t.Helper()
	got, err := c.api.Get(t.Context(), uint64(one.JobID))
	require.NoError(t, err)
	return got
}

func taskPage(one client.Task) string { return "/console/tasks/" + one.JobID.String() }

func TestPauseAndResume(t *testing.T) {
	onBoth(t, func(t *testing.T, c *center, tab *browser.Tab) {
		tab.Go("/console/types")
		tab.Press(orders)
		tab.Fill("Reason", "the shop moves & rests")
		tab.Fill("Until (UTC), or left empty", "2027-06-01T12:30:00")
		tab.Press("Pause")
		tab.Sees("The type is paused.", "the shop moves & rests", "until 2027-06-01 12:30")
		paused := c.bizType(t, orders).Paused
		require.NotNil(t, paused)
		require.Equal(t, "the shop moves & rests", paused.Reason)
		require.Equal(t, time.Date(2027, 6, 1, 12, 30, 0, 0, time.UTC), paused.Until.Time().UTC())
		c.audited(t, tab, "pause", orders)

		tab.Go("/console/types?paused=yes")
		tab.Sees(orders, "the shop moves & rests")
		require.False(t, tab.Has(mails), "only those that are paused")
		tab.Press(orders)
		require.False(t, tab.Has("Pause"), "it is paused already")
		tab.Press("Resume")
		tab.Sees("The type is resumed.")
		require.Nil(t, c.bizType(t, orders).Paused)
		c.audited(t, tab, "resume", orders)

		tab.Go("/console/types/" + orders)
		tab.Fill("Until (UTC), or left empty", "2020-01-01T00:00:00")
		tab.Press("Pause")
		tab.Sees("until")
		tab.Until("the page says what is wrong", func() bool { return browser.Eval[int](tab, `document.querySelectorAll("[role=alert]").length`) == 1 })
		require.Nil(t, c.bizType(t, orders).Paused)
		tab.Expect("status of 422")
	})
}

// A destroying act asks first, and the way back changes nothing.
func TestCancel(t *testing.T) {
	onBoth(t, func(t *testing.T, c *center, tab *browser.Tab) {
		one := c.later(t, orders)
		tab.Go(taskPage(one))
		tab.Press("Cancel")
		tab.Sees("never fires")
		tab.Press("Keep the task")
		tab.Until("it is the task's page again", func() bool { return tab.Path() == taskPage(one) })
		require.Equal(t, "pending", c.get(t, one).Status)

		tab.Press("Cancel")
		tab.Until("it asks", func() bool { return strings.HasPrefix(tab.Path(), taskPage(one)+"/cancel") })
		tab.Press("Cancel")
		tab.Sees("The task is cancelled")
		require.Equal(t, "cancelled", c.get(t, one).Status)
		require.False(t, tab.Has("Cancel"))
		require.False(t, tab.Has("Reschedule"))
		c.audited(t, tab, "cancel", one.JobID.String())
	})
}

func TestReschedule(t *testing.T) {
	onBoth(t, func(t *testing.T, c *center, tab *browser.Tab) {
		one := c.later(t, orders)
		at := time.Now().Add(48 * time.Hour).UTC().Truncate(time.Second)
		tab.Go(taskPage(one))
		tab.Fill("New action_time (UTC)", at.Format("2006-01-02T15:04:05"))
		tab.Press("Reschedule")
		tab.Sees("The task is rescheduled.", at.Format("2006-01-02 15:04:05"))
		require.Equal(t, at, c.get(t, one).ActionTime.Time().UTC())
		c.audited(t, tab, "reschedule", one.JobID.String())

		tab.Go(taskPage(one))
		tab.Fill("New action_time (UTC)", "")
		tab.Fill("or delay from now", "90m")
		before := time.Now()
		tab.Press("Reschedule")
		tab.Sees("The task is rescheduled.")
		require.WithinRange(t, c.get(t, one).ActionTime.Time(), before.Add(90*time.Minute-time.Second), time.Now().Add(90*time.Minute+time.Second))

		tab.Go(taskPage(one))
		tab.Fill("New action_time (UTC)", "")
		tab.Fill("or delay from now", "soon")
		tab.Press("Reschedule")
		tab.Sees("delay", "soon")
		tab.Expect("status of 422")
	})
}

// Somebody else was faster: nothing is done, and the page shows the task as it stands.
func TestATaskThatChangedMeanwhileIsLeftAlone(t *testing.T) {
	onBoth(t, func(t *testing.T, c *center, tab *browser.Tab) {
		one := c.later(t, orders)
		tab.Go(taskPage(one))
		moved := time.Now().Add(72 * time.Hour).UTC().Truncate(time.Second)
		_, err := c.api.Reschedule(t.Context(), uint64(one.JobID), client.Change{ActionTime: moved})
		require.NoError(t, err)
		tab.Press("Run now")
		tab.Sees("The task has changed", moved.Format("2006-01-02 15:04:05"))
		require.Equal(t, moved, c.get(t, one).ActionTime.Time().UTC())
		tab.Expect("status of 412")
		tab.Press("Run now") // what stands there now is what was seen
		c.await(t, one, "processed", func(tk client.Task) bool { return tk.Status == "processed" })
	})
}

func TestRunNow(t *testing.T) {
	onBoth(t, func(t *testing.T, c *center, tab *browser.Tab) {
		one := c.later(t, orders)
		tab.Go(taskPage(one))
		tab.Press("Run now")
		tab.Sees("The task is due now.")
		c.await(t, one, "processed", func(tk client.Task) bool { return tk.Status == "processed" })
		tab.Go(taskPage(one))
		tab.Sees("processed")
		require.False(t, tab.Has("Run now"))
	})
}

// One dead task by its own page, then all that match at once, then at a rate: an operation that is stopped and undone.
func TestRedriveStopAndUndo(t *testing.T) {
	onBoth(t, func(t *testing.T, c *center, tab *browser.Tab) {
		first := c.die(t, "smtp: 10.0.0.1 refused the connection")
		for _, words := range []string{"smtp: 10.0.0.2 refused the connection", "no such customer: 500", "no such customer: 501"} {
			c.die(t, words)
		}
		// Mails go on failing, so who redrives them pauses them first: then they are pending, and stay so.
		_, err := c.api.Pause(t.Context(), mails, client.Pause{})
		require.NoError(t, err)

		tab.Go("/console/dead")
		tab.Sees("smtp: #", "refused the connection", "no such customer: #", "4 dead tasks in 2 groups")
		tab.Go(taskPage(first))
		tab.Sees("smtp: 10.0.0.1 refused the connection")
		tab.Press("Redrive")
		tab.Sees("The task is redriven")
		require.Equal(t, "pending", c.get(t, first).Status)
		c.audited(t, tab, "redrive", first.JobID.String())

		tab.Go("/console/dead?biz_type=" + mails)
		tab.Press("no such customer: #", "main")
		tab.Until("the group is shown alone", func() bool {
			return strings.Contains(tab.Path(), "error=") && browser.Eval[int](tab, `document.querySelectorAll("[aria-label=Tasks] tbody tr").length`) == 2
		})
		tab.Fill("Tasks a second", "0.1")
		tab.Press("Redrive")
		tab.Sees("2")
		tab.Press("Redrive")
		tab.Until("it is among the operations", func() bool { return strings.HasPrefix(tab.Path(), "/console/operations") })
		list, err := c.api.Operations(t.Context(), 0)
		require.NoError(t, err)
		require.Len(t, list, 1)
		id := list[0].ID.String()
		require.Equal(t, 2, list[0].Matched)
		require.Equal(t, "console", list[0].By)

		c.operation(t, uint64(list[0].ID), "done with one task", func(o client.Operation) bool { return o.Done == 1 })
		tab.Go("/console/operations")
		tab.Press("Stop operation " + id)
		tab.Sees("stopped")
		c.operation(t, uint64(list[0].ID), "stopped", func(o client.Operation) bool { return o.State == "stopped" })
		c.audited(t, tab, "stop", id)

		tab.Go("/console/operations")
		tab.Press("Undo operation " + id)
		tab.Press("Undo")
		tab.Until("the task is dead again", func() bool {
			p, err := c.api.ListDead(t.Context(), client.ListDead{Error: "no such customer"})
			require.NoError(t, err)
			return len(p.Tasks) == 2
		})
		c.audited(t, tab, "undo", id)
	})
}

func (c *center) operation(t *testing.T, id uint64, what string, is func(client.Operation) bool) {
	t.Helper()
	await.That(t, func() bool {
		o, err := c.api.Operation(t.Context(), id)
		require.NoError(t, err)
		return is(o)
	}, "operation %d is %s", id, what)
}

func TestDiscard(t *testing.T) {
	onBoth(t, func(t *testing.T, c *center, tab *browser.Tab) {
		kept := c.die(t, "smtp: 10.0.0.1 refused the connection")
		for _, words := range []string{"no such customer: 500", "no such customer: 501", "no such customer: 502"} {
			c.die(t, words)
		}
		tab.Go("/console/dead")
		tab.Fill("Error has", "no such customer")
		tab.Press("Show")
		tab.Until("the filter is in force", func() bool { return strings.Contains(tab.Path(), "no+such+customer") })
		tab.Press("Discard")
		tab.Sees("3")
		tab.Press("Leave as it is")
		tab.Until("it is the list again", func() bool { return strings.HasPrefix(tab.Path(), "/console/dead?") })
		p, err := c.api.ListDead(t.Context(), client.ListDead{})
		require.NoError(t, err)
		require.Len(t, p.Tasks, 4, "a look at what would be done does nothing")

		tab.Press("Discard")
		tab.Until("it asks", func() bool { return strings.HasPrefix(tab.Path(), "/console/dead/discard") })
		tab.Press("Discard")
		tab.Until("they are discarded", func() bool {
			p, err := c.api.ListDead(t.Context(), client.ListDead{})
			require.NoError(t, err)
			return len(p.Tasks) == 1 && p.Tasks[0].JobID == kept.JobID
		})
		c.audited(t, tab, "discard", "")
	})
}
