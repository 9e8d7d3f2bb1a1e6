package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRelative(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0:                                 "now",
		999 * time.Millisecond:            "now",
		-999 * time.Millisecond:           "now",
		time.Second:                       "in 1s",
		-2500 * time.Millisecond:          "2s ago",
		30*time.Minute - time.Millisecond: "in 29m59s",
		47*time.Hour + 59*time.Minute:     "in 47h59m0s",
		48 * time.Hour:                    "in 2 days",
		-100 * 24 * time.Hour:             "100 days ago",
		10 * 365 * 24 * time.Hour:         "in 3650 days",
		-time.Duration(1<<63 - 1):         "106751 days ago",
		time.Duration(-1 << 63):           "106751 days ago",
	} {
		require.Equal(t, want, relative(d), d)
	}
}

func TestRanges(t *testing.T) {
	for want, list := range map[string][]int{
		"-":             nil,
		"7":             {7},
		"0-1":           {1, 0},
		"0-3,5,7-8,255": {8, 7, 255, 0, 1, 2, 3, 5},
	} {
		require.Equal(t, want, ranges(list))
	}
}

func TestOneLine(t *testing.T) {
	for s, want := range map[string]string{
		"":                "",
		`{"order":"42"}`:  `{"order":"42"}`,
		"naïve 注文 😀":      "naïve 注文 😀",
		"two\nlines":      `"two\nlines"`,
		"\x1b[2J":         `"\x1b[2J"`,
		"\xff":            `"\xff"`,
		"right\u202eleft": `"right\u202eleft"`,
	} {
		require.Equal(t, want, oneLine(s))
	}
}
