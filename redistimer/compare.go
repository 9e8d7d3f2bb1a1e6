package redistimer

import (
	"context"
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
	Missing int // pending tasks that their slot does not have, or only at a later time
	Ghost   int // tasks in a slot that are not pending, or only at a later time
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
	again := make(map[int]time.Time) // by partition that differs, or could not be compared: the last try
	compare := func(p int) {
		delete(again, p)
		if !t.cfg.Ownership.Owns(p) {
			return
		}
		if err := t.compare(ctx, p); err != nil || t.differs(p) {
			again[p] = t.cfg.Now()
		}
	}
	for next := 0; ; next = (next + 1) % t.cfg.Layout.Partitions {
		if err := wait.For(ctx, t.cfg.CompareEvery/time.Duration(t.cfg.Layout.Partitions)); err != nil {
			return err
		}
		oldest, at := next, t.cfg.Now().Add(-compareAgain)
		for p, tried := range again {
			if tried.Before(at) {
				oldest, at = p, tried
			}
		}
		if compare(next); oldest != next {
			compare(oldest)
		}
	}
}

// differs reports whether a slot of a partition has differed from its rows when they were last compared.
func (t *Timer) differs(p int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, bt := range t.bizTimers {
		if s := &bt.slots[p]; s.isOwned() && s.differs != (Differences{}) {
			return true
		}
	}
	return false
}

// compared is a slot within a time: from then on until it is known to be complete.
type compared struct {
	target
	from, until time.Time
	rows        map[uint64]time.Time // action_time of pending rows by job_id
	members     map[uint64]time.Time // time of the slot's members by job_id
}

// compare compares the slots of a partition with its rows, and repairs them. An error means that some were not compared.
func (t *Timer) compare(ctx context.Context, p int) error {
	list := t.comparable(p)
	if len(list) == 0 {
		return nil
	}
	if err := t.pendingRows(ctx, p, list); err != nil {
		return err
	}
	if err := t.slotMembers(ctx, list); err != nil {
		return err
	}
	suspects, count := make([][]uint64, len(list)), 0
	for i := range list {
		suspects[i] = list[i].differing()
		count += len(suspects[i])
	}
	if count > 0 {
		if err := wait.For(ctx, secondLook); err != nil {
			return err
		}
	}
	var failed error
	for i := range list {
		c := &list[i]
		found := Differences{}
		if len(suspects[i]) > 0 {
			var err error
			if found, err = t.recheckRow(ctx, c, suspects[i]); err != nil {
				failed = err
				continue
			}
		}
		t.mu.Lock()
		if c.slot.isOwned() {
			c.slot.differs = found
		}
		t.mu.Unlock()
	}
	return failed
}

// comparable lists the slots of a partition that can be compared.
func (t *Timer) comparable(p int) (list []compared) {
	t.mu.Lock()
	defer t.mu.Unlock()
	from := t.cfg.Now().Add(compareFrom)
	for _, bt := range t.bizTimers {
		s := &bt.slots[p]
		if !s.isOwned() || !s.isServed() || !s.unreachableSince.IsZero() || s.covered.IsZero() || s.repairReason != "" {
			continue
		}
		if until := s.covered.Add(-secondLook); from.Before(until) {
			list = append(list, compared{target: target{biz: bt.BizType, slot: s}, from: from, until: until,
				rows: map[uint64]time.Time{}, members: map[uint64]time.Time{}})
		}
	}
	return list
}

// pendingRows reads the pending rows. If there are too many, only the earliest are compared.
func (t *Timer) pendingRows(ctx context.Context, p int, list []compared) error {
	q := store.Due{From: task.Key{ActionTime: list[0].from}, PerPage: 500}
	byType := make(map[uint64]*compared, len(list))
	for i := range list {
		c := &list[i]
		q.Only = append(q.Only, c.biz.ID)
		byType[c.biz.ID] = c
		if until := c.until.Add(-time.Millisecond); until.After(q.Until) {
			q.Until = until
		}
	}
	pages := t.cfg.Store.DuePages(p, q)
	for n := 0; ; {
		page, err := pages.Next(ctx)
		if err != nil {
			return err
		}
		for i := range page {
			if c := byType[page[i].BizType]; c != nil {
				c.rows[page[i].JobID] = page[i].ActionTime
			}
		}
		rest, more := pages.Rest()
		if !more || len(page) == 0 {
			return nil
		}
		if n += len(page); n >= maxCompared {
			for i := range list {
				list[i].end(rest.ActionTime)
			}
			return nil
		}
	}
}

