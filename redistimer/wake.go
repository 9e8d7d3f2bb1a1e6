package redistimer

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/timeoutcenter/toc/internal/wait"
	"github.com/timeoutcenter/toc/redistimer/slots"
)

// listener receives wake-ups.
type listener struct {
	*node
	wakeServer    *server            // the server that it listens at
	stopListening context.CancelFunc // ends the subscription
}

// listen receives wake-ups: heads that became earlier, on any node. It starts once there is a business type.
// All servers of a cluster publish the same wake-ups, so if one becomes silent, listen switches to another. After
// MaxSubscription it subscribes again: by then the server's name may mean another server. The old subscription ends when the
// new one has begun, so that no wake-up is missed.
func (l *listener) listen(ctx context.Context) error {
	select {
	case <-l.hasTypes:
	case <-ctx.Done():
		return ctx.Err()
	}
	var subscriptions sync.WaitGroup // a subscription that hangs on a silent server must not delay the next one
	defer subscriptions.Wait()
	var old context.CancelFunc // of the subscription that is replaced now; nil: there is none
	for ctx.Err() == nil {
		one, cancel := context.WithCancel(ctx)
		l.mu.Lock()
		via := ""
		if l.wakeServer, l.stopListening = l.pickServer(), cancel; l.wakeServer != nil {
			via = l.wakeServer.addr
		}
		l.mu.Unlock()
		replaced := old
		begun := func() {
			if replaced == nil {
				l.reader.reread()
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
			err := l.slots.Listen(one, via, l.handleWake, begun)
			if one.Err() == nil {
				l.cfg.Logger.Warn("wake-up subscription lost; tasks that other nodes arm are found by the reads", "error", err)
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
func (l *listener) pickServer() *server {
	for _, srv := range l.servers {
		if srv.inUse && srv.silentSince.IsZero() {
			return srv
		}
	}
	return nil
}

// relisten switches to another server if the current one does not answer any more. The lock is held.
func (l *listener) relisten() {
	if l.stopListening == nil || l.pickServer() == nil {
		return
	}
	if h := l.wakeServer; h == nil || !h.inUse || !h.silentSince.IsZero() {
		l.stopListening()
	}
}

func (l *listener) handleWake(slot slots.Slot, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if bt := l.topics[slot.Topic]; bt != nil && slot.Partition >= 0 && slot.Partition < len(l.partitions) {
		l.planner.advanceHead(bt, slot.Partition, at)
	}
}
