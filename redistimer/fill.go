package redistimer

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// filling is one slot to be filled.
type filling struct {
	biz    *BizType // when it was found broken
	slot   *slotState
	reason string
	from   time.Time // the rows up to then are there
	until  time.Time
	missed bool // tasks were not armed since the marker was written
}

// broken lists the slots to fill now.
func (t *Timer) broken() []filling {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.identity == "" {
		return nil // never reached yet
	}
	now := t.cfg.Now()
	var list []filling
	for _, l := range t.lines {
		until := l.coverUntil(now)
		for p := range l.slots {
			s := &l.slots[p]
			if !s.owned() || !s.failing.IsZero() {
				continue
			}
			if s.repair == "" && !s.covered.IsZero() && until.Sub(s.covered) >= l.step() && until.After(s.covered) {
				s.repair = ReasonHorizon
			}
			if s.repair != "" {
				list = append(list, filling{l.BizType, s, s.repair, s.covered, until, s.missed})
				s.repair, s.missed = "", false // who asks again while it is filled is heard
			}
		}
	}
	return list
}

// soon is the part of a lost slot that is filled first, in all slots.
const soon = 30 * time.Second

// fillers is how many slots are filled at the same time.
const fillers = 4

// maxUnread is how many slots of a database in a row may fail to be read before it
// is left alone until the next time: if it hangs, each takes a filler for the whole
// time-out. A single one must not hide the others.
const maxUnread = 3

var errNotRead = errors.New("the database could not be read")

