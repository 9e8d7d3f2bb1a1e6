package scanner

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/timeoutcenter/toc/store"
)

// overdue is what the last count in a database found.
type overdue struct {
	mu        sync.Mutex
	sums      map[uint64]store.Overdue // by biz_type
	nextCount time.Time                // no counting before then
	// since is when the first pass began that failed after the last one that succeeded; zero: the last one succeeded.
	failedSince time.Time
	lastErr     error // of the last one
}

// unread notes a pass that failed.
func (o *overdue) recordFailure(began time.Time, why error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lastErr = why
	if o.failedSince.IsZero() {
		o.failedSince = began
	}
}

// wasRead notes a pass that succeeded, and tells whether the one before had failed.
func (o *overdue) recordSuccess() (again bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	again = !o.failedSince.IsZero()
	o.failedSince, o.lastErr = time.Time{}, nil
	return again
}

// UnreadSince tells since when a database has not been read whole, and why; zero: it was. What has
// become due in it since is not in Overdue.
func (s *Scanner) UnreadSince(database int) (time.Time, error) {
	o := s.dbs[database].overdue
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.failedSince, o.lastErr
}

// countOverdue counts the overdue rows of the partitions in which the pass saw
// some; an idle store costs nothing. Rows of business types that are not configured are
// counted in all of them: a pass leaves them out where it can. Counting takes at most a
// tenth of the time. If it fails, the last count stands.
func (r *scan) countOverdue(ctx context.Context) {
	o := r.db.overdue
	start := r.cfg.Now()
	late := r.overduePartitions
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
		now := r.cfg.Now()
		o.nextCount = now.Add(9 * now.Sub(start))
	}()
	sums := make(map[uint64]store.Overdue)
	for _, p := range late {
		found, err := r.cfg.Store.Overdue(ctx, p, start)
		if err != nil {
			if ctx.Err() == nil {
				r.cfg.Logger.Warn("overdue tasks not counted", "database", r.db.index, "error", err)
			}
			return
		}
		for b, sum := range found {
			sums[b] = sums[b].Add(sum)
		}
	}
	r.db.unknownTypes = slices.DeleteFunc(slices.Collect(maps.Keys(sums)), func(b uint64) bool { _, known := r.types.ByID(b); return known })
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sums = sums
}

// Overdue sums up, by biz_type, the pending tasks of this node whose time has
// passed, as of the last passes; those of business types that are not configured, too.
func (s *Scanner) Overdue() map[uint64]store.Overdue {
	total := make(map[uint64]store.Overdue)
	for _, db := range s.dbs {
		db.overdue.mu.Lock()
		for b, sum := range db.overdue.sums {
			total[b] = total[b].Add(sum)
		}
		db.overdue.mu.Unlock()
	}
	return total
}
