package redistimer

import (
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/timeoutcenter/toc/internal/groupcommit"
	"github.com/timeoutcenter/toc/redistimer/slots"
)

// callTimeout bounds each call to a server. Redis may still execute a call that timed out: the number of claims
// shows if it has more than this node. The timeout is long, because on a machine that is short of CPU timeouts
// add load. Other servers are not delayed meanwhile.
const callTimeout = 2 * time.Second

// silenceGrace is how long a server may be silent before it counts as down. It may only have lost its
// connections.
const silenceGrace = 500 * time.Millisecond

// placement finds out which slots are at which server.
type placement struct {
	*node
	nextPlacement time.Time       // when the slots are assigned to servers again
	slotCounts    map[*server]int // of this node; nil: not counted since they were placed
}

// server is one Redis server, with its own rounds and writes, so that no slot waits for two servers. The
// client of the cluster returns the server of each slot. A slot that has moved meanwhile is still reached, but in
// the round of its former server.
type server struct {
	addr    string                    // "": the only server, or a cluster whose servers are not known yet
	settles *groupcommit.Group[write] // of claims, one batch after the other
	writes  *groupcommit.Group[write] // of tasks that may not be claimed
	arming  atomic.Int64              // number of tasks to arm in writes

	// The Timer's lock guards these.
	inUse       bool           // slots are placed here, as far as known
	heads       slotHeap       // the slots that wait
	due         []*group       // the groups with slots to be polled as soon as there is room, the next one first
	identity    slots.Identity // of its pulses; only the pulse under way uses it
	inPulse     bool
	isKnown     bool          // it has answered a pulse
	lost        time.Time     // when it was last found to lack what was written to it
	foreign     bool          // it belongs to another store's center; the scan engine serves our tasks
	skew        time.Duration // how far its clock is behind ours; a task is due by the clock of its owner
	clock       time.Time     // its clock, as it was at clockRead
	clockRead   time.Time     // by time.Now
	roundBegan  time.Time     // start of the last round
	inRound     bool          // a round is under way
	silentSince time.Time     // since when it does not answer, or only with errors; zero: it serves its slots
	fallback    bool          // it has been silent for so long that the scan engine serves its slots
	lastErr     error         // its last failure, an answer or not
	writeErr    error         // why it refuses writes; nil: it does not, as far as known
	lastRefusal time.Time     // when it last refused a write
}

// isServing reports whether the slots of a server can be asked, as far as known. The lock is held.
func (srv *server) isServing() bool { return srv.isKnown && !srv.foreign && srv.silentSince.IsZero() }

// isSilent reports whether a server has been silent for longer than silenceGrace. The lock is held.
func (srv *server) isSilent(now time.Time) bool {
	return !srv.silentSince.IsZero() && now.Sub(srv.silentSince) >= silenceGrace
}

// server returns the server with this address. The lock is held.
func (pm *placement) server(addr string) *server {
	srv := pm.servers[addr]
	if srv == nil {
		srv = &server{addr: addr, identity: slots.Identity{Process: pm.health.process}}
		flush := func(batch []write) { pm.writer.flush(srv, batch) }
		srv.settles, srv.writes = groupcommit.New(2000, 1, flush).WithSpacings(settleSpacing), groupcommit.New(2000, 2, flush)
		pm.servers[addr] = srv
	}
	if !srv.inUse {
		srv.inUse = true
		pm.health.pulseNeeded.Set()
	}
	return srv
}

// serverOf returns the server of a slot, by the client's own map. While that is not known, it is one without an address. The
// lock is held.
func (pm *placement) serverOf(slot slots.Slot) *server {
	addr, _ := pm.slots.ServerOf(slot)
	return pm.server(addr)
}

// serverAt returns the server of a slot that may be in memory. The lock is held.
func (pm *placement) serverAt(bt *bizTimer, p int) *server {
	if s := bt.slots[p]; s != nil {
		return s.group.server
	}
	return pm.serverOf(slots.Slot{Topic: bt.Topic, Partition: p})
}

// The slots are placed again at this interval, and so long after a server did not answer.
const (
	placeEvery = 10 * time.Second
	placeAfter = 500 * time.Millisecond
)

// placeSoon makes the client find out which slots are where, and then places them. The lock is held.
func (pm *placement) placeSoon(now time.Time) {
	pm.slots.Refresh()
	if at := now.Add(placeAfter); at.Before(pm.nextPlacement) {
		pm.nextPlacement = at
	}
}

