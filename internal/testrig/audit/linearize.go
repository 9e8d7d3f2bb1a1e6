package audit

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// decideWithin is how long the search for one task's order may take. It takes microseconds where few faults fell on it, and a gigabyte
// for each second where many did. A task whose search is given up is counted, and breaks no rule.
const decideWithin = time.Second

// pictures is how many histories without an order are drawn.
const pictures = 5

// rows is the state of a search: each row that the task may have then.
type rows []row

// add adds a row that is not among them.
func (list rows) add(r row) rows {
	if slices.Contains(list, r) {
		return list
	}
	return append(list, r)
}

// step is the rows after a call. None: it is impossible then. A call that may never take effect comes after the end in that case, so
// before the end it is one that may have an effect.
func (m *model) step(list rows, c *call) (after rows) {
	hasEffect := !c.mayBeNever
	for _, start := range list {
		before := []row{start}
		if c.silently {
			before = m.expand(start, c.till)
		}
		if c.mayBeNever {
			after, hasEffect = after.add(start), hasEffect || start.over
		}
		for _, b := range before {
			if b.over {
				continue
			}
			for _, a := range c.step(b) {
				if a != b {
					a.since, hasEffect = max(b.since, c.from), true
				}
				after = after.add(a)
			}
		}
	}
	if !hasEffect {
		return nil
	}
	return after
}

var seed = maphash.MakeSeed()

// checker returns the model in the form of porcupine. It is not porcupine's NondeterministicModel, which steps each row alone:
// whether a call has an effect depends on all of the rows.
func (m *model) checker() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return rows{{}} },
		Step: func(state, input, _ any) (bool, any) {
			after := m.step(state.(rows), input.(*call))
			return len(after) > 0, after
		},
		Equal: func(a, b any) bool {
			one, other := a.(rows), b.(rows)
			return len(one) == len(other) && !slices.ContainsFunc(one, func(r row) bool { return !slices.Contains(other, r) })
		},
		Hash: func(state any) (sum uint64) {
			for _, r := range state.(rows) {
				sum ^= maphash.Comparable(seed, r)
			}
			return sum
		},
		DescribeOperation: func(input, _ any) string { return input.(*call).what },
		DescribeState: func(state any) string {
			var list []string
			for _, r := range state.(rows) {
				list = append(list, r.String())
			}
			return "{" + strings.Join(list, ", ") + "}"
		},
	}
}

// lines are calls as porcupine takes them, in nanoseconds since the first one. Overlapping calls stand on different lines.
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

// longest is of how many calls an order is searched. A task that fails and is redriven all the time has hundreds, and the search may
// double with each.
const longest = 60

// beginning returns the first calls of a history that is too long. A call that is under way then may take effect later, or never.
func beginning(list []*call) []*call {
	if len(list) <= longest {
		return list
	}
	list = slices.SortedFunc(slices.Values(list), func(a, b *call) int { return cmp.Compare(a.from, b.from) })
	then := list[longest].from
	first := []*call{theEnd(func(row) bool { return true })}
	for _, c := range list {
		if c.from >= then {
			break
		}
		if c.till >= then {
			c.till, c.mayBeNever, c.silently = forever, true, false
		}
		first = append(first, c)
	}
	return first
}

// askLinearizable: there is an order of all that was done to the task that explains each answer.
func (v *Verdict) askLinearizable(s *story) string {
	m, list := v.history(s)
	list = beginning(list)
	model, ops := m.checker(), lines(list)
	switch porcupine.CheckOperationsTimeout(model, ops, decideWithin) {
	case porcupine.Ok:
		return ""
	case porcupine.Unknown:
		v.undecided++
		return ""
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

// stuck names the call that fits in no order: among the calls that the longest order lacks, the one that had to be over first.
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
