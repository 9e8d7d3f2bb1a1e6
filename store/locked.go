package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
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

// waiting is a write or a read that met a lock.
type waiting struct{ since time.Time }

// retryLater calls f after a pause. It returns false if the lock has been waited for long enough.
func (w *waiting) retryLater(f func()) bool {
	now := time.Now()
	if w.since.IsZero() {
		w.since = now
	}
	if now.Sub(w.since) >= lockWait {
		return false
	}
	time.AfterFunc(lockEvery, f)
	return true
}

// retryLocked repeats read while it meets a lock, up to the waiting time.
func (s *Store) retryLocked(ctx context.Context, read func() error) error {
	for since := time.Now(); ; {
		err := read()
		if !s.isLocked(err) || time.Since(since) >= lockWait || wait.For(ctx, lockEvery/5) != nil {
			return err
		}
	}
}

// A batch that meets a lock, or is too large for one text, is split into so many parts, and each part again,
// down to one task. The parts are written at the same time.
const (
	splitParts = 8
	splitting  = 8 // parts of one batch under way
)

// isOutOfTime reports that no part should begin any more, because it would be cut off.
func (s *Store) isOutOfTime(ctx context.Context) bool {
	until, ok := ctx.Deadline()
	return ok && time.Until(until) < s.cfg.Timeout/4
}

// split cuts a list into parts; elements with the same key stay together. A list with one key is one part.
func split[T any](list []T, key func(T) uint64) (parts [][]T) {
	size := (len(list) + splitParts - 1) / splitParts
	for len(list) > 0 {
		n := min(size, len(list))
		for n < len(list) && key(list[n]) == key(list[n-1]) {
			n++
		}
		parts = append(parts, list[:n])
		list = list[n:]
	}
	return parts
}

// applyParts makes moves that failed as one batch: some of them meet a lock, and it finds out which, or the
// batch is too large. A LockedError names the locked ones; the other results are valid.
func (s *Store) applyParts(ctx context.Context, database int, stamp time.Time, moves []Move) ([]bool, error) {
	// All writers take their locks in the same order; neighbours share statements.
	order := make([]int, len(moves))
	for i := range order {
		order[i] = i
	}
	shardOf := func(i int) int { shard, _ := s.layout.ShardOf(moves[i].JobID); return shard }
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(shardOf(a)-shardOf(b), cmp.Compare(moves[a].JobID, moves[b].JobID))
	})
	var (
		mu      sync.Mutex
		applied = make([]bool, len(moves))
		locked  = make(map[uint64]error)
		failed  error
		running = make(chan struct{}, splitting)
	)
	hold := func(part []int, why error) {
		mu.Lock()
		defer mu.Unlock()
		for _, i := range part {
			locked[moves[i].JobID] = tableFault(why)
		}
	}
	var each func(list []int)
	try := func(part []int) {
		some := make([]Move, len(part))
		for i, m := range part {
			some[i] = moves[m]
		}
		running <- struct{}{}
		if s.isOutOfTime(ctx) {
			<-running
			hold(part, nil) // they met a lock, as far as is known
			return
		}
		did, err := s.applyWhole(ctx, database, stamp, some, s.transactNow)
		<-running
		alone := moves[part[0]].JobID == moves[part[len(part)-1]].JobID
		switch {
		case err == nil:
			mu.Lock()
			defer mu.Unlock()
			for i, m := range part {
				applied[m] = did[i]
			}
		case errors.Is(err, errLocked) && alone:
			hold(part, err)
		case (errors.Is(err, errLocked) || s.backend.refusal(err) == refusedSize) && !alone:
			each(part)
		default:
			mu.Lock()
			defer mu.Unlock()
			failed = err
		}
	}
	each = func(list []int) {
		var parts sync.WaitGroup
		for _, part := range split(list, func(i int) uint64 { return moves[i].JobID }) {
			parts.Go(func() { try(part) })
		}
		parts.Wait()
	}
	each(order)
	switch {
	case failed != nil:
		return nil, failed
	case len(locked) > 0:
		return applied, &LockedError{locked}
	}
	return applied, nil
}
