package redistimer

import (
	"context"
	"slices"
	"time"

	"github.com/timeoutcenter/toc/internal/wait"
	"github.com/timeoutcenter/toc/redistimer/slots"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// Slots are compared with the rows of the store in turn: each partition within CompareEvery, and one with differences
// again after compareAgain. Tasks come and go meanwhile, so a difference counts if a second look agrees on it. Then it
// is repaired, too.
const (
	compareAgain = time.Minute
	compareFrom  = 5 * time.Second // tasks that are due sooner are about to be claimed
	secondLook   = 3 * time.Second // after the first
	maxCompared  = 10_000          // rows of a partition, the earliest; the same of each slot
)

// Differences is the number of tasks in which slots and rows differ.
type Differences struct {
	Missing int // pending tasks that their slot does not have
	Ghost   int // tasks in a slot that are not pending
}

// Differences returns what the last comparison of this node's slots of a business type has found.
func (t *Timer) Differences(bizType uint64) (sum Differences) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if bt := t.bizTimers[bizType]; bt != nil {
		for p := range bt.slots {
			sum.Missing += bt.slots[p].differs.Missing
			sum.Ghost += bt.slots[p].differs.Ghost
		}
	}
	return sum
}

// compareAll compares slots with rows until ctx ends.
func (t *Timer) compareAll(ctx context.Context) error {
	again := make(map[int]time.Time) // by partition with differences: when it was compared
	for next := 0; ; {
		if err := wait.For(ctx, t.cfg.CompareEvery/time.Duration(t.cfg.Layout.Partitions)); err != nil {
			return err
		}
		p := next
		for q, at := range again {
			if t.cfg.Now().Sub(at) >= compareAgain {
				p = q
			}
		}
		if p == next {
			next = (next + 1) % t.cfg.Layout.Partitions
		}
		delete(again, p)
		if t.cfg.Ownership.Owns(p) && t.compare(ctx, p) {
			again[p] = t.cfg.Now()
		}
	}
}

// comparison is the tasks of a partition within a time.
type comparison struct {
	from, until time.Time
	targets     []target
	list        []slots.Slot
}

// compare compares the slots of a partition with its rows, and reports whether they differ.
func (t *Timer) compare(ctx context.Context, p int) (differ bool) {
	c := t.newComparison(p)
	if len(c.targets) == 0 || !c.from.Before(c.until) {
		return false
	}
	rows, err := t.pendingRows(ctx, p, &c)
	if err != nil {
		return false // whoever needs the database tells
	}
	members, err := t.slots.Between(ctx, c.list, c.from, c.until, maxCompared)
	if err != nil {
		return false
	}
	suspects := make([][]uint64, len(c.targets)) // by target
	count := 0
	for i, to := range c.targets {
		suspects[i] = differing(rows[to.biz.ID], members[i])
		count += len(suspects[i])
	}
	if count > 0 && wait.For(ctx, secondLook) != nil {
		return false
	}
	for i, to := range c.targets {
		found := Differences{}
		if len(suspects[i]) > 0 {
			if found, err = t.lookAgain(ctx, &c, i, suspects[i]); err != nil {
				return false
			}
		}
		differ = differ || found != Differences{}
		t.mu.Lock()
		if to.slot.isOwned() {
			to.slot.differs = found
		}
		t.mu.Unlock()
	}
	return differ
}

// newComparison lists the slots of a partition that can be compared, and up to when they are complete.
func (t *Timer) newComparison(p int) (c comparison) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.from = t.cfg.Now().Add(compareFrom)
	for _, bt := range t.bizTimers {
		s := &bt.slots[p]
		if !s.isOwned() || !s.isServed() || !s.unreachableSince.IsZero() || s.covered.IsZero() || s.repairReason != "" {
			continue
		}
		if until := s.covered.Add(-secondLook); c.until.IsZero() || until.Before(c.until) {
			c.until = until
		}
		c.targets, c.list = append(c.targets, target{bt.BizType, s}), append(c.list, s.slot)
	}
	return c
}

