package console

import (
	"context"
	"fmt"
	"math"
	"time"
)

type overviewBody struct {
	Mood, Verdict string
	Faults        []faultLine
	Tiles         []tile
	Late, Work    chart
	Types         []typeLoad
	MoreTypes     int
	Nodes         int
	Silent        int
}

type tile struct{ Name, Value, Note string }

// topTypes is how many business types the overview lists.
const topTypes = 12

func (c *Console) overviewBody(ctx context.Context, _ string) (any, error) {
	p, err := c.look(ctx)
	if err != nil {
		return nil, err
	}
	b := &overviewBody{Faults: p.Faults, Nodes: len(p.Nodes), Silent: p.Silent}
	b.Mood, b.Verdict = p.verdict()
	for _, t := range p.Types {
		if t.Overdue > 0 || t.IsFailing() {
			b.Types = append(b.Types, t)
		}
	}
	if n := len(b.Types); n > topTypes {
		b.Types, b.MoreTypes = b.Types[:topTypes], n-topTypes
	}
	hour := p.hour()
	total := p.since(hour[0].At)
	const note = "in the last hour"
	b.Tiles = []tile{
		{"Lateness, p50", orNone(total.Late.quantile(.5)), "half of the runs " + note},
		{"Lateness, p99", orNone(total.Late.quantile(.99)), "99 in 100 " + note},
		{"Runs", num(total.Runs), note},
		{"Failed runs", num(total.Failed), failedNote(p, note)},
		{"Submits", num(total.Submitted), note},
		{"Running", num(p.Running), "now"},
		{"In memory", num(p.Waiting), "due soon or now"},
		{"Overdue", num(p.Overdue), overdueNote(p)},
	}
	b.Late, b.Work = lateChart(hour), workChart(hour)
	return b, nil
}

func failedNote(p *picture, note string) string {
	if p.Retrying == 0 {
		return note
	}
	return note + "; " + plural(p.Retrying, "task runs", "tasks run") + " again"
}

func overdueNote(p *picture) string {
	switch {
	case p.Overdue == 0:
		return "as of the last scans"
	case p.Oldest == 0:
		return "of paused types"
	}
	return "the oldest for " + seconds(p.Oldest)
}

func orNone(s float64) string {
	if math.IsNaN(s) {
		return "–"
	}
	return seconds(s)
}

func lateChart(hour []minute) chart {
	c := chart{ID: "late", Title: "Lateness by the minute", Head: []string{"Minute (UTC)", "Half within", "99 in 100 within", "Runs started"},
		Legend: []legend{{"p50", "half of the runs (p50)"}, {"p99", "99 in 100 (p99)"}}}
	var p50, p99 []float64
	top, worst, sum := 0.0, time.Time{}, lateness{}
	for _, m := range hour {
		half, most := m.Late.quantile(.5), m.Late.quantile(.99)
		p50, p99 = append(p50, half), append(p99, most)
		sum.add(m.Late)
		if most > top {
			top, worst = most, m.At
		}
		if n := m.Late.count(); n > 0 {
			c.Rows = append(c.Rows, []string{m.At.Format("15:04"), seconds(half), seconds(most), num(n)})
		}
	}
	height := c.logarithmic(top)
	c.add("p99", p99, height)
	c.add("p50", p50, height)
	c.between(hour[0].At, hour[len(hour)-1].At.Add(time.Minute))
	c.tell(len(hour), func(i int) string {
		if n := hour[i].Late.count(); n > 0 {
			return fmt.Sprintf("%s: half within %s, 99 in 100 within %s, of %s", hour[i].At.Format("15:04"), seconds(p50[i]), seconds(p99[i]),
				plural(n, "run", "runs"))
		}
		return ""
	})
	if c.Words = "No run has started in the last hour."; sum.count() > 0 {
		c.Words = fmt.Sprintf("In the last hour half of %s started within %s of their time, and 99 in 100 within %s. The worst minute was %s, with %s.",
			plural(sum.count(), "run", "runs"), seconds(sum.quantile(.5)), seconds(sum.quantile(.99)), worst.Format("15:04"), seconds(top))
	}
	return c
}

func workChart(hour []minute) chart {
	c := chart{ID: "work", Title: "Runs and submits by the minute", Head: []string{"Minute (UTC)", "Runs", "Failed", "Submits"},
		Legend: []legend{{"runs", "runs"}, {"submits", "submits"}}}
	var runs, submits []float64
	top, most, busiest := 0.0, 0, time.Time{}
	var sum minute
	for _, m := range hour {
		runs, submits = append(runs, float64(m.Runs)), append(submits, float64(m.Submitted))
		top = max(top, float64(m.Runs), float64(m.Submitted))
		sum.Runs, sum.Failed, sum.Submitted = sum.Runs+m.Runs, sum.Failed+m.Failed, sum.Submitted+m.Submitted
		if m.Runs > most {
			most, busiest = m.Runs, m.At
		}
		if m.Runs+m.Submitted > 0 {
			c.Rows = append(c.Rows, []string{m.At.Format("15:04"), num(m.Runs), num(m.Failed), num(m.Submitted)})
		}
	}
	height := c.linear(niceTop(top))
	c.bars(func(int) string { return "runs" }, runs, height)
	if sum.Submitted > 0 {
		c.add("submits", submits, height)
	}
	c.between(hour[0].At, hour[len(hour)-1].At.Add(time.Minute))
	c.tell(len(hour), func(i int) string {
		m := hour[i]
		if m.Runs+m.Submitted == 0 {
			return ""
		}
		return fmt.Sprintf("%s: %s, %s", m.At.Format("15:04"), plural(m.Runs, "run", "runs"), plural(m.Submitted, "submit", "submits"))
	})
	if c.Words = "No run has ended in the last hour, and nothing was submitted."; sum.Runs+sum.Submitted > 0 {
		c.Words = fmt.Sprintf("In the last hour %s ended, %s of them failed, and %s came in.", plural(sum.Runs, "run", "runs"), num(sum.Failed),
			plural(sum.Submitted, "submit", "submits"))
		if most > 0 {
			c.Words += fmt.Sprintf(" The busiest minute was %s, with %s.", busiest.Format("15:04"), plural(most, "run", "runs"))
		}
	}
	return c
}
