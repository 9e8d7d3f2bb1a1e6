package sqltable

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// WriteTable writes aligned columns for reading. A row is one line: what cannot
// be printed is escaped as in Go. The last line is the number of rows.
func (r *Result) WriteTable(w io.Writer) error {
	lines := [][]string{make([]string, len(r.Columns))}
	widths := make([]int, len(r.Columns))
	right := make([]bool, len(r.Columns))
	for i, name := range r.Columns {
		lines[0][i] = oneLine(name)
		widths[i] = utf8.RuneCountInString(lines[0][i])
		right[i] = r.isNumeric(i)
	}
	for _, row := range r.Rows {
		line := make([]string, len(row))
		for i, v := range row {
			line[i] = "NULL"
			if v != nil {
				line[i] = oneLine(plainText(v))
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(line[i]))
		}
		lines = append(lines, line)
	}
	out := bufio.NewWriter(w)
	for n, line := range lines {
		writeLine(out, line, widths, right)
		if n == 0 {
			for i, width := range widths {
				if i > 0 {
					out.WriteByte('+')
				}
				out.WriteString(strings.Repeat("-", width+2))
			}
			out.WriteByte('\n')
		}
	}
	if len(r.Rows) == 1 {
		out.WriteString("(1 row)\n")
	} else {
		fmt.Fprintf(out, "(%d rows)\n", len(r.Rows))
	}
	return out.Flush()
}

func writeLine(out *bufio.Writer, line []string, widths []int, right []bool) {
	for i, cell := range line {
		if i > 0 {
			out.WriteString(" |")
		}
		width := -widths[i]
		switch {
		case right[i]:
			width = widths[i]
		case i == len(line)-1:
			width = 0
		}
		fmt.Fprintf(out, " %*s", width, cell)
	}
	out.WriteByte('\n')
}

// isNumeric reports whether a column holds numbers, and otherwise only NULL.
func (r *Result) isNumeric(column int) bool {
	numbers := false
	for _, row := range r.Rows {
		switch row[column].(type) {
		case nil:
		case string:
			return false
		default:
			numbers = true
		}
	}
	return numbers
}

// WriteJSON writes an array of objects, one to a line, with the columns in their
// order. Most readers of JSON lose digits of whole numbers beyond 2^53, so those
// are strings, and the columns job_id, biz_id, biz_type and lease always are. A
// name that comes again is numbered.
func (r *Result) WriteJSON(w io.Writer) error {
	if len(r.Rows) == 0 {
		_, err := io.WriteString(w, "[]\n")
		return err
	}
	var names [][]byte
	for _, name := range unique(r.Columns) {
		encoded, err := encode(name)
		if err != nil {
			return fmt.Errorf("write JSON: %w", err)
		}
		names = append(names, encoded)
	}
	out := bufio.NewWriter(w)
	out.WriteString("[\n")
	for n, row := range r.Rows {
		out.WriteString("  {")
		for i, v := range row {
			value, err := encode(r.jsonValue(i, v))
			if err != nil {
				return fmt.Errorf("write JSON: %w", err)
			}
			if i > 0 {
				out.WriteString(", ")
			}
			out.Write(names[i])
			out.WriteString(": ")
			out.Write(value)
		}
		out.WriteByte('}')
		if n < len(r.Rows)-1 {
			out.WriteByte(',')
		}
		out.WriteByte('\n')
	}
	out.WriteString("]\n")
	return out.Flush()
}

func (r *Result) jsonValue(column int, v any) any {
	const exact = 1 << 53 // whole numbers up to here are the same in a float64
	text := column < len(r.ids) && r.ids[column]
	switch v := v.(type) {
	case nil:
		return nil
	case uint64:
		text = true // newResult leaves smaller ones signed
	case int64:
		text = text || v > exact || v < -exact
	case float64:
		text = math.IsInf(v, 0)
	}
	if text {
		return plainText(v)
	}
	return v
}

func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimRight(b.Bytes(), "\n"), err
}

func unique(names []string) []string {
	taken := map[string]bool{}
	for _, name := range names {
		taken[name] = true
	}
	var out []string
	seen := map[string]bool{}
	for _, name := range names {
		distinct := name
		for n := 2; seen[distinct]; n++ {
			if next := name + "_" + strconv.Itoa(n); !taken[next] {
				distinct = next
			}
		}
		seen[distinct] = true
		out = append(out, distinct)
	}
	return out
}

// WriteCSV writes a header and the rows; NULL is an empty field.
func (r *Result) WriteCSV(w io.Writer) error {
	out := csv.NewWriter(w)
	out.Write(r.Columns) // the Writer keeps its first error
	for _, row := range r.Rows {
		record := make([]string, len(row))
		for i, v := range row {
			if v != nil {
				record[i] = plainText(v)
			}
		}
		out.Write(record)
	}
	out.Flush()
	if err := out.Error(); err != nil {
		return fmt.Errorf("write CSV: %w", err)
	}
	return nil
}

// plainText is a value, not nil, as text.
func plainText(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	return fmt.Sprint(v)
}

// oneLine escapes what would break the line or the terminal.
func oneLine(s string) string {
	if utf8.ValidString(s) && strings.IndexFunc(s, unprintable) < 0 {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		c, size := utf8.DecodeRuneInString(s)
		if (c == utf8.RuneError && size == 1) || unprintable(c) {
			escaped := strconv.Quote(s[:size])
			b.WriteString(escaped[1 : len(escaped)-1])
		} else {
			b.WriteString(s[:size])
		}
		s = s[size:]
	}
	return b.String()
}

func unprintable(c rune) bool { return !unicode.IsPrint(c) }
