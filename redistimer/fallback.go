package redistimer

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/timeoutcenter/toc/internal/wait"
	"github.com/timeoutcenter/toc/redistimer/slots"
)

// health records which servers and slots are out of reach, and leaves them to the scan engine after a while.
type health struct {
	*node
	process         string                  // the name of this process
	pulseNeeded     wait.Signal             // a server must be asked at once
	failing         map[*slotState]struct{} // the slots for which Redis does not answer, although their servers may serve others
	inFallback      int                     // number of servers, and of failing slots, that the scan engine serves because Redis is away
	nextMemoryCheck time.Time               // when the servers' memory is checked next
	evictionPolicy  string                  // of a server that may evict our keys; "": none
	memoryFull      string                  // memory use of a server that is full; "": none
}

// recordFailure records that Redis has not answered for a slot since its last poll. The lock is held.
func (h *health) recordFailure(s *slotState, since time.Time) {
	if s.failingSince.IsZero() {
		s.failingSince = since
		h.failing[s] = struct{}{}
	}
}

// recordRefusedRows records that a read could not arm the rows of a slot. If Redis has answered with an error, the slot is failing
// until a read meets none. It reports whether it was so before: then the read need not be repeated at once. The lock is held.
func (h *health) recordRefusedRows(bt *bizTimer, p int, since time.Time, err error) (before bool) {
	if slots.IsAnswer(err) && !slots.IsRefusal(err) && h.partitions[p].term != 0 && !bt.closed {
		s := h.planner.slotOf(bt, p)
		before, s.refusesRows = s.refusesRows, true
		h.recordFailure(s, since)
		h.planner.update(s)
	}
	return before
}

// recordReachable records that a slot answers. The lock is held.
func (h *health) recordReachable(s *slotState) {
	if s.failingSince.IsZero() {
		return
	}
	h.endFailure(s)
	s.lastOrphanCount, s.pollNow = time.Time{}, true // interrupted claims show in the number of claims, now or at the next poll
	h.reader.request(s.slot.Partition, nearFirst)
}

// endFailure forgets that a slot was failing. The lock is held.
func (h *health) endFailure(s *slotState) {
	s.failingSince, s.refusesRows = time.Time{}, false
	delete(h.failing, s)
	h.endFallback(&s.fallback)
}

// startFallbacks lets the scan engine serve servers and slots that have been out of reach for too long. It calls until with
// the time of the next one. The lock is held.
func (h *health) startFallbacks(now time.Time, until func(time.Time)) {
	start := func(fallback *bool, since time.Time, srv *server) {
		if *fallback || since.IsZero() {
			return
		}
		if end := since.Add(h.cfg.OutageAfter); end.After(now) {
			until(end)
			return
		}
		*fallback = true
		h.fallbacks.Set()
		if h.inFallback++; h.inFallback == 1 {
			message := "Redis is out of reach: tasks of redis-mode biz_types are scanned meanwhile"
			if slots.Answer(srv.lastErr) != "" {
				message = "Redis answers with errors: tasks of redis-mode biz_types are scanned meanwhile"
			}
			h.mu.Log(h.cfg.Logger, slog.LevelError, message, "error", cmp.Or(srv.writeErr, srv.lastErr))
		}
	}
	for _, srv := range h.servers {
		if srv.inUse {
			start(&srv.fallback, srv.silentSince, srv)
		}
	}
	for s := range h.failing {
		start(&s.fallback, s.failingSince, s.group.server)
	}
}

// endFallback ends the fallback of a server or slot that is reachable again, or not this node's any more. The lock is held.
func (h *health) endFallback(fallback *bool) {
	if !*fallback {
		return
	}
	*fallback = false
	if h.inFallback--; h.inFallback == 0 {
		h.mu.Log(h.cfg.Logger, slog.LevelInfo, "Redis is back: its tasks are armed again from the store")
	}
}

// InFallback reports whether the scan engine serves slots because Redis is out of reach.
func (t *Timer) InFallback() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.health.inFallback > 0
}

// unreachableSince returns since when Redis does not serve a slot of this node; zero: it does. The lock is held.
func (h *health) unreachableSince(bt *bizTimer, p int) time.Time {
	if h.partitions[p].term == 0 {
		return time.Time{}
	}
	silent := h.placement.serverAt(bt, p).silentSince
	if s := bt.slots[p]; s != nil && !s.failingSince.IsZero() && (silent.IsZero() || s.failingSince.Before(silent)) {
		return s.failingSince
	}
	return silent
}

// isScanned reports whether the scan engine serves a slot of this node because Redis is away. The lock is held.
func (h *health) isScanned(bt *bizTimer, p int) bool {
	s := bt.slots[p]
	return h.partitions[p].term != 0 && (s != nil && s.fallback || h.placement.serverAt(bt, p).fallback)
}

// isServed reports whether this engine serves a slot. The lock is held.
func (h *health) isServed(bt *bizTimer, p int) bool {
	return !h.isScanned(bt, p) && !h.placement.serverAt(bt, p).foreign
}

// isUsable reports whether a slot is this node's and Redis serves it, as far as known. The lock is held.
func (h *health) isUsable(bt *bizTimer, p int) bool {
	s := bt.slots[p]
	return h.partitions[p].term != 0 && (s == nil || s.failingSince.IsZero()) && h.placement.serverAt(bt, p).isServing()
}

// isReadable reports whether a read arms the rows of a slot: it is usable, or may be again. The lock is held.
func (h *health) isReadable(bt *bizTimer, p int) bool {
	s := bt.slots[p]
	return h.isUsable(bt, p) || s != nil && s.refusesRows && s.isOwned() && s.group.server.isServing()
}

// countSlots returns the number of this node's slots at each server. The lock is held.
func (pm *placement) countSlots() map[*server]int {
	if pm.slotCounts != nil {
		return pm.slotCounts
	}
	pm.slotCounts = make(map[*server]int)
	for p := range pm.partitions {
		if pm.partitions[p].term == 0 {
			continue
		}
		for _, bt := range pm.list {
			pm.slotCounts[pm.serverAt(bt, p)]++
		}
	}
	return pm.slotCounts
}

// Degraded describes the current faults for operators, "" if there is none.
func (t *Timer) Degraded() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	out, foreign, count := 0, 0, 0
	causes := make(map[string]int) // number of slots
	for s := range t.health.failing {
		if srv := s.group.server; srv.silentSince.IsZero() {
			causes[srv.cause()]++
		}
		if s.fallback && !s.group.server.fallback {
			out++
		}
	}
	for _, srv := range t.servers {
		switch {
		case !srv.inUse:
		case srv.foreign:
			foreign += t.placement.countSlots()[srv]
		case !srv.silentSince.IsZero():
			causes[srv.cause()] += t.placement.countSlots()[srv]
			if srv.fallback {
				out += t.placement.countSlots()[srv]
			}
		case srv.writeErr != nil: // it may accept some writes
			causes[srv.cause()] += 0
		}
	}
	if foreign > 0 || len(causes) > 0 {
		for _, n := range t.placement.countSlots() {
			count += n
		}
	}
	var faults []string
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
