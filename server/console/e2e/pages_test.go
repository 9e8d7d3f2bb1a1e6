package e2e

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/server/console/e2e/axe"
	"github.com/timeoutcenter/toc/server/console/e2e/browser"
)

// views are those in which each page must be fit for use.
var views = []browser.View{{}, {Dark: true}, {Phone: true}, {Dark: true, Phone: true}}

// Each page, in each view: nothing keeps somebody from using it, it fits the width of the screen, and its log is empty.
func TestEveryPageIsFitForUse(t *testing.T) {
	t.Parallel()
	s := tell(t)
	for _, view := range views {
		t.Run(view.String(), func(t *testing.T) {
			if view.Dark != view.Phone {
				testrig.OnlyInAll(t, "the light desktop and the dark phone have each width and each set of colours")
			}
			t.Parallel()
			out := browser.Open(t, s.url, view)
			require.Equal(t, http.StatusOK, out.Go("/console/login"))
			requireFit(t, out, "login")

			tab := s.open(t, view)
			for _, p := range s.pages() {
				require.Equal(t, http.StatusOK, tab.Go(p.path), p.name)
				requireFit(t, tab, p.name)
			}
			require.Equal(t, http.StatusNotFound, tab.Go("/console/no-such-page"))
			tab.Expect("404 (Not Found)")
			requireFit(t, tab, "an unknown page")
		})
	}
}

func requireFit(t *testing.T, tab *browser.Tab, name string) {
	t.Helper()
	for _, v := range axe.Blocking(axe.Check(tab)) {
		t.Errorf("%s: %s", name, v)
	}
	require.Equal(t, 1, browser.Eval[int](tab, `document.querySelectorAll("h1").length`), "%s: headings of the page", name)
	wide := browser.Eval[string](tab, `(() => {
		if (document.documentElement.scrollWidth <= innerWidth) return "";
		const out = [...document.querySelectorAll("body *")].find(e => e.getBoundingClientRect().right > innerWidth + 1);
		return document.documentElement.scrollWidth + " pixels, at " + (out ? out.outerHTML.slice(0, 200) : "?");
	})()`)
	require.Empty(t, wide, "%s is wider than the screen", name)
	require.Zero(t, browser.Eval[int](tab, `[...document.querySelectorAll(".scroll:has(.cards)")].filter(e => innerWidth < 640 && e.scrollWidth > e.clientWidth).length`),
		"%s: on a phone the rows of these tables are cards, and none is wider than the screen", name)
	require.Empty(t, tab.Faults(), name)
}

// Without script each page says the same.
func TestEveryPageWithoutScript(t *testing.T) {
	t.Parallel()
	s := tell(t)
	tab := s.open(t, browser.View{NoScript: true})
	for _, p := range s.pages() {
		require.Equal(t, http.StatusOK, tab.Go(p.path), p.name)
		require.NotEmpty(t, browser.Eval[string](tab, `document.querySelector("main").innerText`), p.name)
		require.False(t, tab.Has("Hold still"), "%s: nothing moves there", p.name)
	}
}
