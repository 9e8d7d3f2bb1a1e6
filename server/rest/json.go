package rest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/queue/limits"
)

// check returns an error that says what is wrong with the syntax of a JSON text.
// Everything else in this file relies on it.
func check(text []byte) error {
	if json.Valid(text) {
		return nil
	}
	var whole json.RawMessage
	var syntax *json.SyntaxError
	if err := json.Unmarshal(text, &whole); errors.As(err, &syntax) {
		return fmt.Errorf("is not JSON: %s, at byte %d", syntax, syntax.Offset)
	}
	return errors.New("is not JSON")
}

// members walks over the values of a JSON object, with their names unescaped, or over those of
// an array, whose names are empty.
func members(text []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		for i := next(text, 1); i < len(text)-1; i = next(text, i) {
			var name []byte
			end := valueEnd(text, i)
			if text[0] == '{' {
				name = unescapeName(text[i:end])
				i = next(text, end)
				end = valueEnd(text, i)
			}
			if !yield(name, text[i:end]) {
				return
			}
			i = end
		}
	}
}

// next is where the next value, or the closing bracket, begins.
func next(text []byte, i int) int {
	for text[i] == ' ' || text[i] == '\t' || text[i] == '\n' || text[i] == '\r' || text[i] == ',' || text[i] == ':' {
		i++
	}
	return i
}

// valueEnd is where the value that begins at i ends.
func valueEnd(text []byte, i int) int {
	switch text[i] {
	case '"':
		return stringEnd(text, i)
	case '{', '[':
		for depth := 0; ; i++ {
			switch text[i] {
			case '"':
				i = stringEnd(text, i) - 1
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
		}
	}
	for ; i < len(text); i++ {
		switch text[i] {
		case ' ', '\t', '\n', '\r', ',', '}', ']':
			return i
		}
	}
	return i
}

func stringEnd(text []byte, i int) int {
	for i++; text[i] != '"'; i++ {
		if text[i] == '\\' {
			i++
		}
	}
	return i + 1
}

// unescapeName gives the text of a quoted name. One that is no text stays as it
// is, and so is no field's name.
func unescapeName(quoted []byte) []byte {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return quoted[1 : len(quoted)-1]
	}
	if name, err := unquote(quoted); err == nil {
		return []byte(name)
	}
	return quoted
}

// read reads a JSON value into a field of a body.
func read(field any, value []byte) error {
	switch field := field.(type) {
	case *api.BizID:
		if value[0] == '"' {
			if err := checkUnicode(value); err != nil {
				return err
			}
		}
		return field.UnmarshalJSON(value)
	case **api.BizID:
		*field = new(api.BizID)
		return read(*field, value)
	case *api.Do:
		for _, known := range api.Dos { // without a copy
			if string(value) == string(`"`+known+`"`) {
				*field = known
				return nil
			}
		}
	case *json.Number:
		return readNumber(field, value)
	case *[]api.ID:
		return readList(field, value, intake.MaxWake, "ids", "requests", (*api.ID).UnmarshalJSON)
	case *[]limits.Ask:
		return readList(field, value, limits.MaxAsks, "asks", "requests", firstFault[limits.Ask])
	case *[]api.Settlement:
		return readList(field, value, intake.MaxSettle, "settlements", "requests", firstFault[api.Settlement])
	case *[]batchItem:
		return readList(field, value, intake.MaxBatch, "tasks", "batches", (*batchItem).read)
	case *int:
		n, err := strconv.Atoi(string(value))
		if err != nil || n < 1 {
			return fmt.Errorf("%s is not a whole number in digits only, 1 or more", clip(string(value)))
		}
		*field = n
		return nil
	case *float64:
		n, err := strconv.ParseFloat(string(value), 64)
		if err != nil || !(n > 0) {
			return fmt.Errorf("%s is not a number above 0", clip(string(value)))
		}
		*field = n
		return nil
	case *bool:
		if kindOf(value) != "a boolean" {
			return fmt.Errorf("must be true or false, not %s", kindOf(value))
		}
		*field = value[0] == 't'
		return nil
	}
	if value[0] != '"' {
		return fmt.Errorf("must be a string%s, not %s", likeText(field), kindOf(value))
	}
	s, err := unquote(value)
	if err != nil {
		return err
	}
	return readText(field, s)
}

// readNumber reads a number or a text of one.
func readNumber(field *json.Number, value []byte) error {
	number := value
	if value[0] == '"' {
		number = value[1 : len(value)-1]
	}
	if n, err := strconv.ParseFloat(string(number), 64); err != nil || !(n >= 0) || !json.Valid(number) {
		return fmt.Errorf("is %s; give a number, 0 or more", clip(string(value)))
	}
	*field = json.Number(number)
	return nil
}

// likeText shows how to write a field whose JSON is a string.
func likeText(field any) string {
	switch field.(type) {
	case **time.Time:
		return ` like "2026-01-02T15:04:05Z"`
	case *api.Duration, **api.Duration:
		return ` like "30m"`
	}
	return ""
}

