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
func (t *Timer) markOrphans(s *slotState) { s.orphansBefore = t.cfg.Now() }

// recover rolls back the claims of slots that are nobody's: of a process that
// died, or whose settling was lost. It runs between two rounds, when no claim is
// on its way to us. The first failure ends it: if Redis is silent, the next round
// must notice soon; the other slots are orphaned still.
func (t *Timer) recover(asks []polledSlot) {
	var found map[*BizType]int
	for _, a := range asks {
		s := a.slot
		t.mu.Lock()
		before, idle, b := s.orphansBefore, !s.isOwned() || s.foreign || !s.unreachableSince.IsZero(), a.group.line.BizType
		t.mu.Unlock()
		if before.IsZero() || idle {
			continue
		}
		n, err := t.recoverSlot(s, before.Add(b.Visibility))
		t.mu.Lock()
		if err == nil && s.orphansBefore.Equal(before) {
			s.orphansBefore = time.Time{}
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
			if _, held := s.inflight[m.JobID]; held {
				skip++
			} else {
				ids = append(ids, m.JobID)
			}
		}
		t.mu.Unlock()
		if len(ids) > 0 {
			got := t.slots.Recover(ctx, []slots.RecoverRequest{{Slot: s.slot, IDs: ids}})[0]
			if got.Err != nil {
				return n, got.Err
			}
			n += len(got.Members)
			t.mu.Lock()
			for _, m := range got.Members {
				t.advanceHead(s, m.At)
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
func (t *Timer) recordUnreachable(s *slotState, asked time.Time) {
	if s.unreachableSince.IsZero() {
		s.unreachableSince = asked
		s.group.hasUnreachable = true
	}
}

// giveToScan has the scan engine serve a slot until it is in reach again. The lock
// is held.
func (t *Timer) startFallback(s *slotState) {
	s.fallback = true
	signal(t.fallbacks)
	if t.fallbackSlots++; t.fallbackSlots == 1 {
		t.cfg.Logger.Error("Redis is out of reach: tasks of redis-mode biz_types are scanned meanwhile", "error", cmp.Or(s.server.writeErr, s.server.lastErr))
	}
}

// reached notes that a slot answers. The lock is held.
func (t *Timer) recordReachable(s *slotState) {
	if s.unreachableSince.IsZero() {
		return
	}
	s.unreachableSince, s.group.needsRepair = time.Time{}, true
	s.lastOrphanCount, s.pollNow = time.Time{}, true // claims that were cut off show in their number, now or at the next look
	if s.fallback {
		s.fallback = false
		s.markLost()
		signal(t.repairNeeded)
		if t.fallbackSlots--; t.fallbackSlots == 0 {
			t.cfg.Logger.Info("Redis is back: its tasks are armed again from the store")
		}
	}
}

// Recheck arms what is due soon and Redis lacks, in all slots: another node died,
// and what it had stored last it may not have armed.
func (t *Timer) Recheck() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.bizTimers {
		for p := range l.slots {
			if s := &l.slots[p]; s.isOwned() && !s.foreign && s.repairReason == "" {
				s.repairReason, s.group.needsRepair = ReasonLost, true
			}
		}
	}
	signal(t.repairNeeded)
}

// missed notes that tasks of a slot were stored and not armed. The lock is held.
func (t *Timer) recordUnarmed(s *slotState) {
	s.unarmed = true
	if s.isOwned() && !s.foreign {
		s.repairReason, s.group.needsRepair = ReasonLost, true // once it is in reach
	}
}

// InUse tells whether a business type has this engine.
func (t *Timer) InUse() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.bizTimers) > 0
}

// Degraded says what users should know, "" if all is well.
func (t *Timer) Degraded() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	failing, out, foreign, slots := 0, 0, 0, 0
	for _, l := range t.bizTimers {
		for p := range l.slots {
			s := &l.slots[p]
			if !s.isOwned() {
				continue
			}
			slots++
			if !s.unreachableSince.IsZero() {
				failing++
			}
			if s.fallback {
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
		if srv.writeErr != nil && len(srv.groups) > 0 {
			said = append(said, fmt.Sprintf("redis refuses writes: %v", srv.writeErr))
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
		unfilled, unmarked := t.findRepairs()
		t.markAll(ctx, unmarked)
		if len(unfilled) > 0 {
			t.fillAll(ctx, unfilled)
		}
		select {
		case <-tick.C:
		case <-t.repairNeeded:
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
	due := !now.Before(t.nextMemoryCheck) && t.anyAnswered()
	if due {
		t.nextMemoryCheck = now.Add(memoryEvery)
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
		didEvict, wasFull := t.evictionPolicy != "", t.memoryFull != ""
		if !all { // one that does not answer has not changed, as far as is known
			evicts, full = cmp.Or(evicts, t.evictionPolicy), cmp.Or(full, t.memoryFull)
		}
		t.evictionPolicy, t.memoryFull = evicts, full
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
	return t.evictionPolicy, t.memoryFull
}

// anyAnswered tells whether Redis was reached. The lock is held.
func (t *Timer) anyAnswered() bool {
	for _, l := range t.bizTimers {
		for p := range l.slots {
			if l.slots[p].answered {
				return true
			}
		}
	}
	return false
}
