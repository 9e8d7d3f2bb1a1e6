package redistimer

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/timeoutcenter/toc/redistimer/slots"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// filling is one slot to be filled.
type filling struct {
	biz    *BizType // when it was found to lack something
	slot   *slotState
	reason string
	from   time.Time // the rows up to then are there
	until  time.Time
	missed bool // tasks were not armed since the marker was written
	check  bool // only the head that vanished is looked for, in from and until
}

const (
	// maxChecks is how many vanished heads are looked for at a time: most were cancelled.
	maxChecks = 4
	// clockSlack is how far clocks of nodes may differ without a word.
	clockSlack = time.Second
)

// broken lists the slots to fill now.
func (t *Timer) broken() []filling {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.cfg.Now()
	var list []filling
	checks := 0
	for _, l := range t.lines {
		until := l.coverUntil(now)
		for p := range l.slots {
			s := &l.slots[p]
			if !s.owned() || !s.answered || s.foreign || !s.failing.IsZero() {
				continue
			}
			t.clamp(s, until)
			if s.repair == "" && !s.covered.IsZero() && until.Sub(s.covered) >= l.step() && until.After(s.covered) {
				s.repair = ReasonHorizon
			}
			switch {
			case s.repair != "":
				list = append(list, filling{l.BizType, s, s.repair, s.covered, until, s.missed, false})
				s.repair, s.missed, s.vanished = "", false, time.Time{} // who asks again while it is filled is heard
			case !s.vanished.IsZero() && checks < maxChecks:
				checks++
				list = append(list, filling{l.BizType, s, ReasonLost, s.vanished.Add(-time.Millisecond), s.vanished, false, true})
				s.vanished = time.Time{}
			}
		}
	}
	return list
}

// clamp forgets what was covered beyond the horizon: the clock was ahead, here or on the
// node before us, and nothing would be filled until it gets there again. The lock is held.
func (t *Timer) clamp(s *slotState, until time.Time) {
	ahead := s.covered.Sub(until)
	if ahead <= 0 {
		return
	}
	s.covered = until
	if ahead > clockSlack && !t.clockTold {
		t.clockTold = true
		t.cfg.Logger.Warn("the clock was ahead, here or on another node; check its time service", "ahead", ahead.Round(time.Millisecond))
	}
}

// soon is the part of a lost slot that is filled first, in all slots.
const soon = 30 * time.Second

// unfilledEvery is how often it is told that slots cannot be filled.
const unfilledEvery = 10 * time.Second

// fillers is how many slots are filled at the same time.
const fillers = 4

var (
	errNotRead    = errors.New("the database could not be read")
	errNotReached = errors.New("redis does not answer")
)

// fillAll fills slots: what is due soon in all of them, then the rest.
func (t *Timer) fillAll(ctx context.Context, list []filling) {
	failed := make([]error, len(list))
	isFailing := func(s *slotState) bool {
		t.mu.Lock()
		defer t.mu.Unlock()
		return !s.failing.IsZero()
	}
	each := func(f func(*filling) error) {
		var wg sync.WaitGroup
		places := make(chan struct{}, fillers)
		for i := range list {
			if failed[i] != nil {
				continue
			}
			if isFailing(list[i].slot) {
				failed[i] = errNotReached
				continue
			}
			places <- struct{}{}
			if !t.cfg.Store.Readable(t.cfg.Layout.PartitionDatabase(list[i].slot.slot.Partition)) { // if it hangs, each would take a filler for the whole time-out
				failed[i] = errNotRead
				<-places
				continue
			}
			wg.Go(func() {
				failed[i] = f(&list[i])
				<-places
			})
		}
		wg.Wait()
	}
	near := t.cfg.Now().Add(soon)
	each(func(f *filling) error { return t.fillSoon(ctx, f, near) })
	each(func(f *filling) error { return t.fillRest(ctx, f) })

	t.mu.Lock()
	defer t.mu.Unlock()
	unfilled, why := 0, error(nil)
	for i, f := range list {
		if failed[i] == nil {
			continue
		}
		f.slot.missed = f.slot.missed || f.missed
		switch {
		case errors.Is(failed[i], errLostAgain):
			f.slot.lose()
		case f.slot.repair == "":
			f.slot.repair = f.reason
		}
		if !errors.Is(failed[i], errLostAgain) {
			if unfilled++; why == nil || failed[i] != errNotRead {
				why = failed[i]
			}
		}
	}
	if now := t.cfg.Now(); unfilled > 0 && ctx.Err() == nil && now.Sub(t.unfilled) >= unfilledEvery {
		t.unfilled = now
		t.cfg.Logger.Warn("slots not filled from the store yet", "slots", unfilled, "error", why)
	}
}

