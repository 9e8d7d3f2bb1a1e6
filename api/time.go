package api

import "time"

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
