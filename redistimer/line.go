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
	Topic      string        // names its slots
	Horizon    time.Duration // tasks due within it are armed; 0: all
	Visibility time.Duration // a claim that is not settled for so long is rolled back
}

// line is one business type at work: its slots by partition.
type bizTimer struct {
	*BizType // as it is now: replaced, never changed. Who works without the lock takes it along
	slots    []slotState
	servers  int // that have slots of it
	inflight int // claimed and not settled

	closed bool // not redis any more: what is in hand ends, then its slots are dropped
}

// slotState is what this node knows of a slot.
type slotState struct {
	slot          slots.Slot
	server        *server       // that it is at, as far as known
	group         *group        // of its server and type
	guard         bool          // it is looked at for all slots of its partition that are at its server
	inRound       bool          // a round asks it: its claims and their recovery would be taken for another's
	term          uint64        // of the partition, when it became ours; 0: it is not
	head          time.Time     // when its head is due, as far as known; zero: empty
	announcedHead time.Time     // the earliest head heard of since Redis was asked: the answer may not know it
	lastPoll      time.Time     // when Redis was last asked
	pollNow       bool          // it is to be asked, quiet or not
	skew          time.Duration // how far Redis's clock is behind ours, as far as known: tasks are due by one clock, their owner's

	// The rows up to this time are in Redis; zero: nothing is known.
	covered         time.Time
	repairReason    string                  // reason why it is to be filled from the store; "" none
	orphansBefore   time.Time               // claims made before then that are not held are nobody's; zero: not to be looked for
	lastOrphanCount time.Time               // when claims that are not held were last found by their number
	inflight        map[uint64]inflightTask // claimed by us, not settled
	inflightClaims  int                     // claims in held

	marker        string    // the one that we have set; "": none
	markerRenewed time.Time // when that was, or when Redis was last seen to renew it
	answered      bool      // Redis was reached since it is ours
	foreign       bool      // it has another store's marker: the scan engine serves ours
	displacedHead time.Time // when its head was due before an earlier one came; zero: that was seen since
	vanishedHead  time.Time // when the task was due that was its head and is gone; zero: none

	unarmed          bool      // tasks were stored and not armed since it was filled: its marker says too much
	unreachableSince time.Time // since when it is out of reach; zero: it is not
	fallback         bool      // and for so long that the scan engine serves it
}

// served tells whether this engine serves a slot.
func (s *slotState) isServed() bool { return !s.fallback && !s.foreign }

func (s *slotState) isOwned() bool { return s.term != 0 }

const (
	// quietFrom is how far off the head of a quiet slot is, at least.
	quietFrom = 10 * time.Second
	// quietRenew is how often the queues of a quiet slot are kept from expiring, if there are tasks in them.
	quietRenew = time.Hour
)

// quiet tells whether nothing is to be done in a slot soon. It is not looked at then, and has no marker: what happens
// in it is heard of by a wake-up, and that Redis has lost it by its guard.
func (s *slotState) isQuiet(now time.Time) bool {
	return !s.guard && !s.pollNow && !s.foreign && len(s.inflight) == 0 && s.unreachableSince.IsZero() && (s.head.IsZero() || s.head.Sub(now) > quietFrom)
}

// holding counts our claims of one task. A second claim comes in while the first
// is being settled, or because Redis has lost the first one.
type inflightTask struct {
	claims   int // known to us
	settling int // of those, on their way back to Redis
	// changed: the task was armed meanwhile, which Redis may have left to the claim.
	rearmed bool
}

// setSkew learns from an answer that the skew is in these bounds: Redis read its
// clock at some moment between the question and the answer. A slow answer says
// little, and must not be taken for a clock that is behind.
func (s *slotState) setSkew(least, most time.Duration) {
	s.skew = max(least, min(s.skew, most)).Round(time.Millisecond)
}

func newBizTimer(b BizType, partitions int) *bizTimer {
	l := &bizTimer{BizType: &b, slots: make([]slotState, partitions)}
	for p := range l.slots {
		l.slots[p] = slotState{slot: slots.Slot{Topic: b.Topic, Partition: p}}
	}
	return l
}

// forever is farther than any task.
var forever = time.Date(2250, 1, 1, 0, 0, 0, 0, time.UTC)

// armUntil is how far ahead tasks are armed when they are stored.
func (b *BizType) armUntil(now time.Time) time.Time {
	if b.Horizon == 0 {
		return forever
	}
	return now.Add(b.Horizon)
}

// margin keeps what slots are filled up to behind what submits arm: a task that
// is too far for its submit is always beyond what was filled, whatever the
// clocks and the commit took.
func (b *BizType) margin() time.Duration { return min(b.Horizon/4, time.Minute) }

// coverUntil is how far ahead slots are filled from the store.
func (b *BizType) coverUntil(now time.Time) time.Time { return b.armUntil(now).Add(-b.margin()) }

// step is how far the horizon may move on before a slot is filled again.
func (b *BizType) step() time.Duration { return min(b.Horizon/4, 5*time.Minute) }

