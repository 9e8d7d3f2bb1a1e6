package slots

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A score keeps the time and the attempts exactly, also as a double.
func TestScores(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := Member{
			At:       time.UnixMilli(rapid.Int64Range(0, maxMillis).Draw(t, "ms")).UTC(),
			Attempts: rapid.IntRange(0, maxAttempts).Draw(t, "attempts"),
		}
		score := m.score()
		require.Equal(t, score, int64(float64(score)), "exact in a double")
		at, attempts := splitScore(wholeScore(float64(score)))
		require.Equal(t, m, Member{At: at, Attempts: attempts})

		later := Member{At: m.At.Add(time.Millisecond), Attempts: 0}
		if m.At.UnixMilli() < maxMillis {
			require.Less(t, score, later.score(), "attempts never reach into the time")
		}
	})
}

func TestParseScore(t *testing.T) {
	t.Parallel()
	last := time.UnixMilli(maxMillis).UTC()
	for _, c := range []struct {
		text     string
		at       time.Time
		attempts int
	}{
		{"1786100000123007", time.UnixMilli(1786100000123).UTC(), 7},
		{"9007199254739999", last, 999},
		{"9e+15", time.UnixMilli(9e12).UTC(), 0},
		{"8.999999999999999e+15", time.UnixMilli(8999999999999).UTC(), 999},
		{"0", time.UnixMilli(0).UTC(), 0},
		{"999", time.UnixMilli(0).UTC(), 999},
		{"1000.75", time.UnixMilli(1).UTC(), 0},
		{"-1", time.UnixMilli(0).UTC(), 0},
		{"-1.5", time.UnixMilli(0).UTC(), 0},
		{"1e300", last, 999},
		{"9223372036854775807", last, 999},
		{"inf", last, 999},
		{"-inf", time.UnixMilli(0).UTC(), 0},
		{"nan", time.UnixMilli(0).UTC(), 0},
		{"x", time.UnixMilli(0).UTC(), 0},
	} {
		at, attempts := parseScore(c.text)
		require.Equal(t, c.at, at, c.text)
		require.Equal(t, c.attempts, attempts, c.text)
	}
	require.Zero(t, parseAt(""))
	require.Equal(t, time.UnixMilli(2).UTC(), parseAt("2500"))
	require.Zero(t, wholeScore(math.NaN()))
}

func TestAppendMembers(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(1786100000123).UTC()
	for list, want := range map[string][]Member{
		"":                   nil,
		"7 1786100000123004": {{7, at, 4}},
		"7 1786100000123004 18446744073709551615 1786100000123000":                    {{7, at, 4}, {math.MaxUint64, at, 0}},
		"7 1786100000123004 99999999999999999999 1786100000123000 8 1786100000123001": {{7, at, 4}, {8, at, 1}},
	} {
		require.ElementsMatch(t, want, appendMembers(nil, list), list)
	}
	require.Equal(t, []Member{{1, at, 0}, {2, at, 0}}, appendMembers([]Member{{1, at, 0}}, "2 1786100000123000"))
}

// Any answer of Redis is read without a panic, and times are within bounds.
func FuzzAppendMembers(f *testing.F) {
	for _, list := range []string{"", "7 1786100000123004", "7 9e+15 8 -inf", " ", "7", "x nan 7 1e400 "} {
		f.Add(list)
	}
	f.Fuzz(func(t *testing.T, list string) {
		for _, m := range appendMembers(nil, list) {
			require.True(t, m.At.UnixMilli() >= 0 && m.At.UnixMilli() <= maxMillis, "%v", m.At)
			require.True(t, m.Attempts >= 0 && m.Attempts <= maxAttempts, "%d", m.Attempts)
		}
	})
}

// Any client may publish to the wake channel.
func FuzzParseWake(f *testing.F) {
	for _, payload := range []string{"", "17 1786100000123 order:close", "1 2 ", "-1 -2 x y", "1  2"} {
		f.Add(payload)
	}
	f.Fuzz(func(t *testing.T, payload string) {
		slot, at, ok := parseWake(payload)
		if !ok {
			require.Zero(t, slot)
			require.Zero(t, at)
			return
		}
		again, at2, ok := parseWake(fmt.Sprintf("%d %d %s", slot.Partition, at.UnixMilli(), slot.Topic))
		require.True(t, ok)
		require.Equal(t, slot, again)
		require.True(t, at.Equal(at2))
	})
}
