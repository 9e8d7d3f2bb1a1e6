package redistimer

import (
	"slices"
	"time"

	"github.com/timeoutcenter/toc/redistimer/slots"
)

// What paces the claims. Tasks are claimed and loaded a little ahead and wait
// for their own millisecond in memory, so the round trips cost no lateness; and
// as there is that time, claims wait for each other and share their round trips.
const (
	claimAhead    = 200 * time.Millisecond // claimed so long before they are due
	minRoundGap   = 50 * time.Millisecond  // least time between two rounds of a server, but for the urgent
	pollEvery     = 3 * time.Second        // every slot is looked at so often, whatever its head
	retryEvery    = time.Second            // and one that is out of reach so often
	maxRoundSlots = 4096                   // slots that a round of a server asks, about
	maxInflight   = 8192                   // claimed and unsettled tasks of a type, about
	maxClaim      = 256                    // ids a claim of a slot takes
	minClaim      = 16                     // and when many slots are due and none has a backlog
	sampleSlots   = 8                      // slots asked first when many are due
)

// group is the slots of a business type that are at one server.
type group struct {
	line  *bizTimer
	slots []*slotState
	backlog
	nextPoll       time.Time // when a slot of it may be to be asked; zero: that is to be found out
	hasUnreachable bool      // one of them may be out of reach
	needsRepair    bool      // something of one of them may be to be filled or marked
	repairsChecked time.Time // when they were last looked through for that

	// Of the round that is planned:
	due      []*slotState
	chosen   []chosenSlot
	sampling bool // it is a sounding
}

// crowd is what is known of the backlog of a group.
type backlog struct {
	backlogged bool      // the slots asked last had a backlog
	sampled    bool      // a few slots of many were asked; the others follow
	lastSparse time.Time // when slots were last asked that had no backlog
}

// round is what one server is asked at a time.
type round struct {
	server *server
	slots  []polledSlot
	claims []slots.ClaimRequest // of each
}

// asked is a slot that a round asks.
type polledSlot struct {
	group *group
	slot  *slotState
}

// ask is a slot and how many tasks to claim at most; 0: only look.
type chosenSlot struct {
	slot  *slotState
	limit int
}

// choose decides which of the slots that are due a round asks, the most pressing first. There is room for so many tasks
// now, and for most when nothing is in hand. urgent tells that the round cannot wait for other slots to be due.
func (g *group) choose(now time.Time, room, most int) (urgent bool) {
	due := g.due
	slices.SortFunc(due, func(a, b *slotState) int { return a.dueBy(now).Compare(b.dueBy(now)) })
	// Where there is a backlog, few big batches: their rows share tables. Where
	// there is none, all slots at once. A crowd is found out by its first slots.
	size := maxClaim
	g.chosen, g.sampling = g.chosen[:0], false
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
			if now.Sub(s.lastPoll) < pollEvery {
				continue // a settle rings when there is room
			}
			limit = 0
		}
		room -= limit
		g.chosen = append(g.chosen, chosenSlot{s, limit})
		urgent = urgent || g.backlogged || (!s.head.IsZero() && s.head.Sub(now) < claimAhead/2)
	}
	return urgent
}

// changed has the slots of a group looked through at the next plan.
func (g *group) planAgain() { g.nextPoll = time.Time{} }

// lookAt is when a slot is to be asked.
func (s *slotState) pollAt(now time.Time) time.Time {
	if !s.unreachableSince.IsZero() {
		return s.lastPoll.Add(retryEvery)
	}
	at := s.lastPoll.Add(pollEvery)
	if s.isQuiet(now) {
		if at = forever; !s.head.IsZero() {
			at = latest(s.markerRenewed.Add(quietRenew), s.lastPoll.Add(pollEvery))
			if near := s.head.Add(-quietFrom); near.Before(at) {
				at = near
			}
		}
	}
	if early := s.head.Add(-claimAhead); !s.head.IsZero() && early.Before(at) {
		return early
	}
	return at
}

