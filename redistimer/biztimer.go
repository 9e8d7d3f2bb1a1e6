package redistimer

import (
	"context"
	"time"

	"github.com/timeoutcenter/toc/redistimer/slots"
	"github.com/timeoutcenter/toc/task"
)

// BizType is a business type of mode redis.
type BizType struct {
	task.BizType
	Topic      string        // in the names of its slots
	Horizon    time.Duration // tasks due within it are armed; 0: all tasks
	Visibility time.Duration // a claim that is not settled within it is rolled back
}

// bizTimer is the timer of one business type: its slots by partition.
type bizTimer struct {
	*BizType // in force; replaced, never changed, so it may be copied and used without the lock
	slots    []slotState
	servers  int // number of servers that have slots of the type
	inflight int // claimed and not settled tasks
	late     int // of those, tasks of the backlog that catch_up limits

	closed bool // the type left redis mode: its claims end, then its slots are dropped
}

// slotState is this node's view of a slot.
type slotState struct {
	slot          slots.Slot
	server        *server   // that has the slot, as far as known
	group         *group    // of its server and type
	inRound       bool      // a round polls it: recovery must not mistake the claims of that round for orphans
	term          uint64    // of the partition when the slot became ours; 0: it is not ours
	head          time.Time // when the first task is due, as far as known; zero: empty
	announcedHead time.Time // the earliest head announced since the last poll, which the answer may not include
	lastPoll      time.Time // when Redis was last asked
	lateClaimed   bool      // the last claim took from the backlog that catch_up limits
	pollNow       bool      // poll it in the next round

	lastRead        lastRead                // of its whole window; zero: none in this term
	backlogLeft     bool                    // the last read may have left a part of the backlog in the store
	hasOrphans      bool                    // claims that are not inflight are to be rolled back
	lastOrphanCount time.Time               // when orphans were last found because Redis had more claims than this node
	inflight        map[uint64]inflightTask // claimed by this node, not settled
	inflightClaims  int                     // the number of claims in inflight

	differs Differences // of the last read
	ghosts  int         // tasks that were claimed since then, and not pending for longer

	unreachableSince time.Time // since when Redis does not answer for it; zero: it answers
	fallback         bool      // it has been unreachable for so long that the scan engine serves it
}

// isServed reports whether this engine serves the slot.
func (s *slotState) isServed() bool { return !s.fallback && !s.server.foreign }

// isUsable reports whether the slot is this node's and Redis serves it, as far as known.
func (s *slotState) isUsable() bool {
	return s.isOwned() && s.isServed() && s.unreachableSince.IsZero() && s.server.isKnown
}

func (s *slotState) isOwned() bool { return s.term != 0 }

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

// EachOverdue calls f with the business type and the time of tasks that have not come into the queue although their time has
// passed: all claimed ones, and the first one of each slot.
func (t *Timer) EachOverdue(f func(bizType uint64, due time.Time)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.cfg.Now()
	for id, bt := range t.bizTimers {
		note := func(due time.Time) {
			if !due.IsZero() && !due.After(now) {
				f(id, due)
			}
		}
		for p := range bt.slots {
			if s := &bt.slots[p]; s.isOwned() {
				note(s.head)
				for _, h := range s.inflight {
					note(h.unread)
				}
			}
		}
	}
}

func newBizTimer(b BizType, partitions int) *bizTimer {
	bt := &bizTimer{BizType: &b, slots: make([]slotState, partitions)}
	for p := range bt.slots {
		bt.slots[p] = slotState{slot: slots.Slot{Topic: b.Topic, Partition: p}}
	}
	return bt
}

// forever is later than any task.
var forever = time.Date(2250, 1, 1, 0, 0, 0, 0, time.UTC)

// armUntil is the time up to which tasks are armed.
func (t *Timer) armUntil(b *BizType, now time.Time) time.Time {
	if b.Horizon == 0 {
		return forever
	}
	return now.Add(max(b.Horizon, t.leastHorizon()))
}

