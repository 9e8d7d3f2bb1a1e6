package redistimer

import (
	"container/heap"
	"time"

	"github.com/timeoutcenter/toc/redistimer/slots"
)

// slotState is this node's view of a slot that has something: a head, claims, or a reason to be asked. Of other slots nothing is
// in memory, so that idle types cost nothing.
type slotState struct {
	slot      slots.Slot
	partition *partition
	group     *group        // of its type at its server
	turn      time.Duration // the turns of a database's slots follow each other; see turnAt
	phase     phase
	pollAt    time.Time // while it waits: when it is polled
	index     int       // while it waits: in the heap of its server

	head          time.Time // when the first task is due, as far as known; zero: empty
	announcedHead time.Time // the earliest head announced during a round, which the answer may not include
	lastPoll      time.Time // when Redis was last asked
	lateClaimed   bool      // the last claim took from the backlog that catch_up limits
	pollNow       bool      // poll it in the next round

	backlogLeft     bool                    // the last read may have left a part of the backlog in the store
	hasOrphans      bool                    // claims that are not inflight are to be rolled back
	lastOrphanCount time.Time               // when orphans were last found because Redis had more claims than this node
	inflight        map[uint64]inflightTask // claimed by this node, not settled
	inflightClaims  int                     // the number of claims in inflight

	differs Differences // of the last read
	ghosts  int         // tasks that were claimed since then, and not pending for longer

	failingSince time.Time // since when Redis does not answer for it, although its server may serve others; zero: it answers
	fallback     bool      // it has been failing for so long that the scan engine serves it
	refusesRows  bool      // the last read could not arm its rows: it is failing, although its polls may be answered
}

// phase is where a slot is between two polls.
//
//	idle ──► waiting ──► due ──► asked ──► idle, waiting or out of memory
type phase uint8

const (
	idle    phase = iota // it need not be polled
	waiting              // in the heap of its server, until pollAt
	due                  // in the list of its group: one of the next rounds polls it
	asked                // a round polls it. Until it ends, the claims of that round must not be taken for orphans
)

// inflightTask counts this node's claims of one task. There is a second claim if the first is being settled, or
// if Redis has lost the first.
type inflightTask struct {
	claims   int // known to this node
	late     bool
	settling int       // of those, being settled
	unread   time.Time // when the task is due; zero: its row has been read since it was claimed
	// recheckRow: read the row when the claim has ended, to put the task in its place. It was armed during the claim, and Redis may
	// have ignored that because of the claim; or it was finished, and the end of the claim may bring it back.
	recheckRow bool
}

// holds reports whether this node has claimed a task. A slot without a slotState has no claims.
func (s *slotState) holds(jobID uint64) bool { return s != nil && s.inflight[jobID].claims > 0 }

// recheck makes the end of a task's claim read its row again. It reports whether the task is claimed.
func (s *slotState) recheck(jobID uint64) (claimed bool) {
	if !s.holds(jobID) {
		return false
	}
	h := s.inflight[jobID]
	h.recheckRow = true
	s.inflight[jobID] = h
	return true
}

// slotOf returns the slot of a business type in a partition. If it has none in memory, there is one from now on: the caller
// changes it and calls update. The lock is held.
func (pl *planner) slotOf(bt *bizTimer, p int) *slotState {
	s := bt.slots[p]
	if s == nil {
		s = &slotState{slot: slots.Slot{Topic: bt.Topic, Partition: p}, partition: &pl.partitions[p]}
		s.turn = turnEvery * time.Duration(p) / time.Duration(len(pl.partitions))
		s.group = bt.groupAt(pl.placement.serverOf(s.slot))
		bt.slots[p] = s
	}
	return s
}

// update brings a slot that has changed to its place. The lock is held.
func (pl *planner) update(s *slotState) {
	if s.phase == due || s.phase == asked {
		return // it is brought there when it leaves its group or its round
	}
	s.leaveHeap()
	if s.wait(s.nextPoll(pl.cfg.Now())); s.phase == waiting && s.index == 0 {
		pl.replan.Set()
	}
}

// wait lets an idle slot wait in the heap of its server. One that need not be polled, and has nothing, leaves the memory.
func (s *slotState) wait(at time.Time) {
	switch {
	case at != forever:
		s.phase, s.pollAt = waiting, at
		heap.Push(&s.group.server.heads, s)
	case s.isEmpty():
		delete(s.group.bizTimer.slots, s.slot.Partition)
	}
}

func (s *slotState) leaveHeap() {
	if s.phase == waiting {
		heap.Remove(&s.group.server.heads, s.index)
		s.phase = idle
	}
}

// isEmpty reports whether an idle slot need not be in memory.
func (s *slotState) isEmpty() bool {
	return len(s.inflight) == 0 && !s.hasOrphans && s.failingSince.IsZero() && !s.backlogLeft && s.differs == Differences{} && s.ghosts == 0
}