// fillSoon fills a lost slot with what is due soon. A slot that still is as we left it,
// or that its owner has just handed over, has the rest.
func (t *Timer) fillSoon(ctx context.Context, f *filling, near time.Time) error {
	if f.reason != ReasonLost || f.check {
		return nil
	}
	text, err := t.slots.Marker(ctx, f.slot.slot)
	if err != nil {
		return err
	}
	m, complete := t.believes(f.slot, text)
	switch complete = complete && !f.missed; {
	case !complete:
		err = t.mark(ctx, f.slot, "", t.marker(stateFilling, time.Time{}))
	case m.state == stateHanded:
		err = t.mark(ctx, f.slot, text, t.marker(stateServing, m.covered))
	}
	if err != nil {
		return err
	}
	until := f.until
	if near.Before(until) {
		until = near
	}
	if _, err := t.fill(ctx, f, time.Time{}, until); err != nil {
		return err
	}
	f.from = until
	if complete && m.covered.After(until) {
		f.from = m.covered
	}
	if f.from.After(f.until) {
		f.from = f.until
	}
	return nil
}

var errLostAgain = errors.New("the slot was lost again while it was filled")

// fillRest fills a slot up to its horizon, and marks it.
func (t *Timer) fillRest(ctx context.Context, f *filling) error {
	if f.check {
		return t.checkHead(ctx, f)
	}
	if _, err := t.fill(ctx, f, f.from, f.until); err != nil {
		return err
	}
	t.mu.Lock()
	again, over := f.slot.repair != "" || !f.slot.owned() || f.slot.marker == "", f.slot.marker
	t.mu.Unlock()
	if again {
		return errLostAgain
	}
	if err := t.mark(ctx, f.slot, over, t.marker(stateServing, f.until)); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if f.slot.repair == "" {
		f.slot.covered = f.until
	}
	return nil
}

// checkHead looks for the task that was at the head of a slot and vanished. If it is
// pending still, and was not in the slot, Redis has lost the queue: it was evicted, say.
func (t *Timer) checkHead(ctx context.Context, f *filling) error {
	n, err := t.fill(ctx, f, f.from, f.until)
	if err != nil || n == 0 {
		return err
	}
	t.cfg.Logger.Warn("Redis lost a slot's tasks (evicted, or removed by hand); they are armed again from the store",
		"biz_type", f.biz.Name, "partition", f.slot.slot.Partition)
	return errLostAgain
}

// fill arms the rows of a slot that are due after from, up to until, and counts those
// that were not there.
func (t *Timer) fill(ctx context.Context, f *filling, from, until time.Time) (n int, err error) {
	if !from.Before(until) {
		return 0, nil
	}
	q := store.Due{Until: until, Only: &f.biz.ID, PerPage: 500}
	if !from.IsZero() {
		q.From = task.Key{ActionTime: from.Add(time.Millisecond)}
	}
	pages := t.cfg.Store.DuePages(f.slot.slot.Partition, q)
	for {
		rows, err := pages.Next(ctx)
		if err != nil || len(rows) == 0 {
			return n, err
		}
		added, err := t.armRows(ctx, t.slots.ArmNew, f.biz, f.slot, f.reason, rows)
		if n += added; err != nil {
			return n, err
		}
	}
}

// armRows arms rows of a slot, and counts those that were not there.
func (t *Timer) armRows(ctx context.Context, arm func(context.Context, []slots.Arming) []slots.Armed, b *BizType, s *slotState, reason string, rows []task.Task) (n int, err error) {
	members := make([]slots.Member, len(rows))
	for i := range rows {
		members[i] = memberOf(&rows[i])
	}
	got := arm(ctx, []slots.Arming{{Slot: s.slot, Members: members}})[0]
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wrote(s.server, got.Err)
	if got.Err != nil {
		return 0, got.Err
	}
	if n = len(members) - got.Known; n > 0 {
		t.cfg.Observer.Rearmed(b.BizType, reason, n)
	}
	for _, m := range members {
		t.sooner(s, m.At)
	}
	return n, nil
}

// Sweep arms rows of a partition that are overdue: the safety net under everything
// else. Redis may not know them, or may have them at a later time than a hand has given
// the row. Rows that this engine does not serve are left alone.
func (t *Timer) Sweep(ctx context.Context, partition int, rows []task.Task) {
	type sweeping struct {
		biz  *BizType
		slot *slotState
	}
	bySlot := make(map[sweeping][]task.Task)
	t.mu.Lock()
	for i := range rows {
		l := t.lines[rows[i].BizType]
		if l == nil || !l.slots[partition].served() || !l.slots[partition].failing.IsZero() {
			continue // it is filled, or scanned
		}
		if _, held := l.slots[partition].held[rows[i].JobID]; !held {
			k := sweeping{l.BizType, &l.slots[partition]}
			bySlot[k] = append(bySlot[k], rows[i])
		}
	}
	t.mu.Unlock()
	for k, list := range bySlot {
		if _, err := t.armRows(ctx, t.slots.Arm, k.biz, k.slot, ReasonSweep, list); err != nil && ctx.Err() == nil {
			t.cfg.Logger.Warn("overdue tasks not armed; the next sweep tries again", "biz_type", k.biz.Name, "partition", partition, "error", err)
		}
	}
}
