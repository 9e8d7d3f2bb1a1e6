package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/timeoutcenter/toc/task"
)

// ID is a 64-bit id, such as a job_id. As JSON it is written as a string,
// because a JavaScript number holds only 53 bits of it; it is read from a string
// or a number of digits only: no sign, fraction, exponent or leading zero.
type ID uint64

// ParseID reads an id written in decimal digits.
func ParseID(digits string) (ID, error) {
	n, ok := task.ParseNumber(digits)
	if !ok {
		return 0, notAnID(strconv.Quote(digits))
	}
	return ID(n), nil
}

// String gives the id in decimal digits.
func (id ID) String() string { return strconv.FormatUint(uint64(id), 10) }

// MarshalText gives the id in decimal digits.
func (id ID) MarshalText() ([]byte, error) { return strconv.AppendUint(nil, uint64(id), 10), nil }

// UnmarshalText reads decimal digits. It serves flags, paths and queries.
func (id *ID) UnmarshalText(digits []byte) error {
	n, err := ParseID(string(digits))
	if err == nil {
		*id = n
	}
	return err
}

// UnmarshalJSON reads the id from a string or a number. null is refused: an id
// that is not given is no id 0.
func (id *ID) UnmarshalJSON(value []byte) error {
	n, ok := digitsOf(value)
	if !ok && len(value) > 0 && value[0] == '"' { // they may be escaped
		digits, err := Unquote(value)
		if err != nil {
			return notAnID(digits)
		}
		n, ok = task.ParseNumber(digits)
	}
	if !ok {
		return notAnID(string(value))
	}
	*id = ID(n)
	return nil
}

// digitsOf reads an id without escapes.
func digitsOf(value []byte) (n uint64, ok bool) {
	if last := len(value) - 1; last > 0 && value[0] == '"' && value[last] == '"' {
		value = value[1:last]
	}
	return task.ParseNumber(string(value))
}

// Unquote gives the text of a JSON string, several times cheaper than encoding/json if its escapes are of one character.
func Unquote(value []byte) (string, error) {
	if inner := value[1:max(1, len(value)-1)]; utf8.Valid(inner) {
		if text, ok := unescape(inner); ok {
			return text, nil
		}
	}
	var text string
	err := json.Unmarshal(value, &text)
	return text, err
}

// unescape replaces the escapes of one character; ok is false if there are others.
func unescape(inner []byte) (s string, ok bool) {
	at := bytes.IndexByte(inner, '\\')
	if at < 0 {
		return string(inner), true
	}
	var text strings.Builder
	text.Grow(len(inner))
	for ; at >= 0 && at+1 < len(inner); at = bytes.IndexByte(inner, '\\') {
		escape := strings.IndexByte(`"\/bfnrt`, inner[at+1])
		if escape < 0 {
			return "", false
		}
		text.Write(inner[:at])
		text.WriteByte("\"\\/\b\f\n\r\t"[escape])
		inner = inner[at+2:]
	}
	text.Write(inner)
	return text.String(), at < 0
}

func (id ID) appendJSON(dst []byte) []byte {
	return append(strconv.AppendUint(append(dst, '"'), uint64(id), 10), '"')
}

// notAnID says what would be right. shown is what was given, as it was written.
func notAnID(shown string) error {
	return fmt.Errorf("%.40s is not an id; write a whole number from 0 to 18446744073709551615, in digits only and without leading zeros",
		shown)
}

// BizID is a business's own id: a number, or a text. As JSON it is written as a
// string. It is read from a number in digits only, or from a string: one that
// task.ParseNumber reads is a number, any other one of 1 to 128 bytes is a text.
type BizID struct {
	Number uint64 // the number; of a text its hash, which is the task's biz_id
	Key    string // the text; empty: the id is a number
}

// BizIDOf gives the biz_id that is meant by a number, or by a text if it is not
// empty. The error is a *task.FieldError.
func BizIDOf(number uint64, text string) (BizID, error) {
	number, key, err := task.BizIDOf(number, text)
	return BizID{number, key}, err
}

// ParseBizID reads a biz_id. The error does not name the field.
func ParseBizID(text string) (BizID, error) {
	number, key, err := task.ParseBizID(text)
	if wrong, ok := errors.AsType[*task.FieldError](err); ok {
		err = errors.New(wrong.Message)
	}
	return BizID{number, key}, err
}

// String gives the id as users see it.
func (id BizID) String() string {
	if id.Key != "" {
		return id.Key
	}
	return strconv.FormatUint(id.Number, 10)
}

// MarshalText gives the id as users see it.
func (id BizID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads a biz_id. It serves flags and queries.
func (id *BizID) UnmarshalText(text []byte) (err error) {
	read, err := ParseBizID(string(text))
	if err == nil {
		*id = read
	}
	return err
}

// UnmarshalJSON reads a biz_id from a string or a number. null is refused.
func (id *BizID) UnmarshalJSON(value []byte) error {
	if len(value) == 0 || value[0] != '"' {
		var number ID
		if err := number.UnmarshalJSON(value); err != nil {
			return errors.New(err.Error() + ", or a text as a string")
		}
		*id = BizID{Number: uint64(number)}
		return nil
	}
	if n, ok := digitsOf(value); ok {
		*id = BizID{Number: n}
		return nil
	}
	text, err := Unquote(value)
	if err != nil {
		return err
	}
	read, err := ParseBizID(text)
	if err == nil {
		*id = read
	}
	return err
}

func (id BizID) appendJSON(dst []byte) []byte {
	if id.Key != "" {
		return appendString(dst, id.Key)
	}
	return ID(id.Number).appendJSON(dst)
}

// Time is a moment as users see it: RFC 3339, UTC, exactly milliseconds. It is
// read from any RFC 3339 time and keeps all of its digits.
type Time time.Time

// Time gives the moment, in UTC.
func (t Time) Time() time.Time { return time.Time(t).UTC() }

// IsZero reports whether there is no moment: encoding/json's omitzero calls it.
func (t Time) IsZero() bool { return time.Time(t).IsZero() }

// String gives the moment as users see it.
func (t Time) String() string { return string(t.appendText(nil)) }

// MarshalText gives the moment as users see it.
func (t Time) MarshalText() ([]byte, error) { return t.appendText(nil), nil }

// UnmarshalText reads an RFC 3339 time.
func (t *Time) UnmarshalText(text []byte) error {
	var moment time.Time
	if err := moment.UnmarshalText(text); err != nil {
		return err
	}
	*t = Time(moment.UTC())
	return nil
}

func (t Time) appendJSON(dst []byte) []byte {
	return append(t.appendText(append(dst, '"')), '"')
}

// appendText writes the milliseconds itself: time.RFC3339 is a fast path of the time
// package, a layout with a fraction is not.
func (t Time) appendText(dst []byte) []byte {
	utc := t.Time()
	dst = utc.AppendFormat(dst, time.RFC3339)
	milli := utc.Nanosecond() / int(time.Millisecond)
	return append(dst[:len(dst)-len("Z")], '.', digit(milli/100), digit(milli/10), digit(milli), 'Z')
}

// digit gives the last decimal digit of n.
func digit(n int) byte { return '0' + byte(n%10) }

// Duration is a span of time as users see it: a Go duration, such as 1.5s.
type Duration time.Duration

// String gives the span as users see it.
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText gives the span as users see it.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads a Go duration.
func (d *Duration) UnmarshalText(text []byte) error {
	span, err := time.ParseDuration(string(text))
	if err == nil {
		*d = Duration(span)
	}
	return err
}
