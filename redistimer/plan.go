package redistimer

import (
	"slices"
	"time"

	"github.com/timeoutcenter/toc/internal/wait"
	"github.com/timeoutcenter/toc/queue/limits"
	"github.com/timeoutcenter/toc/redistimer/slots"
)

// Tasks are claimed and loaded a little ahead of their time and wait for their own millisecond in memory. So
// the round trips add no lateness, and claims can wait for each other and share their round trips.
const (
	claimAhead    = 200 * time.Millisecond // tasks are claimed so long before they are due
	turnEvery     = 750 * time.Millisecond // while many tasks are due, a slot is polled once in it
	denseFrom     = 500                    // so many claims a second of a type at a server are many
	minRoundGap   = 50 * time.Millisecond  // least time between two rounds of a server, except urgent ones
	retryEvery    = time.Second            // interval at which an unreachable slot is polled
	maxRoundSlots = 4096                   // slots in a round of a server, about
	maxInflight   = 16384                  // claimed and unsettled tasks of a type, about
	maxClaim      = 256                    // greatest number of tasks in a claim of a slot
	minClaim      = 16                     // the same if many slots are due and none has a backlog
	sampleSlots   = 8                      // number of slots to poll first if many are due
)

// planner decides which slots are asked next. The heap of each server has its slots that wait, so that a plan costs nothing for
// slots that are not due.
type planner struct {
	*node
	planned time.Time   // when the last plan was made
	sweeps  []sweep     // that ask slots
	replan  wait.Signal // the next round must be planned again
}

// group has the slots of a business type at one server.
type group struct {
	bizTimer *bizTimer
	server   *server
	inflight int // claimed and not settled tasks
	backlog

	due      []*slotState // to be polled as soon as there is room; the server lists its groups that have such slots
	chosen   []chosenSlot // for the round that is being planned
	sampling bool         // that round polls a sample of the slots
}

// backlog is what is known of the backlog of a group.
type backlog struct {
	backlogged bool      // the slots of the last round had a backlog
	sampled    bool      // a sample of the due slots was polled; the others follow
	lastSparse time.Time // when a round last found no backlog

	isDense bool // many tasks are due; see turnAt
	claimed wait.Rate
}

// round is one pipeline of claims at one server.
type round struct {
	server *server
	slots  []*slotState
	claims []slots.ClaimRequest // one for each slot
}

// chosenSlot is a slot to poll and the greatest number of tasks to claim.
type chosenSlot struct {
	slot  *slotState
	limit int
	fresh bool // claim no late tasks
}

// choose chooses the slots for a round among the due ones, the most urgent first. room is how many more
// tasks may be in flight, and most is the same when none is. urgent reports whether the round cannot wait for
// further slots.
func (g *group) choose(now time.Time, room, most int) (urgent bool) {
	due := g.due
	slices.SortFunc(due, func(a, b *slotState) int { return a.dueBy(now).Compare(b.dueBy(now)) })
	// With a backlog, claim few big batches, because their rows share tables. Without one, claim from all slots
	// at once. A sample of the slots shows whether there is a backlog.
	size := maxClaim
	if !g.backlogged && len(due) > max(sampleSlots, most/maxClaim) {
		if g.sampling = !g.sampled && now.Sub(g.lastSparse) > 10*minRoundGap; g.sampling {
			due, urgent = due[:sampleSlots], true
		} else {
			size = minClaim
		}
	}
	size = min(size, (most+3)/4)
	for _, s := range due {
		limit := size
		if limit > room || most == 0 {
			continue // a settle starts a new plan when there is room
		}
		room -= limit
		g.chosen = append(g.chosen, chosenSlot{slot: s, limit: limit})
		urgent = urgent || g.backlogged || (!s.head.IsZero() && s.head.Sub(now) < claimAhead/2)
	}
	return urgent
}

// lateAfter is a little less than limits.LateAfter: what is claimed as fresh is still so when it is in the queue.
const lateAfter = limits.LateAfter - time.Second

