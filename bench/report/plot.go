package report

import (
	"fmt"
	"math"
	"strings"

	"github.com/timeoutcenter/toc/bench/result"
)

// plot is an SVG file.
type plot struct {
	file, alt string
	svg       []byte
}

// plotsOf draws a session, the nth of its workload: lateness as curves, what is
// one number a peer as bars.
func plotsOf(s result.Session, nth int) []plot {
	kind, _, _ := parts(s.Work)
	name := s.Work
	if nth > 1 {
		name += fmt.Sprintf("_%d", nth)
	}
	var list []plot
	add := func(alt string, svg []byte) {
		if svg != nil {
			list = append(list, plot{name + ".svg", alt, svg})
		}
	}
	switch kind {
	case "submit", "batch":
		add(s.Title+": tasks a second", barsOf(s, s.Title+": tasks a second", "per_s"))
	case "drain":
		add(s.Title+": tasks a second", barsOf(s, s.Title+": tasks a second from the instant on", "per_s"))
	case "idle":
		add(s.Title+": CPU", barsOf(s, s.Title+": percent of one core", "cpu_percent"))
	case "memory":
		add(s.Title, barsOf(s, "Redis: bytes an armed task", "redis_bytes"))
	case "lateness":
		add(s.Title+": lateness by percentile", latenessOf(s, s.Title))
	case "crowd":
		add(s.Title+": lateness by percentile", latenessOf(s, s.Title))
	case "growth":
		add("Single submits a second as rows grow", growthOf(s))
	}
	return list
}

// colours has a peer's in every plot, by the beginning of its name: toc is blue
// (redis) and green (scan), the floors are grey.
var colours = []struct{ peer, colour string }{
	{"toc/redis/8x1024", "#0b93d6"}, {"toc/redis/embedded", "#74a9ff"}, {"toc/redis", "#0b3fd6"},
	{"toc/scan/8x1024", "#3fae6a"}, {"toc/scan/embedded", "#9bd3ae"}, {"toc/scan", "#0a7a3d"},
	{"asynq/", "#f4b000"}, {"asynq", "#e8590c"}, {"river", "#c2255c"}, {"beanstalkd", "#7048e8"}, {"bullmq", "#795548"},
	{"rocketmq/100", "#ff8787"}, {"rocketmq", "#d6336c"}, {"artemis", "#1098ad"}, {"redisson", "#a61e4d"}, {"quartz", "#845ef7"}, {"db-scheduler", "#5c940d"},
	{"nats", "#f76707"}, {"jobrunr", "#087f5b"}, {"dbos", "#c0a000"},
	{"sql-loop/8x1024", "#adb5bd"}, {"sql-loop", "#6c757d"}, {"redis-scripts", "#343a40"},
}

func colour(peer string) string {
	for _, c := range colours {
		if strings.HasPrefix(peer, c.peer) {
			return c.colour
		}
	}
	return "#000000"
}

func barsOf(s result.Session, title, key string) []byte {
	var bars []bar
	for _, name := range s.Order {
		if v, ok := s.Value(name, key); ok {
			bars = append(bars, bar{name, v.Min, v.Median, v.Max, colour(name)})
		}
	}
	return drawBars(title, bars)
}

// bar is a median with its least and most.
type bar struct {
	name             string
	least, mid, most float64
	colour           string
}

// canvas writes SVG elements.
type canvas struct{ strings.Builder }

var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;")

func (c *canvas) open(width, height int, title string) {
	fmt.Fprintf(c, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="system-ui, sans-serif" font-size="12">`+"\n", width, height, width, height)
	fmt.Fprintf(c, `<title>%s</title><rect width="%d" height="%d" fill="#ffffff"/>`+"\n", escaper.Replace(title), width, height)
	c.text(16, 24, "start", "#212529", 15, title)
}

func (c *canvas) text(x, y float64, anchor, fill string, size int, s string) {
	fmt.Fprintf(c, `<text x="%.1f" y="%.1f" text-anchor="%s" fill="%s" font-size="%d">%s</text>`+"\n", x, y, anchor, fill, size, escaper.Replace(s))
}

func (c *canvas) line(x1, y1, x2, y2 float64, stroke string, width float64) {
	fmt.Fprintf(c, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-width="%.1f"/>`+"\n", x1, y1, x2, y2, stroke, width)
}

func (c *canvas) close() []byte {
	c.WriteString("</svg>\n")
	return []byte(c.String())
}

