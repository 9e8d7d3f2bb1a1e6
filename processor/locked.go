package processor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/timeoutcenter/toc/store"
)

// Outcomes whose rows another transaction has locked wait apart and are tried again by
// themselves: a forgotten COMMIT holds up its own rows.
const (
	lockedEvery = time.Second
	lockedMost  = 16 // of one partition; so many, and none of its tasks start
	lockedLines = 10 // of the log about rows of one batch
)

// lockedRows are the outcomes that wait for a row's lock.
type lockedRows struct {
	mu          sync.Mutex
	since       map[uint64]time.Time // by job_id
	byDatabase  [][]finish
	byPartition []atomic.Int32 // how many
	loops       sync.WaitGroup // one a database, while it has some
}

func newLockedRows(databases, partitions int) *lockedRows {
	return &lockedRows{since: make(map[uint64]time.Time),
		byDatabase: make([][]finish, databases), byPartition: make([]atomic.Int32, partitions)}
}

func (l *lockedRows) areMany(partition int) bool {
	return l.byPartition[partition].Load() >= lockedMost
}

// setAside makes outcomes wait for the locks of their rows.
func (f *finisher) setAside(ctx context.Context, database int, list []finish) {
	if len(list) == 0 {
		return
	}
	l := f.locked
	now := f.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range list {
		e := list[i].entry
		l.since[e.Task.JobID] = now
		l.byPartition[e.Partition].Add(1)
		if i < lockedLines {
			f.logger.Warn("outcome waits: another transaction has locked the row",
				"job_id", e.Task.JobID, "biz_type", list[i].bizType.Name, "database", database)
		}
	}
	if more := len(list) - lockedLines; more > 0 {
		f.logger.Warn("more outcomes wait: another transaction has locked their rows", "tasks", more, "database", database)
	}
	first := len(l.byDatabase[database]) == 0
	l.byDatabase[database] = append(l.byDatabase[database], list...)
	if first {
		l.loops.Go(func() { f.retryLocked(ctx, database) })
	}
}

// retryLocked tries to record the outcomes that wait in a database until none does.
func (f *finisher) retryLocked(ctx context.Context, database int) {
	l := f.locked
	for {
		wait(ctx, lockedEvery)
		l.mu.Lock()
		list := slices.Clone(l.byDatabase[database])
		l.mu.Unlock()
		var left []finish
		if ctx.Err() == nil {
			left = f.record(ctx, database, slices.Clone(list))
		} else {
			f.logger.Error("outcomes not recorded: these tasks will run again", "database", database, "tasks", len(list),
				"error", "another transaction has locked their rows")
		}
		if f.release(ctx, database, list, left) == 0 {
			return
		}
	}
}

// release forgets those of list that do not wait any more, and tells how many do.
func (f *finisher) release(ctx context.Context, database int, list, left []finish) (waiting int) {
	l := f.locked
	waits := make(map[uint64]bool, len(left))
	for i := range left {
		waits[left[i].entry.Task.JobID] = true
	}
	back, settled := false, 0
	l.mu.Lock()
	for i := range list {
		id, p := list[i].entry.Task.JobID, list[i].entry.Partition
		if waits[id] {
			continue
		}
		if settled++; ctx.Err() == nil && settled <= lockedLines {
			f.logger.Info("outcome settled: the row is free again", "job_id", id, "waited", f.now().Sub(l.since[id]))
		}
		delete(l.since, id)
		back = l.byPartition[p].Add(-1) == lockedMost-1 || back
	}
	l.byDatabase[database] = append(left, l.byDatabase[database][len(list):]...)
	waiting = len(l.byDatabase[database])
	l.mu.Unlock()
	if ctx.Err() == nil && settled > lockedLines {
		f.logger.Info("more outcomes settled: their rows are free again", "tasks", settled-lockedLines, "database", database)
	}
	if back {
		f.back()
	}
	return waiting
}

// Degraded says which outcomes wait for a row that another transaction has locked, the
// longest first.
func (r *Runner) Degraded() (list []string) {
	l := r.finisher.locked
	l.mu.Lock()
	defer l.mu.Unlock()
	ids := make([]uint64, 0, len(l.since))
	for id := range l.since {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b uint64) int { return l.since[a].Compare(l.since[b]) })
	const most = 3
	for _, id := range ids[:min(len(ids), most)] {
		list = append(list, fmt.Sprintf("outcome of job_id %d waits for a row lock for %s", id, r.cfg.Now().Sub(l.since[id]).Round(time.Second)))
	}
	if more := len(ids) - most; more > 0 {
		list = append(list, fmt.Sprintf("%d more outcomes wait for row locks", more))
	}
	return list
}

// apply makes moves, patiently, and tells which of them met a locked row: nothing is
// written of those. ok is false when ctx ended before.
func (f *finisher) apply(ctx context.Context, database int, moves []store.Move) (applied []bool, isLocked func(i int) bool, ok bool) {
	stamp := f.store.Stamp(database)
	var locked *store.LockedError
	ok = f.patiently(ctx, database, len(moves), func(ctx context.Context) (err error) {
		locked = nil
		applied, err = f.store.Apply(ctx, database, stamp, moves)
		if errors.As(err, &locked) {
			return nil
		}
		return err
	})
	isLocked = func(i int) bool { return locked != nil && slices.Contains(locked.JobIDs, moves[i].JobID) }
	return applied, isLocked, ok
}

// wait lasts for d, or until ctx ends.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
