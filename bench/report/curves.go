package report

import (
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/timeoutcenter/toc/bench/result"
)

// shownLate is the least lateness that a plot shows, in ms: less is drawn there.
const shownLate = 0.1

// latenessOf draws how late tasks were, by percentile: the further right, the
// rarer. Each line is the medians over the runs.
func latenessOf(s result.Session, title string) []byte {
	// The axis is the part that is later: 50 %, 10 %, 1 %… towards the right.
	x := axis{1, 10_000, linesLeft, linesRight}
	marks := map[float64]string{1: "0 %", 2: "50 %", 10: "90 %", 100: "99 %", 1000: "99.9 %", 10_000: "99.99 %"}
	var lines []series
	var all []float64
	for _, name := range s.Order {
		curve := s.Curve(name)
		if curve == nil {
			continue
		}
		l := series{name: name, colour: colour(name)}
		for q, late := range curve {
			rarer := 1 / max(1-result.Quantiles[q], 1/x.high)
			l.x, l.y = append(l.x, rarer), append(l.y, max(late, shownLate))
		}
		all = append(all, l.y...)
		lines = append(lines, l)
	}
	if lines == nil {
		return nil
	}
	return drawLines(title, "lateness, ms", x, spanning(all, linesBottom, linesTop), marks, lines)
}

// growthOf draws the submit rate over the parked rows.
func growthOf(s result.Session) []byte {
	sizes := grownTo(s)
	marks := map[float64]string{}
	var xs, ys []float64
	for _, size := range sizes {
		marks[float64(size)] = thousands(float64(size))
		xs = append(xs, float64(size))
	}
	var lines []series
	for _, name := range s.Order {
		l := series{name: name, colour: colour(name)}
		for _, size := range sizes {
			if v, ok := s.Value(name, fmt.Sprintf("%d_per_s", size)); ok {
				l.x, l.y = append(l.x, float64(size)), append(l.y, v.Median)
			}
		}
		if l.x != nil {
			lines = append(lines, l)
			ys = append(ys, l.y...)
		}
	}
	if lines == nil {
		return nil
	}
	return drawLines("Single submits a second as parked rows grow", "submits/s", spanning(xs, linesLeft, linesRight), spanning(ys, linesBottom, linesTop), marks, lines)
}

const (
	parkedRate = 1000 // tasks a second
	parkedFile = "parked.svg"
)

// besideParked draws the lateness p99 of all systems over the parked tasks, each from the newest session that has it. Without
// parked tasks there is no picture.
func besideParked(r result.Results) []byte {
	const none = 100_000 // where 0 stands on the axis
	marks := map[float64]string{}
	var lines []series
	var xs, ys []float64
	for _, s := range slices.SortedStableFunc(slices.Values(r.Sessions), byWork) {
		kind, rate, parked := parts(s.Work)
		if kind != "lateness" || rate != parkedRate {
			continue
		}
		x := float64(max(parked, none))
		for _, name := range s.Order {
			v, ok := s.Value(name, "p99_ms")
			if !ok {
				continue
			}
			i := slices.IndexFunc(lines, func(l series) bool { return l.name == name })
			if i < 0 {
				i = len(lines)
				lines = append(lines, series{name: name, colour: colour(name)})
			}
			y := max(v.Median, shownLate)
			lines[i].x, lines[i].y = append(lines[i].x, x), append(lines[i].y, y)
			xs, ys = append(xs, x), append(ys, y)
			marks[x] = thousands(float64(parked))
		}
	}
	if len(marks) < 2 {
		return nil
	}
	return drawLines(fmt.Sprintf("Lateness p99 at %s tasks a second, by the tasks parked beside them", thousands(parkedRate)), "lateness p99, ms",
		axis{none, slices.Max(xs), linesLeft, linesRight}, spanning(ys, linesBottom, linesTop), marks, lines)
}

// sortedMarks goes from left to right.
func sortedMarks(marks map[float64]string) iter.Seq2[float64, string] {
	return func(yield func(float64, string) bool) {
		for _, v := range slices.Sorted(maps.Keys(marks)) {
			if !yield(v, marks[v]) {
				return
			}
		}
	}
}
