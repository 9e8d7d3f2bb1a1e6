package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/remote"

	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/await"
)

const (
	patience = await.Patience // until a page is as the test wants it
	lookEach = 30 * time.Millisecond
)

// View is how a reader looks at pages. The zero value is a light desktop with script.
type View struct {
	Dark     bool
	Phone    bool
	NoScript bool
}

func (v View) String() string {
	words := []string{"light", "desktop", "script"}
	if v.Dark {
		words[0] = "dark"
	}
	if v.Phone {
		words[1] = "phone"
	}
	if v.NoScript {
		words[2] = "no script"
	}
	return strings.Join(words, " ")
}

// Size is the viewport, in CSS pixels: a small laptop's, or a common phone's.
func (v View) Size() (width, height int64) {
	if v.Phone {
		return 390, 844
	}
	return 1280, 800
}

// Tab is one tab in a separate session. Its methods are for the test's goroutine.
type Tab struct {
	t    testing.TB
	ctx  context.Context
	base string
	log  *pageLog
}

// Open opens an empty tab for the pages of base, such as "http://127.0.0.1:8080". The test fails if the log of the tab
// has a fault when it ends.
func Open(t testing.TB, base string, view View) *Tab {
	t.Helper()
	ctx, stop := remote.NewAllocator(context.WithoutCancel(t.Context()), testrig.Chromium(t))
	t.Cleanup(stop)
	tab := &Tab{t: t, base: strings.TrimSuffix(base, "/"), log: newPageLog()}
	var closeTab context.CancelFunc
	tab.ctx, closeTab = chromedp.NewContext(ctx, chromedp.WithNewBrowserContext(), chromedp.WithListener(tab.log.hear),
		chromedp.WithErrorf(t.Logf))
	t.Cleanup(closeTab)
	tab.log.dismiss = func() { _ = chromedp.Do(tab.ctx, dismissDialog) }
	tab.must("open a tab", tab.do(tab.show(view), tab.log.enable()))
	t.Cleanup(tab.requireNoFaults)
	return tab
}

func (tab *Tab) show(v View) chromedp.Action[chromedp.Void] {
	scheme := "light"
	if v.Dark {
		scheme = "dark"
	}
	width, height := v.Size()
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		if _, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: scheme},
			{Name: "prefers-reduced-motion", Value: "reduce"}, // a screenshot in the middle of a transition shows neither end
		}}); err != nil {
			return err
		}
		if _, err := chromedp.Call(ctx, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
			Width: width, Height: height, DeviceScaleFactor: 1, Mobile: v.Phone,
		}); err != nil {
			return err
		}
		if _, err := chromedp.Call(ctx, emulation.SetTouchEmulationEnabled,
			emulation.SetTouchEmulationEnabledParams{Enabled: v.Phone}); err != nil {
			return err
		}
		_, err := chromedp.Call(ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: v.NoScript})
		return err
	})
}

// Before has a script run in each page to come before the page's own.
func (tab *Tab) Before(script string) {
	tab.t.Helper()
	_, err := chromedp.Call(tab.ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: script})
	tab.must("add a script", err)
}

// Go goes to a page and answers the HTTP status of what it got there.
func (tab *Tab) Go(path string) (status int) {
	tab.t.Helper()
	return tab.GoAway(tab.base + path)
}

// GoAway is Go to another site.
func (tab *Tab) GoAway(url string) (status int) {
	tab.t.Helper()
	ctx, cancel := context.WithTimeout(tab.ctx, patience)
	defer cancel()
	response, err := chromedp.RunResponse(ctx, chromedp.Navigate(url))
	// The page itself may go elsewhere meanwhile, as after a form: then there is an error, or neither an error nor an answer.
	for ctx.Err() == nil && (err == nil && response == nil || err != nil && strings.Contains(err.Error(), "net::ERR_ABORTED")) {
		time.Sleep(lookEach)
		response, err = chromedp.RunResponse(ctx, chromedp.Navigate(url))
	}
	tab.must("go to "+url, err)
	if response == nil {
		tab.t.Fatalf("browser: %s gave no answer", url)
	}
	return int(response.Status)
}

