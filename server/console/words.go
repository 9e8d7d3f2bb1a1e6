package console

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/timeoutcenter/toc/api"
)

// words are the functions of the templates.
var words = template.FuncMap{
	"num": func(n int) string { return num(n) }, "plural": plural, "seconds": seconds, "when": when, "clock": clock, "asset": assetURL,
	"cut": cutText,
}

// num writes a number with commas: 12,403.
func num[N int | int64 | uint64 | float64](n N) string {
	digits := strconv.FormatInt(int64(math.Round(float64(n))), 10)
	sign := ""
	if digits[0] == '-' {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

// plural writes a number with its noun: 1 task, 12,403 tasks.
func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return num(n) + " " + many
}

// seconds writes a time that is given in seconds.
func seconds(s float64) string { return span(time.Duration(s * float64(time.Second))) }

// span writes a time with its two largest units: 4.4 ms, 40 s, 2 min 5 s, 3 h 20 min, 4 d 2 h.
func span(d time.Duration) string {
	if d < 0 {
		return "-" + span(-d)
	}
	two := func(large, small time.Duration, a, b string) string {
		text := fmt.Sprintf("%d %s", d/large, a)
		if rest := d % large / small; rest > 0 {
			text += fmt.Sprintf(" %d %s", rest, b)
		}
		return text
	}
	short := func(n float64, unit string) string {
		digits := 0
		if n < 10 {
			digits = 1
		}
		return strings.TrimSuffix(strconv.FormatFloat(n, 'f', digits, 64), ".0") + " " + unit
	}
	switch {
	case d == 0:
		return "0 s"
	case d < 999500*time.Microsecond:
		return short(float64(d)/float64(time.Millisecond), "ms")
	case d < 59500*time.Millisecond:
		return short(d.Seconds(), "s")
	case d < time.Hour:
		return two(time.Minute, time.Second, "min", "s")
	case d < 24*time.Hour:
		return two(time.Hour, time.Minute, "h", "min")
	}
	return two(24*time.Hour, time.Hour, "d", "h")
}

// moment is a time of package api, or a time.
func moment(t any) time.Time {
	switch t := t.(type) {
	case api.Time:
		return t.Time()
	case time.Time:
		return t.UTC()
	}
	return time.Time{}
}

// when writes a moment in full, in UTC.
func when(t any) template.HTML {
	at := moment(t)
	if at.IsZero() {
		return "–"
	}
	return template.HTML(`<time datetime="` + at.Format(time.RFC3339Nano) + `">` + at.Format("2006-01-02 15:04:05.000") + `</time>`)
}

// clock writes the time of the day of a moment, to the second.
func clock(t any) string { return moment(t).Format("15:04:05") }

// cutText keeps at most n characters.
func cutText(n int, text string) string {
	if r := []rune(text); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return text
}
