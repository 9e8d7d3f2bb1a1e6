package store

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"

	"github.com/timeoutcenter/toc/internal/wait"
	"github.com/timeoutcenter/toc/task"
)

// query runs a SELECT of columns and appends its rows to into.
func (s *databases) query(ctx context.Context, database int, text string, args []any, into []task.Task) ([]task.Task, error) {
	err := s.each(ctx, database, text, args, func(r *row) { into = append(into, r.task()) })
	return into, err
}

// each runs a SELECT of columns and passes its rows to f, which must not keep them. Rows are decoded by hand,
// for speed: every due task passes here.
func (s *databases) each(ctx context.Context, database int, text string, args []any, f func(*row)) error {
	var r row
	return s.scan(ctx, database, text, args, func(rows *sql.Rows) error {
		if err := r.scan(rows); err != nil {
			return err
		}
		f(&r)
		return nil
	})
}

// scan runs a SELECT on GORM's connection pool and calls f for each row.
func (s *databases) scan(ctx context.Context, database int, text string, args []any, f func(*sql.Rows) error) error {
	return scanPool(ctx, s.dbs[database].read.ConnPool, text, args, f)
}

func scanPool(ctx context.Context, pool gorm.ConnPool, text string, args []any, f func(*sql.Rows) error) error {
	rows, err := pool.QueryContext(ctx, text, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := f(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// table is a query of a table of a database by GORM.
func (s *databases) table(ctx context.Context, database int, name string) *gorm.DB {
	return s.dbs[database].read.WithContext(ctx).Table(name)
}

// Limits of one statement: tables of a UNION ALL, and ids (SQLite's limit is 500 members and 32,766
// parameters).
const (
	maxMembers = 256
	maxIDs     = 10_000
)

// scanShards runs SELECTs over the shards of a database from first until end, at most most of them in a
// statement, and calls f for each row. member adds the SELECTs of a shard.
func (s *databases) scanShards(ctx context.Context, first, end, most int, member func(u *union, shard int), f func(*sql.Rows) error) error {
	list := make([]int, 0, end-first)
	for shard := first; shard < end; shard++ {
		list = append(list, shard)
	}
	for part := range slices.Chunk(list, most) {
		if err := s.scanList(ctx, s.layout.Database(first), part, member, f); err != nil {
			return err
		}
	}
	return nil
}

// scanList is scanShards of any shards of a database.
func (s *databases) scanList(ctx context.Context, database int, shards []int, member func(u *union, shard int),
	f func(*sql.Rows) error) error {
	for part := range slices.Chunk(shards, maxMembers) {
		var u union
		for _, shard := range part {
			member(&u, shard)
		}
		bound, cancel := s.bound(ctx)
		err := s.scan(bound, database, u.text.String(), u.args, f)
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

// readAround reads tables, at most most at a time. If one of them is locked, missing or broken, it reads the
// others in smaller parts, down to one, and returns that error at the end. Any other error ends it at once.
func readAround[T any](s *databases, tables []T, most int, read func(tables []T) error) (broken error) {
	for part := range slices.Chunk(tables, most) {
		err := read(part)
		if s.isOfTable(err) && len(part) > 1 {
			err = readAround(s, part, (len(part)+splitParts-1)/splitParts, read)
		}
		if err != nil && !s.isOfTable(err) {
			return err
		}
		broken = cmp.Or(broken, err)
	}
	return broken
}

// scanAll is scanList of any shards, in all databases at once. f is called by several goroutines.
func (s *databases) scanAll(ctx context.Context, op string, shards []int, member func(u *union, shard int), f func(*sql.Rows) error) error {
	of := s.byDatabase(shards)
	return s.eachDatabase(op, func(d int) error { return s.scanList(ctx, d, of[d], member, f) })
}

// byDatabase groups shards.
func (s *databases) byDatabase(shards []int) [][]int {
	list := make([][]int, len(s.dbs))
	for _, shard := range shards {
		d := s.layout.Database(shard)
		list[d] = append(list[d], shard)
	}
	return list
}

// union is a UNION ALL of SELECTs.
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

// The pauses before a transaction that met a lock is retried. A lock that lasts as long as a commit, like our
// own, has ended by then.
const (
	firstPause = 5 * time.Millisecond
	lastPause  = 20 * time.Millisecond
)

// transact makes a transaction of a database. If it meets a lock, it retries for a moment.
func (s *databases) transact(ctx context.Context, database int, statements []statement) (affected []int64, err error) {
	for pause := firstPause; ; pause *= 2 {
		affected, err = s.transactNow(ctx, database, statements)
		if !s.isLocked(err) || pause > lastPause || s.backend.waitsForLocks(database) || wait.For(ctx, pause) != nil {
			return affected, err
		}
	}
}

// transactNow makes a transaction of a database once. It records whether the database accepts writes.
func (s *databases) transactNow(ctx context.Context, database int, statements []statement) (affected []int64, err error) {
	if why := s.refusesChanges(database); why != nil {
		return nil, fmt.Errorf("%w: %w", task.ErrNotBegun, why)
	}
	began := time.Now()
	affected, err = s.backend.transact(ctx, database, statements)
	s.recordWrite(ctx, database, err)
	if c := &s.dbs[database].condition; err == nil {
		c.recordLatency(&c.writes, time.Since(began))
	}
	return affected, err
}

// change makes a transaction of a database, and returns the number of rows that each statement changed.
func (s *databases) change(ctx context.Context, database int, op string, statements ...statement) ([]int64, error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	affected, err := s.retryConflicts(ctx, database, statements, s.transact)
	return affected, s.wrap(database, op, err)
}

// conflictPause is the pause before a transaction is retried after a deadlock.
const conflictPause = 5 * time.Millisecond

// retryConflicts makes a transaction, and repeats it while it meets a deadlock.
func (s *databases) retryConflicts(ctx context.Context, database int, statements []statement, transact transactor) ([]int64, error) {
	for {
		affected, err := transact(ctx, database, statements)
		if s.backend.refusal(err) != refusedConflict {
			return affected, err
		}
		if err := wait.For(ctx, conflictPause); err != nil {
			return nil, err
		}
	}
}

// transactor is Store.transact or transactNow.
type transactor func(ctx context.Context, database int, statements []statement) (affected []int64, err error)
