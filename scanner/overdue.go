package scanner

import (
	"context"
	"sync"
	"time"

	"github.com/timeoutcenter/toc/store"
)

// overdue is what the last count in a database found.
type overdue struct {
	mu   sync.Mutex
	sums map[uint64]store.Overdue // by biz_type
	rest time.Time                // no counting before then
}

// countOverdue counts the overdue rows of the partitions in which the pass saw
// some; an idle store costs nothing. Counting takes at most a tenth of the time.
// If it fails, the last count stands.
func (r *scan) countOverdue(ctx context.Context) {
	o := r.db.overdue
	start := r.cfg.Now()
	if len(r.late) > 0 && start.Before(o.rest) {
		return
	}
	defer func() {
		now := r.cfg.Now()
		o.rest = now.Add(9 * now.Sub(start))
	}()
	sums := make(map[uint64]store.Overdue)
	for _, p := range r.late {
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
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sums = sums
}

// Overdue sums up, by biz_type, the pending tasks of this node whose time has
// passed, as of the last passes.
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
