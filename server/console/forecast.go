package console

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/timeoutcenter/toc/api"
)

type forecastBody struct {
	BizType, Span string
	Spans         []spanChoice
	TypeNames     []string
	Chart         chart
	Crowded       []api.DueSecond
	Types         []typeDue
	MoreTypes     int
	Estimated     bool
	Total         int
	AsOf          api.Time
}

type spanChoice struct{ Value, Text string }

type typeDue struct {
	Name string
	Due  int
}

// spans are how far ahead somebody may look: by the minute for hours, by the hour for days.
var spans = []spanChoice{{"2h", "2 hours, by the minute"}, {"6h", "6 hours, by the minute"}, {"48h", "2 days, by the hour"},
	{"168h", "7 days, by the hour"}, {"744h", "31 days, by the hour"}}

// forecastRows is how many tasks are counted exactly, about: somebody waits for the page, and a picture needs no more.
const forecastRows = 6000

// byMinute is the longest span that is shown by the minute.
const byMinute = 6 * time.Hour

func (c *Console) forecast(r *http.Request) (*page, error) {
	f := formOf(r)
	b := &forecastBody{BizType: f.text("biz_type"), Span: cmp.Or(f.text("span"), "2h"), Spans: spans, TypeNames: c.typeNames()}
	p := &page{Name: "forecast", Title: "Forecast", Body: b}
	ask := api.AskForecast{BizType: b.BizType, Span: f.duration("span"), Step: f.duration("step"), Rows: forecastRows}
	if ask.Span == 0 {
		ask.Span = 2 * time.Hour
	}
	if ask.Step == 0 {
		if ask.Step = time.Minute; ask.Span > byMinute {
			ask.Step = time.Hour
		}
	}
	if !slices.ContainsFunc(spans, func(s spanChoice) bool { return s.Value == b.Span }) {
		b.Spans = append(slices.Clone(spans), spanChoice{b.Span, b.Span})
	}
	if f.err != nil {
		return p, f.err
	}
	got, err := c.center.Forecast(r.Context(), ask)
	if err == nil {
		b.show(got, ask)
	}
	return p, err
}

func (b *forecastBody) show(f api.Forecast, ask api.AskForecast) {
	b.AsOf, b.Crowded, b.Estimated = f.AsOf, f.Crowded, f.Estimated
	step := ask.Step
	from := f.AsOf.Time().Truncate(step)
	n := int((f.AsOf.Time().Add(ask.Span).Sub(from) + step - 1) / step)
	due, crowded, types := make([]float64, n), make([]bool, n), make(map[string]int)
	index := func(at api.Time) int { return min(max(0, int(at.Time().Sub(from)/step)), n-1) }
	names := make([][]string, n)
	for _, k := range f.Buckets {
		i := index(k.At)
		due[i] += float64(k.Due)
		types[k.BizType] += k.Due
		b.Total += k.Due
		if len(names[i]) < 3 {
			names[i] = append(names[i], fmt.Sprintf("%s %s", num(k.Due), k.BizType))
		} else if len(names[i]) == 3 {
			names[i] = append(names[i], "…")
		}
	}
	for _, s := range f.Crowded {
		crowded[index(s.Second)] = true
	}
	for name, n := range types {
		b.Types = append(b.Types, typeDue{name, n})
	}
	slices.SortFunc(b.Types, func(x, y typeDue) int { return cmp.Or(y.Due-x.Due, cmp.Compare(x.Name, y.Name)) })
	if more := len(b.Types) - topTypes; more > 0 {
		b.Types, b.MoreTypes = b.Types[:topTypes], more
	}
	b.draw(from, step, due, crowded, names)
}

func (b *forecastBody) draw(from time.Time, step time.Duration, due []float64, crowded []bool, names [][]string) {
	unit, layout := "minute", "15:04"
	if step >= time.Hour {
		unit, layout = "hour", "Jan 2 15:04"
	}
	c := chart{ID: "due", Title: "Due by the " + unit, Head: []string{strings.ToUpper(unit[:1]) + unit[1:] + " (UTC)", "Due", "Of"},
		Legend: []legend{{"due", "due"}, {"crowded", "has a crowded second"}}}
	most := 0
	for i, n := range due {
		if n > due[most] {
			most = i
		}
		if n > 0 {
			c.Rows = append(c.Rows, []string{from.Add(time.Duration(i) * step).Format(layout), num(n), strings.Join(names[i], ", ")})
		}
	}
	height := c.linear(niceTop(slices.Max(due)))
	c.bars(func(i int) string {
		if crowded[i] {
			return "crowded"
		}
		return "due"
	}, due, height)
	c.between(from, from.Add(time.Duration(len(due))*step))
	c.tell(len(due), func(i int) string {
		if due[i] == 0 {
			return ""
		}
		return fmt.Sprintf("%s: %s due (%s)", from.Add(time.Duration(i)*step).Format(layout), num(due[i]), strings.Join(names[i], ", "))
	})
	if c.Words = "Nothing is due in this time."; b.Total > 0 {
		c.Words = fmt.Sprintf("%s due in this time. The most crowded %s is %s, with %s.", plural(b.Total, "task is", "tasks are"), unit,
			from.Add(time.Duration(most)*step).Format(layout), num(due[most]))
	}
	if b.Estimated {
		c.Words += " These are estimates: there are so many tasks that some tables stand for all."
	}
	b.Chart = c
}
