package redistimer

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// watch takes partitions over, and gives them up, as ownership changes.
func (t *Timer) watch(ctx context.Context) error {
	changes := t.cfg.Ownership.Watch()
	for {
		t.takeOver()
		select {
		case <-changes:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// orphaned notes that claims made until now and not held by us are nobody's. The
// lock is held.
func (t *Timer) orphaned(s *slotState) { s.orphans = t.cfg.Now() }

// recover rolls back the claims of slots that are nobody's: of a process that
// died, or whose settling was lost. It runs between two rounds, when no claim is
// on its way to us. The first failure ends it: if Redis is silent, the next round
// must notice soon; the other slots are orphaned still.
func (t *Timer) recover(asks []asked) {
	var found map[*BizType]int
	for _, a := range asks {
		s := a.slot
		t.mu.Lock()
		before, idle, b := s.orphans, !s.owned() || !s.failing.IsZero(), a.line.BizType
		t.mu.Unlock()
		if before.IsZero() || idle {
			continue
		}
		n, err := t.recoverSlot(b, s, before.Add(b.Visibility))
		t.mu.Lock()
		if err == nil && s.orphans.Equal(before) {
			s.orphans = time.Time{}
		}
		t.mu.Unlock()
		if n > 0 {
			if found == nil {
				found = make(map[*BizType]int)
			}
			found[b] += n
		}
		if err != nil {
			break
		}
	}
	for b, n := range found {
		t.cfg.Observer.ClaimsExpired(b.BizType, n)
		t.cfg.Logger.Info("claims that nobody settled were rolled back", "biz_type", b.Name, "tasks", n)
	}
}

// recoverPage is how many claims are looked at, at a time.
const recoverPage = 500

// recoverSlot rolls back claims that expire before a time and are not held.
func (t *Timer) recoverSlot(b *BizType, s *slotState, until time.Time) (n int, err error) {
	ctx := context.Background()
	for skip := 0; ; {
		page, err := t.slots.Prepared(ctx, s.slot, skip, recoverPage)
		if err != nil {
			return n, err
		}
		var ids []uint64
		over := len(page) < recoverPage
		t.mu.Lock()
		for _, m := range page {
			if m.At.After(until.Add(-s.skew)) {
				over = true
				break
			}
			if _, held := s.held[m.JobID]; held {
				skip++
			} else {
				ids = append(ids, m.JobID)
			}
		}
		t.mu.Unlock()
		if len(ids) > 0 {
			got := t.slots.Recover(ctx, []Recovering{{
				Slot: s.slot, IDs: ids, Limit: len(ids), SpreadMin: b.BackoffMin, SpreadMax: b.BackoffMax,
			}})[0]
			if got.Err != nil {
				return n, got.Err
			}
			n += len(got.Members)
			t.mu.Lock()
			for _, m := range got.Members {
				t.sooner(s, m.At)
			}
			t.mu.Unlock()
		}
		if over {
			return n, nil
		}
	}
}

// failed notes that a slot has been out of reach since it was asked, and tells
// whether the scan engine is to serve it from now on. The lock is held.
func (t *Timer) failed(s *slotState, asked, now time.Time, err error) (handover bool) {
	if s.failing.IsZero() {
		s.failing = asked
		t.lookAtAll()
	}
	if s.out || now.Sub(s.failing) < t.cfg.OutageAfter {
		return false
	}
	s.out = true
	if t.down++; t.down == 1 {
		t.cfg.Logger.Error("Redis is out of reach: tasks of redis-mode biz_types are scanned meanwhile", "error", err)
	}
	return true
}

// lookAtAll has the slots looked at soon that seemed well until now. The lock is held.
func (t *Timer) lookAtAll() {
	for _, l := range t.lines {
		for p := range l.slots {
			if s := &l.slots[p]; s.failing.IsZero() {
				s.seen = time.Time{}
			}
		}
	}
}

// reached notes that a slot answers. The lock is held.
func (t *Timer) reached(s *slotState) {
	if s.failing.IsZero() {
		return
	}
	s.failing = time.Time{}
	t.orphaned(s)
	if s.out {
		s.out = false
		s.covered, s.repair = time.Time{}, ReasonLost
		ring(t.repairs)
		if t.down--; t.down == 0 {
			t.cfg.Logger.Info("Redis is back: its tasks are armed again from the store")
		}
	}
}

// Recheck arms what is due soon and Redis lacks, in all slots: another node died,
// and what it had stored last it may not have armed.
func (t *Timer) Recheck() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.lines {
		for p := range l.slots {
			if s := &l.slots[p]; s.owned() && s.repair == "" {
				s.repair = ReasonLost
			}
		}
	}
	ring(t.repairs)
}

// missed notes that tasks of a slot were stored and not armed. The lock is held.
func (t *Timer) missed(s *slotState) {
	s.missed = true
	if s.owned() {
		s.repair = ReasonLost // once it is in reach
	}
}

// Degraded says what users should know, "" if all is well.
func (t *Timer) Degraded() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	failing, out, slots := 0, 0, 0
	for _, l := range t.lines {
		for p := range l.slots {
			if s := &l.slots[p]; s.owned() {
				slots++
				if !s.failing.IsZero() {
					failing++
				}
				if s.out {
					out++
				}
			}
		}
	}
	switch {
	case failing == 0:
		return ""
	case out == 0:
		return fmt.Sprintf("redis does not answer for %d of %d slots", failing, slots)
	default:
		return fmt.Sprintf("redis does not answer for %d of %d slots; the scanner serves %d of them", failing, slots, out)
	}
}

// repair fills slots from the store: those that lost what they had, and those
// whose horizon has moved on.
func (t *Timer) repair(ctx context.Context) error {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		t.checkIdentity(ctx)
		if slots := t.broken(); len(slots) > 0 {
			t.fillAll(ctx, slots)
		}
		select {
		case <-tick.C:
		case <-t.repairs:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// checkIdentity finds out that a server was restarted or replaced: what it had
// written last may be lost, although its slots have their markers.
func (t *Timer) checkIdentity(ctx context.Context) {
	t.mu.Lock()
	idle, at := len(t.lines) == 0, t.identified
	t.mu.Unlock()
	if idle || t.cfg.Now().Sub(at) < retry {
		return
	}
	id, err := t.slots.Identity(ctx)
	if err != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.identified = t.cfg.Now()
	if t.identity != "" && t.identity != id {
		t.cfg.Logger.Warn("Redis was restarted or replaced: its slots are armed again from the store")
		for _, l := range t.lines {
			t.lost(l)
		}
	}
	t.identity = id
}

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
