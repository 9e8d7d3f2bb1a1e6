package redistimer

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/timeoutcenter/toc/redistimer/slots"
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
		before, idle, b := s.orphans, !s.owned() || s.foreign || !s.failing.IsZero(), a.group.line.BizType
		t.mu.Unlock()
		if before.IsZero() || idle {
			continue
		}
		n, err := t.recoverSlot(s, before.Add(b.Visibility))
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
func (t *Timer) recoverSlot(s *slotState, until time.Time) (n int, err error) {
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
			got := t.slots.Recover(ctx, []slots.Recovering{{Slot: s.slot, IDs: ids}})[0]
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

// failed notes that a slot has been out of reach since it was asked. The lock is
// held.
func (t *Timer) failed(s *slotState, asked time.Time) {
	if s.failing.IsZero() {
		s.failing = asked
		s.group.failing = true
	}
}

// giveToScan has the scan engine serve a slot until it is in reach again. The lock
// is held.
func (t *Timer) giveToScan(s *slotState) {
	s.out = true
	ring(t.handovers)
	if t.down++; t.down == 1 {
		t.cfg.Logger.Error("Redis is out of reach: tasks of redis-mode biz_types are scanned meanwhile", "error", cmp.Or(s.server.refuses, s.server.err))
	}
}

// reached notes that a slot answers. The lock is held.
func (t *Timer) reached(s *slotState) {
	if s.failing.IsZero() {
		return
	}
	s.failing, s.group.repairs = time.Time{}, true
	s.counted, s.look = time.Time{}, true // claims that were cut off show in their number, now or at the next look
	if s.out {
		s.out = false
		s.lose()
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
			if s := &l.slots[p]; s.owned() && !s.foreign && s.repair == "" {
				s.repair, s.group.repairs = ReasonLost, true
			}
		}
	}
	ring(t.repairs)
}

// missed notes that tasks of a slot were stored and not armed. The lock is held.
func (t *Timer) missed(s *slotState) {
	s.missed = true
	if s.owned() && !s.foreign {
		s.repair, s.group.repairs = ReasonLost, true // once it is in reach
	}
}

// InUse tells whether a business type has this engine.
func (t *Timer) InUse() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.lines) > 0
}

// Degraded says what users should know, "" if all is well.
func (t *Timer) Degraded() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	failing, out, foreign, slots := 0, 0, 0, 0
	for _, l := range t.lines {
		for p := range l.slots {
			s := &l.slots[p]
			if !s.owned() {
				continue
			}
			slots++
			if !s.failing.IsZero() {
				failing++
			}
			if s.out {
				out++
			}
			if s.foreign {
				foreign++
			}
		}
	}
	var said []string
	failed := "redis does not answer for %d of %d slots"
	for _, srv := range t.servers {
		if srv.refuses != nil && len(srv.groups) > 0 {
			said = append(said, fmt.Sprintf("redis refuses writes: %v", srv.refuses))
			failed = "%d of %d slots are out of reach"
			break
		}
	}
	if failing > 0 {
		said = append(said, fmt.Sprintf(failed, failing, slots))
	}
	if out > 0 {
		said = append(said, fmt.Sprintf("the scanner serves %d of them", out))
	}
	if foreign > 0 {
		said = append(said, fmt.Sprintf("another center has %d of %d slots in redis, the scanner serves them: give each center its own redis.prefix", foreign, slots))
	}
	return strings.Join(said, "; ")
}

// repair fills slots from the store: those that lost what they had, and those
// whose horizon has moved on.
func (t *Timer) repair(ctx context.Context) error {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		t.checkMemory(ctx)
		t.tryWrites(ctx)
		unfilled, unmarked := t.broken()
		t.markAll(ctx, unmarked)
		if len(unfilled) > 0 {
			t.fillAll(ctx, unfilled)
		}
		select {
		case <-tick.C:
		case <-t.repairs:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// memoryEvery is how often the servers are asked for their memory.
const memoryEvery = 5 * time.Second

// checkMemory looks, now and then, for servers that may throw away what we keep there, and for full ones.
func (t *Timer) checkMemory(ctx context.Context) {
	t.mu.Lock()
	now := t.cfg.Now()
	due := !now.Before(t.memoryAt) && t.anyAnswered()
	if due {
		t.memoryAt = now.Add(memoryEvery)
	}
	t.mu.Unlock()
	if !due {
		return
	}
	t.background.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, memoryEvery/2)
		defer cancel()
		list, all := t.slots.Memories(ctx)
		evicts, full := "", ""
		for _, m := range list {
			switch {
			case m.Evicts():
				evicts = m.Policy
			case m.IsFull():
				full = fmt.Sprintf("%d bytes of %d", m.Used, m.Max)
			}
		}
		t.mu.Lock()
		didEvict, wasFull := t.evicts != "", t.full != ""
		if !all { // one that does not answer has not changed, as far as is known
			evicts, full = cmp.Or(evicts, t.evicts), cmp.Or(full, t.full)
		}
		t.evicts, t.full = evicts, full
		t.mu.Unlock()
		switch {
		case !didEvict && evicts != "":
			t.cfg.Logger.Warn("Redis may evict slots; set maxmemory-policy to noeviction", "maxmemory_policy", evicts)
		case didEvict && evicts == "":
			t.cfg.Logger.Info("Redis does not evict slots any more")
		}
		switch {
		case !wasFull && full != "":
			t.cfg.Logger.Error("Redis is full: what it does not take is scanned; raise its maxmemory", "used", full)
		case wasFull && full == "":
			t.cfg.Logger.Info("Redis has room again")
		}
	})
}

// Memory tells what is wrong with the memory of a Redis, as far as is known: the maxmemory-policy of one that may
// throw slots away, and how full one is that is full.
func (t *Timer) Memory() (evicts, full string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.evicts, t.full
}

// anyAnswered tells whether Redis was reached. The lock is held.
func (t *Timer) anyAnswered() bool {
	for _, l := range t.lines {
		for p := range l.slots {
			if l.slots[p].answered {
				return true
			}
		}
	}
	return false
}
