package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/chromedp/cdproto/audits"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// pageLog keeps what the pages of a tab did wrong, one line each.
type pageLog struct {
	dismiss func() // answers a dialog, which stops the page until then

	mu     sync.Mutex
	faults []string
}

func newPageLog() *pageLog { return &pageLog{} }

// issues are those of the browser's audits that are a page's own fault.
var issues = []audits.InspectorIssueCode{
	audits.InspectorIssueCodeContentSecurityPolicyIssue,
	audits.InspectorIssueCodeMixedContentIssue,
	audits.InspectorIssueCodeCookieIssue,
	audits.InspectorIssueCodeQuirksModeIssue,
	audits.InspectorIssueCodeDeprecationIssue,
	audits.InspectorIssueCodeGenericIssue, // fields without a label or a name
}

func (l *pageLog) enable() chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, audits.Enable, struct{}{})
		return err
	})
}

// Takes each event of the tab. It runs where the answers of the browser are read, so it asks the browser nothing.
func (l *pageLog) hear(event any) {
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		text := e.ExceptionDetails.Text
		if e.ExceptionDetails.Exception != nil {
			text += " " + e.ExceptionDetails.Exception.Description
		}
		l.add("exception: " + text)
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			l.add(fmt.Sprintf("console.%s: %s", e.Type, words(e.Args)))
		}
	case *log.EventEntryAdded:
		// The browser requests that icon where an answer is no page of ours.
		if (e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning) && !strings.HasSuffix(e.Entry.URL, "/favicon.ico") {
			l.add(fmt.Sprintf("%s %s: %s %s", e.Entry.Source, e.Entry.Level, e.Entry.Text, e.Entry.URL))
		}
	case *audits.EventIssueAdded:
		if slices.Contains(issues, e.Issue.Code) {
			details, _ := json.Marshal(e.Issue.Details)
			l.add(fmt.Sprintf("issue: %s %s", e.Issue.Code, details))
		}
	case *page.EventJavascriptDialogOpening:
		l.add(fmt.Sprintf("dialog: %s %q", e.Type, e.Message))
		go l.dismiss()
	}
}

func words(args []*runtime.RemoteObject) string {
	var list []string
	for _, a := range args {
		list = append(list, fmt.Sprint(string(a.Value), a.Description))
	}
	return strings.Join(list, " ")
}

func (l *pageLog) add(fault string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults = append(l.faults, fault)
}

func (l *pageLog) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.faults)
}

// take removes the faults that have the words, and reports whether there were any.
func (l *pageLog) take(words string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := len(l.faults)
	l.faults = slices.DeleteFunc(l.faults, func(f string) bool { return strings.Contains(f, words) })
	return len(l.faults) < before
}

var dismissDialog = chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
	_, err := chromedp.Call(ctx, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{Accept: false})
	return err
})

// Expect waits for a fault that has the words and forgets it: the test has provoked it.
func (tab *Tab) Expect(words string) {
	tab.t.Helper()
	tab.Until(fmt.Sprintf("the log has a fault with %q", words), func() bool { return tab.log.take(words) })
}

// Faults are what the pages did wrong so far.
func (tab *Tab) Faults() []string { return tab.log.all() }

// ForgetFaults forgets them: the test has looked at them.
func (tab *Tab) ForgetFaults() { tab.log.take("") }

func (tab *Tab) requireNoFaults() {
	for _, f := range tab.log.all() {
		tab.t.Errorf("browser: the page did wrong: %s", f)
	}
}
