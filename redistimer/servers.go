package redistimer

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/timeoutcenter/toc/internal/groupcommit"
	"github.com/timeoutcenter/toc/internal/wait"
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
	groups      []*group  // of the slots at this server
	guarded     []bool    // partitions that have a guard at this server
	firstGroup  int       // index of the group that is planned first
	hasAnswered bool      // it has answered once
	roundBegan  time.Time // start of the last round
	inRound     bool      // a round is under way
	silentSince time.Time // since when it does not answer; zero: it answers
	lastErr     error     // its last failure, an answer or not
	writeErr    error     // why it refuses writes; nil: it does not, as far as known
	lastRefusal time.Time // when it last refused a write
	tryingWrite bool      // a trial write is under way
	lastProbe   time.Time // when it was last pinged
	probing     bool      // pings are under way
}

// isSilent reports whether a server has been silent for longer than silenceGrace. The lock is held.
func (srv *server) isSilent(now time.Time) bool {
	return !srv.silentSince.IsZero() && now.Sub(srv.silentSince) >= silenceGrace
}

// server returns the server with this address. The lock is held.
func (t *Timer) server(addr string) *server {
	srv := t.servers[addr]
	if srv == nil {
		srv = &server{addr: addr, guarded: make([]bool, t.cfg.Layout.Partitions)}
		srv.arms = groupcommit.New(2000, 2, func(batch []*armCall) { t.flushArms(srv, batch) })
		srv.settles = groupcommit.New(2000, 1, func(batch []settlement) { t.flushSettles(srv, batch) })
		t.servers[addr] = srv
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
	p := placement{timer: t, known: true, old: make(map[*server][]*group), changed: make(map[guardKey]bool)}
	for _, srv := range t.servers {
		p.old[srv], srv.groups, srv.guarded = srv.groups, nil, make([]bool, t.cfg.Layout.Partitions)
	}
	for _, id := range slices.Sorted(maps.Keys(t.bizTimers)) {
		bt := t.bizTimers[id]
		bt.servers = 0
		for i := range bt.slots {
			p.locate(&bt.slots[i])
			p.join(bt, &bt.slots[i])
		}
	}
	p.losePartitions()
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
	timer   *Timer
	known   bool // the client has the servers of the slots
	old     map[*server][]*group
	changed map[guardKey]bool // have a new guard
}

type guardKey struct {
	server    *server
	partition int
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
		s.markLost() // a replica that took over may lack the last writes
	}
	s.server, s.lastPoll, s.pollNow = srv, time.Time{}, s.server != nil
}

// join puts a slot into the group of its type at its server. The first slot of a partition there is its guard.
func (p *placement) join(bt *bizTimer, s *slotState) {
	srv := s.server
	if n := len(srv.groups); n == 0 || srv.groups[n-1].bizTimer != bt {
		g := &group{bizTimer: bt, hasUnreachable: true, needsRepair: true}
		if i := slices.IndexFunc(p.old[srv], func(g *group) bool { return g.bizTimer == bt }); i >= 0 {
			g.backlog = p.old[srv][i].backlog
		}
		srv.groups = append(srv.groups, g)
		bt.servers++
	}
	s.group = srv.groups[len(srv.groups)-1]
	s.group.slots = append(s.group.slots, s)
	if guard := !srv.guarded[s.slot.Partition]; s.guard != guard {
		s.guard = guard
		p.changed[guardKey{srv, s.slot.Partition}] = true
	}
	srv.guarded[s.slot.Partition] = true
}

