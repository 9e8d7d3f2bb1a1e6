package store

import (
	"context"
	"time"

	"github.com/timeoutcenter/toc/internal/wait"
)

// The pauses before a transaction that met a lock is tried again. A lock that lasts as
// long as a commit, as our own do, is gone by then.
const (
	firstPause = 5 * time.Millisecond
	lastPause  = 20 * time.Millisecond
)

// transact makes a transaction of a database. If it meets a lock, it is tried again for
// a moment.
func (s *Store) transact(ctx context.Context, database int, statements []statement) (affected []int64, err error) {
	for pause := firstPause; ; pause *= 2 {
		affected, err = s.transactNow(ctx, database, statements)
		if !s.backend.isLocked(err) || pause > lastPause || s.backend.waits(database) || wait.For(ctx, pause) != nil {
			return affected, err
		}
	}
}

// transactNow makes a transaction of a database once. It remembers whether the database
// takes writes.
func (s *Store) transactNow(ctx context.Context, database int, statements []statement) (affected []int64, err error) {
	began := time.Now()
	affected, err = s.backend.transact(ctx, database, statements)
	s.noteWrite(ctx, database, err)
	if c := &s.dbs[database].condition; err == nil {
		c.notePace(&c.writes, time.Since(began))
	}
	return affected, err
}

// conflictPause is the pause before a transaction is tried again that met a deadlock.
const conflictPause = 5 * time.Millisecond

// pastConflicts makes a transaction, again and again as long as it meets a deadlock.
func (s *Store) pastConflicts(ctx context.Context, database int, statements []statement, transact transactor) ([]int64, error) {
	for {
		affected, err := transact(ctx, database, statements)
		if !s.backend.isConflict(err) {
			return affected, err
		}
		if err := wait.For(ctx, conflictPause); err != nil {
			return nil, err
		}
	}
}

// transactor is Store.transact or transactNow.
type transactor func(ctx context.Context, database int, statements []statement) (affected []int64, err error)
