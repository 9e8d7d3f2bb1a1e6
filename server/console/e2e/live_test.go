package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/server/console/e2e/browser"
)

// submits is what the overview's tile of submits says.
func submits(tab *browser.Tab) string {
	return browser.Eval[string](tab, `[...document.querySelectorAll(".tiles div")].find(d => d.querySelector("dt").textContent === "Submits").querySelector("dd").textContent`)
}

// countLooks counts how often the page has looked whether it may change: it does so by an interval.
const countLooks = `
	window.e2eLooks = 0;
	const everySoOften = window.setInterval;
	window.setInterval = (look, ms) => everySoOften(() => { look(); window.e2eLooks++ }, ms);
`

func looks(tab *browser.Tab) int { return browser.Eval[int](tab, "window.e2eLooks") }

// countChanges counts the different answers to a second page that is open, each of which would change the page.
const countChanges = `(() => {
	window.e2eChanges = 0;
	let last = "";
	window.setInterval(async () => {
		const answer = await fetch("/console/live?topic=overview", { cache: "no-cache" }).catch(() => null);
		const text = answer && answer.ok ? await answer.text() : last;
		if (text !== last) window.e2eChanges++;
		last = text;
	}, 500);
	return true;
})()`

func changes(tab *browser.Tab) int { return browser.Eval[int](tab, "window.e2eChanges") }

// happens submits a task, and waits until a second page has seen it, twice: the page itself asks less often. And the page has looked since.
func (c *center) happens(t *testing.T, tab *browser.Tab) {
	t.Helper()
	for range 2 {
		before := changes(tab)
		c.submit(t, client.Submit{BizType: orders, Delay: time.Hour})
		tab.Until("a second page sees it", func() bool { return changes(tab) > before })
	}
	before := looks(tab)
	tab.Until("the page has looked", func() bool { return looks(tab) > before })
}

// The overview follows what happens, by itself. Held still it does not, and nothing moves under the pointer.
func TestTheOverviewIsLive(t *testing.T) {
	t.Parallel()
	c := start(t)
	tab := c.open(t, browser.View{})
	tab.Before(countLooks)
	tab.Go("/console/")
	browser.Eval[bool](tab, countChanges)
	tab.Sees("Live")
	require.Equal(t, "0", submits(tab))
	c.submit(t, client.Submit{BizType: orders, Delay: time.Hour})
	tab.Until("the tile follows", func() bool { return submits(tab) == "1" })

	tab.Press("Hold still")
	require.Equal(t, "true", browser.Eval[string](tab, `document.getElementById("hold").getAttribute("aria-pressed")`))
	c.happens(t, tab)
	require.Equal(t, "1", submits(tab), "it is held still")
	tab.Press("Go on")
	tab.Until("the tile has what was held back", func() bool { return submits(tab) == "3" })

	tab.Hover("#live-late figure svg")
	c.happens(t, tab)
	require.Equal(t, "3", submits(tab), "the pointer is on a chart")
	tab.Sees("waits for the pointer")
	tab.Hover("h1")
	tab.Until("the pointer is gone", func() bool { return submits(tab) == "5" })
}

// A row under the pointer stays where it is and as it is, although the list changes: a press hits what is seen.
func TestNoRowMovesUnderThePointer(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.die(t, "the first")
	start := func() uint64 {
		got, err := c.api.DiscardDead(t.Context(), client.DiscardDead{BizType: mails, Error: "no such error", Rate: 1})
		require.NoError(t, err)
		return uint64(got.Operation)
	}
	start()
	tab := c.open(t, browser.View{})
	tab.Go("/console/operations")
	rows := func() int { return browser.Eval[int](tab, `document.querySelectorAll("tbody tr").length`) }
	require.Equal(t, 1, rows())
	tab.Hover("tbody tr td")
	start()
	tab.Sees("waits for the pointer")
	require.Equal(t, 1, rows())
	tab.Hover("h1")
	tab.Until("the row has come", func() bool { return rows() == 2 })
}

// What a reader has opened stays open when the part around it is replaced.
func TestAnOpenTableStaysOpen(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.submit(t, client.Submit{BizType: orders, Delay: time.Hour})
	tab := c.open(t, browser.View{})
	tab.Until("there is a table", func() bool { return tab.Has("Show as a table", "#live-work") })
	tab.Press("Show as a table", "#live-work")
	tab.Hover("h1")
	browser.Eval[bool](tab, `(document.activeElement.blur(), true)`)
	tab.Until("it is open", func() bool { return browser.Eval[bool](tab, `document.getElementById("work-table").open`) })
	c.submit(t, client.Submit{BizType: orders, Delay: time.Hour})
	tab.Until("the tile follows", func() bool { return submits(tab) == "2" })
	require.True(t, browser.Eval[bool](tab, `document.getElementById("work-table").open`))
}

// A center that is gone is told of, in words.
func TestALostCenterIsToldOf(t *testing.T) {
	t.Parallel()
	c := start(t)
	tab := c.open(t, browser.View{})
	tab.Sees("Live")
	c.stop()
	tab.Sees("Not live")
	tab.Until("the browser says so, too", func() bool { return len(tab.Faults()) > 0 })
	for _, f := range tab.Faults() {
		require.True(t, strings.Contains(f, "ERR_CONNECTION_REFUSED") || strings.Contains(f, "ERR_INCOMPLETE_CHUNKED_ENCODING"), f)
	}
	browser.Eval[bool](tab, `(location.href = "about:blank", true)`) // or the page would ask again, and again
	tab.Until("it is gone", func() bool { return tab.Path() == "blank" })
	tab.ForgetFaults()
}
