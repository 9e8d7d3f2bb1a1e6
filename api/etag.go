package api

import (
	"errors"
	"strings"

	"github.com/timeoutcenter/toc/task"
)

// ETag names the state of a task in the headers ETag and If-Match.
func ETag(t *task.Task) string { return `"` + t.Tag() + `"` }

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
