package redistimer

import (
	"context"
	"sync"
	"time"

	"github.com/timeoutcenter/toc/internal/wait"
	"github.com/timeoutcenter/toc/redistimer/slots"
)

// listen hears of heads that became earlier, on any node. Without business types
// nobody needs a Redis. All servers of a cluster tell the same: where one falls
// silent, another is heard.
func (t *Timer) listen(ctx context.Context) error {
	select {
	case <-t.wanted:
	case <-ctx.Done():
		return ctx.Err()
	}
	var hearers sync.WaitGroup // one that is hung up on a silent server holds up nobody
	defer hearers.Wait()
	for ctx.Err() == nil {
		one, cancel := context.WithCancel(ctx)
		t.mu.Lock()
		var via *slots.Slot
		if t.hearing, t.deaf = t.speaker(), cancel; t.hearing != nil {
			via = &t.hearing.groups[0].slots[0].slot
		}
		t.mu.Unlock()
		hearers.Go(func() {
			defer cancel()
			err := t.slots.Hear(one, via, t.wake, t.lookAgain)
			if one.Err() == nil {
				t.cfg.Logger.Warn("wake-ups are not heard; slots are looked at every few seconds", "error", err)
				_ = wait.For(one, retry)
			}
		})
		<-one.Done()
	}
	return ctx.Err()
}

// speaker is a server that answers, if there is one that has slots. The lock is held.
func (t *Timer) speaker() *server {
	for _, srv := range t.servers {
		if len(srv.groups) > 0 && srv.silent.IsZero() {
			return srv
		}
	}
	return nil
}

// rehear has another server heard if the one that is does not speak any more. The lock is held.
func (t *Timer) rehear() {
	if t.deaf == nil || t.speaker() == nil {
		return
	}
	if h := t.hearing; h == nil || len(h.groups) == 0 || !h.silent.IsZero() {
		t.deaf()
	}
}

// lookAgain has all slots asked: wake-ups may have been missed.
func (t *Timer) lookAgain() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, srv := range t.servers {
		srv.look()
	}
	ring(t.ring)
}

func (t *Timer) wake(slot slots.Slot, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.topics[slot.Topic]; l != nil && slot.Partition >= 0 && slot.Partition < len(l.slots) {
		t.sooner(&l.slots[slot.Partition], at)
	}
}

// sooner notes that a slot has a task due then. The lock is held.
func (t *Timer) sooner(s *slotState, at time.Time) {
	if !s.owned() || s.foreign {
		return
	}
	if s.heard.IsZero() || at.Before(s.heard) {
		s.heard = at
	}
	if s.next.IsZero() || at.Before(s.next) {
		if s.parked.IsZero() {
			s.parked = s.next
		}
		s.next = at
		s.group.changed()
		ring(t.ring)
	}
}
