package slots

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/timeoutcenter/toc/task"
)

// A score is milliseconds × 1000 + attempts, so that a retry keeps its count and still never overtakes tasks
// that are due. Redis holds scores as doubles, which are exact up to 2^53: the year 2255.
const (
	attemptsPerMilli = 1000
	maxAttempts      = attemptsPerMilli - 1
	maxMillis        = 1<<53/attemptsPerMilli - 1
	maxScore         = maxMillis*attemptsPerMilli + maxAttempts
)

// Member is a task as a member of a slot's queue.
type Member struct {
	JobID    uint64
	At       time.Time // in milliseconds, UTC; finer times are rounded up
	Attempts int       // failed runs so far, 0 to 999
}

// score returns the score, with out-of-range values replaced by the nearest valid ones.
func (m *Member) score() int64 {
	return millis(m.At)*attemptsPerMilli + int64(min(max(m.Attempts, 0), maxAttempts))
}

func millis(t time.Time) int64 {
	return min(max(task.CeilMilli(t).UnixMilli(), 0), maxMillis)
}

// parseScore reads a score as Redis prints it: "1786100000000003", but also "9e+15", and any number set by
// hand.
func parseScore(s string) (at time.Time, attempts int) {
	score, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		f, _ := strconv.ParseFloat(s, 64) // infinite where it is out of range
		score = wholeScore(f)
	}
	return splitScore(score)
}

func wholeScore(f float64) int64 {
	if f != f {
		return 0
	}
	return int64(min(max(f, 0), maxScore))
}

// parseAt returns the time of a score, zero for "".
func parseAt(score string) time.Time {
	if score == "" {
		return time.Time{}
	}
	at, _ := parseScore(score)
	return at
}

// parseTime reads the answer of Redis's TIME.
func parseTime(seconds, micros string) time.Time {
	s, _ := strconv.ParseInt(seconds, 10, 64)
	us, _ := strconv.ParseInt(micros, 10, 64)
	return time.Unix(s, us*1000).UTC()
}

func splitScore(score int64) (at time.Time, attempts int) {
	score = min(max(score, 0), maxScore)
	return time.UnixMilli(score / attemptsPerMilli).UTC(), int(score % attemptsPerMilli)
}

// appendMembers reads "job_id score job_id score …". It skips a member that is not a job_id.
func appendMembers(members []Member, list string) []Member {
	members = slices.Grow(members, (strings.Count(list, " ")+1)/2)
	for list != "" {
		var id, score string
		id, list, _ = strings.Cut(list, " ")
		score, list, _ = strings.Cut(list, " ")
		jobID, err := strconv.ParseUint(id, 10, 64)
		if err != nil {
			continue
		}
		at, attempts := parseScore(score)
		members = append(members, Member{JobID: jobID, At: at, Attempts: attempts})
	}
	return members
}