// dueBy is when a slot wants to be asked, for the order in which they are. One
// whose head is not known comes behind those that are known to have something.
func (s *slotState) dueBy(now time.Time) time.Time {
	if s.head.IsZero() {
		return now.Add(claimAhead)
	}
	return s.head
}

// plan lists the rounds to make now, one a server at most, and how long the next may wait.
func (t *Timer) plan(now time.Time) (rounds []round, wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.nextPlacement.After(now) {
		t.place(now)
	}
	at := now.Add(pollEvery)
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
			continue // its end rings
		}
		t.startFallbacks(srv, now, until)
		if !srv.silentSince.IsZero() {
			continue // its answer rings
		}
		if r := t.planRound(srv, now, until); len(r.slots) > 0 {
			srv.roundBegan, srv.inRound = now, true
			rounds = append(rounds, r)
		}
	}
	return rounds, at.Sub(now)
}

// endPatience gives slots of a server to the scan engine that have been out of reach for too long; until hears when the
// next will be. The lock is held.
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

// planRound asks what is due of a server's slots; until hears when there will be more. The lock is held.
func (t *Timer) planRound(srv *server, now time.Time, until func(time.Time)) round {
	r := round{server: srv}
	some, hurry := 0, false
	for _, g := range srv.groups {
		g.chosen, g.sampling = g.chosen[:0], false
	}
	for i, n := 0, len(srv.groups); i < n; i++ {
		g := srv.groups[(srv.firstGroup+i)%n]
		if g.nextPoll.After(now) && g.nextPoll.Sub(now) <= pollEvery { // else the clock was ahead
			until(g.nextPoll)
			continue
		}
		if some >= maxRoundSlots {
			srv.firstGroup = (srv.firstGroup + i) % n
			until(now) // the others follow
			break
		}
		most := t.room(g.line)
		room := t.findDue(g, most, now)
		until(g.nextPoll)
		if len(g.due) == 0 {
			continue
		}
		g.planAgain() // what is due and not asked now is due still
		if most == 0 {
			until(now.Add(claimAhead)) // the lane is about to be opened
		}
		hurry = g.choose(now, room, most) || hurry
		some += len(g.chosen)
	}
	if again := srv.roundBegan.Add(minRoundGap); some > 0 && !hurry && again.After(now) {
		until(again) // a round has just been: let claims gather, there is time
		return r
	}
	for _, g := range srv.groups {
		g.addTo(&r, now)
	}
	return r
}

// findDue lists the slots of a group that are to be asked now, and notes when the next one will be. It tells how many
// more tasks may be in hand, of most. The lock is held.
func (t *Timer) findDue(g *group, most int, now time.Time) (room int) {
	g.nextPoll, g.due, room = now.Add(pollEvery), g.due[:0], most
	for _, s := range g.slots {
		room -= s.inflightClaims
		if !s.isOwned() || s.inRound {
			continue // asked still, by the server that it was placed at before: the end of that round rings
		}
		if at := s.pollAt(now); at.After(now) {
			if at.Before(g.nextPoll) {
				g.nextPoll = at
			}
		} else if t.cfg.Ownership.Owns(s.slot.Partition) { // else lost by our own clock: the ring is on its way
			g.due = append(g.due, s)
		}
	}
	return room
}

// ask adds the chosen slots of a group to a round.
func (g *group) addTo(r *round, now time.Time) {
	g.sampled = g.sampling
	for _, a := range g.chosen {
		a.slot.announcedHead, a.slot.inRound = time.Time{}, true
		r.slots = append(r.slots, polledSlot{g, a.slot})
		r.claims = append(r.claims, slots.ClaimRequest{
			Slot: a.slot.slot, Limit: a.limit, Ahead: claimAhead + a.slot.skew, Visibility: g.line.Visibility,
			Marker: a.slot.marker, Renew: a.slot.renewFor(now),
		})
	}
}

// room is how many tasks of a line may be in hand of each server's slots: one that is slow must not take it all. The
// lock is held.
func (t *Timer) room(l *bizTimer) int {
	most := min(maxInflight, (t.cfg.Queue.Capacity(l.ID)*3+3)/4)
	n := max(l.servers, 1)
	return (most + n - 1) / n
}
