package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/taskjson"
)

// The types of a body's fields. Each reads itself from JSON and says, as a
// schema, what it takes.

// text is a string of valid UTF-8.
type text struct {
	given
	value string
}

func (t *text) read(value []byte) (err error) {
	t.value, err = unquote(value)
	return err
}

func (text) Schema(huma.Registry) *huma.Schema { return &huma.Schema{Type: huma.TypeString} }

// bizID is a biz_id: a number, as a string or a number, or a text.
type bizID struct {
	given
	value taskjson.BizID
}

func (b *bizID) read(value []byte) error {
	if value[0] != '"' {
		return b.value.UnmarshalJSON(value)
	}
	s, err := unquote(value)
	if err != nil {
		return err
	}
	return b.value.UnmarshalText([]byte(s))
}

func (bizID) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{OneOf: []*huma.Schema{bizIDSchema(), idNumberSchema()}}
}

func idNumberSchema() *huma.Schema {
	least, most := 0.0, float64(1<<64)
	return &huma.Schema{Type: huma.TypeInteger, Minimum: &least, ExclusiveMaximum: &most}
}

// moment is an RFC 3339 time.
type moment struct {
	given
	value time.Time
}

func (m *moment) read(value []byte) error {
	s, err := unquote(value)
	if err != nil {
		return err
	}
	err = m.value.UnmarshalText([]byte(s))
	if err != nil || s[len("2006-01-02T15")] != ':' || strings.Contains(s, ",") { // package time takes T1:04:05,5Z too
		return fmt.Errorf("%.40q is not an RFC 3339 time; write it like 2026-01-02T15:04:05Z", s)
	}
	return nil
}

func (moment) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Format: "date-time"}
}

// span is a Go duration.
type span struct {
	given
	value time.Duration
}

func (d *span) read(value []byte) error {
	s, err := unquote(value)
	if err != nil {
		return err
	}
	if d.value, err = time.ParseDuration(s); err != nil {
		return fmt.Errorf("%.40q is not a duration; write it like 90s, 30m or 1h30m", s)
	}
	return nil
}

func (span) Schema(huma.Registry) *huma.Schema { return &huma.Schema{Type: huma.TypeString} }

// timeout is how long a run may take. The desk knows the bounds; to it 0s is none.
type timeout struct{ span }

func (t *timeout) read(value []byte) error {
	err := t.span.read(value)
	if err == nil && t.value == 0 {
		err = errors.New("0s is out of range; give 1ms to 24h")
	}
	return err
}

// onDuplicate is keep or move.
type onDuplicate struct{ text }

func (o *onDuplicate) read(value []byte) error {
	err := o.text.read(value)
	if err == nil && o.value != string(intake.Keep) && o.value != string(intake.Move) {
		err = fmt.Errorf("%.64q is neither keep nor move", o.value)
	}
	return err
}

// count is a whole number, 1 or more.
type count struct {
	given
	value int
}

func (c *count) read(value []byte) error {
	n, err := strconv.Atoi(string(value))
	if err != nil || n < 1 {
		return fmt.Errorf("%s is not a whole number, 1 or more", clip(string(value)))
	}
	c.value = n
	return nil
}

func (count) Schema(huma.Registry) *huma.Schema {
	least := 1.0
	return &huma.Schema{Type: huma.TypeInteger, Minimum: &least}
}

// flag is true or false.
type flag struct {
	given
	value bool
}

func (f *flag) read(value []byte) error {
	if kindOf(value) != "a boolean" {
		return fmt.Errorf("must be true or false, not %s", kindOf(value))
	}
	f.value = value[0] == 't'
	return nil
}

func (flag) Schema(huma.Registry) *huma.Schema { return &huma.Schema{Type: huma.TypeBoolean} }

// unquote gives the text of a JSON string. What is no text is refused, where
// encoding/json would put U+FFFD.
func unquote(value []byte) (string, error) {
	switch {
	case value[0] != '"':
		return "", fmt.Errorf("must be a string, not %s", kindOf(value))
	case !utf8.Valid(value):
		return "", errors.New("is not valid UTF-8")
	case bytes.IndexByte(value, '\\') < 0:
		return string(value[1 : len(value)-1]), nil
	case halfSurrogate(value):
		return "", errors.New(`is not valid Unicode: it holds half of a surrogate pair`)
	}
	var s string
	err := json.Unmarshal(value, &s)
	return s, err
}

// halfSurrogate tells whether one of the \u escapes of a JSON string is half of
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
			n, _ := strconv.ParseUint(string(value[i+1:i+5]), 16, 16)
			r = rune(n)
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
