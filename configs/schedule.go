package configs

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// ParseSchedule reads scan.schedule: a cron spec of five fields, of six with the
// seconds first, or a descriptor (@hourly, @every 10s). A schedule that never
// fires is an error. It is what the scanner must use too.
func ParseSchedule(spec string) (cron.Schedule, error) {
	rest := spec
	if strings.HasPrefix(spec, "TZ=") || strings.HasPrefix(spec, "CRON_TZ=") {
		// cron panics when nothing follows the time zone
		var found bool
		if _, rest, found = strings.Cut(spec, " "); !found {
			return nil, errors.New("a time zone without a schedule")
		}
	}
	if every, ok := strings.CutPrefix(strings.TrimSpace(rest), "@every "); ok {
		// cron takes less than nothing for a second
		if d, err := time.ParseDuration(every); err == nil && d <= 0 {
			return nil, fmt.Errorf("%s is no time between ticks", d)
		}
	}
	parser := cron.NewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)
	schedule, err := parser.Parse(spec)
	if err != nil {
		return nil, err
	}
	if neverFires(schedule) {
		return nil, errors.New("never fires")
	}
	return schedule, nil
}

// neverFires finds 30 February, and a field like "," that allows no value (for
// which cron would search five years second by second).
func neverFires(schedule cron.Schedule) bool {
	if s, ok := schedule.(*cron.SpecSchedule); ok {
		for _, allowed := range []uint64{s.Second, s.Minute, s.Hour, s.Dom, s.Month, s.Dow} {
			if allowed == 0 {
				return true
			}
		}
	}
	return schedule.Next(time.Now()).IsZero()
}

// LongestPause is the longest time between two ticks, of the next hundred.
func LongestPause(schedule cron.Schedule) time.Duration {
	var longest time.Duration
	at := schedule.Next(time.Now())
	for range 100 {
		next := schedule.Next(at)
		if next.IsZero() {
			break
		}
		longest, at = max(longest, next.Sub(at)), next
	}
	return longest
}
