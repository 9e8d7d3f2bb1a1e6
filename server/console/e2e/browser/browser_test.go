package browser_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/server/console/e2e/browser"
)

func TestMain(m *testing.M) { testrig.Main(m) }

// serve is a site of one page at /, and of an echo of its form at /said.
func serve(t *testing.T, body string) string {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = fmt.Fprintf(w, `<!doctype html><html lang="en"><title>Page</title><meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">%s`, body)
	})
	mux.HandleFunc("POST /said", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = fmt.Fprintf(w, `<!doctype html><html lang="en"><title>Said</title><link rel="icon" href="data:,">%s by %s, script %s`, r.FormValue("word"), r.FormValue("who"), r.FormValue("script"))
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL
}

const form = `<form method="post" action="/said"><input type="hidden" name="script" id="script" value="off">
	<label>Word <input name="word" value="old"></label>
	<label for="who">Who</label><select name="who" id="who"><option value="1">Anna</option><option value="2">Bert</option></select>
	<p style="height:3000px">Far below:</p><button>Say it</button></form>
	<script>document.getElementById("script").value = "on"</script>`

func TestAFormIsFilledInAndPressed(t *testing.T) {
	t.Parallel()
	at := serve(t, form)
	for _, view := range []browser.View{{}, {Dark: true, Phone: true}, {NoScript: true}} {
		t.Run(view.String(), func(t *testing.T) {
			t.Parallel()
			tab := browser.Open(t, at, view)
			require.Equal(t, http.StatusOK, tab.Go("/"))
			require.Equal(t, view.Dark, browser.Eval[bool](tab, `matchMedia("(prefers-color-scheme: dark)").matches`))
			require.Equal(t, !view.Phone, browser.Eval[bool](tab, `matchMedia("(hover: hover) and (pointer: fine)").matches`))
			width, _ := view.Size()
			require.EqualValues(t, width, browser.Eval[int](tab, "innerWidth"))
			tab.Fill("Word", "new <b>")
			tab.Fill("Who", "Bert")
			tab.Press("Say it", "form")
			script := "on"
			if view.NoScript {
				script = "off"
			}
			tab.Sees("new", "by 2, script "+script)
			require.Equal(t, "/said", tab.Path())
		})
	}
}

// A page that goes elsewhere by itself, as the answer to a form does, does not keep a tab from where it is told to go.
func TestGoWhileThePageLeaves(t *testing.T) {
	t.Parallel()
	var asked sync.Once
	onItsWay := make(chan struct{})
	mux := http.NewServeMux()
	page := func(path, body string, before func(r *http.Request)) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			before(r)
			_, _ = fmt.Fprint(w, `<!doctype html><link rel="icon" href="data:,">`+body)
		})
	}
	page("/{$}", `<button onclick="fetch('/said').then(() => location.href = '/other')">Say it</button>`, func(*http.Request) {})
	page("/said", "", func(*http.Request) { <-onItsWay })
	page("/other", "other", func(*http.Request) {})
	page("/wanted", "wanted", func(r *http.Request) {
		asked.Do(func() { close(onItsWay); <-r.Context().Done() }) // until the browser gives it up
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	tab := browser.Open(t, server.URL, browser.View{})
	tab.Go("/")
	tab.Press("Say it")
	require.Equal(t, http.StatusOK, tab.Go("/wanted"))
	tab.Sees("wanted")
}

func TestKeysGoToWhatHasTheFocus(t *testing.T) {
	t.Parallel()
	tab := browser.Open(t, serve(t, form), browser.View{})
	tab.Go("/")
	tab.Key(kb.Tab)
	tab.Key("typed")
	require.Equal(t, "typed", browser.Eval[string](tab, "document.activeElement.value"))
}

// What a page does wrong is in the log, whoever it was. The test would fail if one of them were not asked for here.
func TestFaults(t *testing.T) {
	t.Parallel()
	for fault, body := range map[string]string{
		"exception: Uncaught ReferenceError": `<script>nothing()</script>`,
		"console.error: \"so it is\"":        `<script>console.error("so it is")</script>`,
		"dialog: alert \"boo\"":              `<script>alert("boo")</script>`,
		"404 (Not Found)":                    `<img src="/none" alt="">`,
		"ContentSecurityPolicyIssue":         `<meta http-equiv="Content-Security-Policy" content="img-src 'none'"><img src="/none" alt="">`,
		"issue: GenericIssue":                `<form><label for="nobody">A</label><input name="a"></form>`,
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			tab := browser.Open(t, serve(t, body), browser.View{})
			tab.Go("/")
			tab.Expect(fault)
			if fault == "ContentSecurityPolicyIssue" { // it is told of twice
				tab.Expect("Content Security Policy")
			}
		})
	}
}

// What a reader cannot press is not pressed.
func TestWhatIsCoveredIsNotPressed(t *testing.T) {
	t.Parallel()
	tab := browser.Open(t, serve(t, `<button>Below</button><div style="position:fixed;inset:0;background:#fff">cover</div>
		<p hidden><button>Hidden</button></p>`), browser.View{})
	tab.Go("/")
	require.True(t, tab.Has("Below"))
	require.False(t, tab.Has("Hidden"))
	require.ErrorContains(t, tab.TryPress("Below"), "covered by <div")
	require.Error(t, tab.TryPress("Hidden"))
}

func TestScreenshot(t *testing.T) {
	t.Parallel()
	tab := browser.Open(t, serve(t, form), browser.View{Phone: true})
	tab.Go("/")
	require.Equal(t, "\x89PNG", string(tab.Screenshot(false)[:4]))
}
