package console

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// chart is a picture of numbers over time. It has a caption in words and a table, for readers who do not see it.
type chart struct {
	ID      string
	Title   string
	Words   string   // what it shows, in a sentence
	Ticks   []string // labels of the vertical axis, from the top, at equal distances
	Times   []string // labels of the horizontal axis, at equal distances
	Grid    []string // heights of the lines at the ticks
	Legend  []legend
	Lines   []line
	Bars    []bar
	Columns []column // texts that show where somebody points
	Head    []string // of the table
	Rows    [][]string
}

type legend struct{ Class, Text string }
type line struct{ Class, Path string }
type bar struct{ Class, X, Y, W, H string }
type column struct{ X, W, Text string }

// The coordinates of a chart. The browser stretches it.
const (
	chartWidth  = 600.0
	chartHeight = 100.0
)

func coordinate(x float64) string {
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.2f", x), "0"), ".")
}

// grid lays the ticks at equal distances.
func (c *chart) grid(ticks ...string) {
	c.Ticks = ticks
	for i := range ticks {
		c.Grid = append(c.Grid, coordinate(chartHeight*float64(i)/float64(len(ticks)-1)))
	}
}

// niceTop is the least round number that is not below n.
func niceTop(n float64) float64 {
	if n <= 4 {
		return 4
	}
	unit := math.Pow(10, math.Floor(math.Log10(n)))
	for _, m := range []float64{1, 2, 4, 6, 8, 10} {
		if m*unit >= n {
			return m * unit
		}
	}
	return 10 * unit
}

// linear returns the height of a value on an axis from 0 to top, and labels it.
func (c *chart) linear(top float64) func(float64) float64 {
	c.grid(num(top), num(top/2), "0")
	return func(v float64) float64 { return chartHeight * (1 - v/top) }
}

// logarithmic returns the height of a time in seconds on an axis whose ticks are powers of ten, from a millisecond on.
func (c *chart) logarithmic(top float64) func(float64) float64 {
	const bottom = -3
	decades := max(3, int(math.Ceil(math.Log10(max(top, 0.001))-1e-9))-bottom)
	var ticks []string
	for d := decades; d >= 0; d-- {
		ticks = append(ticks, seconds(math.Pow(10, float64(d+bottom))))
	}
	c.grid(ticks...)
	return func(v float64) float64 {
		at := (math.Log10(max(v, 0.001)) - bottom) / float64(decades)
		return chartHeight * (1 - at)
	}
}

// steps lays n columns side by side.
func steps(n int) (width float64, left func(i int) float64) {
	width = chartWidth / float64(n)
	return width, func(i int) float64 { return float64(i) * width }
}

// add draws a line through values; NaN leaves a gap.
func (c *chart) add(class string, values []float64, height func(float64) float64) {
	width, left := steps(len(values))
	var path strings.Builder
	down := false
	for i, v := range values {
		if math.IsNaN(v) {
			down = false
			continue
		}
		x, y := coordinate(left(i)+width/2), coordinate(height(v))
		if down {
			fmt.Fprintf(&path, "L%s %s", x, y)
		} else {
			fmt.Fprintf(&path, "M%s %sh.01", x, y) // a dot, if nothing follows
		}
		down = true
	}
	if path.Len() > 0 {
		c.Lines = append(c.Lines, line{class, path.String()})
	}
}

// bars draws a column for each value; class may differ from column to column.
func (c *chart) bars(class func(i int) string, values []float64, height func(float64) float64) {
	width, left := steps(len(values))
	gap := width * 0.15
	for i, v := range values {
		if v <= 0 || math.IsNaN(v) {
			continue
		}
		y := min(height(v), chartHeight-1)
		c.Bars = append(c.Bars, bar{class(i), coordinate(left(i) + gap/2), coordinate(y), coordinate(width - gap), coordinate(chartHeight - y)})
	}
}

// Adds columns with texts that show where somebody points.
func (c *chart) tell(n int, text func(i int) string) {
	width, left := steps(n)
	for i := range n {
		if t := text(i); t != "" {
			c.Columns = append(c.Columns, column{coordinate(left(i)), coordinate(width), t})
		}
	}
}

// between labels the horizontal axis at five places.
func (c *chart) between(from, to time.Time) {
	layout := "15:04"
	if to.Sub(from) > 26*time.Hour {
		layout = "Jan 2 15:04"
	}
	for i := range 5 {
		c.Times = append(c.Times, from.Add(to.Sub(from)*time.Duration(i)/4).UTC().Format(layout))
	}
}
