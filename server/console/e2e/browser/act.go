package browser

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// Roles of what can be pressed and of what can be filled in.
var (
	pressed = []string{"button", "link", "DisclosureTriangle", "checkbox", "radio", "menuitem", "tab"}
	filled  = []string{"textbox", "searchbox", "combobox", "spinbutton", "listbox", "Date", "DateTime", "InputTime"}
)

// Press presses the button, link or summary of that name, where a reader sees it: with the mouse, in the middle of it,
// and it fails when something else lies over it. within is a CSS selector of the part of the page, all of it without one.
func (tab *Tab) Press(name string, within ...string) {
	tab.t.Helper()
	tab.retry("press "+name, func(ctx context.Context) error { return press(ctx, name, within) })
}

// TryPress presses once and says why it could not.
func (tab *Tab) TryPress(name string, within ...string) error { return press(tab.ctx, name, within) }

func press(ctx context.Context, name string, within []string) error {
	node, err := find(ctx, pressed, name, within)
	if err != nil {
		return err
	}
	return click(ctx, node)
}

// Has reports whether the page has a button, link or summary of that name now.
func (tab *Tab) Has(name string, within ...string) bool {
	tab.t.Helper()
	var found bool
	tab.retry("look for "+name, func(ctx context.Context) error {
		_, err := find(ctx, pressed, name, within)
		found = err == nil || errors.Is(err, errAmbiguous)
		if errors.Is(err, errNotThere) || errors.Is(err, errAmbiguous) {
			return nil
		}
		return err
	})
	return found
}

// Fill gives the field of that label a value, in place of the one it has.
func (tab *Tab) Fill(label, value string, within ...string) {
	tab.t.Helper()
	tab.retry("fill in "+label, func(ctx context.Context) error {
		node, err := find(ctx, filled, label, within)
		if err != nil {
			return err
		}
		text, err := json.Marshal(value)
		if err != nil {
			return err
		}
		_, err = callOn[bool](ctx, node, fmt.Sprintf(setValue, text))
		return err
	})
}

// setValue does what typing or choosing does. It sends the same events as the browser.
const setValue = `function () {
	let value = %s;
	this.focus();
	if (this.tagName === "SELECT") {
		const option = [...this.options].find(o => o.value === value || o.label === value);
		if (!option) throw new Error("no option " + value);
		value = option.value;
	}
	this.value = value;
	if ((this.value === "") !== (value === "")) throw new Error("the field takes no " + value);
	this.dispatchEvent(new Event("input", {bubbles: true}));
	this.dispatchEvent(new Event("change", {bubbles: true}));
	return true;
}`

// Key sends keys to what has the focus: text, or one of package kb's.
func (tab *Tab) Key(keys string, options ...chromedp.KeyOption) {
	tab.t.Helper()
	tab.must("press a key", tab.do(chromedp.KeyEvent(keys, options...)))
}

// Hover moves the pointer to the middle of the first element of a CSS selector and leaves it there.
func (tab *Tab) Hover(selector string) {
	tab.t.Helper()
	tab.retry("point at "+selector, func(ctx context.Context) error {
		at, err := chromedp.Run(ctx, chromedp.Evaluate[[]float64](fmt.Sprintf(`(() => {
			const box = document.querySelector(%q).getBoundingClientRect();
			return [box.x + box.width / 2, box.y + box.height / 2];
		})()`, selector)))
		if err != nil {
			return err
		}
		return chromedp.Do(ctx, chromedp.MouseEvent(chromedp.MouseMoved, at[0], at[1]))
	})
}

// retry does something until it succeeds: a page that is just being replaced has not what is looked for.
func (tab *Tab) retry(what string, do func(ctx context.Context) error) {
	tab.t.Helper()
	ctx, cancel := context.WithTimeout(tab.ctx, patience)
	defer cancel()
	var last error
	for {
		err := do(ctx)
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			tab.fail(fmt.Sprintf("%s: %v", what, cmp.Or(last, err)))
		}
		last = err
		time.Sleep(lookEach)
	}
}

var (
	errNotThere  = errors.New("the page has none")
	errAmbiguous = errors.New("the page has more than one")
)

// find finds what a screen reader calls by the name and one of the roles.
func find(ctx context.Context, roles []string, name string, within []string) (cdp.BackendNodeID, error) {
	root, err := scope(ctx, within)
	if err != nil {
		return 0, err
	}
	tree, err := chromedp.Call(ctx, accessibility.QueryAXTree, accessibility.QueryAXTreeParams{NodeID: root, AccessibleName: name})
	if err != nil {
		return 0, err
	}
	var found []cdp.BackendNodeID
	for _, n := range tree.Nodes {
		if n.Ignored || n.Role == nil || n.BackendDOMNodeID == 0 {
			continue
		}
		if slices.Contains(roles, strings.Trim(string(n.Role.Value), `"`)) {
			found = append(found, n.BackendDOMNodeID)
		}
	}
	switch len(found) {
	case 0:
		return 0, errNotThere
	case 1:
		return found[0], nil
	default:
		return 0, fmt.Errorf("%w: %d", errAmbiguous, len(found))
	}
}

// scope is the element of the selector, or the document.
func scope(ctx context.Context, within []string) (cdp.NodeID, error) {
	document, err := chromedp.Call(ctx, dom.GetDocument, dom.GetDocumentParams{})
	if err != nil {
		return 0, err
	}
	if len(within) == 0 {
		return document.Root.NodeID, nil
	}
	found, err := chromedp.Call(ctx, dom.QuerySelector,
		dom.QuerySelectorParams{NodeID: document.Root.NodeID, Selector: strings.Join(within, " ")})
	if err == nil && found.NodeID == 0 {
		err = fmt.Errorf("%w of %s", errNotThere, strings.Join(within, " "))
	}
	return found.NodeID, err
}

// reach brings an element into view and answers the middle of it, if a press there would hit it.
const reach = `function () {
	this.scrollIntoView({block: "center", inline: "center", behavior: "instant"});
	const box = this.getClientRects()[0];
	if (!box) throw new Error("it is not displayed");
	const x = box.x + box.width / 2, y = box.y + box.height / 2;
	const hit = document.elementFromPoint(x, y);
	if (!this.contains(hit)) throw new Error("it is covered by " + (hit && hit.outerHTML.slice(0, 80)));
	return [x, y];
}`

func click(ctx context.Context, node cdp.BackendNodeID) error {
	at, err := callOn[[]float64](ctx, node, reach)
	if err != nil {
		return err
	}
	return chromedp.Do(ctx, chromedp.MouseClickXY(at[0], at[1]))
}

// callOn calls a function of JavaScript with the element as this.
func callOn[T any](ctx context.Context, node cdp.BackendNodeID, function string) (T, error) {
	var none T
	object, err := chromedp.Call(ctx, dom.ResolveNode, dom.ResolveNodeParams{BackendNodeID: node})
	if err != nil {
		return none, err
	}
	on := func(p *runtime.CallFunctionOnParams) { p.ObjectID = object.Object.ObjectID }
	return chromedp.Run(ctx, chromedp.CallFunctionOn[T](function, on))
}
