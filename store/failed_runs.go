package store

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"time"

	"gorm.io/gorm"

	"github.com/timeoutcenter/toc/task"
)

// The column errors has the failed runs of a task, a JSON object a line, the oldest first. The move that records a
// failed run adds its line. Only FailedRuns reads the column: scans would carry it for nothing.

// maxErrors is how many characters of it are kept, the last ones.
const maxErrors = 8192

// errorsTime is the form of at.
const errorsTime = "2006-01-02T15:04:05.000Z"

// failedRun is one line. If you change it, lines of the old form must still be read: rows keep theirs.
type failedRun struct {
	Attempt int    `json:"attempt"`
	At      string `json:"at"`
	Error   string `json:"error"`
}

// recordsFailedRun reports whether a move records a failed run: one that counts as an attempt. Such a move applies only to
// the attempts that it has read, so a batch that is made twice adds a line once.
func (m *Move) recordsFailedRun() bool {
	return m.LastError != nil && m.Attempts != nil && m.Read != nil && min(*m.Attempts, task.MaxAttempts) > m.Read.Attempts
}

// errorsLine is the line that a move adds.
func (m *Move) errorsLine(stamp time.Time) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // it would be for nothing, and long
	_ = e.Encode(failedRun{Attempt: *m.Attempts, At: stamp.UTC().Format(errorsTime), Error: *m.LastError})
	return b.String()
}

// FailedRuns reads the failed runs of a task, the oldest first, as far as its row still has them.
func (s *queries) FailedRuns(ctx context.Context, jobID uint64) ([]task.FailedRun, error) {
	shard, ok := s.layout.ShardOf(jobID)
	if !ok {
		return nil, task.ErrNotFound
	}
	var r row
	err := s.look(ctx, "read the failed runs", shard, indexPrimary, func(q *gorm.DB) *gorm.DB {
		return q.Select("errors").Where("job_id = ?", s.backend.idArg(jobID)).Take(&r)
	})
	return parseErrors(r.Errors.String), err
}

// parseErrors leaves out lines that are none: the first one is cut where the text was too long, and hands write too.
func parseErrors(text string) (runs []task.FailedRun) {
	for line := range strings.Lines(text) {
		var one failedRun
		if json.Unmarshal([]byte(line), &one) != nil || one.Attempt < 1 {
			continue
		}
		at, err := time.Parse(time.RFC3339, one.At)
		if err != nil {
			continue
		}
		runs = append(runs, task.FailedRun{Attempt: one.Attempt, At: at.UTC(), Error: one.Error})
	}
	return runs
}
