package redistimer

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/timeoutcenter/toc/task"
)

// claim is a task that was claimed and whose row is to be loaded.
type claim struct {
	line   *line
	biz    *BizType // when it was claimed
	slot   *slotState
	member Member
}

// rounds claims whatever is about to be due, in one pipeline for all slots, and
// sleeps until the nearest head.
func (t *Timer) rounds(ctx context.Context) error {
	last := time.Time{}
	for {
		now := t.cfg.Now()
		asks, claims, wait := t.plan(now)
		if len(asks) > 0 && now.Sub(last) < beat && wait > 0 {
			// A round has just been: let claims gather, there is time.
			t.rest()
			asks = nil
			wait = min(wait, beat-now.Sub(last))
		}
		if len(asks) > 0 {
			last = now
			t.round(ctx, asks, claims)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			continue
		}
		timer := time.NewTimer(max(wait, 100*time.Microsecond))
		select {
		case <-t.ring:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// asked is a slot that a round asks.
type asked struct {
	line *line
	slot *slotState
}

// plan lists the slots to ask now. With urgent ones among them wait is 0; else it
// is how long the round, or the next one, may wait.
func (t *Timer) plan(now time.Time) (asks []asked, claims []Claiming, wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	wait = poll
	for _, l := range t.lines {
		most := min(maxInHand, (t.cfg.Queue.Capacity(l.ID)*3+3)/4)
		room := most - l.inHand
		var due []*slotState
		for p := range l.slots {
			s := &l.slots[p]
			if !s.owned() {
				continue
			}
			look := s.seen.Add(poll)
			if !s.failing.IsZero() {
				look = s.seen.Add(retry)
			}
			if !s.next.IsZero() && s.failing.IsZero() {
				if at := s.next.Add(-ahead); at.Before(look) {
					look = at
				}
			}
			if look.After(now) {
				wait = min(wait, look.Sub(now))
				continue
			}
			if !t.cfg.Ownership.Owns(p) {
				continue // lost by our own clock: the ring is on its way
			}
			due = append(due, s)
		}
		slices.SortFunc(due, func(a, b *slotState) int { return a.dueBy(now).Compare(b.dueBy(now)) })
		// Where there is a backlog, few big batches: their rows share tables. Where
		// there is none, all slots at once. A crowd is found out by its first slots.
		size := maxClaim
		if !l.dense && len(due) > maxInHand/maxClaim {
			if l.sounded = !l.sounded && now.Sub(l.sparse) > 10*beat; l.sounded {
				due, wait = due[:sounding], 0
			} else {
				size = minClaim
			}
		}
		for _, s := range due {
			limit := size
			if limit = min(limit, (most+3)/4); limit > room || most == 0 {
				if most == 0 {
					wait = min(wait, ahead) // the lane is about to be opened
				}
				if now.Sub(s.seen) < poll {
					continue // a settle rings when there is room
				}
				limit = 0 // only look
			}
			room -= limit
			s.heard = time.Time{}
			asks = append(asks, asked{l, s})
			claims = append(claims, Claiming{Slot: s.slot, Limit: limit, Ahead: ahead + s.skew, Visibility: l.Visibility})
			if l.dense || (!s.next.IsZero() && s.next.Sub(now) < ahead/2) {
				wait = 0
			}
		}
	}
	t.asking = len(asks) > 0
	return asks, claims, wait
}

// round asks the slots and hands on what it got.
func (t *Timer) round(ctx context.Context, asks []asked, claims []Claiming) {
	start := t.cfg.Now()
	// A claim on its way is not cut off: what it takes must be known.
	answers := t.slots.Claim(context.WithoutCancel(ctx), claims)
	now := t.cfg.Now()
	t.cfg.Observer.RoundTrip(now.Sub(start))

	var loads []claim
	var handover bool
	t.mu.Lock()
	for i, a := range answers {
		l, s := asks[i].line, asks[i].slot
		// Looks are spread out: one that finds Redis flushed or gone is never far.
		if s.seen.IsZero() {
			s.seen = now.Add(-rand.N(poll))
		} else {
			s.seen = now
		}
		if a.Err != nil {
			handover = t.failed(s, start, now, a.Err) || handover
			continue
		}
		t.reached(s)
		s.setSkew(start.Sub(a.Now), now.Sub(a.Now))
		if claims[i].Limit > 0 {
			l.asked++
			l.got += len(a.Members)
		}
		s.next = a.Next
		if !s.heard.IsZero() && (s.next.IsZero() || s.heard.Before(s.next)) {
			s.next = s.heard
		}
		if a.Marker == "" && s.repair != ReasonLost && !s.covered.IsZero() {
			t.lost(l)
		}
		for _, m := range a.Members {
			if t.hold(l, s, m.JobID) {
				loads = append(loads, claim{l, l.BizType, s, m})
			}
		}
		// More claims than we know of: the call that made them was given up, and
		// reached Redis all the same. (Or some were settled since: then none is found.)
		if a.Claims > len(s.held) && now.Sub(s.counted) >= poll {
			s.counted = now
			t.orphaned(s)
		}
	}
	for _, l := range t.lines {
		if l.asked > 0 {
			if l.dense = l.got/l.asked >= minClaim/2; !l.dense {
				l.sparse = now
			}
			l.asked, l.got = 0, 0
		}
	}
	t.mu.Unlock()
	t.rest()
	if handover {
		t.cfg.Handover()
	}
	t.load(loads)
	t.recover(asks)
}

// rest notes that no claim is on its way to us.
func (t *Timer) rest() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asking = false
	t.calmer()
}

// load has the rows of claimed tasks read: one statement a database.
func (t *Timer) load(claims []claim) {
	slices.SortFunc(claims, func(a, b claim) int { return cmp.Compare(a.slot.slot.Partition, b.slot.slot.Partition) })
	for len(claims) > 0 {
		d := t.cfg.Layout.PartitionDatabase(claims[0].slot.slot.Partition)
		n := 1
		for n < len(claims) && t.cfg.Layout.PartitionDatabase(claims[n].slot.slot.Partition) == d {
			n++
		}
		t.loads[d].Add(claims[:n]...)
		claims = claims[n:]
	}
}

// lost asks for a repair of all slots of a business type: one had no marker. The
// lock is held.
func (t *Timer) lost(l *line) {
	for p := range l.slots {
		if s := &l.slots[p]; s.owned() {
			s.covered, s.repair = time.Time{}, ReasonLost
		}
	}
	ring(t.repairs)
}

// dueBy is when a slot is to be asked at the latest, for the order in which slots
// get what room there is.
func (s *slotState) dueBy(now time.Time) time.Time {
	if s.next.IsZero() {
		return now.Add(ahead) // behind those that are known to have something
	}
	return s.next
}

// hold takes a claimed task into our hands. It answers false if it was there
// already: Redis had lost the claim, and the slot was filled again. The lock is
// held.
func (t *Timer) hold(l *line, s *slotState, jobID uint64) bool {
	h := s.held[jobID]
	if h.claims > h.settling {
		return false
	}
	h.claims++
	s.held[jobID] = h
	l.inHand++
	return true
}

// letGo takes a settled task out of our hands. The lock is held.
func (t *Timer) letGo(l *line, s *slotState, jobID uint64) {
	h := s.held[jobID]
	h.claims--
	h.settling--
	if s.held[jobID] = h; h.claims == 0 {
		delete(s.held, jobID)
		if h.changed {
			t.gone.Add(jobID)
		}
	}
	l.inHand--
	if l.inHand < maxInHand*3/4 || l.inHand == 0 {
		ring(t.ring)
	}
}

// isPending tells whether a row is still to be run by this engine.
func isPending(row *task.Task, b *BizType) bool {
	return row.Status == task.Pending && row.BizType == b.ID
}
