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

// LockedError names the tasks that were not written because another transaction, of a
// hand that forgot its COMMIT say, has locked their rows or the place where they belong, or
// because their table is missing or broken. Nothing of them was changed. It is a
// task.ErrUnavailable by the DatabaseError around it.
type LockedError struct {
	Tasks map[uint64]error // by job_id: what is wrong with its table; nil: its row is locked
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

// table is what is wrong with one of the tables; nil: all are fine.
func (e *LockedError) table() error {
	for _, why := range e.Tasks {
		if why != nil {
			return why
		}
	}
	return nil
}

// Is makes a LockedError a task.ErrLocked, but for one of a table that is broken.
func (e *LockedError) Is(target error) bool { return target == task.ErrLocked && e.table() == nil }

// lockWait is how long a lock of somebody else is waited for, apart from the others and trying again: it takes no
// connection. What is answered with an error then is not done later.
const (
	lockWait  = 2 * time.Second
	lockEvery = 250 * time.Millisecond
)

// waiting is what met a lock and waits for it apart.
type waiting struct{ since time.Time }

// again has f called after a pause. It answers false if the lock has been waited for long enough.
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

// patiently calls read again while it meets a lock, for as long as one is waited for.
func (s *Store) retryLocked(ctx context.Context, read func() error) error {
	for since := time.Now(); ; {
		err := read()
		if !s.isLocked(err) || time.Since(since) >= lockWait || wait.For(ctx, lockEvery/5) != nil {
			return err
		}
	}
}

// A batch that meets a lock, or is too large for one text, is split into so many parts, each
// of them in turn, until what is left is one task. They are made at the same time.
const (
	splitParts = 8
	splitting  = 8 // parts of one batch under way
)

// isLate tells that no part is to be begun any more: it would be cut off.
func (s *Store) isOutOfTime(ctx context.Context) bool {
	until, ok := ctx.Deadline()
	return ok && time.Until(until) < s.cfg.Timeout/4
}

// split cuts a list into parts; what is the same by key stays together. A list of one
// key is one part.
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

// applyParts makes moves that could not be made together: as one, they meet a lock (of
// which of them is to be found out) or are too large. A LockedError names the locked ones;
// the other answers hold.
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
			hold(part, nil) // a lock was in their way, as far as is known
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
