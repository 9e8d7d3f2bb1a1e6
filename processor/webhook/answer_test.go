package webhook

import (
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"1":                              time.Second,
		"007":                            7 * time.Second,
		"86401":                          24 * time.Hour,
		"99999999999999999999999":        24 * time.Hour,
		"Fri, 02 Jan 2026 15:05:05 GMT":  time.Minute,
		"Friday, 02-Jan-26 15:04:06 GMT": time.Second,
		"Fri Jan  2 15:04:07 2026":       2 * time.Second,
		"Sat, 02 Jan 2027 15:04:05 GMT":  24 * time.Hour,
	} {
		pause, ok := retryAfter(value, now, 24*time.Hour)
		require.True(t, ok, value)
		require.Equal(t, want, pause, value)
	}
	for _, value := range []string{
		"", "0", "-1", "+1", "1.5", "1s", "soon", "2026-01-02T15:05:05Z",
		"Fri, 02 Jan 2026 15:04:05 GMT", "Thu, 01 Jan 1970 00:00:00 GMT",
	} {
		_, ok := retryAfter(value, now, 24*time.Hour)
		require.False(t, ok, value)
	}
}

// FuzzShown has a receiver that says anything, with the secret in it.
func FuzzShown(f *testing.F) {
	f.Add("no such\torder\r\n", " \x1b[31m\u202e\xff")
	f.Add(strings.Repeat("\U0001F600", 40), "")
	f.Fuzz(func(t *testing.T, before, after string) {
		const secret = "sesame"
		w := &Processor{hide: hiding(&url.URL{}, secret)}
		said := w.shown(before + secret + after)
		require.NotContains(t, said, secret)
		require.LessOrEqual(t, len(said), messageSize)
		require.True(t, utf8.ValidString(said))
		require.Equal(t, -1, strings.IndexFunc(said, func(r rune) bool { return !unicode.IsPrint(r) }))
	})
}
