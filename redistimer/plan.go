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
	ahead     = 200 * time.Millisecond // claimed so long before they are due
	beat      = 50 * time.Millisecond  // least time between two rounds of a server, but for the urgent
	poll      = 3 * time.Second        // every slot is looked at so often, whatever its head
	retry     = time.Second            // and one that is out of reach so often
	maxAsks   = 4096                   // slots that a round of a server asks, about
	maxInHand = 8192                   // claimed and unsettled tasks of a type, about
	maxClaim  = 256                    // ids a claim of a slot takes
	minClaim  = 16                     // and when many slots are due and none has a backlog
	sounding  = 8                      // slots asked first when many are due
)

// group is the slots of a business type that are at one server.
type group struct {
	line  *line
	slots []*slotState
	crowd
	at      time.Time // when a slot of it may be to be asked; zero: that is to be found out
	failing bool      // one of them may be out of reach
	repairs bool      // something of one of them may be to be filled or marked
	checked time.Time // when they were last looked through for that

	// Of the round that is planned:
	due    []*slotState
	chosen []ask
	sounds bool // it is a sounding
}

// crowd is what is known of the backlog of a group.
type crowd struct {
	dense   bool      // the slots asked last had a backlog
	sounded bool      // a few slots of many were asked; the others follow
	sparse  time.Time // when slots were last asked that had no backlog
}

// round is what one server is asked at a time.
type round struct {
	server *server
	asks   []asked
	claims []slots.Claiming // of each
}

// asked is a slot that a round asks.
type asked struct {
	group *group
	slot  *slotState
}

// ask is a slot and how many tasks to claim at most; 0: only look.
type ask struct {
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
	g.chosen, g.sounds = g.chosen[:0], false
	if !g.dense && len(due) > max(sounding, most/maxClaim) {
		if g.sounds = !g.sounded && now.Sub(g.sparse) > 10*beat; g.sounds {
			due, urgent = due[:sounding], true
		} else {
			size = minClaim
		}
	}
	size = min(size, (most+3)/4)
	for _, s := range due {
		limit := size
		if limit > room || most == 0 {
			if now.Sub(s.seen) < poll {
				continue // a settle rings when there is room
			}
			limit = 0
		}
		room -= limit
		g.chosen = append(g.chosen, ask{s, limit})
		urgent = urgent || g.dense || (!s.next.IsZero() && s.next.Sub(now) < ahead/2)
	}
	return urgent
}

// changed has the slots of a group looked through at the next plan.
func (g *group) changed() { g.at = time.Time{} }

// lookAt is when a slot is to be asked.
func (s *slotState) lookAt(now time.Time) time.Time {
	if !s.failing.IsZero() {
		return s.seen.Add(retry)
	}
	at := s.seen.Add(poll)
	if s.quiet(now) {
		if at = forever; !s.next.IsZero() {
			at = latest(s.renewed.Add(quietRenew), s.seen.Add(poll))
			if near := s.next.Add(-quietFrom); near.Before(at) {
				at = near
			}
		}
	}
	if early := s.next.Add(-ahead); !s.next.IsZero() && early.Before(at) {
		return early
	}
	return at
}

// dueBy is when a slot wants to be asked, for the order in which they are. One
// whose head is not known comes behind those that are known to have something.
func (s *slotState) dueBy(now time.Time) time.Time {
	if s.next.IsZero() {
		return now.Add(ahead)
	}
	return s.next
}

// plan lists the rounds to make now, one a server at most, and how long the next may wait.
func (t *Timer) plan(now time.Time) (rounds []round, wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.placeAt.After(now) {
		t.place(now)
	}
	at := now.Add(poll)
	if t.placeAt.Before(at) && t.placeAt.After(now) {
		at = t.placeAt
	}
	until := func(then time.Time) {
		if then.Before(at) {
			at = then
		}
	}
	for _, srv := range t.servers {
		if srv.asking {
			continue // its end rings
		}
		t.endPatience(srv, now, until)
		if !srv.silent.IsZero() {
			continue // its answer rings
		}
		if r := t.planRound(srv, now, until); len(r.asks) > 0 {
			srv.began, srv.asking = now, true
			rounds = append(rounds, r)
		}
	}
	return rounds, at.Sub(now)
}

