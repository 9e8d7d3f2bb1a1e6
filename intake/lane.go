package intake

import (
	"context"
	"sync/atomic"

	"golang.org/x/sync/semaphore"

	"github.com/timeoutcenter/toc/task"
)

// Reads of all tables take turns: each takes a connection to every database, and the tasks that fall due need the others.
const (
	laneRuns  = 2
	laneWaits = 16 // beyond, a read is refused
)

// lane makes the reads of all tables take turns.
type lane struct {
	turns *semaphore.Weighted
	under atomic.Int32 // reads that run or wait
}

// busyError refuses a read of all tables, because too many run and wait.
type busyError struct{}

func (busyError) Error() string { return "too many reads of all tables" }
func (busyError) Unwrap() error { return task.ErrUnavailable }

// Where is shown in the answer.
func (busyError) Where() string { return "too many reads of all tables are under way on this node" }

// read waits for a turn, and reads.
func (l *lane) read(ctx context.Context, read func() error) error {
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