// place finds out which servers have slots, and moves the slots that are at another server than before. The lock is held.
func (pm *placement) place(now time.Time) {
	every, _ := pm.pace.Slowed(placeEvery)
	pm.nextPlacement, pm.slotCounts = now.Add(every), nil
	addrs, known := pm.slots.Servers()
	if !known {
		pm.nextPlacement = now // the next call makes the client find out
		if len(pm.servers) == 0 {
			pm.server("")
		}
		return
	}
	before := maps.Clone(pm.servers)
	for _, srv := range before {
		srv.inUse = slices.Contains(addrs, srv.addr)
	}
	for _, addr := range addrs {
		pm.server(addr)
	}
	for _, bt := range pm.list {
		for _, s := range bt.slots {
			pm.move(s, pm.serverOf(s.slot))
		}
	}
	for _, srv := range before {
		if !srv.inUse {
			srv.isKnown = false // if it comes back, it may lack what was written meanwhile
			pm.health.endFallback(&srv.fallback)
		}
	}
	if len(addrs) == 1 && addrs[0] == "" {
		pm.nextPlacement = forever // there is no other server
	}
	pm.listener.relisten()
}

// move makes a server the one of a slot. The lock is held.
func (pm *placement) move(s *slotState, to *server) {
	from := s.group
	if from.server == to {
		return
	}
	if from.server.addr != "" {
		pm.reader.request(s.slot.Partition, nearFirst) // a replica that took over may lack the last writes
	}
	if s.leaveHeap(); s.phase == due {
		from.due = slices.DeleteFunc(from.due, func(one *slotState) bool { return one == s })
		s.phase = idle
	}
	s.group = from.bizTimer.groupAt(to)
	from.inflight -= s.inflightClaims
	s.group.inflight += s.inflightClaims
	s.group.backlog = from.backlog
	s.lastPoll = time.Time{}
	pm.planner.ask(s)
}

// recordCall records the result of a call to a server that began at the given time. If no slot was answered,
// the server is silent. The lock is held.
func (h *health) recordCall(srv *server, began time.Time, answered bool, err error) {
	if err != nil {
		srv.lastErr = err
	}
	if !slots.IsAnswer(err) {
		h.placement.placeSoon(h.cfg.Now())
	}
	if !answered {
		h.recordSilence(srv, began)
	}
}

// recordSilence records that a server does not serve its slots. The lock is held.
func (h *health) recordSilence(srv *server, since time.Time) {
	if !srv.silentSince.IsZero() {
		return
	}
	srv.silentSince = since
	h.listener.relisten()
	h.planner.replan.Set()
}

const noAnswer = "does not answer"

// cause says why slots of a server are unreachable. The lock is held.
func (srv *server) cause() string {
	said := slots.Answer(srv.lastErr)
	switch {
	case srv.writeErr != nil:
		return "refuses writes: " + srv.writeErr.Error()
	case said != "":
		return "answers: " + said
	case srv.lastErr != nil:
		return noAnswer + ": " + srv.lastErr.Error()
	}
	return noAnswer
}

// recordWrite records the result of a write to a server. A server that refuses writes may still answer reads.
// It serves its slots when it accepts writes again. The lock is held.
func (h *health) recordWrite(srv *server, err error) {
	if !slots.IsRefusal(err) {
		return
	}
	if srv.writeErr == nil {
		h.mu.Log(h.cfg.Logger, slog.LevelError, "Redis refuses writes: tasks of redis-mode biz_types are scanned meanwhile", "error", err)
	}
	srv.writeErr, srv.lastRefusal = err, h.cfg.Now()
	h.recordSilence(srv, srv.lastRefusal)
}

// ClockSet reports that the clock by which the Timer works was set.
func (t *Timer) ClockSet() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.health.followClock(t.cfg.Now())
	t.reader.requestAll() // a task that seemed to be due beyond the horizon has left its slot
	t.planner.replan.Set()
}

// followClock makes the Timer work by a clock that was set. It moves times that are later than now to now: the Timer would stand
// still until then. The lock is held.
func (h *health) followClock(now time.Time) {
	h.nextMemoryCheck = time.Time{}
	if h.placement.nextPlacement != forever {
		h.placement.nextPlacement = now
	}
	for _, srv := range h.servers {
		srv.roundBegan = time.Time{}
		srv.silentSince, srv.lastRefusal = earlier(srv.silentSince, now), earlier(srv.lastRefusal, now)
	}
	for _, bt := range h.list {
		for _, s := range bt.slots {
			s.failingSince, s.lastOrphanCount, s.lastPoll = earlier(s.failingSince, now), time.Time{}, time.Time{}
			h.planner.ask(s)
		}
	}
}