// hasLate reports whether the slot has tasks of the backlog that catch_up limits, as far as known.
func (s *slotState) hasLate(now time.Time) bool {
	return !s.head.IsZero() && now.Sub(s.head) > lateAfter
}

// hasLate reports whether a due slot has.
func (g *group) hasLate(now time.Time) bool {
	return g.bizTimer.CatchUp > 0 && slices.ContainsFunc(g.due, func(s *slotState) bool { return s.hasLate(now) })
}

// chooseFreshAndLate chooses the slots for a round of a business type with catch_up that has a backlog: in turns, fresh tasks
// of a slot and late ones. room and late are how many more fresh and late tasks may be in flight.
func (g *group) chooseFreshAndLate(now time.Time, room, late int) {
	slices.SortFunc(g.due, func(a, b *slotState) int { return a.head.Compare(b.head) })
	for _, s := range g.due {
		if late > 0 && !s.lateClaimed {
			limit := min(maxClaim, late)
			late -= limit
			g.chosen = append(g.chosen, chosenSlot{slot: s, limit: limit})
			continue
		}
		limit := min(minClaim, max(0, room))
		if limit == 0 {
			continue // a settle starts a new plan when there is room
		}
		room -= limit
		g.chosen = append(g.chosen, chosenSlot{slot: s, limit: limit, fresh: true})
	}
}

// dueBy is the time by which due slots are sorted. A slot with an unknown head comes after slots that have
// tasks.
func (s *slotState) dueBy(now time.Time) time.Time {
	if s.head.IsZero() {
		return now.Add(claimAhead)
	}
	return s.head
}

// plan returns the rounds to make now, at most one per server, and how long the next plan may wait.
func (pl *planner) plan(now time.Time) (rounds []round, wait time.Duration) {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	if now.Before(pl.planned) {
		pl.health.followClock(now)
	}
	pl.planned = now
	if !pl.placement.nextPlacement.After(now) {
		pl.placement.place(now)
	}
	most, _ := pl.pace.Slowed(longestWait)
	at := now.Add(most)
	until := func(then time.Time) { at = earlier(at, then) }
	if pl.placement.nextPlacement.After(now) {
		until(pl.placement.nextPlacement)
	}
	pl.health.startFallbacks(now, until)
	if pl.advanceSweeps() {
		until(now)
	}
	for _, srv := range pl.servers {
		if srv.inRound || !srv.isServing() {
			continue // the end of its round, or its next pulse, starts a new plan
		}
		if r := pl.planRound(srv, now, until); len(r.slots) > 0 {
			srv.roundBegan, srv.inRound = now, true
			rounds = append(rounds, r)
		}
	}
	return rounds, at.Sub(now)
}

// planRound plans the round of a server. It calls until with the time at which more slots will be due. The lock
// is held.
func (pl *planner) planRound(srv *server, now time.Time, until func(time.Time)) round {
	srv.findDue(now)
	defer func() {
		srv.due = slices.DeleteFunc(srv.due, func(g *group) bool { return len(g.due) == 0 })
		if len(srv.heads) > 0 {
			until(srv.heads[0].pollAt)
		}
	}()
	r := round{server: srv}
	chosen, urgent := 0, false
	for _, g := range srv.due {
		g.chosen, g.sampling = g.chosen[:0], false
	}
	for i, g := range srv.due {
		if chosen >= maxRoundSlots {
			until(now) // the others follow, as the first
			srv.due = slices.Concat(srv.due[i:], srv.due[:i])
			break
		}
		if g.keepDue(now, pl.cfg.Ownership); len(g.due) == 0 {
			continue
		}
		most := pl.room(g.bizTimer)
		if most == 0 {
			until(now.Add(claimAhead)) // the workers of the type are about to start
		}
		if g.hasLate(now) {
			g.chooseFreshAndLate(now, most-g.inflight, pl.lateRoom(g.bizTimer))
			urgent = true
		} else {
			urgent = g.choose(now, most-g.inflight, most) || urgent
		}
		chosen += len(g.chosen)
	}
	if again := srv.roundBegan.Add(minRoundGap); chosen > 0 && !urgent && again.After(now) {
		until(again) // the last round has just begun: wait for more claims, there is time
		return r
	}
	for _, g := range srv.due {
		g.addTo(&r, now)
	}
	return r
}

