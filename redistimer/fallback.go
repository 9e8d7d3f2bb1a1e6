package redistimer

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/timeoutcenter/toc/redistimer/slots"
)

// recordUnreachable records that a slot has been unreachable since its last poll. The lock is held.
func (t *Timer) recordUnreachable(s *slotState, since time.Time) {
	if s.unreachableSince.IsZero() {
		s.unreachableSince = since
		s.group.hasUnreachable = true
	}
}

// startFallbacks lets the scan engine serve slots of a server that have been unreachable for too long. It calls
// until with the time of the next such slot. The lock is held.
func (t *Timer) startFallbacks(srv *server, now time.Time, until func(time.Time)) {
	for _, g := range srv.groups {
		if srv.silentSince.IsZero() && !g.hasUnreachable {
			continue
		}
		g.hasUnreachable = false
		for _, s := range g.slots {
			if !s.isOwned() {
				continue
			}
			if s.unreachableSince.IsZero() {
				s.unreachableSince = srv.silentSince
			}
			g.hasUnreachable = g.hasUnreachable || !s.unreachableSince.IsZero()
			if s.unreachableSince.IsZero() || s.fallback {
				continue
			}
			if end := s.unreachableSince.Add(t.cfg.OutageAfter); end.After(now) {
				until(end)
			} else {
				t.startFallback(s)
			}
		}
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
	t.requestRead(s.slot.Partition, nearFirst)
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