// SetTypes replaces the business types of mode redis. A removed type's claims end, its slots are emptied in the
// background, and the scan engine finds its rows.
func (t *Timer) SetTypes(types []BizType) {
	t.mu.Lock()
	old := t.bizTimers
	t.bizTimers = make(map[uint64]*bizTimer, len(types))
	for _, b := range types {
		bt := old[b.ID]
		if c := t.closing[b.ID]; c != nil && c.Topic == b.Topic && (bt == nil || bt.Topic != b.Topic) {
			bt = c
			bt.resetTerms()
			delete(t.closing, b.ID)
		}
		if bt == nil || bt.Topic != b.Topic {
			bt = newBizTimer(b, t.cfg.Layout.Partitions)
		}
		bt.BizType, bt.closed = &b, false // its claims stay
		t.bizTimers[b.ID] = bt
	}
	if len(types) > 0 {
		select {
		case <-t.hasTypes:
		default:
			close(t.hasTypes)
		}
	}
	for id, bt := range old {
		if t.bizTimers[id] != bt {
			bt.closed = true
			t.closing[id] = bt
			t.background.Go(func() { t.dropType(bt) })
		}
	}
	t.topics = make(map[string]*bizTimer, len(t.bizTimers))
	for _, bt := range t.bizTimers {
		t.topics[bt.Topic] = bt
	}
	t.place(t.cfg.Now())
	t.mu.Unlock()
	t.takeOver()
}

// resetTerms makes takeOver treat all slots as new. Their claims stay.
func (bt *bizTimer) resetTerms() {
	for p := range bt.slots {
		bt.slots[p].term = 0
	}
}

// dropType empties the slots of a removed type once its claims have ended.
func (t *Timer) dropType(bt *bizTimer) {
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		t.mu.Lock()
		if !bt.closed { // the type was added again
			t.mu.Unlock()
			return
		}
		if bt.inflight == 0 || t.stopping {
			break
		}
		t.mu.Unlock()
		time.Sleep(wait)
	}
	var slots []slots.Slot
	for p := range bt.slots {
		if bt.slots[p].isOwned() && !bt.slots[p].server.foreign {
			slots = append(slots, bt.slots[p].slot)
		}
	}
	b := bt.BizType
	if t.closing[b.ID] == bt {
		delete(t.closing, b.ID)
	}
	for p := range bt.slots {
		t.releaseSlot(&bt.slots[p])
	}
	stopping := t.stopping
	t.mu.Unlock()
	if stopping {
		return // the next owner of the slots finds out
	}
	// Slots that stay expire, and until then the row decides over each task in them.
	for i, err := range t.slots.Drop(context.Background(), slots) {
		if err != nil {
			t.cfg.Logger.Warn("the slots of a biz_type that left redis mode are not all removed", "biz_type", b.Name, "slot", t.slots.StoreKey(slots[i]), "error", err)
			break
		}
	}
	t.fallbacks.Set()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.topics[bt.Topic] != nil { // it is back, and may have lost what was armed meanwhile
		for p := range t.reads {
			t.requestRead(p, nearFirst)
		}
	}
}

// InUse reports whether any business type uses this engine.
func (t *Timer) InUse() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.bizTimers) > 0
}

// Serves reports whether this engine, and not the scan engine, fires the tasks of a business type in a
// partition now.
func (t *Timer) Serves(bizType uint64, partition int) bool {
	_, serves := t.Until(bizType, partition)
	return serves
}

// Until implements dispatch.Engine. Tasks that are due by until are armed.
func (t *Timer) Until(bizType uint64, partition int) (until time.Time, serves bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	bt := t.bizTimers[bizType]
	if bt == nil || !bt.slots[partition].isServed() {
		return time.Time{}, false
	}
	return t.armUntil(bt.BizType, t.cfg.Now()), true
}

// Watch returns a channel that receives when this engine stops serving some tasks. All calls return the same
// channel.
func (t *Timer) Watch() <-chan struct{} { return t.fallbacks }

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

// takeOver starts a new term for partitions that this node has taken, and releases the slots of lost partitions.
func (t *Timer) takeOver() {
	t.mu.Lock()
	defer t.mu.Unlock()
	terms := make([]uint64, t.cfg.Layout.Partitions)
	for p := range terms {
		terms[p] = t.cfg.Ownership.Term(p)
	}
	for _, bt := range t.bizTimers {
		for p := range bt.slots {
			s := &bt.slots[p]
			switch term := terms[p]; {
			case term != 0 && s.term != term:
				t.releaseSlot(s)
				s.term = term
				t.markOrphans(s)
				t.requestRead(p, nearFirst)
			case term == 0 && s.term != 0:
				t.releaseSlot(s)
			}
		}
	}
}

// releaseSlot resets a slot that this node does not own any more. Whether it is reachable is now known only to
// its new owner. The lock is held.
func (t *Timer) releaseSlot(s *slotState) {
	if s.fallback {
		t.fallbackSlots--
	}
	s.term, s.head, s.lastPoll, s.unreachableSince, s.fallback = 0, time.Time{}, time.Time{}, time.Time{}, false
	s.lastRead, s.backlogLeft, s.differs, s.ghosts = lastRead{}, false, Differences{}, 0
}