// losePartitions marks the slots that have a new guard as lost: a loss before the new guard's first poll would
// go unnoticed.
func (p *placement) losePartitions() {
	if len(p.changed) == 0 {
		return
	}
	for srv := range p.old {
		srv.each(func(s *slotState) {
			if p.changed[guardKey{srv, s.slot.Partition}] {
				s.markLost()
			}
		})
	}
	p.timer.repairNeeded.Set()
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
	srv.hasAnswered = srv.hasAnswered || answered
	if answered || !srv.silentSince.IsZero() {
		return
	}
	srv.silentSince = began
	t.relisten()
	t.serverSilent.Set()
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
// Its slots are unreachable until it accepts writes again. The lock is held.
func (t *Timer) recordWrite(srv *server, err error) {
	if !slots.IsRefusal(err) {
		return
	}
	if srv.writeErr == nil {
		t.mu.Log(t.cfg.Logger, slog.LevelError, "Redis refuses writes: tasks of redis-mode biz_types are scanned meanwhile", "error", err)
	}
	srv.writeErr, srv.lastRefusal = err, t.cfg.Now()
}

// refusalGrace is how long a server must not have refused a write before it counts as writable again. A server
// that is nearly full accepts some writes.
const refusalGrace = 3 * time.Second

// tryWrites tests the servers that refuse writes.
func (t *Timer) tryWrites(ctx context.Context) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, srv := range t.servers {
		if srv.writeErr == nil || srv.tryingWrite || len(srv.groups) == 0 || t.cfg.Now().Sub(srv.lastRefusal) < refusalGrace {
			continue
		}
		srv.tryingWrite = true
		slot := srv.groups[0].slots[0].slot
		t.background.Go(func() {
			err := t.slots.TryWrite(ctx, slot)
			t.mu.Lock()
			defer t.mu.Unlock()
			srv.tryingWrite = false
			if t.recordWrite(srv, err); err == nil {
				srv.writeErr = nil
				t.mu.Log(t.cfg.Logger, slog.LevelInfo, "Redis takes writes again")
				srv.pollAll()
				t.replan.Set()
			}
		})
	}
}

// endSilence records that a server answers, or has no slots any more, and polls its slots. The lock is held.
func (t *Timer) endSilence(srv *server) {
	srv.silentSince, srv.probing = time.Time{}, false
	srv.pollAll()
	t.relisten()
	t.replan.Set()
}

// ClockSet says that the clock by which the Timer works was set: the times of what was done before say nothing now.
func (t *Timer) ClockSet() {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.cfg.Now()
	earlier := func(at *time.Time) {
		if at.After(now) {
			*at = now
		}
	}
	for _, srv := range t.servers {
		srv.lastRefusal = time.Time{}
		earlier(&srv.silentSince)
		srv.pollAll()
		srv.each(func(s *slotState) {
			earlier(&s.unreachableSince)
			s.markerRenewed, s.lastOrphanCount = time.Time{}, time.Time{}
		})
	}
	if t.nextPlacement != forever {
		t.nextPlacement = now
	}
	t.replan.Set()
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

// probe pings silent servers until they answer, each in its own goroutine.
func (t *Timer) probe(ctx context.Context) error {
	var probes sync.WaitGroup
	defer probes.Wait()
	for {
		t.mu.Lock()
		for _, srv := range t.servers {
			if !srv.silentSince.IsZero() && !srv.probing {
				srv.probing = true
				probes.Go(func() { t.probeServer(ctx, srv) })
			}
		}
		t.mu.Unlock()
		select {
		case <-t.serverSilent:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (t *Timer) probeServer(ctx context.Context, srv *server) {
	for {
		t.mu.Lock()
		pause := min(srv.lastProbe.Add(retryEvery).Sub(t.cfg.Now()), retryEvery) // the clock may have been set back
		t.mu.Unlock()
		if pause > 0 && wait.For(ctx, pause) != nil {
			return
		}
		t.mu.Lock()
		srv.lastProbe = t.cfg.Now()
		var err error
		if len(srv.groups) > 0 {
			slot := srv.groups[0].slots[0].slot
			t.mu.Unlock()
			err = t.slots.Ping(ctx, slot)
			t.mu.Lock()
		}
		t.mu.Unlock()
		if slots.IsAnswer(err) {
			t.mu.Lock()
			t.endSilence(srv)
			t.mu.Unlock()
			return
		}
		t.mu.Lock()
		srv.lastErr = err
		t.placeSoon(t.cfg.Now())
		t.mu.Unlock()
		t.replan.Set()
	}
}
