package webhook

import (
	"encoding/base64"
	"errors"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/timeoutcenter/toc/processor"
)

const (
	bodyTime    = time.Second // for the rest of an answer whose status is known
	bodySize    = 64 << 10    // bytes read of an answer, so that its connection can be used again
	excerptSize = 4 << 10     // bytes kept of a refusal, to make a message of
	messageSize = 120         // bytes shown of it
	longPart    = 16          // of a URL's path: a key, as many services have it there
)

// verdict makes an answer of the receiver's answer. The status decides, however
// the body ends.
func (w *Processor) verdict(resp *http.Response) error {
	code := resp.StatusCode
	if code >= 200 && code <= 299 {
		drain(resp.Body, bodySize)
		return nil
	}
	pause, _ := retryAfter(resp.Header.Get("Retry-After"), time.Now(), w.longest)
	return w.refusal(code, w.said(resp), pause)
}

// refusal is the error of a run that the receiver has refused, with what it said: "POST host: 404 Not Found: no such order".
func (w *Processor) refusal(status int, said string, pause time.Duration) error {
	text := w.target + ": " + strings.TrimSpace(strconv.Itoa(status)+" "+http.StatusText(status))
	if said != "" {
		text += ": " + said
	}
	failed := errors.New(text)
	switch {
	case status == http.StatusGone:
		return processor.Discard(failed)
	case pause > 0 && (status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable):
		return processor.RetryAfter(min(pause, w.longest), failed)
	}
	return failed
}

// said is what a refusal said.
func (w *Processor) said(resp *http.Response) string {
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return "" // what follows is no body
	}
	excerpt, _ := io.ReadAll(io.LimitReader(resp.Body, excerptSize)) // what came is enough
	drain(resp.Body, bodySize-excerptSize)
	if resp.StatusCode >= 300 && resp.StatusCode <= 399 {
		return "redirects are not followed"
	}
	return w.shown(string(excerpt))
}

// drain reads an answer to its end, up to most bytes. The connection of an
// answer that is not read to its end cannot be used again.
func drain(body io.Reader, most int64) { _, _ = io.CopyN(io.Discard, body, most) }

// retryAfter reads the header Retry-After: seconds, or a date. A longer pause than
// longest is cut: a receiver's slip would park its tasks for days. A pause that is over
// already is none, and the back-off holds: otherwise the task would be tried again at once
// until no retry is left.
func retryAfter(value string, now time.Time, longest time.Duration) (pause time.Duration, ok bool) {
	if seconds, err := strconv.ParseUint(value, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		pause = time.Duration(min(seconds, math.MaxInt64/uint64(time.Second))) * time.Second
	} else if date, err := http.ParseTime(value); err == nil {
		pause = date.Sub(now)
	}
	return min(pause, longest), pause > 0
}

// shown makes text from outside fit for a message: no secrets, printable, one
// line, short.
func (w *Processor) shown(text string) string {
	text = w.hide.Replace(text)
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
	text = strings.Join(strings.Fields(text), " ")
	if len(text) <= messageSize {
		return text
	}
	const more = "..."
	end := messageSize - len(more)
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + more
}

// hiding makes a Replacer that takes out what must not be shown, should a
// receiver repeat it in its answer: the key, the URL's query, its password, also as
// it is sent, and long parts of its path, as services have them for a key.
func hiding(u *url.URL, secrets ...string) *strings.Replacer {
	const shortest = 6 // shorter values of a query are no secrets, but parts of words
	password, _ := u.User.Password()
	hidden := append(secrets, password, u.RawQuery)
	if password != "" {
		hidden = append(hidden, base64.StdEncoding.EncodeToString([]byte(u.User.Username()+":"+password)))
	}
	for _, part := range strings.Split(u.EscapedPath(), "/") {
		if len(part) >= longPart {
			whole, _ := url.PathUnescape(part)
			hidden = append(hidden, part, whole)
		}
	}
	for _, values := range u.Query() {
		for _, v := range values {
			if len(v) >= shortest {
				hidden = append(hidden, v, url.QueryEscape(v))
			}
		}
	}
	slices.SortFunc(hidden, func(a, b string) int { return len(b) - len(a) }) // no part before its whole
	var pairs []string
	for _, h := range hidden {
		if h != "" {
			pairs = append(pairs, h, "***")
		}
	}
	return strings.NewReplacer(pairs...)
}
