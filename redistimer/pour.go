package redistimer

import (
	"context"
	"slices"
	"time"

	"github.com/timeoutcenter/toc/internal/wait"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// The rows that are due soon are poured into their slots: each partition is read once in a cycle of four fifths of a tick,
// and what its slots lack is armed. So a row that SQL has inserted or moved fires at its millisecond if it is due more than
// two ticks later: the next scan finds that the partition has such rows, and the next cycle reads them.
const (
	pourCycle = time.Minute            // the longest cycle
	pourStep  = 250 * time.Millisecond // the shortest time between two reads of a database
	pourTypes = 100                    // of more business types, the rows of all types are read: a long list costs more than they
)

// NextDue implements scanner.Timer. A partition in which nothing is due soon is not read.
func (t *Timer) NextDue(partition int, at time.Time, none bool) {
	if none {
		at = forever
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.nextDue[partition] = at
}

// pourAll pours the rows of a database until ctx ends. The reads are spread over the cycle, so that they delay no claim.
func (t *Timer) pourAll(ctx context.Context, database int) error {
	select {
	case <-t.hasTypes:
	case <-ctx.Done():
		return ctx.Err()
	}
	first, end := t.cfg.Layout.DatabasePartitions(database)
	cycle := min(t.cfg.Tick*4/5, pourCycle)
	n := end - first
	step := min(n, int(int64(n)*int64(pourStep)/int64(cycle))+1)
	last := make([]time.Time, n) // when each partition was read, by time.Now
	for i := 0; ; i = (i + 1) % n {
		if i%step == 0 {
			if err := wait.Poll(ctx, cycle*time.Duration(min(step, n-i))/time.Duration(n)); err != nil {
				return err
			}
		}
		// A slow database is read in longer cycles, so the reads look further ahead.
		gap := cycle
		if !last[i].IsZero() {
			gap = max(gap, min(time.Since(last[i]), 4*cycle))
		}
		last[i] = time.Now()
		t.pour(ctx, first+i, gap*3/2+time.Second)
	}
}

// pour arms what the slots of a partition lack of the rows that are due within a window.
func (t *Timer) pour(ctx context.Context, p int, window time.Duration) {
	// Tasks that are due or written just now are being claimed or armed elsewhere.
	justNow := min(time.Second, t.cfg.Tick/10)
	now := t.cfg.Now()
	q := store.Due{Narrow: true, From: task.Key{ActionTime: now.Add(justNow)}, Until: now.Add(window), PerPage: 1000}
	t.mu.Lock()
	for id, bt := range t.bizTimers {
		if s := &bt.slots[p]; s.isOwned() && !t.cfg.Queue.IsPaused(id) {
			q.Only = append(q.Only, id)
		}
	}
	isNear := !t.nextDue[p].After(q.Until)
	t.mu.Unlock()
	if len(q.Only) == 0 || !isNear || !t.cfg.Store.Readable(t.cfg.Layout.PartitionDatabase(p)) {
		return
	}
	if slices.Sort(q.Only); len(q.Only) > pourTypes { // sorted, the statement is always the same
		q.Only = nil
	}
	pages := t.cfg.Store.DuePages(p, q)
	for {
		page, err := pages.Next(ctx)
		if err != nil || len(page) == 0 {
			return // the next scan logs what is wrong
		}
		list := page[:0]
		for i := range page {
			if age := now.Sub(page[i].Modified); age >= justNow || age < -justNow {
				list = append(list, page[i])
			}
		}
		t.Sweep(ctx, p, list)
	}
}

// Sweep arms rows of a partition that Redis does not know, or has at a later time than SQL gave them. Rows that this engine
// does not serve are ignored.
func (t *Timer) Sweep(ctx context.Context, partition int, rows []task.Task) {
	byType := make(map[uint64]target)
	var list []task.Task
	now := t.cfg.Now()
	t.mu.Lock()
	for i := range rows {
		bt := t.bizTimers[rows[i].BizType]
		if bt == nil || !bt.slots[partition].isServed() || !bt.slots[partition].unreachableSince.IsZero() ||
			rows[i].ActionTime.After(bt.armUntil(now)) {
			continue // the slot is filled later, or scanned
		}
		if _, held := bt.slots[partition].inflight[rows[i].JobID]; !held {
			byType[bt.ID] = target{biz: bt.BizType, slot: &bt.slots[partition]}
			list = append(list, rows[i])
		}
	}
	t.mu.Unlock()
	if len(list) == 0 {
		return
	}
	if _, err := t.armRows(ctx, ReasonSweep, list, byType); err != nil && ctx.Err() == nil {
		t.cfg.Logger.Warn("tasks not armed; the next read tries again", "partition", partition, "error", err)
	}
}
