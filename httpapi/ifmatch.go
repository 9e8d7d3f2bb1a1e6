package httpapi

import (
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/timeoutcenter/toc/task"
)

// formatTag writes the ETag of a task.
func formatTag(t *task.Task) string { return `"` + t.Tag() + `"` }

// Condition is embedded by the input of a route that changes a task, on request
// only if it is in a state that the caller has seen. huma calls Resolve before the
// handler.
type Condition struct {
	IfMatch string `header:"If-Match" doc:"Change the task only if it is still in one of these states: ETags as they were answered, or *." example:"\"ys2jcA5Gxu2UQyFi\""`
	tags    []string
}

// Resolve reads the header If-Match, which may come in several lines.
func (c *Condition) Resolve(ctx huma.Context) []error {
	r, _ := humago.Unwrap(ctx)
	lines, given := r.Header["If-Match"]
	if !given {
		return nil
	}
	tags, ok := parseIfMatch(strings.Join(lines, ","))
	if !ok {
		return []error{located("header", "If-Match", `is not understood; give *, or ETags as they were answered, in double quotes: "…", "…"`)}
	}
	c.tags = tags
	return nil
}

// parseIfMatch reads the value of If-Match (RFC 9110, 13.1.1): * or a list of
// entity tags, whose texts it gives. A weak tag matches nothing, and so gives "".
func parseIfMatch(value string) (tags []string, ok bool) {
	value = strings.Trim(value, " \t")
	if value == task.MatchAny {
		return []string{task.MatchAny}, true
	}
	for value != "" {
		if value[0] == ',' { // a list may have empty places
			value = strings.TrimLeft(value[1:], " \t")
			continue
		}
		rest, weak := strings.CutPrefix(value, "W/")
		rest, quoted := strings.CutPrefix(rest, `"`)
		text, rest, closed := strings.Cut(rest, `"`)
		if !quoted || !closed || strings.IndexFunc(text, notInTag) >= 0 {
			return nil, false
		}
		value = strings.TrimLeft(rest, " \t")
		if value != "" && value[0] != ',' {
			return nil, false
		}
		if weak || text == task.MatchAny {
			text = ""
		}
		tags = append(tags, text)
	}
	return tags, len(tags) > 0
}

func notInTag(r rune) bool { return r <= ' ' || r == 0x7f }
