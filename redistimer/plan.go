package redistimer

import (
	"slices"
	"time"

	"github.com/timeoutcenter/toc/queue/limits"
	"github.com/timeoutcenter/toc/redistimer/slots"
)

// Tasks are claimed and loaded a little ahead of their time and wait for their own millisecond in memory. So
// the round trips add no lateness, and claims can wait for each other and share their round trips.
const (
	claimAhead    = 200 * time.Millisecond // tasks are claimed so long before they are due
	minRoundGap   = 50 * time.Millisecond  // least time between two rounds of a server, except urgent ones
	retryEvery    = time.Second            // interval at which an unreachable slot is polled
	maxRoundSlots = 4096                   // slots in a round of a server, about
	maxInflight   = 8192                   // claimed and unsettled tasks of a type, about
	maxClaim      = 256                    // greatest number of tasks in a claim of a slot
	minClaim      = 16                     // the same if many slots are due and none has a backlog
	sampleSlots   = 8                      // number of slots to poll first if many are due
)

// group has the slots of a business type at one server.
type group struct {
	bizTimer *bizTimer
	slots    []*slotState
	backlog
	nextPoll       time.Time // when a slot must be polled at the earliest; zero: unknown
	hasUnreachable bool      // one of them may be unreachable

	// Of the round that is being planned:
	due      []*slotState
	chosen   []chosenSlot
	sampling bool // it polls a sample of the slots
}

// backlog is what is known of the backlog of a group.
type backlog struct {
	backlogged bool      // the slots of the last round had a backlog
	sampled    bool      // a sample of the due slots was polled; the others follow
	lastSparse time.Time // when a round last found no backlog
}

// round is one pipeline of claims at one server.
type round struct {
	server *server
	slots  []polledSlot
	claims []slots.ClaimRequest // one for each slot
}

// polledSlot is a slot in a round.
type polledSlot struct {
	group *group
	slot  *slotState
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

// planAgain makes the next plan look through the slots of the group.
func (g *group) planAgain() { g.nextPoll = time.Time{} }

// pollAt is when the slot must be polled next. Its head is known from reads, wake-ups and the answers of Redis.
func (s *slotState) pollAt(now time.Time, catchUp bool) time.Time {
	switch {
	case !s.unreachableSince.IsZero():
		return s.lastPoll.Add(retryEvery)
	case s.pollNow || s.lastPoll.IsZero():
		return now
	case catchUp && s.hasLate(now):
		return s.lastPoll.Add(minRoundGap) // no wake-up announces a fresh task
	case s.head.IsZero():
		return forever
	}
	return s.head.Add(-claimAhead)
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
func (t *Timer) plan(now time.Time) (rounds []round, wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Before(t.planned) {
		t.followClock(now)
	}
	t.planned = now
	if !t.nextPlacement.After(now) {
		t.place(now)
	}
	most, _ := t.pace.Slowed(longestWait)
	at := now.Add(most)
	if t.nextPlacement.Before(at) && t.nextPlacement.After(now) {
		at = t.nextPlacement
	}
	until := func(then time.Time) {
		if then.Before(at) {
			at = then
		}
	}
	for _, srv := range t.servers {
		if srv.inRound {
			continue // the end of its round starts a new plan
		}
		t.startFallbacks(srv, now, until)
		if !srv.silentSince.IsZero() || !srv.isKnown || srv.foreign {
			continue // its next pulse starts a new plan
		}
		if r := t.planRound(srv, now, until); len(r.slots) > 0 {
			srv.roundBegan, srv.inRound = now, true
			rounds = append(rounds, r)
		}
	}
	return rounds, at.Sub(now)
}

// planRound plans the round of a server. It calls until with the time at which more slots will be due. The lock
// is held.
func (t *Timer) planRound(srv *server, now time.Time, until func(time.Time)) round {
	r := round{server: srv}
	chosen, urgent := 0, false
	for _, g := range srv.groups {
		g.chosen, g.sampling = g.chosen[:0], false
	}
	for i, n := 0, len(srv.groups); i < n; i++ {
		g := srv.groups[(srv.firstGroup+i)%n]
		if g.nextPoll.After(now) {
			until(g.nextPoll)
			continue
		}
		if chosen >= maxRoundSlots {
			srv.firstGroup = (srv.firstGroup + i) % n
			until(now) // the others follow
			break
		}
		most := t.room(g.bizTimer)
		room := t.findDue(g, most, now)
		until(g.nextPoll)
		if len(g.due) == 0 {
			continue
		}
		g.planAgain() // slots that are due and not chosen now stay due
		if most == 0 {
			until(now.Add(claimAhead)) // the workers of the type are about to start
		}
		if g.hasLate(now) {
			g.chooseFreshAndLate(now, room, t.lateRoom(g.bizTimer))
			urgent = true
		} else {
			urgent = g.choose(now, room, most) || urgent
		}
		chosen += len(g.chosen)
	}
	if again := srv.roundBegan.Add(minRoundGap); chosen > 0 && !urgent && again.After(now) {
		until(again) // the last round has just begun: wait for more claims, there is time
		return r
	}
	for _, g := range srv.groups {
		g.addTo(&r)
	}
	return r
}

// findDue lists the slots of a group that must be polled now, and records when the next one must be. It returns
// how many more tasks may be in flight, out of most. The lock is held.
func (t *Timer) findDue(g *group, most int, now time.Time) (room int) {
	g.nextPoll, g.due, room = forever, g.due[:0], most
	for _, s := range g.slots {
		room -= s.inflightClaims
		if !s.isOwned() || s.inRound {
			continue // in a round of its former server, the end of which starts a new plan
		}
		if at := s.pollAt(now, g.bizTimer.CatchUp > 0); at.After(now) {
			if at.Before(g.nextPoll) {
				g.nextPoll = at
			}
		} else if t.cfg.Ownership.Owns(s.slot.Partition) {
			g.due = append(g.due, s)
		} else { // the lease has ended by our own clock: takeOver is about to run, or the lease goes on
			g.nextPoll = earlier(g.nextPoll, now.Add(claimAhead))
		}
	}
	return room
}

// addTo adds the chosen slots of a group to a round.
func (g *group) addTo(r *round) {
	g.sampled = g.sampling
	for _, a := range g.chosen {
		a.slot.announcedHead, a.slot.inRound = time.Time{}, true
		r.slots = append(r.slots, polledSlot{g, a.slot})
		a.slot.lateClaimed = !a.fresh
		overdue := time.Duration(0)
		if a.fresh {
			overdue = lateAfter
		}
		r.claims = append(r.claims, slots.ClaimRequest{
			Overdue: overdue,
			Slot:    a.slot.slot, Limit: a.limit, Ahead: claimAhead + r.server.skew, Visibility: g.bizTimer.Visibility,
		})
	}
}

// room is how many tasks of a type may be in flight in the slots of each server. A slow server must not take
// the share of the others. The lock is held.
func (t *Timer) room(bt *bizTimer) int {
	most := min(maxInflight, (t.cfg.Queue.Capacity(bt.ID)*3+3)/4)
	n := max(bt.servers, 1)
	return (most + n - 1) / n
}

// lateRoom is how many more late tasks of a type may be in flight in the slots of each server. The lock is held.
func (t *Timer) lateRoom(bt *bizTimer) int {
	most, free := t.cfg.Queue.LateRoom(bt.ID)
	n := max(bt.servers, 1)
	return (max(0, min(most-bt.late, free)) + n - 1) / n
}