// fillAll fills slots: what is due soon in all of them, then the rest.
func (t *Timer) fillAll(ctx context.Context, list []filling) {
	failed := make([]error, len(list))
	each := func(f func(*filling) error) {
		unread := make([]atomic.Int32, t.cfg.Layout.Databases)
		var wg sync.WaitGroup
		places := make(chan struct{}, fillers)
		for i := range list {
			if failed[i] != nil {
				continue
			}
			places <- struct{}{}
			db := &unread[t.cfg.Layout.PartitionDatabase(list[i].slot.slot.Partition)]
			if db.Load() >= maxUnread {
				failed[i] = errNotRead
				<-places
				continue
			}
			wg.Go(func() {
				failed[i] = f(&list[i])
				if _, ok := errors.AsType[*store.DatabaseError](failed[i]); ok {
					db.Add(1)
				} else {
					db.Store(0)
				}
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
			f.slot.covered, f.slot.repair = time.Time{}, ReasonLost
		case f.slot.repair == "":
			f.slot.repair = f.reason
		}
		if !errors.Is(failed[i], errLostAgain) {
			if unfilled++; why == nil || failed[i] != errNotRead {
				why = failed[i]
			}
		}
	}
	if unfilled > 0 && ctx.Err() == nil {
		t.cfg.Logger.Warn("slots not filled from the store yet", "slots", unfilled, "error", why)
	}
}

// fillSoon fills a lost slot with what is due soon. A slot that still has the
// marker of this Redis, from the process before us, has the rest.
func (t *Timer) fillSoon(ctx context.Context, f *filling, near time.Time) error {
	if f.reason != ReasonLost {
		return nil
	}
	look := t.slots.Claim(ctx, []Claiming{{Slot: f.slot.slot, Visibility: f.biz.Visibility}})[0]
	if look.Err != nil {
		return look.Err
	}
	covered, complete := t.readMarker(look.Marker)
	if complete = complete && !f.missed; !complete {
		if err := t.slots.Mark(ctx, []Slot{f.slot.slot}, markerFilling)[0]; err != nil {
			return err
		}
	}
	until := f.until
	if near.Before(until) {
		until = near
	}
	if err := t.fill(ctx, f, time.Time{}, until); err != nil {
		return err
	}
	f.from = until
	if complete && covered.After(until) {
		f.from = covered
	}
	if f.from.After(f.until) {
		f.from = f.until
	}
	return nil
}

var errLostAgain = errors.New("the slot was lost again while it was filled")

// fillRest fills a slot up to its horizon, and marks it.
func (t *Timer) fillRest(ctx context.Context, f *filling) error {
	if err := t.fill(ctx, f, f.from, f.until); err != nil {
		return err
	}
	t.mu.Lock()
	again, identity := f.slot.repair != "" || !f.slot.owned(), t.identity
	t.mu.Unlock()
	if again {
		return errLostAgain
	}
	switch marked, err := t.slots.Remark(ctx, f.slot.slot, writeMarker(identity, f.until)); {
	case err != nil:
		return err
	case !marked:
		return errLostAgain
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if f.slot.repair == "" {
		f.slot.covered = f.until
	}
	return nil
}

// fill arms the rows of a slot that are due after from, up to until.
func (t *Timer) fill(ctx context.Context, f *filling, from, until time.Time) error {
	if !from.Before(until) {
		return nil
	}
	q := store.Due{Until: until, Only: &f.biz.ID, PerPage: 500}
	if !from.IsZero() {
		q.From = task.Key{ActionTime: from.Add(time.Millisecond)}
	}
	pages := t.cfg.Store.DuePages(f.slot.slot.Partition, q)
	for {
		rows, err := pages.Next(ctx)
		if err != nil || len(rows) == 0 {
			return err
		}
		if err := t.armMissing(ctx, f.biz, f.slot, f.reason, rows); err != nil {
			return err
		}
	}
}

func (t *Timer) armMissing(ctx context.Context, b *BizType, s *slotState, reason string, rows []task.Task) error {
	members := make([]Member, len(rows))
	for i := range rows {
		members[i] = memberOf(&rows[i])
	}
	got := t.slots.ArmMissing(ctx, []Arming{{Slot: s.slot, Members: members}})[0]
	if got.Err != nil {
		return got.Err
	}
	if n := len(members) - got.Known; n > 0 {
		t.cfg.Observer.Rearmed(b.BizType, reason, n)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range members {
		t.sooner(s, m.At)
	}
	return nil
}

// Sweep arms rows of a partition that are overdue, should Redis not know them: the
// safety net under everything else. Rows that this engine does not serve are left
// alone.
func (t *Timer) Sweep(ctx context.Context, partition int, rows []task.Task) {
	type sweeping struct {
		biz  *BizType
		slot *slotState
	}
	bySlot := make(map[sweeping][]task.Task)
	t.mu.Lock()
	for i := range rows {
		l := t.lines[rows[i].BizType]
		if l == nil || l.slots[partition].out {
			continue
		}
		if _, held := l.slots[partition].held[rows[i].JobID]; !held {
			k := sweeping{l.BizType, &l.slots[partition]}
			bySlot[k] = append(bySlot[k], rows[i])
		}
	}
	t.mu.Unlock()
	for k, list := range bySlot {
		if err := t.armMissing(ctx, k.biz, k.slot, ReasonSweep, list); err != nil && ctx.Err() == nil {
			t.cfg.Logger.Warn("overdue tasks not armed; the next sweep tries again", "biz_type", k.biz.Name, "partition", partition, "error", err)
		}
	}
}

// A marker says which servers it was written to, and up to which time the slot is
// complete. A server that was restarted has another identity: its last second may
// be missing.
const markerFilling = "filling"

func writeMarker(identity string, covered time.Time) string {
	return identity + " " + strconv.FormatInt(covered.UnixMilli(), 10)
}

func (t *Timer) readMarker(text string) (covered time.Time, complete bool) {
	identity, ms, ok := strings.Cut(text, " ")
	t.mu.Lock()
	ok = ok && identity == t.identity
	t.mu.Unlock()
	n, err := strconv.ParseInt(ms, 10, 64)
	if !ok || err != nil {
		return time.Time{}, false
	}
	return time.UnixMilli(n).UTC(), true
}
