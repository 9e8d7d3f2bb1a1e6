package configs

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParseSchedule(t *testing.T) {
	from := time.Date(2026, 1, 1, 0, 0, 3, 0, time.UTC)
	for spec, next := range map[string]time.Duration{
		"@every 10s":                 10 * time.Second,
		"@every 1h30m":               90 * time.Minute,
		"*/5 * * * * *":              2 * time.Second,
		"*/5 * * * *":                5*time.Minute - 3*time.Second,
		"@hourly":                    time.Hour - 3*time.Second,
		"TZ=Asia/Tokyo 0 0 10 * * *": time.Hour - 3*time.Second,
	} {
		schedule, err := ParseSchedule(spec)
		require.NoError(t, err, spec)
		require.Equal(t, next, schedule.Next(from).Sub(from), spec)
	}
}

func TestParseScheduleRefuses(t *testing.T) {
	for spec, want := range map[string]string{
		"":                        "empty spec string",
		"often":                   "expected 5 to 6 fields",
		"* * * *":                 "expected 5 to 6 fields",
		"61 * * * * *":            "above maximum",
		"0 0 30 2 *":              "never fires",
		", * * * * *":             "never fires",
		"* , * * * *":             "never fires",
		"@every 0s":               "is no time between ticks",
		"@every -1m":              "is no time between ticks",
		"TZ=UTC @every -1m":       "is no time between ticks",
		"@every soon":             "failed to parse duration",
		"@often":                  "unrecognized descriptor",
		"TZ=UTC":                  "a time zone without a schedule",
		"CRON_TZ=UTC":             "a time zone without a schedule",
		"TZ=Mars/Olympus @hourly": "bad location",
	} {
		_, err := ParseSchedule(spec)
		require.ErrorContains(t, err, want, spec)
	}
}
