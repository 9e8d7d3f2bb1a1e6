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
	case <-t.hasTypes:
	case <-ctx.Done():
		return ctx.Err()
	}
	var hearers sync.WaitGroup // one that is hung up on a silent server holds up nobody
	defer hearers.Wait()
	for ctx.Err() == nil {
		one, cancel := context.WithCancel(ctx)
		t.mu.Lock()
		var via *slots.Slot
		if t.wakeServer, t.stopListening = t.pickServer(), cancel; t.wakeServer != nil {
			via = &t.wakeServer.groups[0].slots[0].slot
		}
		t.mu.Unlock()
		hearers.Go(func() {
			defer cancel()
			err := t.slots.Listen(one, via, t.handleWake, t.pollAll)
			if one.Err() == nil {
				t.cfg.Logger.Warn("wake-ups are not heard; slots are looked at every few seconds", "error", err)
				_ = wait.For(one, retryEvery)
			}
		})
		<-one.Done()
	}
	return ctx.Err()
}

// speaker is a server that answers, if there is one that has slots. The lock is held.
func (t *Timer) pickServer() *server {
	for _, srv := range t.servers {
		if len(srv.groups) > 0 && srv.silentSince.IsZero() {
			return srv
		}
	}
	return nil
}

// rehear has another server heard if the one that is does not speak any more. The lock is held.
func (t *Timer) relisten() {
	if t.stopListening == nil || t.pickServer() == nil {
		return
	}
	if h := t.wakeServer; h == nil || len(h.groups) == 0 || !h.silentSince.IsZero() {
		t.stopListening()
	}
}

// lookAgain has all slots asked: wake-ups may have been missed.
func (t *Timer) pollAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, srv := range t.servers {
		srv.pollAll()
	}
	signal(t.replan)
}

func (t *Timer) handleWake(slot slots.Slot, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.topics[slot.Topic]; l != nil && slot.Partition >= 0 && slot.Partition < len(l.slots) {
		t.advanceHead(&l.slots[slot.Partition], at)
	}
}

// sooner notes that a slot has a task due then. The lock is held.
func (t *Timer) advanceHead(s *slotState, at time.Time) {
	if !s.isOwned() || s.foreign {
		return
	}
	if s.announcedHead.IsZero() || at.Before(s.announcedHead) {
		s.announcedHead = at
	}
	if s.head.IsZero() || at.Before(s.head) {
		if s.displacedHead.IsZero() {
			s.displacedHead = s.head
		}
		s.head = at
		s.group.planAgain()
		signal(t.replan)
	}
}
