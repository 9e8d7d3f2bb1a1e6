package store

import (
	"context"
	"strings"

	"github.com/timeoutcenter/toc/task"
)

// query runs a SELECT of columns and appends its rows to into.
func (s *Store) query(ctx context.Context, database int, text string, args []any, into []task.Task) ([]task.Task, error) {
	err := s.each(ctx, database, text, args, func(r *row) { into = append(into, r.task()) })
	return into, err
}

// each runs a SELECT of columns on GORM's connection pool and gives its rows to
// f, which must not keep them. Rows are decoded by hand: this is the way of every
// due task.
func (s *Store) each(ctx context.Context, database int, text string, args []any, f func(*row)) error {
	rows, err := s.dbs[database].read.ConnPool.QueryContext(ctx, text, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	var r row
	for rows.Next() {
		if err := r.scan(rows); err != nil {
			return err
		}
		f(&r)
	}
	return rows.Err()
}

// union is a UNION ALL of SELECTs, one of each table or a few.
type union struct {
	text strings.Builder
	args []any
}

func (u *union) add(member string, args ...any) {
	if u.text.Len() > 0 {
		u.text.WriteString(" UNION ALL ")
	}
	u.text.WriteString(member)
	u.args = append(u.args, args...)
}
