package redistimer

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/timeoutcenter/toc/internal/groupcommit"
	"github.com/timeoutcenter/toc/internal/wait"
	"github.com/timeoutcenter/toc/redistimer/slots"
)

// answerWithin bounds each call to a server. What Redis does with a call that was cut off shows later: claims that
// nobody holds are found by their number. It is long, because on a machine that is short of CPU cutting off is what
// makes things worse; nobody else waits meanwhile.
const callTimeout = 2 * time.Second

// doubt is how long a server that answers nothing may have lost its connections only.
const silenceGrace = 500 * time.Millisecond

// server is one Redis server, with the rounds, arms and settles of its slots: nobody waits for two of them. Which slots
// it has is as the cluster's client knows it. One that has moved meanwhile is still found, in the wrong company.
type server struct {
	addr        string // "" is the only one, or stands for a cluster that is not known yet
	arms        *groupcommit.Group[*armCall]
	armingTasks atomic.Int64 // tasks in them
	settles     *groupcommit.Group[settlement]

	// The Timer's lock guards these.
	groups      []*group  // its slots
	guarded     []bool    // partitions that have a guard there
	firstGroup  int       // the group that is planned first
	hasAnswered bool      // it has answered
	roundBegan  time.Time // the last round
	inRound     bool      // a round is under way
	silentSince time.Time // since when it answers nothing; zero: it answers
	lastErr     error     // what it failed with last
	writeErr    error     // why it takes no writes; nil: it does, as far as is known
	lastRefusal time.Time // when it last refused one
	tryingWrite bool      // it is asked whether it takes them again
	lastProbe   time.Time // when it was last asked whether it answers
	probing     bool      // it is being asked
}

// isSilent tells whether a server is silent beyond doubt. The lock is held.
func (srv *server) isSilent(now time.Time) bool {
	return !srv.silentSince.IsZero() && now.Sub(srv.silentSince) >= silenceGrace
}

// server is the one with this address. The lock is held.
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

// The slots are placed again so often, and so soon after a server did not answer.
const (
	placeEvery = 10 * time.Second
	placeAfter = 500 * time.Millisecond
)

// placeSoon has the client find out which slots are where, and places them then. The lock is held.
func (t *Timer) placeSoon(now time.Time) {
	t.slots.Refresh()
	if at := now.Add(placeAfter); at.Before(t.nextPlacement) {
		t.nextPlacement = at
	}
}

// place groups the slots by their servers. The lock is held.
func (t *Timer) place(now time.Time) {
	t.nextPlacement = now.Add(placeEvery)
	p := placement{timer: t, known: true, old: make(map[*server][]*group), changed: make(map[guardKey]bool)}
	for _, srv := range t.servers {
		p.old[srv], srv.groups, srv.guarded = srv.groups, nil, make([]bool, t.cfg.Layout.Partitions)
	}
	for _, id := range slices.Sorted(maps.Keys(t.bizTimers)) {
		l := t.bizTimers[id]
		l.servers = 0
		for i := range l.slots {
			p.locate(&l.slots[i])
			p.join(l, &l.slots[i])
		}
	}
	p.losePartitions()
	switch only := t.servers[""]; {
	case !p.known:
		t.nextPlacement = now // the next call has the client find out
	case only != nil && len(only.groups) == len(t.bizTimers):
		t.nextPlacement = forever // there is no other server
	}
	t.relisten()
}

// placing groups all slots anew. The Timer's lock is held.
type placement struct {
	timer   *Timer
	known   bool // the client knows where the slots are
	old     map[*server][]*group
	changed map[guardKey]bool // have another guard now
}

type guardKey struct {
	server    *server
	partition int
}

// locate notes at which server a slot is.
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
		s.markLost() // a replica that took over may lack what was written last
	}
	s.server, s.lastPoll, s.pollNow = srv, time.Time{}, s.server != nil
}

// join puts a slot into the group of its type at its server. The first one of a partition there is its guard.
func (p *placement) join(l *bizTimer, s *slotState) {
	srv := s.server
	if n := len(srv.groups); n == 0 || srv.groups[n-1].line != l {
		g := &group{line: l, hasUnreachable: true, needsRepair: true}
		if i := slices.IndexFunc(p.old[srv], func(g *group) bool { return g.line == l }); i >= 0 {
			g.backlog = p.old[srv][i].backlog
		}
		srv.groups = append(srv.groups, g)
		l.servers++
	}
	s.group = srv.groups[len(srv.groups)-1]
	s.group.slots = append(s.group.slots, s)
	if guard := !srv.guarded[s.slot.Partition]; s.guard != guard {
		s.guard = guard
		p.changed[guardKey{srv, s.slot.Partition}] = true
	}
	srv.guarded[s.slot.Partition] = true
}

// losePartitions has the slots checked whose guard is another one now: what Redis lost before that was looked at nobody
// would know.
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
	signal(p.timer.repairNeeded)
}

// judge notes how a call to a server went that began then: with no answer for any slot, it is silent. The lock is held.
func (t *Timer) recordCall(srv *server, began time.Time, answered bool, err error) {
	if !slots.IsAnswer(err) {
		srv.lastErr = err
		t.placeSoon(t.cfg.Now())
	}
	srv.hasAnswered = srv.hasAnswered || answered
	if answered || !srv.silentSince.IsZero() {
		return
	}
	srv.silentSince = began
	t.relisten()
	signal(t.serverSilent)
	signal(t.replan)
}

// wrote notes how a write to a server went. One that takes none may answer all the same: its slots are out of reach until
// it takes them again. The lock is held.
func (t *Timer) recordWrite(srv *server, err error) {
	if !slots.IsRefusal(err) {
		return
	}
	if srv.writeErr == nil {
		t.cfg.Logger.Error("Redis refuses writes: tasks of redis-mode biz_types are scanned meanwhile", "error", err)
	}
	srv.writeErr, srv.lastRefusal = err, t.cfg.Now()
}

// calmAfter is how long a server must not have refused a write before it is believed to take them: one that is nearly
// full takes some.
const refusalGrace = 3 * time.Second

// tryWrites asks the servers that refuse writes whether they still do.
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
				t.cfg.Logger.Info("Redis takes writes again")
				srv.pollAll()
				signal(t.replan)
			}
		})
	}
}

// answers notes that a server does answer, or has no slots any more: its slots are asked. The lock is held.
func (t *Timer) endSilence(srv *server) {
	srv.silentSince, srv.probing = time.Time{}, false
	srv.pollAll()
	t.relisten()
	signal(t.replan)
}

// look has all slots of a server asked soon. The lock is held.
func (srv *server) pollAll() {
	srv.each(func(s *slotState) { s.lastPoll, s.pollNow = time.Time{}, true })
	for _, g := range srv.groups {
		g.planAgain()
	}
}

// each does something to all slots of a server. The lock is held.
func (srv *server) each(do func(*slotState)) {
	for _, g := range srv.groups {
		for _, s := range g.slots {
			do(s)
		}
	}
}

// probe asks silent servers until they answer, each apart from the others.
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
		pause := srv.lastProbe.Add(retryEvery).Sub(t.cfg.Now())
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
		t.placeSoon(t.cfg.Now())
		t.mu.Unlock()
		signal(t.replan)
	}
}
