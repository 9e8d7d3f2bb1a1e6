package redistimer

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/timeoutcenter/toc/redistimer/slots"
	"github.com/timeoutcenter/toc/task"
)

// claim is a task that was claimed and whose row is to be loaded.
type claim struct {
	line   *line
	biz    *BizType // when it was claimed
	slot   *slotState
	member slots.Member
}

// rounds claims whatever is about to be due, in one pipeline for all slots of a
// server, and sleeps until the nearest head.
func (t *Timer) rounds(ctx context.Context) error {
	var underWay sync.WaitGroup
	defer underWay.Wait()
	for ctx.Err() == nil {
		rounds, wait := t.plan(t.cfg.Now())
		for _, r := range rounds {
			underWay.Go(func() { t.round(ctx, r) })
		}
		timer := time.NewTimer(max(wait, 100*time.Microsecond))
		select {
		case <-t.ring:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	return ctx.Err()
}

// round asks the slots of one server and hands on what it got.
func (t *Timer) round(ctx context.Context, r round) {
	start := t.cfg.Now()
	// The end of ctx does not cut off a claim on its way: what it takes must be known.
	answers := t.slots.Claim(context.WithoutCancel(ctx), r.claims)
	now := t.cfg.Now()
	t.cfg.Observer.RoundTrip(now.Sub(start))
	loads := t.take(r, answers, start, now)
	t.load(loads)
	t.recover(r.asks)

	t.mu.Lock()
	t.end(r)
	t.mu.Unlock()
	ring(t.ring)
}

// end notes that a round is over, its recovery as well: its slots may be asked again. The lock is held.
func (t *Timer) end(r round) {
	r.server.asking = false
	for _, a := range r.asks {
		a.slot.asking = false
		a.slot.group.changed()
	}
	t.calmer()
}

// take notes what the slots of a round have answered, and lists the tasks whose
// rows are to be loaded.
func (t *Timer) take(r round, answers []slots.Claimed, start, now time.Time) (loads []claim) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.noticeNew(r.server, answers)
	answered, failure := false, error(nil)
	for i := range answers {
		a, s := &answers[i], r.asks[i].slot
		s.noteSeen(now)
		answered = answered || slots.IsAnswer(a.Err)
		t.wrote(r.server, a.Err)
		if a.Err != nil || r.server.refuses != nil {
			t.failed(s, start)
		} else {
			t.reached(s)
		}
		if a.Err != nil {
			failure = a.Err
			continue
		}
		loads = t.takeSlot(r.asks[i], r.claims[i], a, start, now, loads)
	}
	noteCrowds(r, answers, now)
	t.judge(r.server, start, answered, failure)
	return loads
}

// noteSeen notes that a slot was asked. Looks are spread out: one that finds Redis flushed or gone is never far.
func (s *slotState) noteSeen(now time.Time) {
	if s.look = false; s.seen.IsZero() {
		now = now.Add(-rand.N(poll))
	}
	s.seen = now
}

// takeSlot notes what one slot has answered, and adds the tasks that were claimed there to loads. The lock is held.
func (t *Timer) takeSlot(from asked, claimed slots.Claiming, a *slots.Claimed, start, now time.Time, loads []claim) []claim {
	l, s := from.group.line, from.slot
	s.setSkew(start.Sub(a.Now), now.Sub(a.Now))
	t.looked(l, s, claimed, a, now)
	if s.foreign {
		s.next = time.Time{} // what is due there is not ours
		return loads
	}
	s.next = a.Next
	if !s.heard.IsZero() && (s.next.IsZero() || s.heard.Before(s.next)) {
		s.next = s.heard
	}
	for _, m := range a.Members {
		if t.hold(l, s, m.JobID) {
			loads = append(loads, claim{l, l.BizType, s, m})
		}
	}
	// More claims than we know of: the call that made them was given up, and
	// reached Redis all the same. (Or some were settled since: then none is found.)
	if a.Claims <= len(s.held) {
		s.orphans = time.Time{}
	} else {
		s.look = true // once more
		if now.Sub(s.counted) >= poll {
			s.counted = now
			t.orphaned(s)
		}
	}
	switch isQuiet := s.quiet(now); {
	case isQuiet && a.Claims == 0:
		s.marker = "" // it ends
	case !isQuiet && s.marker == "" && s.repair == "":
		s.group.repairs = true
		ring(t.repairs)
	}
	return loads
}

// noteCrowds learns from a round which groups have a backlog. The slots of a group are side by side in a round.
func noteCrowds(r round, answers []slots.Claimed, now time.Time) {
	for i := 0; i < len(answers); {
		g, asked, got := r.asks[i].group, 0, 0
		for ; i < len(answers) && r.asks[i].group == g; i++ {
			if answers[i].Err == nil && r.claims[i].Limit > 0 {
				asked++
				got += len(answers[i].Members)
			}
		}
		if asked == 0 {
			continue
		}
		if g.dense = got/asked >= minClaim/2; !g.dense {
			g.sparse = now
		}
	}
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

// lost asks for a repair of all slots of a business type, one of which had no marker; of all slots of a server, if
// that was a guard. The lock is held.
func (t *Timer) lost(l *line, s *slotState) {
	for p := range l.slots {
		l.slots[p].lose()
	}
	if s.guard {
		s.server.each((*slotState).lose)
	}
	ring(t.repairs)
}

// lose notes that Redis may lack anything of a slot. The lock is held.
func (s *slotState) lose() {
	if s.owned() && !s.foreign {
		s.marker, s.covered, s.repair, s.group.repairs = "", time.Time{}, ReasonLost, true
	}
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
	if s.held == nil {
		s.held = make(map[uint64]holding)
	}
	s.held[jobID] = h
	s.inHand++
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
	s.inHand--
	l.inHand--
	if l.inHand < maxInHand*3/4 || l.inHand == 0 {
		ring(t.ring)
	}
}

// isPending tells whether a row is still to be run by this engine.
func isPending(row *task.Task, b *BizType) bool {
	return row.Status == task.Pending && row.BizType == b.ID
}
