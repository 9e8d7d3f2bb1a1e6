package scanner

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/timeoutcenter/toc/store"
)

// overdue is the result of the last counts in a database.
type overdue struct {
	mu        sync.Mutex
	sums      map[uint64]store.Overdue // by biz_type
	nextCount time.Time                // the earliest time of the next count

	retrying       map[int]map[uint64]store.Retrying // by partition that was counted here, and biz_type
	nextRetryCount time.Time
	nextRetrying   int // where the next count begins, relative to the first partition
	// failedSince is the start of the first pass that failed after the last success. Zero: the last pass
	// succeeded.
	failedSince time.Time
	lastErr     error // of the last failed pass
}

// recordFailure records a failed pass.
func (o *overdue) recordFailure(began time.Time, why error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lastErr = why
	if o.failedSince.IsZero() {
		o.failedSince = began
	}
}

// recordSuccess records a successful pass, and reports whether the one before had failed.
func (o *overdue) recordSuccess() (again bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	again = !o.failedSince.IsZero()
	o.failedSince, o.lastErr = time.Time{}, nil
	return again
}

// UnreadSince returns since when a database could not be read completely, and why. It returns zero if the last
// pass read it. Overdue lacks the tasks that have become due in the database since then.
func (s *Scanner) UnreadSince(database int) (time.Time, error) {
	o := s.dbs[database].overdue
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.failedSince, o.lastErr
}

// countOverdue counts the overdue rows of the partitions in which the pass saw some, so an idle store costs
// nothing. Rows of unknown business types are counted in all partitions, because a pass skips them where it
// can. Counting takes at most a tenth of the time. If it fails, the last count stands.
func (r *scan) countOverdue(ctx context.Context) {
	o := r.db.overdue
	start := time.Now() // monotonic: the clock may be set meanwhile
	late := slices.Collect(maps.Keys(r.late))
	if len(r.unknownTypes)+len(r.db.unknownTypes) > 0 {
		late = nil
		for p, end := r.cfg.Layout.DatabasePartitions(r.db.index); p < end; p++ {
			if r.cfg.Ownership.Owns(p) {
				late = append(late, p)
			}
		}
	}
	if len(late) > 0 && start.Before(o.nextCount) {
		return
	}
	defer func() {
		now := time.Now()
		o.nextCount = now.Add(9 * now.Sub(start))
	}()
	sums := make(map[uint64]store.Overdue)
	now := r.cfg.Now()
	for _, p := range late {
		found, err := r.cfg.Store.Overdue(ctx, p, now)
		if err != nil {
			if ctx.Err() == nil {
				r.cfg.Logger.Warn("overdue tasks not counted", "database", r.db.index, "error", err)
			}
			return
		}
		addAll(sums, found)
	}
	before := slices.Concat(r.db.unknownTypes, r.unknownTypes)
	r.db.unknownTypes = slices.DeleteFunc(slices.Collect(maps.Keys(sums)), func(b uint64) bool { _, known := r.types.ByID(b); return known })
	for _, b := range r.db.unknownTypes {
		if !slices.Contains(before, b) {
			r.logUnknown(b)
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sums = sums
}

// Overdue sums up the pending tasks of this node whose time has passed, by biz_type, as of the last passes. It
// includes business types that are not configured.
func (s *Scanner) Overdue() map[uint64]store.Overdue {
	total := make(map[uint64]store.Overdue)
	for _, db := range s.dbs {
		db.overdue.mu.Lock()
		addAll(total, db.overdue.sums)
		db.overdue.mu.Unlock()
	}
	return total
}

// addAll adds sums to a total, by biz_type.
func addAll[T interface{ Add(T) T }](total, sums map[uint64]T) {
	for b, sum := range sums {
		total[b] = total[b].Add(sum)
	}
}

const (
	// retryShare bounds the time for counting the tasks that run again, at most one part in retryShare.
	retryShare = 50
	// retryCount is the time after which a count goes on at the next pass.
	retryCount = 100 * time.Millisecond
	// retryLeast is how far ahead tasks are looked for that have failed elsewhere, at least.
	retryLeast = time.Hour
)

// countRetrying counts the tasks that have failed and run again, partition by partition. While no run fails that costs nothing:
// only a partition that is new here is looked at once. If it fails, the last count stands.
func (r *scan) countRetrying(ctx context.Context) {
	o := r.db.overdue
	now, start := r.cfg.Now(), time.Now()
	o.mu.Lock()
	maps.DeleteFunc(o.retrying, func(p int, _ map[uint64]store.Retrying) bool { return !r.cfg.Ownership.Owns(p) })
	o.mu.Unlock()
	if start.Before(o.nextRetryCount) {
		return
	}
	defer func() {
		now := time.Now()
		o.nextRetryCount = now.Add((retryShare - 1) * now.Sub(start))
	}()
	first, end := r.cfg.Layout.DatabasePartitions(r.db.index)
	for range end - first {
		p := first + o.nextRetrying
		o.nextRetrying = (o.nextRetrying + 1) % (end - first)
		until, some := r.retriesUntil(p, now)
		if !some || !r.cfg.Ownership.Owns(p) {
			continue
		}
		found, err := r.cfg.Store.Retrying(ctx, p, now, until)
		if err != nil {
			if ctx.Err() == nil {
				r.cfg.Logger.Warn("tasks that run again are not counted", "partition", p, "error", err)
			}
			return
		}
		o.mu.Lock()
		o.retrying[p] = found
		o.mu.Unlock()
		if time.Since(start) > retryCount {
			return
		}
	}
}

// retriesUntil returns until when tasks of a partition that have failed may run again, and whether there may be some.
func (r *scan) retriesUntil(p int, now time.Time) (until time.Time, some bool) {
	if r.cfg.Retries != nil {
		until = r.cfg.Retries()
	}
	last, counted := r.db.overdue.retrying[p]
	if !counted { // they may have failed on another node, or before a restart
		longest := retryLeast
		for _, b := range r.types.All() {
			longest = max(longest, b.BackoffMax)
		}
		until = slices.MaxFunc([]time.Time{until, now.Add(longest)}, time.Time.Compare)
	}
	some = until.After(now) || len(last) > 0
	for _, sum := range last {
		until = slices.MaxFunc([]time.Time{until, sum.Last, now}, time.Time.Compare) // until the last one has ended
	}
	return until, some
}

// Retrying sums up the pending tasks of this node that have failed and run again, by biz_type, as of the last passes.
func (s *Scanner) Retrying() map[uint64]store.Retrying {
	total := make(map[uint64]store.Retrying)
	for _, db := range s.dbs {
		db.overdue.mu.Lock()
		for _, sums := range db.overdue.retrying {
			addAll(total, sums)
		}
		db.overdue.mu.Unlock()
	}
	return total
}