// findDue moves the slots that must be polled now from the heap of the server to their groups.
func (srv *server) findDue(now time.Time) {
	for len(srv.heads) > 0 && !srv.heads[0].pollAt.After(now) {
		s := srv.heads[0]
		s.leaveHeap()
		s.phase = due
		if len(s.group.due) == 0 {
			srv.due = append(srv.due, s.group)
		}
		s.group.due = append(s.group.due, s)
	}
}

// keepDue takes slots out of the group that need not be polled any more. The lease of a partition may have ended by our own
// clock: takeOver is about to run, or the lease goes on.
func (g *group) keepDue(now time.Time, ownership Ownership) {
	g.due = slices.DeleteFunc(g.due, func(s *slotState) bool {
		at := s.nextPoll(now)
		if !at.After(now) {
			if ownership.Owns(s.slot.Partition) {
				return false
			}
			at = now.Add(claimAhead)
		}
		s.phase = idle
		s.wait(at)
		return true
	})
}

// addTo moves the chosen slots of a group into a round.
func (g *group) addTo(r *round, now time.Time) {
	g.sampled = g.sampling
	for _, a := range g.chosen {
		a.slot.announcedHead, a.slot.phase, a.slot.lateClaimed = time.Time{}, asked, !a.fresh
		a.slot.partition.busy++
		overdue := time.Duration(0)
		if a.fresh {
			overdue = lateAfter
		}
		r.slots = append(r.slots, a.slot)
		r.claims = append(r.claims, slots.ClaimRequest{
			Overdue: overdue,
			Slot:    a.slot.slot, Limit: a.limit, Ahead: a.slot.claimUntil(now).Sub(now) + r.server.skew, Visibility: g.bizTimer.Visibility,
		})
	}
	g.due, g.chosen = slices.DeleteFunc(g.due, func(s *slotState) bool { return s.phase == asked }), g.chosen[:0]
}

// While many tasks are due, the slots are polled in turns, each once in turnEvery. A poll claims what is due until the next turn of
// its slot, so one statement reads many rows of few tables. A task that is armed after the poll of its turn is claimed claimAhead
// before it is due, like all others.

// turnAt returns when the turn of a slot began that goes on at a time.
func (s *slotState) turnAt(at time.Time) time.Time {
	return at.Add(-s.turn).Truncate(turnEvery).Add(s.turn)
}

// claimUntil returns until when tasks are due that a poll claims.
func (s *slotState) claimUntil(now time.Time) time.Time {
	until := now.Add(claimAhead)
	if s.group.isDense {
		return s.turnAt(until).Add(turnEvery)
	}
	return until
}

// room is how many tasks of a type may be in flight in the slots of each server. A slow server must not take
// the share of the others. The lock is held.
func (pl *planner) room(bt *bizTimer) int {
	most := min(maxInflight, (pl.cfg.Queue.Capacity(bt.ID)*3+3)/4)
	return pl.share(most)
}

// lateRoom is how many more late tasks of a type may be in flight in the slots of each server. The lock is held.
func (pl *planner) lateRoom(bt *bizTimer) int {
	most, free := pl.cfg.Queue.LateRoom(bt.ID)
	return pl.share(max(0, min(most-bt.late, free)))
}

// share is an equal share of each server that has slots, rounded up. The lock is held.
func (pl *planner) share(n int) int {
	servers := 0
	for _, srv := range pl.servers {
		if srv.inUse {
			servers++
		}
	}
	servers = max(servers, 1)
	return (n + servers - 1) / servers
}
