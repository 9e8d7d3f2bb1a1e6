package intake

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// Reads of all tables take turns: each takes a connection to every database, and the tasks that fall due need the others.
const (
	laneRuns  = 2
	laneWaits = 16 // beyond, a read is refused
)

// lane is a Store whose reads of all tables take turns.
type lane struct {
	Store
	turns *semaphore.Weighted
	under atomic.Int32 // reads that run or wait
}

func newLane(s Store) *lane { return &lane{Store: s, turns: semaphore.NewWeighted(laneRuns)} }

// busyError refuses a read of all tables, because too many run and wait.
type busyError struct{}

func (busyError) Error() string { return "too many reads of all tables" }
func (busyError) Unwrap() error { return task.ErrUnavailable }

// Where is shown in the answer.
func (busyError) Where() string { return "too many reads of all tables are under way on this node" }

// take waits for a turn, and calls read.
func (l *lane) take(ctx context.Context, read func() error) error {
	defer l.under.Add(-1)
	if l.under.Add(1) > laneRuns+laneWaits {
		return busyError{}
	}
	if err := l.turns.Acquire(ctx, 1); err != nil {
		return err
	}
	defer l.turns.Release(1)
	return read()
}

// Walk implements Store.
func (l *lane) Walk(ctx context.Context, f store.WalkFilter, after store.Place,
	limit int) (list []task.Task, next store.Place, more bool, err error) {
	err = l.take(ctx, func() error { list, next, more, err = l.Store.Walk(ctx, f, after, limit); return err })
	return list, next, more, err
}

// Upcoming implements Store.
func (l *lane) Upcoming(ctx context.Context, shards []int, from, to time.Time,
	rows int) (list []store.Upcoming, scale float64, exact bool, err error) {
	err = l.take(ctx, func() error { list, scale, exact, err = l.Store.Upcoming(ctx, shards, from, to, rows); return err })
	return list, scale, exact, err
}

// ListDead implements Store.
func (l *lane) ListDead(ctx context.Context, f store.DeadFilter, after uint64, limit int) (list []task.Task, next uint64, err error) {
	err = l.take(ctx, func() error { list, next, err = l.Store.ListDead(ctx, f, after, limit); return err })
	return list, next, err
}

// CountDead implements Store.
func (l *lane) CountDead(ctx context.Context, f store.DeadFilter) (n int, err error) {
	err = l.take(ctx, func() error { n, err = l.Store.CountDead(ctx, f); return err })
	return n, err
}

// DeadGroups implements Store.
func (l *lane) DeadGroups(ctx context.Context, bizType *uint64) (list []store.DeadGroup, partial bool, err error) {
	err = l.take(ctx, func() error { list, partial, err = l.Store.DeadGroups(ctx, bizType); return err })
	return list, partial, err
}