func (s *slotState) isOwned() bool { return s.partition.term != 0 }

// nextPoll is when the slot must be polled next. Its head is known from reads, wake-ups and the answers of Redis.
func (s *slotState) nextPoll(now time.Time) time.Time {
	switch {
	case !s.isOwned() || s.group.bizTimer.closed:
		return forever
	case !s.failingSince.IsZero():
		return s.lastPoll.Add(retryEvery)
	case s.pollNow:
		return time.Time{}
	case s.group.bizTimer.CatchUp > 0 && s.hasLate(now):
		return s.lastPoll.Add(minRoundGap) // no wake-up announces a fresh task
	case s.head.IsZero():
		return forever
	}
	if turn := s.turnAt(s.head).Add(-claimAhead); s.group.isDense && turn.After(s.lastPoll) {
		return turn
	}
	return s.head.Add(-claimAhead)
}

// ask makes the next round poll a slot. The lock is held.
func (pl *planner) ask(s *slotState) {
	s.pollNow = true
	pl.update(s)
}

// askForOrphans marks the claims of a slot that this node does not hold for rollback. The lock is held.
func (pl *planner) askForOrphans(s *slotState) {
	if s.isOwned() { // otherwise the next owner looks for them
		s.hasOrphans = true
		pl.ask(s)
	}
}

// countOrphans records that Redis has more claims in a slot than this node. The lock is held.
func (pl *planner) countOrphans(s *slotState, now time.Time) {
	if now.Sub(s.lastOrphanCount) >= orphansEvery {
		s.lastOrphanCount = now
		pl.askForOrphans(s)
	}
}

// advanceHead records that a slot has a task that is due at a time. The lock is held.
func (pl *planner) advanceHead(bt *bizTimer, p int, at time.Time) {
	if pl.partitions[p].term == 0 || bt.closed {
		return
	}
	s := pl.slotOf(bt, p)
	if s.announcedHead.IsZero() || at.Before(s.announcedHead) {
		s.announcedHead = at
	}
	if s.head.IsZero() || at.Before(s.head) {
		s.head = at
		pl.update(s)
	}
}

// slotHeap has the slots of a server that wait, the next one to poll first.
type slotHeap []*slotState

func (h slotHeap) Len() int           { return len(h) }
func (h slotHeap) Less(i, k int) bool { return h[i].pollAt.Before(h[k].pollAt) }

func (h slotHeap) Swap(i, k int) {
	h[i], h[k] = h[k], h[i]
	h[i].index, h[k].index = i, k
}

// Push implements heap.Interface.
func (h *slotHeap) Push(s any) {
	one, _ := s.(*slotState)
	one.index = len(*h)
	*h = append(*h, one)
}

// Pop implements heap.Interface.
func (h *slotHeap) Pop() any {
	last := len(*h) - 1
	s := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return s
}

// sweep asks each slot of some business types once, in some partitions, at one server or all: Redis may have tasks or claims in
// them that this node does not know of.
type sweep struct {
	types []*bizTimer
	from  int     // the first partition
	n     int     // number of partitions
	at    *server // nil: any
	next  int
}

// askAll makes the next rounds ask all slots at a server. The lock is held.
func (pl *planner) askAll(at *server) {
	pl.sweeps = append(pl.sweeps, sweep{types: pl.list, n: len(pl.partitions), at: at})
	pl.replan.Set()
}

// advanceSweeps goes on with the sweeps, and returns whether there is more to do at once. While many slots are due, it waits for
// the end of a round. Slots of a server that serves none are left out: they are asked when it does. The lock is held.
func (pl *planner) advanceSweeps() (more bool) {
	waiting, serves := 0, false
	for _, srv := range pl.servers {
		serves = serves || srv.isServing()
		for _, g := range srv.due {
			waiting += len(g.due)
		}
	}
	if !serves {
		pl.sweeps = nil
	}
	for looked := 0; len(pl.sweeps) > 0 && waiting < maxRoundSlots; {
		one := &pl.sweeps[0]
		if one.next >= len(one.types)*one.n {
			pl.sweeps = pl.sweeps[1:]
			continue
		}
		if looked++; looked > maxRoundSlots {
			return true
		}
		p, i := one.from+one.next/len(one.types), one.next%len(one.types)
		if pl.partitions[p].term == 0 {
			one.next += len(one.types) - i // to the next partition
			continue
		}
		one.next++
		bt := one.types[i]
		if srv := pl.placement.serverAt(bt, p); !bt.closed && srv.isServing() && (one.at == nil || one.at == srv) {
			pl.askForOrphans(pl.slotOf(bt, p))
			waiting++
		}
	}
	return false
}
