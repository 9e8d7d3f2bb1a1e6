package redistimer

import (
	"context"
	"slices"
	"time"

	"github.com/timeoutcenter/toc/internal/wait"
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

// bizTimer is the timer of one business type.
type bizTimer struct {
	*BizType                    // in force; replaced, never changed, so a copy may be used without the lock
	topic    string             // of each BizType; it is read without the lock
	slots    map[int]*slotState // by partition; without the empty ones
	groups   []*group           // of its slots, by server
	inflight int                // claimed and not settled tasks
	late     int                // of those, tasks of the backlog that catch_up limits

	closed bool // the type left redis mode: its claims end, then its slots are dropped
}

// groupAt returns the group of the type at a server.
func (bt *bizTimer) groupAt(srv *server) *group {
	for _, g := range bt.groups {
		if g.server == srv {
			return g
		}
	}
	g := &group{bizTimer: bt, server: srv}
	bt.groups = append(bt.groups, g)
	return g
}

// waitsForRoom reports whether a due slot may wait for a claim to end.
func (bt *bizTimer) waitsForRoom() bool {
	return slices.ContainsFunc(bt.groups, func(g *group) bool { return len(g.due) > 0 })
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
		for _, s := range bt.slots {
			if s.isOwned() {
				note(s.head)
				for _, h := range s.inflight {
					note(h.unread)
				}
			}
		}
	}
}

// forever is later than any task.
var forever = time.Date(2250, 1, 1, 0, 0, 0, 0, time.UTC)

// armUntil is the time up to which tasks are armed.
func (n *node) armUntil(b *BizType, now time.Time) time.Time {
	if b.Horizon == 0 {
		return forever
	}
	return now.Add(max(b.Horizon, n.reader.leastHorizon()))
}

// SetTypes replaces the business types of mode redis. A removed type's claims end, its slots are emptied in the
// background, and the scan engine finds its rows.
func (t *Timer) SetTypes(types []BizType) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.bizTimers
	t.bizTimers = make(map[uint64]*bizTimer, len(types))
	t.topics = make(map[string]*bizTimer, len(types))
	t.list = nil
	var added []*bizTimer
	for _, b := range types {
		bt := old[b.ID]
		isNew := bt == nil || bt.Topic != b.Topic
		if c := t.closing[b.ID]; isNew && c != nil && c.Topic == b.Topic {
			bt = c // its claims stay
			delete(t.closing, b.ID)
		} else if isNew {
			bt = &bizTimer{topic: b.Topic, slots: make(map[int]*slotState)}
		}
		if isNew {
			added = append(added, bt)
		}
		bt.BizType, bt.closed = &b, false
		t.bizTimers[b.ID], t.topics[b.Topic] = bt, bt
		t.list = append(t.list, bt)
	}
	for id, bt := range old {
		if t.bizTimers[id] != bt {
			bt.closed = true
			t.closing[id] = bt
			for _, s := range bt.slots {
				t.planner.update(s)
			}
			t.background.Go(func() { t.dropType(bt) })
		}
	}
	if len(types) > 0 {
		t.placement.place(t.cfg.Now())
		select {
		case <-t.hasTypes:
		default:
			close(t.hasTypes)
		}
	}
	t.takeOver()
	if len(added) == 0 {
		return
	}
	t.planner.sweeps = append(t.planner.sweeps, sweep{types: added, n: len(t.partitions)})
	for p := range t.partitions {
		if t.partitions[p].term != 0 {
			t.partitions[p].forgetRead(added...)
			t.reader.request(p, nearFirst)
		}
	}
	t.planner.replan.Set()
}

// dropType empties the slots of a removed type once its claims have ended.
func (t *Timer) dropType(bt *bizTimer) {
	pause := wait.Backoff{First: 5 * time.Millisecond, Most: time.Second}
	t.mu.Lock()
	for bt.closed && bt.inflight > 0 && !t.stopping {
		t.mu.Unlock()
		time.Sleep(pause.Next())
		t.mu.Lock()
	}
	if !bt.closed { // the type was added again
		t.mu.Unlock()
		return
	}
	var list []slots.Slot
	for p := range t.partitions {
		if slot := (slots.Slot{Topic: bt.Topic, Partition: p}); t.partitions[p].term != 0 && !t.placement.serverOf(slot).foreign {
			list = append(list, slot)
		}
	}
	b := bt.BizType
	if t.closing[b.ID] == bt {
		delete(t.closing, b.ID)
	}
	for _, s := range bt.slots {
		t.releaseSlot(s)
	}
	stopping := t.stopping
	t.mu.Unlock()
	if stopping {
		return // the next owner of the slots finds out
	}
	// Slots that stay expire, and until then the row decides over each task in them.
	for i, err := range t.slots.Drop(context.Background(), list) {
		if err != nil {
			t.cfg.Logger.Warn("the slots of a biz_type that left redis mode are not all removed", "biz_type", b.Name, "slot", t.slots.StoreKey(list[i]), "error", err)
			break
		}
	}
	t.fallbacks.Set()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.topics[bt.Topic] != nil { // it is back, and may have lost what was armed meanwhile
		t.reader.requestAll()
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
	if bt == nil || !t.health.isServed(bt, partition) {
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
		t.mu.Lock()
		t.takeOver()
		t.mu.Unlock()
		select {
		case <-changes:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// takeOver starts a new term for partitions that this node has taken, and releases the slots of lost partitions. The lock is
// held.
func (t *Timer) takeOver() {
	for i := range t.partitions {
		p, term := &t.partitions[i], t.cfg.Ownership.Term(i)
		if p.term == term {
			continue
		}
		p.term, p.lastRead, t.placement.slotCounts = term, lastRead{}, nil
		for _, srv := range t.servers {
			srv.settles.Hurry() // another node may wait for the end of the partition's claims
		}
		for _, bt := range t.list {
			if s := bt.slots[i]; s != nil {
				t.releaseSlot(s)
			}
		}
		if term != 0 {
			t.planner.sweeps = append(t.planner.sweeps, sweep{types: t.list, from: i, n: 1})
			t.reader.request(i, nearFirst)
			t.planner.replan.Set()
		}
	}
}

// releaseSlot resets a slot that this node does not own any more, but for its claims. Whether it is reachable is now known only to
// its new owner. The lock is held.
func (t *Timer) releaseSlot(s *slotState) {
	t.health.endFailure(s)
	s.head, s.lastPoll, s.pollNow, s.hasOrphans = time.Time{}, time.Time{}, false, false
	s.backlogLeft, s.differs, s.ghosts = false, Differences{}, 0
	t.planner.update(s)
}
