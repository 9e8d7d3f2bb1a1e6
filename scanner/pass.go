package scanner

import (
	"context"
	"slices"
	"time"

	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// patience is how long a pass waits for room in a full lane before it goes on
// without that lane. A lane that moves has room again within it; a lane that
// stands still must not hold up the others.
const patience = 100 * time.Millisecond

// refillers is how many partitions are read on at the same time.
const refillers = 2

// scan is one pass over a database.
type scan struct {
	*Scanner
	db      *database
	types   *task.Types
	until   time.Time
	full    []uint64 // business types whose lane stood still: left behind
	foreign []uint64 // business types that this engine does not serve
	late    []int    // partitions with overdue rows
}

// pass reads all owned partitions of a database once.
func (s *Scanner) pass(ctx context.Context, db *database) error {
	run := &scan{Scanner: s, db: db, types: s.cfg.Catalog.Load(), until: s.until()}
	first, end := s.cfg.Layout.DatabasePartitions(db.index)
	for p := first; p < end; p++ {
		if !s.cfg.Ownership.Owns(p) {
			continue
		}
		if err := run.partition(ctx, p); err != nil {
			return err
		}
	}
	return run.countOverdue(ctx)
}

// partition reads one partition to its end, page by page; a page is running
// while the next one is read.
func (r *scan) partition(ctx context.Context, p int) error {
	read := r.cfg.Queue.BeginRead(p)
	defer read.End()
	r.cfg.Queue.ReadAnew(p, r.full)
	for _, b := range r.full {
		r.cfg.Queue.LeaveBehind(b, p, task.Key{})
	}
	pages := r.cfg.Store.DuePages(p, store.Due{
		Until:   r.until,
		Except:  slices.Concat(r.full, r.foreign),
		PerPage: r.cfg.Batch,
	})
	late := len(r.full) > 0
	for {
		page, err := r.next(ctx, r.db.index, pages)
		if err != nil {
			return err
		}
		if len(page) == 0 {
			break
		}
		overdueBefore := r.cfg.Now().Add(-time.Second)
		items := make([]queue.Item, 0, len(page))
		for i := range page {
			t := &page[i]
			b, known := r.types.ByID(t.BizType)
			if !known || b.Mode != task.ModeScan {
				if !slices.Contains(r.foreign, t.BizType) {
					r.leaveOut(pages, t, known)
				}
				continue
			}
			late = late || t.ActionTime.Before(overdueBefore)
			items = append(items, queue.Item{Task: *t, Partition: p})
		}
		for _, b := range r.cfg.Queue.Offer(read, items...) {
			if !r.cfg.Queue.WaitRoom(ctx, b, patience) && !slices.Contains(r.full, b) {
				r.full = append(r.full, b)
				pages.Except(b)
			}
		}
	}
	if late {
		r.late = append(r.late, p)
	}
	return nil
}

// leaveOut stops reading rows of a business type that this engine does not serve.
func (r *scan) leaveOut(pages *store.DuePages, t *task.Task, known bool) {
	r.foreign = append(r.foreign, t.BizType)
	pages.Except(t.BizType)
	if !known {
		r.cfg.Logger.Warn("due tasks of a biz_type that is not configured; they stay pending",
			"biz_type", t.BizType, "database", r.db.index, "job_id", t.JobID)
	}
}

// next reads a page when there is a free slot. A database that fails waits for
// its time-outs outside the slots, where it holds up nobody.
func (s *Scanner) next(ctx context.Context, database int, pages *store.DuePages) ([]task.Task, error) {
	if !s.dbs[database].failing {
		if err := s.slots.Acquire(ctx, 1); err != nil {
			return nil, err
		}
		defer s.slots.Release(1)
	}
	return pages.Next(ctx)
}

// refill reads partitions on where a lane had turned tasks away, until ctx ends.
func (s *Scanner) refill(ctx context.Context) error {
	for {
		r, err := s.cfg.Queue.NextRefill(ctx)
		if err != nil {
			return err
		}
		if !s.cfg.Ownership.Owns(r.Partition) {
			continue
		}
		if err := s.readOn(ctx, r); err != nil && ctx.Err() == nil {
			// The tick finds the rows again when the database is back.
			s.cfg.Logger.Warn("partition not read on; the next tick will", "partition", r.Partition, "error", err)
		}
	}
}

func (s *Scanner) readOn(ctx context.Context, r queue.Refill) error {
	read := s.cfg.Queue.BeginRead(r.Partition)
	defer read.End()
	pages := s.cfg.Store.DuePages(r.Partition, store.Due{
		Until: s.until(), From: r.From, Only: &r.BizType, PerPage: s.cfg.Batch,
	})
	for {
		page, err := s.next(ctx, s.cfg.Layout.PartitionDatabase(r.Partition), pages)
		if err != nil || len(page) == 0 {
			return err
		}
		items := make([]queue.Item, len(page))
		for i := range page {
			items[i] = queue.Item{Task: page[i], Partition: r.Partition}
		}
		if turnedAway := s.cfg.Queue.Offer(read, items...); len(turnedAway) > 0 {
			return nil // the queue remembers where
		}
	}
}
