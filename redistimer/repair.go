package redistimer

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/timeoutcenter/toc/redistimer/slots"
)

// watch takes over and releases slots as the ownership of partitions changes.
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

// markOrphans marks claims for rollback: those made until now that this node does not hold. The lock is held.
func (t *Timer) markOrphans(s *slotState) { s.orphansBefore = t.cfg.Now() }

// recover rolls back the orphaned claims of slots: those of a process that died, or whose settling was lost. It
// runs at the end of a round, when no claim is under way. It stops at the first failure, because the next round
// must soon notice a silent Redis. The other slots keep their mark.
func (t *Timer) recover(polled []polledSlot) {
	var found map[*BizType]int
	for _, a := range polled {
		s := a.slot
		t.mu.Lock()
		before, skip, b := s.orphansBefore, !s.isOwned() || s.foreign || !s.unreachableSince.IsZero(), a.group.bizTimer.BizType
		t.mu.Unlock()
		if before.IsZero() || skip {
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

// recoverPage is the number of claims in a page.
const recoverPage = 500

// recoverSlot rolls back claims that expire before a time and that this node does not hold.
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

// recordUnreachable records that a slot has been unreachable since its last poll. The lock is held.
func (t *Timer) recordUnreachable(s *slotState, since time.Time) {
	if s.unreachableSince.IsZero() {
		s.unreachableSince = since
		s.group.hasUnreachable = true
	}
}

// startFallback lets the scan engine serve a slot until it is reachable again. The lock is held.
func (t *Timer) startFallback(s *slotState) {
	s.fallback = true
	t.fallbacks.Set()
	if t.fallbackSlots++; t.fallbackSlots == 1 {
		message := "Redis is out of reach: tasks of redis-mode biz_types are scanned meanwhile"
		if slots.Answer(s.server.lastErr) != "" {
			message = "Redis answers with errors: tasks of redis-mode biz_types are scanned meanwhile"
		}
		t.mu.Log(t.cfg.Logger, slog.LevelError, message, "error", cmp.Or(s.server.writeErr, s.server.lastErr))
	}
}

// recordReachable records that a slot answers. The lock is held.
func (t *Timer) recordReachable(s *slotState) {
	if s.unreachableSince.IsZero() {
		return
	}
	s.unreachableSince, s.group.needsRepair = time.Time{}, true
	s.lastOrphanCount, s.pollNow = time.Time{}, true // interrupted claims show in the number of claims, now or at the next poll
	if s.fallback {
		s.fallback = false
		s.markLost()
		t.repairNeeded.Set()
		if t.fallbackSlots--; t.fallbackSlots == 0 {
			t.mu.Log(t.cfg.Logger, slog.LevelInfo, "Redis is back: its tasks are armed again from the store")
		}
	}
}

// Recheck arms what Redis lacks in all slots, because another node died: it may not have armed the last tasks
// that it stored.
func (t *Timer) Recheck() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, bt := range t.bizTimers {
		for p := range bt.slots {
			if s := &bt.slots[p]; s.isOwned() && !s.foreign && s.repairReason == "" {
				s.repairReason, s.group.needsRepair = ReasonLost, true
			}
		}
	}
	t.repairNeeded.Set()
}

// recordUnarmed records that tasks of a slot were stored and not armed. The lock is held.
func (t *Timer) recordUnarmed(s *slotState) {
	s.unarmed = true
	if s.isOwned() && !s.foreign {
		s.repairReason, s.group.needsRepair = ReasonLost, true // filled once it is reachable
	}
}

// InFallback reports whether the scan engine serves slots because Redis is out of reach.
func (t *Timer) InFallback() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.fallbackSlots > 0
}

// InUse reports whether any business type uses this engine.
func (t *Timer) InUse() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.bizTimers) > 0
}

// Degraded describes the current faults for operators, "" if there is none.
func (t *Timer) Degraded() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	out, foreign, count := 0, 0, 0
	causes := make(map[string]int) // number of slots
	for _, bt := range t.bizTimers {
		for p := range bt.slots {
			s := &bt.slots[p]
			if !s.isOwned() {
				continue
			}
			count++
			if !s.unreachableSince.IsZero() {
				causes[s.server.cause()]++
			}
			if s.fallback {
				out++
			}
			if s.foreign {
				foreign++
			}
		}
	}
	var faults []string
	for _, srv := range t.servers { // it may accept some of them
		if srv.writeErr != nil && len(srv.groups) > 0 {
			causes[srv.cause()] += 0
		}
	}
	for _, cause := range slices.Sorted(maps.Keys(causes)) {
		n := causes[cause]
		if why, silent := strings.CutPrefix(cause, noAnswer); silent {
			faults = append(faults, fmt.Sprintf("redis %s for %d of %d slots%s", noAnswer, n, count, why))
			continue
		}
		if faults = append(faults, "redis "+cause); n > 0 {
			faults = append(faults, fmt.Sprintf("%d of %d slots are out of reach", n, count))
		}
	}
	if out > 0 {
		faults = append(faults, fmt.Sprintf("the scanner serves %d of them", out))
	}
	if foreign > 0 {
		faults = append(faults, fmt.Sprintf("another center has %d of %d slots in redis, the scanner serves them: give each center its own redis.prefix", foreign, count))
	}
	return strings.Join(faults, "; ")
}

// repair fills slots from the store: slots that were lost, and slots whose horizon has moved on.
func (t *Timer) repair(ctx context.Context) error {
	for {
		t.checkMemory(ctx)
		t.tryWrites(ctx)
		unfilled, unmarked := t.findRepairs()
		t.markAll(ctx, unmarked)
		if len(unfilled) > 0 {
			t.fillAll(ctx, unfilled)
		}
		pause, roused := t.pace.Slowed(500 * time.Millisecond)
		if roused == nil {
			pause = min(pause, t.leastStep())
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-roused:
		case <-t.repairNeeded:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// leastStep is the shortest time in which a horizon moves on by a step; each is checked for that.
func (t *Timer) leastStep() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	least := time.Hour
	for _, bt := range t.bizTimers {
		if step := bt.step(); step > 0 {
			least = min(least, step)
		}
	}
	return least
}

// memoryEvery is the interval at which the memory of the servers is checked.
const memoryEvery = 5 * time.Second

// checkMemory checks now and then whether a server may evict keys, and whether one is full.
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
		if !all { // assume that a server which does not answer has not changed
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

// Memory returns the maxmemory-policy of a server that may evict slots, and the memory use of a server that is
// full, as far as known.
func (t *Timer) Memory() (evicts, full string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.evictionPolicy, t.memoryFull
}

// anyAnswered reports whether Redis has answered for any slot. The lock is held.
func (t *Timer) anyAnswered() bool {
	for _, bt := range t.bizTimers {
		for p := range bt.slots {
			if bt.slots[p].answered {
				return true
			}
		}
	}
	return false
}
