package redistimer

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/timeoutcenter/toc/redistimer/slots"
)

const (
	// pulseEvery is the interval at which each server is asked whether it is the same and takes writes.
	pulseEvery = time.Second
	// pulseTTL is how long a server belongs to a center that does not ask it any more.
	pulseTTL = 15 * time.Second
	// refusalGrace is how long a server must not have refused a write before it counts as writable again. A server
	// that is nearly full accepts some writes.
	refusalGrace = 3 * time.Second
)

// processName names this process in Redis, also for operators.
func processName() string {
	host, _ := os.Hostname()
	host = strings.Join(strings.Fields(host), "_")
	return fmt.Sprintf("%s:%d:%s", cmp.Or(host, "host"), os.Getpid(), rand.Text()[:8])
}

// storeID is the id of this center's task store, or slots.UnknownStore.
func (t *Timer) storeID() string {
	if t.cfg.StoreID == nil {
		return slots.UnknownStore
	}
	return cmp.Or(t.cfg.StoreID(), slots.UnknownStore)
}

// pulses asks the servers until ctx ends, each in its own goroutine.
func (t *Timer) pulses(ctx context.Context) error {
	select {
	case <-t.hasTypes:
	case <-ctx.Done():
		return ctx.Err()
	}
	var underWay sync.WaitGroup
	defer underWay.Wait()
	for {
		pause, roused := t.pace.Slowed(pulseEvery)
		t.checkMemory(ctx)
		t.mu.Lock()
		for _, srv := range t.servers {
			if !srv.inPulse && srv.inUse {
				srv.inPulse = true
				underWay.Go(func() { t.pulse(ctx, srv, pulseTTL+pause-pulseEvery) })
			}
		}
		t.mu.Unlock()
		if await(ctx, pause, t.pulseNeeded, roused); ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// pulse asks a server.
func (t *Timer) pulse(ctx context.Context, srv *server, ttl time.Duration) {
	began, store := t.cfg.Now(), t.storeID()
	t.mu.Lock()
	if !srv.isKnown {
		srv.identity = slots.Identity{Process: t.name, Tag: srv.identity.Tag}
	}
	t.mu.Unlock()
	tag, isThere := t.slots.TagAt(srv.addr, srv.identity.Tag)
	var got slots.Pulse
	var err error
	if isThere {
		srv.identity.Tag = tag
		got, err = t.slots.Pulse(ctx, &srv.identity, store, ttl)
	}
	now := t.cfg.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	srv.inPulse = false
	if ctx.Err() != nil || !isThere { // it has no slots any more, as far as known
		return
	}
	t.recordWrite(srv, err)
	t.recordCall(srv, began, err == nil, err) // one that answers with an error serves no slot
	switch {
	case err != nil:
		return
	case srv.writeErr == nil && !srv.silentSince.IsZero():
		t.endSilence(srv)
	case srv.writeErr != nil && !srv.tryingWrite && now.Sub(srv.lastRefusal) >= refusalGrace:
		srv.tryingWrite = true
		t.background.Go(func() { t.tryWrite(ctx, srv, tag) })
	}
	srv.setSkew(began.Sub(got.Now), now.Sub(got.Now))
	srv.clock, srv.clockRead = now.Add(-srv.skew), time.Now()
	isForeign := got.Store != store && got.Store != slots.UnknownStore && store != slots.UnknownStore
	isLost := got.Lost || srv.foreign && !isForeign
	if isForeign && !srv.foreign {
		t.fallbacks.Set() // the scan engine serves our tasks from now on
		t.mu.Log(t.cfg.Logger, slog.LevelError,
			"another center has this Redis; our tasks are scanned. Give each center its own redis.prefix",
			"key", t.slots.CenterKey(srv.identity.Tag), "store", got.Store)
	}
	known := srv.isKnown
	srv.isKnown, srv.foreign = true, isForeign
	if isForeign || !isLost && known {
		return
	}
	if known {
		t.mu.Log(t.cfg.Logger, slog.LevelWarn,
			"Redis was restarted, replaced or emptied: its slots are armed again from the store", "server", srv.addr)
	}
	srv.lost = now
	for p := range t.partitions {
		t.requestRead(p, nearFirst)
	}
	if !known {
		t.askAll(srv)
	}
}

// tryWrite tests a server that refuses writes.
func (t *Timer) tryWrite(ctx context.Context, srv *server, tag int) {
	err := t.slots.TryWrite(ctx, t.slots.CenterKey(tag))
	t.mu.Lock()
	defer t.mu.Unlock()
	srv.tryingWrite = false
	if t.recordWrite(srv, err); err == nil {
		srv.writeErr = nil
		t.mu.Log(t.cfg.Logger, slog.LevelInfo, "Redis takes writes again")
		t.pulseNeeded.Set()
	}
}

// endSilence records that a server serves its slots again, asks them, and reads their rows. The lock is held.
func (t *Timer) endSilence(srv *server) {
	srv.silentSince = time.Time{}
	t.endFallback(&srv.fallback)
	for s := range t.failing {
		if s.group.server == srv {
			s.lastPoll = time.Time{} // it is asked at once
			t.update(s)
		}
	}
	t.askAll(srv)
	for p := range t.partitions {
		t.requestRead(p, nearFirst)
	}
	t.relisten()
}

// setSkew adjusts the skew to these bounds: Redis read its clock at some moment between the question and the
// answer. A slow answer has wide bounds, so it is not mistaken for a clock that is behind.
func (srv *server) setSkew(least, most time.Duration) {
	srv.skew = max(least, min(srv.skew, most)).Round(time.Millisecond)
}

// Reading is a reading of a server's clock.
type Reading struct {
	Addr   string    // of the server; "" is the only one
	Read   time.Time // when it was read, by time.Now: the node's clock may have been set since
	Server time.Time // what it showed
}

// Readings are the last readings of the clocks of the servers that answer.
func (t *Timer) Readings() (list []Reading) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for addr, srv := range t.servers {
		if srv.inUse && srv.silentSince.IsZero() && !srv.clockRead.IsZero() {
			list = append(list, Reading{addr, srv.clockRead, srv.clock})
		}
	}
	return list
}

// memoryEvery is the interval at which the memory of the servers is checked.
const memoryEvery = 5 * time.Second

// checkMemory checks now and then whether a server may evict keys, and whether one is full.
func (t *Timer) checkMemory(ctx context.Context) {
	t.mu.Lock()
	now := t.cfg.Now()
	due := !now.Before(t.nextMemoryCheck)
	if due {
		t.nextMemoryCheck = now.Add(memoryEvery)
	}
	t.mu.Unlock()
	if !due {
		return
	}
	t.background.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, memoryEvery/2)
		defer cancel()
		list, all := t.slots.Memories(ctx)
		evicts, full := "", ""
		for _, m := range list {
			switch {
			case m.Evicts():
				evicts = m.Policy
			case m.IsFull():
				full = fmt.Sprintf("%d bytes of %d", m.Used, m.Max)
			}
		}
		t.mu.Lock()
		didEvict, wasFull := t.evictionPolicy != "", t.memoryFull != ""
		if !all { // assume that a server which does not answer has not changed
			evicts, full = cmp.Or(evicts, t.evictionPolicy), cmp.Or(full, t.memoryFull)
		}
		t.evictionPolicy, t.memoryFull = evicts, full
		t.mu.Unlock()
		switch {
		case !didEvict && evicts != "":
			t.cfg.Logger.Warn("Redis may evict slots; set maxmemory-policy to noeviction", "maxmemory_policy", evicts)
		case didEvict && evicts == "":
			t.cfg.Logger.Info("Redis does not evict slots any more")
		}
		switch {
		case !wasFull && full != "":
			t.cfg.Logger.Error("Redis is full: what it does not take is scanned; raise its maxmemory", "used", full)
		case wasFull && full == "":
			t.cfg.Logger.Info("Redis has room again")
		}
	})
}

// Memory returns the maxmemory-policy of a server that may evict slots, and the memory use of a server that is
// full, as far as known.
func (t *Timer) Memory() (evicts, full string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.evictionPolicy, t.memoryFull
}