// endPatience gives slots of a server to the scan engine that have been out of reach for too long; until hears when the
// next will be. The lock is held.
func (t *Timer) endPatience(srv *server, now time.Time, until func(time.Time)) {
	for _, g := range srv.groups {
		if srv.silent.IsZero() && !g.failing {
			continue
		}
		g.failing = false
		for _, s := range g.slots {
			if !s.owned() {
				continue
			}
			if s.failing.IsZero() {
				s.failing = srv.silent
			}
			g.failing = g.failing || !s.failing.IsZero()
			if s.failing.IsZero() || s.out {
				continue
			}
			if end := s.failing.Add(t.cfg.OutageAfter); end.After(now) {
				until(end)
			} else {
				t.giveToScan(s)
			}
		}
	}
}

// planRound asks what is due of a server's slots; until hears when there will be more. The lock is held.
func (t *Timer) planRound(srv *server, now time.Time, until func(time.Time)) round {
	r := round{server: srv}
	some, hurry := 0, false
	for _, g := range srv.groups {
		g.chosen, g.sounds = g.chosen[:0], false
	}
	for i, n := 0, len(srv.groups); i < n; i++ {
		g := srv.groups[(srv.turn+i)%n]
		if g.at.After(now) && g.at.Sub(now) <= poll { // else the clock was ahead
			until(g.at)
			continue
		}
		if some >= maxAsks {
			srv.turn = (srv.turn + i) % n
			until(now) // the others follow
			break
		}
		most := t.room(g.line)
		room := t.findDue(g, most, now)
		until(g.at)
		if len(g.due) == 0 {
			continue
		}
		g.changed() // what is due and not asked now is due still
		if most == 0 {
			until(now.Add(ahead)) // the lane is about to be opened
		}
		hurry = g.choose(now, room, most) || hurry
		some += len(g.chosen)
	}
	if again := srv.began.Add(beat); some > 0 && !hurry && again.After(now) {
		until(again) // a round has just been: let claims gather, there is time
		return r
	}
	for _, g := range srv.groups {
		g.ask(&r, now)
	}
	return r
}

// findDue lists the slots of a group that are to be asked now, and notes when the next one will be. It tells how many
// more tasks may be in hand, of most. The lock is held.
func (t *Timer) findDue(g *group, most int, now time.Time) (room int) {
	g.at, g.due, room = now.Add(poll), g.due[:0], most
	for _, s := range g.slots {
		room -= s.inHand
		if !s.owned() || s.asking {
			continue // asked still, by the server that it was placed at before: the end of that round rings
		}
		if at := s.lookAt(now); at.After(now) {
			if at.Before(g.at) {
				g.at = at
			}
		} else if t.cfg.Ownership.Owns(s.slot.Partition) { // else lost by our own clock: the ring is on its way
			g.due = append(g.due, s)
		}
	}
	return room
}

// ask adds the chosen slots of a group to a round.
func (g *group) ask(r *round, now time.Time) {
	g.sounded = g.sounds
	for _, a := range g.chosen {
		a.slot.heard, a.slot.asking = time.Time{}, true
		r.asks = append(r.asks, asked{g, a.slot})
		r.claims = append(r.claims, slots.Claiming{
			Slot: a.slot.slot, Limit: a.limit, Ahead: ahead + a.slot.skew, Visibility: g.line.Visibility,
			Marker: a.slot.marker, Renew: a.slot.renewal(now),
		})
	}
}

// room is how many tasks of a line may be in hand of each server's slots: one that is slow must not take it all. The
// lock is held.
func (t *Timer) room(l *line) int {
	most := min(maxInHand, (t.cfg.Queue.Capacity(l.ID)*3+3)/4)
	n := max(l.servers, 1)
	return (most + n - 1) / n
}