// slotMembers reads the members of the slots. Of a slot with too many only the earliest are compared.
func (t *Timer) slotMembers(ctx context.Context, list []compared) error {
	spans := make([]slots.Span, len(list))
	for i := range list {
		spans[i] = slots.Span{Slot: list[i].slot.slot, From: list[i].from, Until: list[i].until}
	}
	members, err := t.slots.Between(ctx, spans, maxCompared)
	if err != nil {
		return err
	}
	for i := range list {
		for _, m := range members[i] {
			list[i].members[m.JobID] = m.At
		}
		if n := len(members[i]); n == maxCompared {
			list[i].end(members[i][n-1].At)
		}
	}
	return nil
}

// end makes the time that is compared end earlier.
func (c *compared) end(at time.Time) {
	if at.Before(c.until) {
		c.until = at
	}
}

// differing returns the tasks whose row and slot have different times.
func (c *compared) differing() (ids []uint64) {
	for id, at := range c.rows {
		if at.Before(c.until) && !c.members[id].Equal(at) {
			ids = append(ids, id)
		}
	}
	for id, at := range c.members {
		if row, there := c.rows[id]; at.Before(c.until) && (!there || !row.Before(c.until)) {
			ids = append(ids, id)
		}
	}
	return ids
}

// recheckRow counts and repairs what still differs. Both looks agree if the row is as it was and its slot is still wrong, or
// the other way round.
func (t *Timer) recheckRow(ctx context.Context, c *compared, suspects []uint64) (found Differences, err error) {
	loaded, err := t.cfg.Store.Load(ctx, suspects)
	if err != nil {
		return found, err
	}
	members, err := t.slots.Times(ctx, c.slot.slot, suspects)
	if err != nil {
		return found, err
	}
	rows := make(map[uint64]task.Task, len(loaded))
	for _, row := range loaded {
		rows[row.JobID] = row
	}
	var missing []task.Task
	var elsewhere []uint64 // in the slot at another time than their row's
	var foreign []uint64   // in the slot without a row of its business type
	t.mu.Lock()
	for _, id := range suspects {
		row, member := rows[id], members[id]
		var due time.Time
		if isPending(&row, c.biz) {
			due = row.ActionTime
		}
		_, claimed := c.slot.inflight[id]
		asItWas := !due.IsZero() && due.Equal(c.rows[id]) || !member.IsZero() && member.Equal(c.members[id])
		if !asItWas || claimed || due.Equal(member) {
			continue
		}
		switch {
		case member.IsZero():
			missing = append(missing, row)
		case row.BizType != c.biz.ID:
			foreign = append(foreign, id)
		default:
			elsewhere = append(elsewhere, id)
		}
		if !due.IsZero() && (member.IsZero() || due.Before(member)) {
			found.Missing++ // at its time
		} else {
			found.Ghost++
		}
	}
	t.mu.Unlock()
	if found == (Differences{}) {
		return found, nil
	}
	t.cfg.Logger.Warn("a slot in Redis differs from the store; repaired", "biz_type", c.biz.Name, "partition", c.slot.slot.Partition,
		"missing", found.Missing, "ghosts", found.Ghost)
	if len(missing) > 0 {
		_, err = t.armRows(ctx, ReasonLost, missing, map[uint64]target{c.biz.ID: c.target})
	}
	for _, id := range elsewhere {
		t.removals.Add(removal{jobID: id}) // or it is given the row's time
	}
	if len(foreign) > 0 && err == nil {
		err = t.slots.Settle(ctx, []slots.SettleRequest{{Slot: c.slot.slot, Done: foreign}})[0]
	}
	if err != nil && ctx.Err() == nil {
		t.cfg.Logger.Warn("differences not repaired; the next comparison tries again", "biz_type", c.biz.Name, "error", err)
	}
	return found, nil
}
