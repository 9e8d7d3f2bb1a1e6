// Package axe asks axe-core, which is injected into a page of a browser, what keeps people from using the page: too little
// contrast, a field without a label, a button without a name.
//
// axe-core is Deque's, under the Mozilla Public License 2.0 (LICENSE). manifest.json says which version axe.min.js is, and a
// test holds it to that. A newer one: npm pack axe-core, its axe.min.js and LICENSE in here, and the manifest.
package axe

import (
	_ "embed"
	"fmt"
	"slices"

	"github.com/timeoutcenter/toc/server/console/e2e/browser"
)

//go:embed axe.min.js
var script string

// Violation is a rule that elements of a page break.
type Violation struct {
	ID     string
	Impact string // minor, moderate, serious or critical
	Help   string
	Nodes  []struct {
		HTML           string
		FailureSummary string
	}
}

// String has a line for the rule, and one for each element.
func (v Violation) String() string {
	text := fmt.Sprintf("%s (%s): %s", v.ID, v.Impact, v.Help)
	for _, n := range v.Nodes {
		text += fmt.Sprintf("\n    %.200s\n        %.400q", n.HTML, n.FailureSummary)
	}
	return text
}

// Blocking keeps the violations that keep somebody from working with the page.
func Blocking(all []Violation) []Violation {
	return slices.DeleteFunc(slices.Clone(all), func(v Violation) bool { return v.Impact != "serious" && v.Impact != "critical" })
}

// Check runs all rules on the tab's page as it is displayed now.
func Check(tab *browser.Tab) []Violation {
	browser.Eval[bool](tab, "(() => {"+script+"\n; return true })()")
	return browser.Eval[[]Violation](tab, `axe.run(document, {resultTypes: ["violations"], elementRef: false}).then(r => r.violations)`)
}
