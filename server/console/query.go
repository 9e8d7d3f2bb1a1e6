package console

import (
	"errors"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/task"
)

// form reads the fields of a request: the query of a GET, the body of a POST. The first wrong field is kept in err.
type form struct {
	values url.Values
	err    error
}

func formOf(r *http.Request) *form {
	if r.Method == http.MethodPost {
		return &form{values: r.PostForm} // readForm has read it
	}
	values, err := url.ParseQuery(r.URL.RawQuery)
	f := &form{values: values}
	if err != nil {
		f.wrong("query", "cannot be read: %v", err)
	}
	return f
}

// only refuses fields that are not known: an act without a filter that was misspelt would be of everything.
func (f *form) only(known ...string) {
	for _, name := range slices.Sorted(maps.Keys(f.values)) {
		if !slices.Contains(known, name) {
			f.wrong(name, "is not known here; the fields are %s", strings.Join(known, ", "))
		}
	}
}

// errNotForm is answered with 415.
var errNotForm = errors.New("an act is sent as application/x-www-form-urlencoded, as a browser sends a form")

// readForm reads the body of a POST. A form that cannot be read is refused: its act would be another one.
func readForm(r *http.Request) error {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if (err != nil || kind != "application/x-www-form-urlencoded") && r.ContentLength != 0 {
		return errNotForm
	}
	var large *http.MaxBytesError
	switch err := r.ParseForm(); {
	case errors.As(err, &large):
		return err
	case err != nil:
		return &task.FieldError{Field: "form", Message: "cannot be read: " + err.Error()}
	}
	for _, values := range r.PostForm {
		for i := range values {
			values[i] = strings.ReplaceAll(values[i], "\r\n", "\n") // so does a browser send a line break
		}
	}
	return nil
}

func (f *form) wrong(field, message string, args ...any) {
	if f.err == nil {
		f.err = task.Wrong(field, message, args...)
	}
}

func (f *form) text(field string) string { return strings.TrimSpace(f.exact(field)) }

// exact is text with the spaces around it, which are part of an id.
func (f *form) exact(field string) string {
	text := f.values.Get(field)
	if !utf8.ValidString(text) {
		f.wrong(field, "is not valid UTF-8")
	}
	return text
}

// time reads RFC 3339, or what a field for a date and a time sends, which is UTC here; zero if it is empty.
func (f *form) time(field string) time.Time {
	text := f.text(field)
	if text == "" {
		return time.Time{}
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04"} {
		if at, err := time.Parse(layout, text); err == nil {
			return at.UTC()
		}
	}
	f.wrong(field, "%.40q is no time; give one like 2026-01-02T15:04:05Z", text)
	return time.Time{}
}

// duration reads a Go duration; zero if it is empty.
func (f *form) duration(field string) time.Duration {
	text := f.text(field)
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		f.wrong(field, "%.40q is no duration; give one like 30m or 1h15m", text)
	}
	return d
}

// number reads a whole number from least to most; otherwise if it is empty.
func (f *form) number(field string, least, most, otherwise int) int {
	text := f.text(field)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		f.wrong(field, "%.40q is not from %d to %d", text, least, most)
		return otherwise
	}
	return n
}

// defaultRate is the rate that a form offers, in tasks a second.
const defaultRate = 50

// rate reads a rate; defaultRate if it is empty.
func (f *form) rate(field string) float64 {
	text := f.text(field)
	if text == "" {
		return defaultRate
	}
	rate, err := strconv.ParseFloat(text, 64)
	if err != nil || !(rate >= intake.MinRate && rate <= intake.MaxRate) {
		f.wrong(field, "%.40q is not from %v to %d tasks a second", text, intake.MinRate, intake.MaxRate)
	}
	return rate
}

// id reads a 64-bit id in a path.
func id(r *http.Request, name string) (uint64, error) {
	n, err := api.ParseID(r.PathValue(name))
	if err != nil {
		return 0, errNoPage
	}
	return uint64(n), nil
}

// forInput writes a time for a field for a date and a time.
func forInput(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05")
}

// exactly writes a time so that reading it gives the same millisecond; empty for none.
func exactly(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return api.Time(t).String()
}

// query is the query of a link, without what is empty. It begins with a question mark.
func query(pairs ...string) string {
	v := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			v.Set(pairs[i], pairs[i+1])
		}
	}
	return "?" + v.Encode()
}