// SetTypes puts the business types of mode redis in force. What slots of types
// that are gone hold is handed over: what is claimed ends, the slots are emptied
// in the background, and the scan engine finds the rows. New ones are filled
// from the store.
func (t *Timer) SetTypes(types []BizType) {
	t.mu.Lock()
	old := t.bizTimers
	t.bizTimers = make(map[uint64]*bizTimer, len(types))
	for _, b := range types {
		l := old[b.ID]
		if c := t.closing[b.ID]; c != nil && c.Topic == b.Topic && (l == nil || l.Topic != b.Topic) {
			l = c
			l.resetTerms()
			delete(t.closing, b.ID)
		}
		if l == nil || l.Topic != b.Topic {
			l = newBizTimer(b, t.cfg.Layout.Partitions)
		}
		l.setPolicy(b, t.cfg.Now())
		t.bizTimers[b.ID] = l
	}
	if len(types) > 0 {
		select {
		case <-t.hasTypes:
		default:
			close(t.hasTypes)
		}
	}
	for id, l := range old {
		if t.bizTimers[id] != l {
			l.closed = true
			t.closing[id] = l
			t.background.Go(func() { t.dropType(l) })
		}
	}
	t.topics = make(map[string]*bizTimer, len(t.bizTimers))
	for _, l := range t.bizTimers {
		t.topics[l.Topic] = l
	}
	t.place(t.cfg.Now())
	t.mu.Unlock()
	t.takeOver()
}

// change puts other policies in force in place; claims go on.
func (l *bizTimer) setPolicy(b BizType, now time.Time) {
	l.BizType, l.closed = &b, false
	for p := range l.slots {
		// A shorter horizon counts at once.
		if s := &l.slots[p]; s.covered.After(b.coverUntil(now)) {
			s.covered = b.coverUntil(now)
		}
	}
}

// forget makes all slots look as if they had just become ours. What is held stays
// held.
func (l *bizTimer) resetTerms() {
	for p := range l.slots {
		l.slots[p].term = 0
	}
}

// drop empties the slots of a line that is not wanted any more, once nothing of it
// is in hand.
func (t *Timer) dropType(l *bizTimer) {
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		t.mu.Lock()
		if !l.closed { // wanted again
			t.mu.Unlock()
			return
		}
		if l.inflight == 0 || t.stopping {
			break
		}
		t.mu.Unlock()
		time.Sleep(wait)
	}
	var slots []slots.Slot
	for p := range l.slots {
		if l.slots[p].isOwned() && !l.slots[p].foreign {
			slots = append(slots, l.slots[p].slot)
		}
	}
	b := l.BizType
	if t.closing[b.ID] == l {
		delete(t.closing, b.ID)
	}
	for p := range l.slots {
		t.releaseSlot(&l.slots[p])
	}
	stopping := t.stopping
	t.mu.Unlock()
	if stopping {
		return // the next owner of the slots finds out
	}
	slots, err := t.dropSlots(slots)
	signal(t.fallbacks)
	if err == nil {
		return
	}
	t.cfg.Logger.Warn("slots of a biz_type that left redis mode not emptied yet", "biz_type", b.Name, "slots", len(slots), "error", err)
	for try := 0; err != nil && try < dropTries && !t.isWanted(b); try++ {
		time.Sleep(dropPause)
		slots, err = t.dropSlots(slots)
	}
}

// dropTries bounds how often, after a pause each, slots are emptied that Redis did not
// empty at once. What stays is not believed, and Redis lets it go after queueKept.
const (
	dropTries = 300
	dropPause = time.Second
)

// dropSlots empties slots, and lists those that are left.
func (t *Timer) dropSlots(slots []slots.Slot) (left []slots.Slot, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	for i, e := range t.slots.Drop(ctx, slots) {
		if e != nil {
			left, err = append(left, slots[i]), e
		}
	}
	return left, err
}

// wants tells whether the slots of a type are in use again, or nobody's business any
// more because we stop.
func (t *Timer) isWanted(b *BizType) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.bizTimers[b.ID]
	return t.stopping || l != nil && l.Topic == b.Topic
}

// Serves tells whether this engine, and not the scan engine, fires the tasks of
// a business type in a partition now.
func (t *Timer) Serves(bizType uint64, partition int) bool {
	_, serves := t.Until(bizType, partition)
	return serves
}

// Until implements dispatch.Engine: what is due by then is armed.
func (t *Timer) Until(bizType uint64, partition int) (until time.Time, serves bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.bizTimers[bizType]
	if l == nil || !l.slots[partition].isServed() {
		return time.Time{}, false
	}
	return l.armUntil(t.cfg.Now()), true
}

// Watch rings when there are tasks that this engine does not serve any more. There is one channel.
func (t *Timer) Watch() <-chan struct{} { return t.fallbacks }

// takeOver looks at the partitions that became ours, and forgets what it knew of
// those that are not.
func (t *Timer) takeOver() {
	t.mu.Lock()
	defer t.mu.Unlock()
	terms := make([]uint64, t.cfg.Layout.Partitions)
	for p := range terms {
		terms[p] = t.cfg.Ownership.Term(p)
	}
	for _, l := range t.bizTimers {
		for p := range l.slots {
			s := &l.slots[p]
			switch term := terms[p]; {
			case term != 0 && s.term != term:
				t.releaseSlot(s)
				s.term, s.head, s.lastPoll = term, time.Time{}, time.Time{}
				s.markLost()
				t.markOrphans(s)
			case term == 0:
				t.releaseSlot(s)
				if s.repairReason != "" || s.unarmed {
					s.marker, s.covered, s.repairReason = "", time.Time{}, "" // not to be handed over as complete
				}
			default:
				continue
			}
			s.group.planAgain()
		}
	}
	signal(t.replan)
	signal(t.repairNeeded)
}

// giveUp makes a slot one that is not ours: whether it is out of reach is another
// node's to know. The lock is held.
func (t *Timer) releaseSlot(s *slotState) {
	if s.fallback {
		t.fallbackSlots--
	}
	s.term, s.unreachableSince, s.fallback, s.answered, s.foreign, s.displacedHead, s.vanishedHead = 0, time.Time{}, false, false, false, time.Time{}, time.Time{}
}
