package store

import (
	"context"
	"slices"
	"strings"
	"time"
)

// Running is a row of the journal, and the GORM model of toc_running: a start of a task whose end is not recorded. If its process
// has ended, the start had no end.
type Running struct {
	JobID    uint64    `gorm:"serializer:toc"`
	Instance string    // the process that started it; at most 64 bytes
	Attempts int       // attempts of the task at the start
	Cuts     int       // starts before this one that had no end; at most 255
	Since    time.Time `gorm:"serializer:toc"` // when it was written down
}

// maxRunning is the maximum number of rows in one statement of the journal.
const maxRunning = 1000

// Journal adds starts to the journal of a database and removes ended ones, in one transaction. A start replaces
// the task's row. A row is removed only if it is of the given instance. No task may be in both lists.
func (s records) Journal(ctx context.Context, database int, started, ended []Running) error {
	if len(started)+len(ended) == 0 {
		return nil
	}
	var statements []statement
	for len(ended) > 0 {
		n := 1
		for n < len(ended) && n < maxRunning && ended[n].Instance == ended[0].Instance {
			n++
		}
		args := make([]any, 0, n+1)
		for i := range ended[:n] {
			args = append(args, s.backend.idArg(ended[i].JobID))
		}
		statements = append(statements, statement{
			sql:  "DELETE FROM toc_running WHERE job_id IN (" + placeholders(n) + ") AND instance=?",
			args: append(args, ended[0].Instance),
		})
		ended = ended[n:]
	}
	for part := range slices.Chunk(started, maxRunning) {
		args := make([]any, 0, 5*len(part))
		for i := range part {
			r := &part[i]
			args = append(args, s.backend.idArg(r.JobID), r.Instance, int64(r.Attempts), int64(min(r.Cuts, 255)), s.backend.timeArg(r.Since))
		}
		statements = append(statements, statement{
			sql:  "REPLACE INTO toc_running (job_id,instance,attempts,cuts,since) VALUES (?,?,?,?,?)" + strings.Repeat(",(?,?,?,?,?)", len(part)-1),
			args: args,
		})
	}
	_, err := s.change(ctx, database, "write the journal of what runs", statements...)
	return err
}

// Journaled reads the journal of a database.
func (s records) Journaled(ctx context.Context, database int) (list []Running, err error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	err = s.table(ctx, database, "toc_running").Find(&list).Error
	return list, s.wrap(database, "read the journal of what runs", err)
}
