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
func (h *health) storeID() string {
	if h.cfg.StoreID == nil {
		return slots.UnknownStore
	}
	return cmp.Or(h.cfg.StoreID(), slots.UnknownStore)
}

// pulses asks the servers until ctx ends, each in its own goroutine.
func (h *health) pulses(ctx context.Context) error {
	select {
	case <-h.hasTypes:
	case <-ctx.Done():
		return ctx.Err()
	}
	var underWay sync.WaitGroup
	defer underWay.Wait()
	for {
		pause, roused := h.pace.Slowed(pulseEvery)
		h.checkMemory(ctx)
		h.mu.Lock()
		for _, srv := range h.servers {
			if !srv.inPulse && srv.inUse {
				srv.inPulse = true
				underWay.Go(func() { h.pulse(ctx, srv, pulseTTL+pause-pulseEvery) })
			}
		}
		h.mu.Unlock()
		if await(ctx, pause, h.pulseNeeded, roused); ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// pulse asks a server. One that has refused a write has to call each command of the scripts before it counts as writable again.
func (h *health) pulse(ctx context.Context, srv *server, ttl time.Duration) {
	began, store := h.cfg.Now(), h.storeID()
	h.mu.Lock()
	if !srv.isKnown {
		srv.identity = slots.Identity{Process: h.process, Tag: srv.identity.Tag}
	}
	isTrial := srv.writeErr != nil && began.Sub(srv.lastRefusal) >= refusalGrace
	h.mu.Unlock()
	tag, isThere := h.slots.TagAt(srv.addr, srv.identity.Tag)
	var got slots.Pulse
	var err error
	if isThere {
		srv.identity.Tag = tag
		got, err = h.slots.Pulse(ctx, &srv.identity, store, ttl)
	}
	if isTrial && err == nil {
		err = h.slots.TryWrite(ctx, h.slots.CenterKey(tag))
	}
	now := h.cfg.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	srv.inPulse = false
	if ctx.Err() != nil || !isThere { // it has no slots any more, as far as known
		return
	}
	h.recordWrite(srv, err)
	h.recordCall(srv, began, err == nil, err) // one that answers with an error serves no slot
	if err != nil {
		return
	}
	if isTrial && srv.lastRefusal.Before(began) {
		srv.writeErr = nil
		h.mu.Log(h.cfg.Logger, slog.LevelInfo, "Redis takes writes again")
	}
	if srv.writeErr == nil && !srv.silentSince.IsZero() {
		h.endSilence(srv)
	}
	srv.setSkew(began.Sub(got.Now), now.Sub(got.Now))
	srv.clock, srv.clockRead = now.Add(-srv.skew), time.Now()
	isForeign := got.Store != store && got.Store != slots.UnknownStore && store != slots.UnknownStore
	isLost := got.Lost || srv.foreign && !isForeign
	if isForeign && !srv.foreign {
		h.fallbacks.Set() // the scan engine serves our tasks from now on
		h.mu.Log(h.cfg.Logger, slog.LevelError,
			"another center has this Redis; our tasks are scanned. Give each center its own redis.prefix",
			"key", h.slots.CenterKey(srv.identity.Tag), "store", got.Store)
	}
	known := srv.isKnown
	srv.isKnown, srv.foreign = true, isForeign
	if isForeign || !isLost && known {
		return
	}
	if known {
		h.mu.Log(h.cfg.Logger, slog.LevelWarn,
			"Redis was restarted, replaced or emptied: its slots are armed again from the store", "server", srv.addr)
	}
	srv.lost = now
	h.reader.requestAll()
	if !known {
		h.planner.askAll(srv)
	}
}

// endSilence records that a server serves its slots again, asks them, and reads their rows. The lock is held.
func (h *health) endSilence(srv *server) {
	srv.silentSince = time.Time{}
	h.endFallback(&srv.fallback)
	for s := range h.failing {
		if s.group.server == srv {
			s.lastPoll = time.Time{} // it is asked at once
			h.planner.update(s)
		}
	}
	h.planner.askAll(srv)
	h.reader.requestAll()
	h.listener.relisten()
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
func (h *health) checkMemory(ctx context.Context) {
	h.mu.Lock()
	now := h.cfg.Now()
	due := !now.Before(h.nextMemoryCheck)
	if due {
		h.nextMemoryCheck = now.Add(memoryEvery)
	}
	h.mu.Unlock()
	if !due {
		return
	}
	h.background.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, memoryEvery/2)
		defer cancel()
		list, all := h.slots.Memories(ctx)
		evicts, full := "", ""
		for _, m := range list {
			switch {
			case m.Evicts():
				evicts = m.Policy
			case m.IsFull():
				full = fmt.Sprintf("%d bytes of %d", m.Used, m.Max)
			}
		}
		h.mu.Lock()
		didEvict, wasFull := h.evictionPolicy != "", h.memoryFull != ""
		if !all { // assume that a server which does not answer has not changed
			evicts, full = cmp.Or(evicts, h.evictionPolicy), cmp.Or(full, h.memoryFull)
		}
		h.evictionPolicy, h.memoryFull = evicts, full
		h.mu.Unlock()
		switch {
		case !didEvict && evicts != "":
			h.cfg.Logger.Warn("Redis may evict slots; set maxmemory-policy to noeviction", "maxmemory_policy", evicts)
		case didEvict && evicts == "":
			h.cfg.Logger.Info("Redis does not evict slots any more")
		}
		switch {
		case !wasFull && full != "":
			h.cfg.Logger.Error("Redis is full: what it does not take is scanned; raise its maxmemory", "used", full)
		case wasFull && full == "":
			h.cfg.Logger.Info("Redis has room again")
		}
	})
}

// Memory returns the maxmemory-policy of a server that may evict slots, and the memory use of a server that is
// full, as far as known.
func (t *Timer) Memory() (evicts, full string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.health.evictionPolicy, t.health.memoryFull
}