// ForgetCache has the next page load all that it shows again.
func (tab *Tab) ForgetCache() {
	tab.t.Helper()
	_, err := chromedp.Call(tab.ctx, network.ClearBrowserCache, cdp.Empty{})
	tab.must("forget the cache", err)
}

// Cookies returns the cookies that the tab has for the page.
func (tab *Tab) Cookies() []*network.Cookie {
	tab.t.Helper()
	got, err := chromedp.Call(tab.ctx, network.GetCookies, network.GetCookiesParams{})
	tab.must("read the cookies", err)
	return got.Cookies
}

// Path is where the tab is: the path of its page with the query.
func (tab *Tab) Path() string {
	tab.t.Helper()
	at, err := url.Parse(Eval[string](tab, "location.href"))
	tab.must("read the address", err)
	return at.RequestURI()
}

// Text is what the page says: the text that is displayed.
func (tab *Tab) Text() string {
	tab.t.Helper()
	return Eval[string](tab, "document.body.innerText")
}

// Sees waits until the page says all of the words.
func (tab *Tab) Sees(words ...string) {
	tab.t.Helper()
	for _, w := range words {
		tab.Until(fmt.Sprintf("the page says %q", w), func() bool { return strings.Contains(tab.Text(), w) })
	}
}

// Loses waits until the page does not say the words any more.
func (tab *Tab) Loses(words string) {
	tab.t.Helper()
	tab.Until(fmt.Sprintf("the page does not say %q", words), func() bool { return !strings.Contains(tab.Text(), words) })
}

// Until waits until something holds of the page.
func (tab *Tab) Until(what string, holds func() bool) {
	tab.t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(lookEach) {
		if time.Now().After(deadline) {
			tab.fail("waited until " + what)
		}
	}
}

// Eval evaluates an expression of JavaScript in the page, a promise's too. It works without script as well: only the
// page's own are off.
func Eval[T any](tab *Tab, expression string) T {
	tab.t.Helper()
	ctx, cancel := context.WithTimeout(tab.ctx, patience)
	defer cancel()
	var value T
	var err error
	for range 3 { // a page that is being left takes its answer with it
		var raw string
		raw, err = chromedp.Run(ctx, chromedp.Evaluate[string]("(async () => JSON.stringify((await ("+expression+")) ?? null))()", chromedp.EvalAwaitPromise))
		if err == nil {
			err = json.Unmarshal([]byte(raw), &value)
			break
		}
		time.Sleep(lookEach)
	}
	if err != nil {
		tab.t.Fatalf("browser: evaluate %.200s: %v", expression, err)
	}
	return value
}

// Screenshot is the visible part of the page, or all of it, as a PNG.
func (tab *Tab) Screenshot(whole bool) []byte {
	tab.t.Helper()
	ctx, cancel := context.WithTimeout(tab.ctx, patience)
	defer cancel()
	take := chromedp.CaptureScreenshot()
	if whole {
		take = chromedp.FullScreenshot(100)
	}
	png, err := chromedp.Run(ctx, take)
	tab.must("take a screenshot", err)
	return png
}

func (tab *Tab) do(steps ...chromedp.Action[chromedp.Void]) error {
	return chromedp.Do(tab.ctx, steps...)
}

func (tab *Tab) must(do string, err error) {
	tab.t.Helper()
	if err != nil {
		tab.t.Fatalf("browser: %s: %v", do, err)
	}
}

// fail ends the test with what the page looks like in words.
func (tab *Tab) fail(what string) {
	tab.t.Helper()
	tab.t.Fatalf("browser: %s; %s says:\n%s\n%s", what, tab.Path(), tab.Text(), strings.Join(slices.Compact(tab.log.all()), "\n"))
}
