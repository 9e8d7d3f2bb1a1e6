package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// write writes the picture: the faults first, then types, nodes and databases.
func (t *top) write(out io.Writer, server string) error {
	total := topLoad{}
	for _, n := range t.Nodes {
		total.Runs += n.Runs
	}
	fmt.Fprintf(out, "toc top  %s  %s  %s, %d partitions, %s runs/s\n\n", t.At, oneLine(server), count(len(t.Nodes), "node"), t.Partitions,
		rate(total.Runs))
	if t.NoOwner > 0 {
		fmt.Fprintf(out, "! %d of %d partitions have no owner now\n", t.NoOwner, t.Partitions)
	}
	for _, f := range t.Faults {
		fmt.Fprintf(out, "! %s: %s\n", oneLine(f.Node), oneLine(f.Text))
	}
	if t.NoOwner > 0 || len(t.Faults) > 0 {
		fmt.Fprintln(out)
	}
	w := newTable(out)
	fmt.Fprintln(w, "BIZ_TYPE\tWAITING\tRUNNING\tRUNS/S\tFAILED/S\tLATE P99\tOVERDUE\tOLDEST\tRETRYING\tPROMISED\tDIED\tSTATE")
	for _, b := range t.BizTypes {
		late, state := "-", "runs"
		if b.LateP99 != nil {
			late = span(*b.LateP99)
		}
		switch {
		case b.Paused:
			state = "paused"
		case b.Retrying > 0:
			state = "fails"
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%s\t%s\t%d\t%s\t%d\t%s\t%d\t%s\n", oneLine(b.Name), b.Waiting, b.Running, rate(b.Runs), rate(b.Failed),
			late,
			b.Overdue, span(b.Oldest), b.Retrying, span(b.Promise), b.Died, state)
	}
	fmt.Fprintln(w, "\nNODE\tADDRESS\tSTATE\tPARTITIONS\tWAITING\tRUNNING\tRUNS/S\tCLOCK")
	for _, n := range t.Nodes {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%d\t%s\t%s\n", oneLine(n.Name), oneLine(n.Address), n.state(), n.Partitions, n.Waiting, n.Running,
			rate(n.Runs), skew(n.ClockSkew))
	}
	fmt.Fprintln(w, "\nDATABASE\tSTATE\tREAD")
	for _, d := range t.Databases {
		state, read := "up", "not yet"
		if !d.Up {
			state = "down"
		}
		if d.Read != nil {
			read = span(*d.Read) + " ago"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", oneLine(d.Number), state, read)
	}
	return w.Flush()
}

func (n *topNode) state() string {
	switch {
	case !n.Answers:
		return "no answer"
	case !n.Ready:
		return "not ready"
	default:
		return "ready"
	}
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func rate(perSecond float64) string {
	if perSecond >= 10 || perSecond == 0 {
		return fmt.Sprintf("%.0f", perSecond)
	}
	return fmt.Sprintf("%.1f", perSecond)
}

// span writes seconds with about three digits; "-" for none.
func span(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d == 0:
		return "-"
	case d < 10*time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	case d < 10*time.Second:
		return d.Round(time.Millisecond).String()
	default:
		return d.Round(time.Second).String()
	}
}

// skew writes the difference of a clock, with its sign.
func skew(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second)).Round(time.Millisecond)
	if d > 0 {
		return "+" + d.String()
	}
	return d.String()
}

// fit cuts a text to the size of a terminal.
func fit(text string, width, height int) []string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if len(lines) > height {
		lines = lines[:height]
	}
	for i, line := range lines {
		if runes := []rune(line); len(runes) > width {
			lines[i] = string(runes[:width])
		}
	}
	return lines
}
