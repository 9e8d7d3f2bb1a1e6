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

// server is one Redis server, with its own rounds, arms and settles, so that no slot waits for two servers. The
// client of the cluster returns the server of each slot. A slot that has moved meanwhile is still reached, but in
// the round of its former server.
type server struct {
	addr        string // "": the only server, or a cluster whose servers are not known yet
	arms        *groupcommit.Group[*armCall]
	armingTasks atomic.Int64 // number of tasks in arms
	settles     *groupcommit.Group[settlement]

	// The Timer's lock guards these.
	groups      []*group       // of the slots at this server
	firstGroup  int            // index of the group that is planned first
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
	lastErr     error         // its last failure, an answer or not
	writeErr    error         // why it refuses writes; nil: it does not, as far as known
	lastRefusal time.Time     // when it last refused a write
	tryingWrite bool          // a trial write is under way
}

// isSilent reports whether a server has been silent for longer than silenceGrace. The lock is held.
func (srv *server) isSilent(now time.Time) bool {
	return !srv.silentSince.IsZero() && now.Sub(srv.silentSince) >= silenceGrace
}

// server returns the server with this address. The lock is held.
func (t *Timer) server(addr string) *server {
	srv := t.servers[addr]
	if srv == nil {
		srv = &server{addr: addr, identity: slots.Identity{Process: t.name}}
		srv.arms = groupcommit.New(2000, 2, func(batch []*armCall) { t.flushArms(srv, batch) })
		srv.settles = groupcommit.New(2000, 1, func(batch []settlement) { t.flushSettles(srv, batch) })
		t.servers[addr] = srv
		t.pulseNeeded.Set()
	}
	return srv
}

// The slots are placed again at this interval, and so long after a server did not answer.
const (
	placeEvery = 10 * time.Second
	placeAfter = 500 * time.Millisecond
)

// placeSoon makes the client find out which slots are where, and then places them. The lock is held.
func (t *Timer) placeSoon(now time.Time) {
	t.slots.Refresh()
	if at := now.Add(placeAfter); at.Before(t.nextPlacement) {
		t.nextPlacement = at
	}
}

// place groups the slots by their servers. The lock is held.
func (t *Timer) place(now time.Time) {
	every, _ := t.pace.Slowed(placeEvery)
	t.nextPlacement = now.Add(every)
	p := placement{timer: t, known: true, old: make(map[*server][]*group)}
	for _, srv := range t.servers {
		p.old[srv], srv.groups = srv.groups, nil
	}
	for _, id := range slices.Sorted(maps.Keys(t.bizTimers)) {
		bt := t.bizTimers[id]
		bt.servers = 0
		for i := range bt.slots {
			p.locate(&bt.slots[i])
			p.join(bt, &bt.slots[i])
		}
	}
	switch only := t.servers[""]; {
	case !p.known:
		t.nextPlacement = now // the next call makes the client find out
	case only != nil && len(only.groups) == len(t.bizTimers):
		t.nextPlacement = forever // there is no other server
	}
	t.relisten()
}

// placement assigns all slots to servers again. The Timer's lock is held.
type placement struct {
	timer *Timer
	known bool // the client has the servers of the slots
	old   map[*server][]*group
}

// locate finds the server of a slot.
func (p *placement) locate(s *slotState) {
	addr := ""
	if p.known {
		addr, p.known = p.timer.slots.ServerOf(s.slot)
	}
	srv := p.timer.server(addr)
	if s.server == srv || !p.known && s.server != nil {
		return
	}
	if s.server != nil && s.server.addr != "" {
		p.timer.requestRead(s.slot.Partition, nearFirst) // a replica that took over may lack the last writes
	}
	s.server, s.lastPoll, s.pollNow = srv, time.Time{}, s.server != nil
}

// join puts a slot into the group of its type at its server.
func (p *placement) join(bt *bizTimer, s *slotState) {
	srv := s.server
	if n := len(srv.groups); n == 0 || srv.groups[n-1].bizTimer != bt {
		g := &group{bizTimer: bt, hasUnreachable: true}
		if i := slices.IndexFunc(p.old[srv], func(g *group) bool { return g.bizTimer == bt }); i >= 0 {
			g.backlog = p.old[srv][i].backlog
		}
		srv.groups = append(srv.groups, g)
		bt.servers++
	}
	s.group = srv.groups[len(srv.groups)-1]
	s.group.slots = append(s.group.slots, s)
}

// recordCall records the result of a call to a server that began at the given time. If no slot was answered,
// the server is silent. The lock is held.
func (t *Timer) recordCall(srv *server, began time.Time, answered bool, err error) {
	if err != nil {
		srv.lastErr = err
	}
	if !slots.IsAnswer(err) {
		t.placeSoon(t.cfg.Now())
	}
	if !answered {
		t.recordSilence(srv, began)
	}
}

// recordSilence records that a server does not serve its slots. The lock is held.
func (t *Timer) recordSilence(srv *server, since time.Time) {
	if !srv.silentSince.IsZero() {
		return
	}
	srv.silentSince = since
	t.relisten()
	t.replan.Set()
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
func (t *Timer) recordWrite(srv *server, err error) {
	if !slots.IsRefusal(err) {
		return
	}
	if srv.writeErr == nil {
		t.mu.Log(t.cfg.Logger, slog.LevelError, "Redis refuses writes: tasks of redis-mode biz_types are scanned meanwhile", "error", err)
	}
	srv.writeErr, srv.lastRefusal = err, t.cfg.Now()
	t.recordSilence(srv, srv.lastRefusal)
}

// ClockSet reports that the clock by which the Timer works was set.
func (t *Timer) ClockSet() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.followClock(t.cfg.Now())
	for p := range t.reads {
		t.requestRead(p, nearFirst) // a task that seemed to be due beyond the horizon has left its slot
	}
	t.replan.Set()
}

// followClock makes the Timer work by a clock that was set. It moves times that are later than now to now: the Timer would stand
// still until then. The lock is held.
func (t *Timer) followClock(now time.Time) {
	t.nextMemoryCheck = time.Time{}
	if t.nextPlacement != forever {
		t.nextPlacement = now
	}
	for _, srv := range t.servers {
		srv.roundBegan = time.Time{}
		srv.silentSince, srv.lastRefusal = earlier(srv.silentSince, now), earlier(srv.lastRefusal, now)
		srv.each(func(s *slotState) {
			s.unreachableSince, s.lastOrphanCount = earlier(s.unreachableSince, now), time.Time{}
		})
		srv.pollAll()
	}
}

// pollAll makes the next rounds poll all slots of a server. The lock is held.
func (srv *server) pollAll() {
	srv.each(func(s *slotState) { s.lastPoll, s.pollNow = time.Time{}, true })
	for _, g := range srv.groups {
		g.planAgain()
	}
}

// each calls a function for all slots of a server. The lock is held.
func (srv *server) each(do func(*slotState)) {
	for _, g := range srv.groups {
		for _, s := range g.slots {
			do(s)
		}
	}
}