// pendingRows reads the ids of the pending rows, by business type. It shortens the comparison if there are too many.
func (t *Timer) pendingRows(ctx context.Context, p int, c *comparison) (map[uint64][]uint64, error) {
	q := store.Due{From: task.Key{ActionTime: c.from}, Until: c.until.Add(-time.Millisecond), PerPage: 500}
	for _, to := range c.targets {
		q.Only = append(q.Only, to.biz.ID)
	}
	pages := t.cfg.Store.DuePages(p, q)
	var rows []task.Task
	for {
		page, err := pages.Next(ctx)
		if err != nil {
			return nil, err
		}
		rows = append(rows, page...)
		from, more := pages.Rest()
		if !more || len(page) == 0 {
			break
		}
		if len(rows) >= maxCompared {
			c.until = from.ActionTime
			break
		}
	}
	byType := make(map[uint64][]uint64)
	for i := range rows {
		if rows[i].ActionTime.Before(c.until) {
			byType[rows[i].BizType] = append(byType[rows[i].BizType], rows[i].JobID)
		}
	}
	return byType, nil
}

// differing returns the ids that are in one of two lists only.
func differing(rows, members []uint64) (ids []uint64) {
	slices.Sort(rows)
	slices.Sort(members)
	for len(rows) > 0 || len(members) > 0 {
		switch {
		case len(members) == 0 || len(rows) > 0 && rows[0] < members[0]:
			ids, rows = append(ids, rows[0]), rows[1:]
		case len(rows) == 0 || members[0] < rows[0]:
			ids, members = append(ids, members[0]), members[1:]
		default:
			rows, members = rows[1:], members[1:]
		}
	}
	return ids
}

// lookAgain counts and repairs what still differs.
func (t *Timer) lookAgain(ctx context.Context, c *comparison, i int, suspects []uint64) (found Differences, err error) {
	to := c.targets[i]
	loaded, err := t.cfg.Store.Load(ctx, suspects)
	if err != nil {
		return found, err
	}
	now, err := t.slots.Between(ctx, c.list[i:i+1], c.from, c.until, 2*maxCompared)
	if err != nil {
		return found, err
	}
	rows := make(map[uint64]task.Task, len(loaded))
	for _, row := range loaded {
		rows[row.JobID] = row
	}
	var missing []task.Task
	var ghosts []uint64
	t.mu.Lock()
	for _, id := range suspects {
		row, there := rows[id]
		pending := there && isPending(&row, to.biz)
		_, claimed := to.slot.inflight[id]
		switch member := slices.Contains(now[0], id); {
		case pending && !member && !claimed && !row.ActionTime.Before(c.from) && row.ActionTime.Before(c.until):
			missing = append(missing, row)
		case member && !pending:
			ghosts = append(ghosts, id)
		}
	}
	t.mu.Unlock()
	found = Differences{len(missing), len(ghosts)}
	if found == (Differences{}) {
		return found, nil
	}
	t.cfg.Logger.Warn("a slot in Redis differs from the store; repaired", "biz_type", to.biz.Name, "partition", to.slot.slot.Partition,
		"missing", found.Missing, "ghosts", found.Ghost)
	if len(missing) > 0 {
		_, err = t.armRows(ctx, t.slots.ArmNew, ReasonLost, missing, map[uint64]target{to.biz.ID: to})
	}
	var rowless []uint64
	for _, id := range ghosts {
		if _, there := rows[id]; there {
			t.removals.Add(id) // it may be pending again by now
		} else {
			rowless = append(rowless, id)
		}
	}
	if len(rowless) > 0 && err == nil {
		err = t.slots.Settle(ctx, []slots.SettleRequest{{Slot: c.list[i], Done: rowless}})[0]
	}
	if err != nil && ctx.Err() == nil {
		t.cfg.Logger.Warn("differences not repaired; the next comparison tries again", "biz_type", to.biz.Name, "error", err)
	}
	return found, nil
}
