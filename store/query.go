package store

import (
	"context"
	"time"

	"github.com/timeoutcenter/toc/task"
)

// query runs a SELECT of columns on GORM's connection pool and appends its rows
// to into. Rows are decoded by hand: this is the way of every due task.
func (s *Store) query(ctx context.Context, database int, text string, args []any, into []task.Task) ([]task.Task, error) {
	rows, err := s.dbs[database].read.ConnPool.QueryContext(ctx, text, args...)
	if err != nil {
		return into, err
	}
	return tasks(rows, into)
}

// sleep waits for d or for the end of ctx, whose error it answers.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
