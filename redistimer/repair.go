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

// orphansEvery is the interval at which a slot with more claims than this node holds is looked at.
const orphansEvery = 3 * time.Second

// markOrphans marks the claims of a slot that this node does not hold for rollback. The lock is held.
func (t *Timer) markOrphans(s *slotState) {
	s.hasOrphans, s.pollNow = true, true
	s.group.planAgain()
	t.replan.Set()
}

// recover rolls back the orphaned claims of slots: those of a process that died, or whose settling was lost. It
// runs at the end of a round, when no claim is under way. It stops at the first failure, because the next round
// must soon notice a silent Redis. The other slots keep their mark.
func (t *Timer) recover(polled []polledSlot) {
	var found map[*BizType]int
	for _, a := range polled {
		s := a.slot
		t.mu.Lock()
		skip, b := !s.hasOrphans || !s.isOwned() || !s.isReachable(), a.group.bizTimer.BizType
		s.hasOrphans = s.hasOrphans && skip
		t.mu.Unlock()
		if skip {
			continue
		}
		n, err := t.recoverSlot(s)
		if n > 0 {
			if found == nil {
				found = make(map[*BizType]int)
			}
			found[b] += n
		}
		if err != nil {
			t.mu.Lock()
			s.hasOrphans = true
			t.mu.Unlock()
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

// recoverSlot rolls back the claims that this node does not hold, whenever they expire: a clock may have been wrong when they
// were made, or visibility was longer.
func (t *Timer) recoverSlot(s *slotState) (n int, err error) {
	ctx, now := context.Background(), t.cfg.Now()
	for skip := 0; ; {
		page, err := t.slots.Prepared(ctx, s.slot, skip, recoverPage)
		if err != nil {
			return n, err
		}
		var orphans []slots.Member
		t.mu.Lock()
		for _, m := range page {
			if _, held := s.inflight[m.JobID]; held {
				skip++
			} else {
				orphans = append(orphans, slots.Member{JobID: m.JobID, At: now, Attempts: m.Attempts})
			}
		}
		t.mu.Unlock()
		if len(orphans) > 0 {
			got := t.slots.Settle(ctx, []slots.SettleRequest{{Slot: s.slot, GiveBack: orphans}})[0]
			if got.Err != nil {
				return n, got.Err
			}
			n += got.GivenBack
			t.mu.Lock()
			t.advanceHead(s, now)
			t.mu.Unlock()
		}
		if len(page) < recoverPage {
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
	s.unreachableSince = time.Time{}
	s.lastOrphanCount, s.pollNow = time.Time{}, true // interrupted claims show in the number of claims, now or at the next poll
	t.readSoon(s.slot.Partition, forNear)
	if s.fallback {
		s.fallback = false
		if t.fallbackSlots--; t.fallbackSlots == 0 {
			t.mu.Log(t.cfg.Logger, slog.LevelInfo, "Redis is back: its tasks are armed again from the store")
		}
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
			if s.server.foreign {
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
