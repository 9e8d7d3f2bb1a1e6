package api

import (
	"errors"
	"strings"

	"github.com/timeoutcenter/toc/task"
)

// ETag names the state of a task in the headers ETag and If-Match.
func ETag(t *task.Task) string { return `"` + t.Tag() + `"` }

// ChangeOption is a condition of a change.
type ChangeOption func(*Condition)

// Condition is what must hold for a change to be made: what the ChangeOptions ask for.
type Condition struct {
	IfMatch []string // ETags, or "*"; nil: nothing
}

// ConditionOf is what options ask for.
func ConditionOf(opts []ChangeOption) (c Condition) {
	for _, o := range opts {
		o(&c)
	}
	return c
}

// IfMatch makes a change only if the task is still in one of these states: the
// ETags of Tasks, or "*" for any. Otherwise nothing is changed, and the answer is an
// *Error with status 412 and the Task as it stands. An empty ETag (a Task of a list
// has none) matches nothing.
func IfMatch(etags ...string) ChangeOption {
	return func(c *Condition) {
		if len(etags) == 0 {
			c.IfMatch = []string{`""`}
		}
		for _, tag := range etags {
			if tag != "*" && (len(tag) < 2 || !strings.HasSuffix(tag, `"`)) {
				tag = `"` + tag + `"`
			}
			c.IfMatch = append(c.IfMatch, tag)
		}
	}
}

// ParseIfMatch reads the values of If-Match (RFC 9110, 13.1.1): * or a list of
// ETags, whose texts it gives. A weak ETag matches nothing, and so gives "".
func ParseIfMatch(values []string) (tags []string, err error) {
	value := strings.Trim(strings.Join(values, ","), " \t")
	if value == task.MatchAny {
		return []string{task.MatchAny}, nil
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
			return nil, errIfMatch
		}
		value = strings.TrimLeft(rest, " \t")
		if value != "" && value[0] != ',' {
			return nil, errIfMatch
		}
		if weak || text == task.MatchAny {
			text = ""
		}
		tags = append(tags, text)
	}
	if len(tags) == 0 {
		return nil, errIfMatch
	}
	return tags, nil
}

var errIfMatch = errors.New(`is not understood; give *, or ETags as they were answered, in double quotes: "…", "…"`)

func notInTag(r rune) bool { return r <= ' ' || r == 0x7f }
