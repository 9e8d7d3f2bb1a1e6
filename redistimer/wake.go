package redistimer

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/timeoutcenter/toc/internal/wait"
	"github.com/timeoutcenter/toc/redistimer/slots"
)

// listen receives wake-ups: heads that became earlier, on any node. It starts once there is a business type.
// All servers of a cluster publish the same wake-ups, so if one becomes silent, listen switches to another. After
// MaxSubscription it subscribes again: by then the server's name may mean another server. The old subscription ends when the
// new one has begun, so that no wake-up is missed.
func (t *Timer) listen(ctx context.Context) error {
	select {
	case <-t.hasTypes:
	case <-ctx.Done():
		return ctx.Err()
	}
	var subscriptions sync.WaitGroup // a subscription that hangs on a silent server must not delay the next one
	defer subscriptions.Wait()
	var old context.CancelFunc // of the subscription that is replaced now; nil: there is none
	for ctx.Err() == nil {
		one, cancel := context.WithCancel(ctx)
		t.mu.Lock()
		via := ""
		if t.wakeServer, t.stopListening = t.pickServer(), cancel; t.wakeServer != nil {
			via = t.wakeServer.addr
		}
		t.mu.Unlock()
		replaced := old
		begun := func() {
			if replaced == nil {
				t.Reread()
				return
			}
			replaced() // it has received the wake-ups until now
			replaced = nil
		}
		subscriptions.Go(func() {
			defer cancel()
			defer func() {
				if replaced != nil {
					replaced()
				}
			}()
			err := t.slots.Listen(one, via, t.handleWake, begun)
			if one.Err() == nil {
				t.cfg.Logger.Warn("wake-up subscription lost; tasks that other nodes arm are found by the reads", "error", err)
				_ = wait.For(one, retryEvery)
			}
		})
		if old = cancel; wait.Poll(one, MaxSubscription-rand.N(MaxSubscription/3)) != nil {
			old = nil
		}
	}
	return ctx.Err()
}

// MaxSubscription is the age at which the subscription to wake-ups is replaced, less up to a third.
const MaxSubscription = time.Minute

// pickServer returns a server that has slots and answers, or nil. The lock is held.
func (t *Timer) pickServer() *server {
	for _, srv := range t.servers {
		if srv.inUse && srv.silentSince.IsZero() {
			return srv
		}
	}
	return nil
}

// relisten switches to another server if the current one does not answer any more. The lock is held.
func (t *Timer) relisten() {
	if t.stopListening == nil || t.pickServer() == nil {
		return
	}
	if h := t.wakeServer; h == nil || !h.inUse || !h.silentSince.IsZero() {
		t.stopListening()
	}
}

func (t *Timer) handleWake(slot slots.Slot, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if bt := t.topics[slot.Topic]; bt != nil && slot.Partition >= 0 && slot.Partition < len(t.partitions) {
		t.advanceHead(bt, slot.Partition, at)
	}
}
