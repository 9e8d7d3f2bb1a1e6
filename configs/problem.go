package configs

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Problem is one mistake in the settings. The error of Load and of Validate is
// a join of them, one line each; none shows a secret.
type Problem struct {
	// Key is the full key (store.databases, biz_types[1].workers), the
	// environment variable that is unknown, or the file.
	Key string
	// Text says what is wrong and what would be right.
	Text string
	// Source is where the value came from: file:line or an environment
	// variable; "" when unknown.
	Source string
}

func (p *Problem) Error() string {
	if p.Source == "" {
		return p.Key + ": " + p.Text
	}
	return fmt.Sprintf("%s: %s (%s)", p.Key, p.Text, p.Source)
}

// problems collects mistakes, so that one error shows all of them.
type problems []*Problem

func (ps *problems) add(key, format string, args ...any) { ps.addFrom("", key, format, args...) }

func (ps *problems) addFrom(source, key, format string, args ...any) {
	*ps = append(*ps, &Problem{Key: key, Text: fmt.Sprintf(format, args...), Source: source})
}

// require adds the problem unless ok.
func (ps *problems) require(ok bool, key, format string, args ...any) {
	if !ok {
		ps.add(key, format, args...)
	}
}

// oneOf requires value to be one of the words. "" may be one of them; the problem does not list it.
func (ps *problems) oneOf(key, value string, words ...string) {
	ok := slices.Contains(words, value)
	words = slices.DeleteFunc(words, func(word string) bool { return word == "" })
	last := len(words) - 1
	ps.require(ok, key, "%s is unknown; write %s or %s",
		quote(value), strings.Join(words[:last], ", "), words[last])
}

// atLeast requires value not to be less than least.
func atLeast[T cmp.Ordered](ps *problems, key string, value, least T) {
	ps.require(value >= least, key, "%v is too little; write %v or more", value, least)
}

// within requires value to be least, most, or between them.
func within[T cmp.Ordered](ps *problems, key string, value, least, most T) {
	ps.require(value >= least && value <= most, key, "%v is out of range; write %v to %v", value, least, most)
}

// has reports whether there is a problem already with this key, or with a section or list that contains it.
func (ps problems) has(key string) bool {
	return slices.ContainsFunc(ps, func(p *Problem) bool {
		rest, ok := strings.CutPrefix(key, p.Key)
		return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
	})
}

// err joins them; nil when there are none.
func (ps problems) err() error {
	errs := make([]error, len(ps))
	for i, p := range ps {
		errs[i] = p
	}
	return errors.Join(errs...)
}

// quote shows a value of the user's, but not all of a long one.
func quote(value string) string { return strconv.Quote(shorten(value)) }

// shorten cuts a text that is too long for an error message.
func shorten(text string) string {
	if len(text) > 80 {
		return text[:80] + "…"
	}
	return text
}
