package audit

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// decideWithin is how long the search for one task's order may take. It takes microseconds where there is one.
const decideWithin = time.Minute

// pictures is how many histories without an order are drawn.
const pictures = 5

// checker makes a model one that porcupine knows.
func (m *model) checker() porcupine.Model {
	n := porcupine.NondeterministicModel{
		Init: func() []any { return []any{row{}} },
		Step: func(state, input, _ any) (after []any) {
			c, before := input.(*call), []row{state.(row)}
			if c.silently {
				before = m.expand(before[0], c.till)
			}
			for _, b := range before {
				for _, a := range c.step(b) {
					if a != b {
						a.since = max(b.since, c.from)
					}
					after = append(after, a)
				}
			}
			return after
		},
		DescribeOperation: func(input, _ any) string { return input.(*call).what },
		DescribeState:     func(state any) string { return state.(row).String() },
	}
	return n.ToModel()
}

// lines are calls as porcupine takes them, in nanoseconds since the first one. Those that overlap stand on lines of their own.
func lines(list []*call) (ops []porcupine.Operation) {
	list = slices.SortedFunc(slices.Values(list), func(a, b *call) int { return cmp.Compare(a.from, b.from) })
	var end int64
	for _, c := range list {
		for _, t := range []int64{c.from, c.till} {
			if t < inTheEnd {
				end = max(end, t)
			}
		}
	}
	since := func(t int64) int64 {
		if t >= inTheEnd {
			t = end + 1 + t - inTheEnd
		}
		return t - list[0].from
	}
	var free []int64 // since when, by line
	for _, c := range list {
		line := slices.IndexFunc(free, func(since int64) bool { return since < c.from })
		if line < 0 {
			line, free = len(free), append(free, 0)
		}
		free[line] = c.till
		ops = append(ops, porcupine.Operation{ClientId: line, Input: c, Call: since(c.from), Return: since(c.till)})
	}
	return ops
}

// askLinearizable: there is an order of all that was done to the task that explains each answer.
func (v *Verdict) askLinearizable(s *story) string {
	m, list := v.history(s)
	model, ops := m.checker(), lines(list)
	switch porcupine.CheckOperationsTimeout(model, ops, decideWithin) {
	case porcupine.Ok:
		return ""
	case porcupine.Unknown:
		return fmt.Sprintf("none was found within %s, nor that there is none", decideWithin)
	}
	_, info := porcupine.CheckOperationsVerbose(model, ops, decideWithin)
	what := stuck(list, info)
	if v.Artifacts != "" && v.drawn < pictures {
		v.drawn++
		file := filepath.Join(v.Artifacts, "task-"+strconv.FormatUint(s.JobID, 10)+".html")
		info.AddAnnotations([]porcupine.Annotation{{Tag: "story", Description: what, Details: v.text(s)}})
		if err := porcupine.VisualizePath(model, info, file); err != nil {
			file = err.Error()
		}
		what += " (" + file + ")"
	}
	return what
}

// stuck names the call that fits in no order: of those that the longest order lacks, the first that had to be over.
func stuck(list []*call, info porcupine.LinearizationInfo) string {
	var longest []porcupine.Operation
	for _, order := range info.PartialLinearizationsOperations()[0] {
		if len(order) > len(longest) {
			longest = order
		}
	}
	in := map[*call]bool{}
	var names []string
	for _, o := range longest {
		c := o.Input.(*call)
		in[c] = true
		names = append(names, c.what)
	}
	var first *call
	for _, c := range list {
		if !in[c] && (first == nil || c.till < first.till) {
			first = c
		}
	}
	return fmt.Sprintf("%q cannot come after %s", first.what, strings.Join(names, ", "))
}