// drawBars draws one bar a peer, its length the median, and a whisker from the
// least to the most. Without bars there is no picture.
func drawBars(title string, bars []bar) []byte {
	const left, right, top, row = 190.0, 700.0, 44.0, 24.0
	most := 0.0
	for _, b := range bars {
		most = max(most, b.most)
	}
	if most <= 0 {
		return nil
	}
	var c canvas
	c.open(800, int(top+row*float64(len(bars)))+16, title)
	at := func(v float64) float64 { return left + max(0, v)/most*(right-left) }
	for i, b := range bars {
		y := top + row*float64(i)
		c.text(left-8, y+15, "end", "#212529", 12, b.name)
		fmt.Fprintf(&c, `<rect x="%.1f" y="%.1f" width="%.1f" height="16" fill="%s"/>`+"\n", left, y+3, max(1, at(b.mid)-left), b.colour)
		if b.least < b.most {
			c.line(at(b.least), y+11, at(b.most), y+11, "#212529", 1.2)
		}
		c.text(max(at(b.mid), at(b.most))+8, y+15, "start", "#212529", 12, number(b.mid))
	}
	return c.close()
}

// axis maps values to a length, by their logarithm.
type axis struct {
	low, high float64 // values at both ends, above 0
	from, to  float64
}

func (a axis) at(v float64) float64 {
	v = min(max(v, a.low), a.high)
	return a.from + (math.Log10(v)-math.Log10(a.low))/(math.Log10(a.high)-math.Log10(a.low))*(a.to-a.from)
}

// decades is the powers of ten on an axis.
func (a axis) decades() (list []float64) {
	for e := math.Ceil(math.Log10(a.low) - 1e-9); e <= math.Log10(a.high)+1e-9; e++ {
		list = append(list, math.Pow(10, e))
	}
	return list
}

// spanning is an axis of whole decades around the values.
func spanning(values []float64, from, to float64) axis {
	low, high := math.Inf(1), math.Inf(-1)
	for _, v := range values {
		if v > 0 {
			low, high = min(low, v), max(high, v)
		}
	}
	if math.IsInf(low, 1) {
		low, high = 1, 1
	}
	low, high = math.Pow(10, math.Floor(math.Log10(low))), math.Pow(10, math.Ceil(math.Log10(high)))
	if low == high {
		high = low * 10
	}
	return axis{low, high, from, to}
}

// series is a line and its name.
type series struct {
	name   string
	colour string
	x, y   []float64
}

const (
	linesLeft, linesRight, linesTop, linesBottom = 70.0, 610.0, 50.0, 350.0
	linesWidth, linesHeight                      = 840, 400
)

// drawLines draws lines on two logarithmic axes; marks stand below the x axis.
func drawLines(title, yName string, x, y axis, marks map[float64]string, lines []series) []byte {
	var c canvas
	c.open(linesWidth, max(linesHeight, int(linesTop)+20*len(lines)+10), title)
	c.text(linesLeft, linesTop-8, "start", "#495057", 11, yName)
	for _, d := range y.decades() {
		c.line(linesLeft, y.at(d), linesRight, y.at(d), "#dee2e6", 1)
		c.text(linesLeft-8, y.at(d)+4, "end", "#495057", 11, decade(d))
	}
	for v, name := range sortedMarks(marks) {
		c.line(x.at(v), linesTop, x.at(v), linesBottom, "#f1f3f5", 1)
		c.text(x.at(v), linesBottom+18, "middle", "#495057", 11, name)
	}
	for i, l := range lines {
		points := make([]string, len(l.x))
		for k := range l.x {
			points[k] = fmt.Sprintf("%.1f,%.1f", x.at(l.x[k]), y.at(l.y[k]))
		}
		fmt.Fprintf(&c, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", strings.Join(points, " "), l.colour)
		if len(points) <= 3 { // a single one would not show
			for k := range l.x {
				fmt.Fprintf(&c, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`+"\n", x.at(l.x[k]), y.at(l.y[k]), l.colour)
			}
		}
		legend := linesTop + 20*float64(i)
		c.line(linesRight+16, legend+6, linesRight+36, legend+6, l.colour, 3)
		c.text(linesRight+42, legend+10, "start", "#212529", 12, l.name)
	}
	return c.close()
}

// decade writes 0.01 to 1,000.
func decade(v float64) string {
	if v >= 1 {
		return thousands(v)
	}
	return fmt.Sprintf("%g", v)
}
