package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/timeoutcenter/toc/internal/wait"
	"github.com/timeoutcenter/toc/task"
)

// LockedError names the tasks that were not written. Another transaction has locked their rows or the place
// where they belong (a forgotten COMMIT, say), or their table is missing or broken. Nothing of them was
// changed. The DatabaseError around it makes it a task.ErrUnavailable.
type LockedError struct {
	Tasks map[uint64]error // by job_id: the error of its table; nil: its row is locked
}

func (e *LockedError) Error() string {
	const most = 10
	ids := slices.Sorted(maps.Keys(e.Tasks))
	var b strings.Builder
	for i, id := range ids[:min(len(ids), most)] {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprint(&b, id)
	}
	if more := len(ids) - most; more > 0 {
		fmt.Fprintf(&b, " and %d more", more)
	}
	if why := e.table(); why != nil {
		return fmt.Sprintf("nothing was changed of task %s: %v", b.String(), why)
	}
	return "locked by another transaction, nothing was changed: the row of task " + b.String()
}

// table is the error of one of the tables; nil: all are fine.
func (e *LockedError) table() error {
	for _, why := range e.Tasks {
		if why != nil {
			return why
		}
	}
	return nil
}

// Is makes a LockedError a task.ErrLocked, unless a table is broken.
func (e *LockedError) Is(target error) bool { return target == task.ErrLocked && e.table() == nil }

// lockWait is how long a write waits for another's lock, apart from other writes and by retrying, without
// holding a connection. After its error the write is not made later.
const (
	lockWait  = 2 * time.Second
	lockEvery = 250 * time.Millisecond
)

// retryLater calls f after a pause. It returns false if the lock has been waited for long enough.
func (r *request) retryLater(f func()) bool {
	now := time.Now()
	if r.since.IsZero() {
		r.since = now
	}
	if now.Sub(r.since) >= lockWait {
		return false
	}
	time.AfterFunc(lockEvery, f)
	return true
}

// retryLocked repeats read while it meets a lock, up to the waiting time.
func (s *databases) retryLocked(ctx context.Context, read func() error) error {
	for since := time.Now(); ; {
		err := read()
		if !s.isLocked(err) || time.Since(since) >= lockWait || wait.For(ctx, lockEvery/5) != nil {
			return err
		}
	}
}