// readText reads a field whose JSON is a string.
func readText(field any, s string) (err error) {
	switch field := field.(type) {
	case *string:
		*field = s
	case **string:
		*field = new(s)
	case *api.OnDuplicate:
		*field, err = api.OnDuplicate(s), oneOf(s, api.Keep, api.Move, api.Again)
	case *api.Do:
		*field, err = api.Do(s), oneOf(s, api.Dos...)
	case *api.Past:
		*field, err = api.Past(s), oneOf(s, api.Fire, api.Refuse)
	case **time.Time:
		*field, err = readTime(s)
	case **api.Duration:
		var d api.Duration
		d, err = readDuration(s)
		*field = new(d)
	case *api.Duration: // a time-out or ttr: the center checks its bounds, but takes 0s for none
		if *field, err = readDuration(s); err == nil && *field == 0 {
			err = errors.New("0s is out of range; give more, or leave it out")
		}
	default:
		panic(fmt.Sprintf("a body has a field of type %T, which nothing here reads", field))
	}
	return err
}

// oneOf refuses a word that is none of words.
func oneOf[T ~string](s string, words ...T) error {
	if slices.Contains(words, T(s)) {
		return nil
	}
	return fmt.Errorf("is %.64q; give one of %v", s, words)
}

func readTime(s string) (*time.Time, error) {
	var t time.Time
	err := t.UnmarshalText([]byte(s))
	if err != nil || s[len("2006-01-02T15")] != ':' || strings.Contains(s, ",") { // package time takes T1:04:05,5Z too
		return nil, fmt.Errorf("%.40q is not an RFC 3339 time; write day, time and zone, like 2026-01-02T15:04:05Z or 2026-01-02T16:04:05+01:00", s)
	}
	return &t, nil
}

func readDuration(s string) (api.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, fmt.Errorf("%.40q is not a duration; write it like 90s, 30m or 1h30m; a day is 24h", s)
	}
	return api.Duration(d), nil
}

// readList reads an array of 1 to most things, each by readOne. more is what to send if there are more.
func readList[T any](list *[]T, value []byte, most int, things, more string, readOne func(*T, []byte) error) error {
	if value[0] != '[' {
		return fmt.Errorf("must be an array, not %s", kindOf(value))
	}
	for _, item := range members(value) {
		n := len(*list)
		if n == most {
			return fmt.Errorf("holds more than %d %s; send several %s", most, things, more)
		}
		*list = append(*list, *new(T))
		if err := readOne(&(*list)[n], item); err != nil {
			part := fault{fmt.Sprintf("[%d]", n), err.Error()}
			if f, is := errors.AsType[fault](err); is && f.field != "" {
				part = fault{part.field + "." + f.field, f.message}
			} else if is {
				part.message = f.message
			}
			return part
		}
	}
	if len(*list) == 0 {
		return fmt.Errorf("is empty; give 1 to %d %s", most, things)
	}
	return nil
}

// firstFault reads an object of a list. Its error is a fault.
func firstFault[T any](o *T, value []byte) error {
	if faults := fill(o, value); len(faults) > 0 {
		return faults[0]
	}
	return nil
}

// unquote gives the text of a JSON string. What is no text is refused, where
// encoding/json would put U+FFFD.
func unquote(value []byte) (string, error) {
	if err := checkUnicode(value); err != nil {
		return "", err
	}
	return api.Unquote(value)
}

// hexRune reads the four digits of a \u escape.
func hexRune(text []byte) rune {
	n, _ := strconv.ParseUint(string(text[:4]), 16, 16)
	return rune(n)
}

// checkUnicode refuses a JSON value with strings that are no text.
func checkUnicode(value []byte) error {
	switch {
	case !utf8.Valid(value):
		return errors.New("is not valid UTF-8")
	case bytes.IndexByte(value, '\\') >= 0 && halfSurrogate(value):
		return errors.New(`is not valid Unicode: it holds half of a surrogate pair`)
	}
	return nil
}

// halfSurrogate reports whether one of the \u escapes of a JSON value is half of
// a surrogate pair.
func halfSurrogate(value []byte) bool {
	var high rune // the half before, if this escape follows it at once
	for i := 0; i < len(value); i++ {
		if value[i] != '\\' {
			if high != 0 {
				return true
			}
			continue
		}
		i++
		var r rune
		if value[i] == 'u' {
			r = hexRune(value[i+1:])
			i += 4
		}
		switch {
		case high != 0:
			if utf16.DecodeRune(high, r) == utf8.RuneError {
				return true
			}
			high = 0
		case utf16.IsSurrogate(r):
			high = r
		}
	}
	return false
}

// kindOf says in words what a JSON value is.
func kindOf(value []byte) string {
	switch value[0] {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	default:
		return "a number"
	}
}

// clip keeps what is shown of a caller's text short.
func clip(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}
