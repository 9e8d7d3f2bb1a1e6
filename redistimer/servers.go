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
const answerWithin = 2 * time.Second

// doubt is how long a server that answers nothing may have lost its connections only.
const doubt = 500 * time.Millisecond

// server is one Redis server, with the rounds, arms and settles of its slots: nobody waits for two of them. Which slots
// it has is as the cluster's client knows it. One that has moved meanwhile is still found, in the wrong company.
type server struct {
	addr    string // "" is the only one, or stands for a cluster that is not known yet
	arms    *groupcommit.Group[*arming]
	arming  atomic.Int64 // tasks in them
	settles *groupcommit.Group[settling]

	// The Timer's lock guards these.
	groups  []*group  // its slots
	guarded []bool    // partitions that have a guard there
	turn    int       // the group that is planned first
	known   bool      // it has answered
	began   time.Time // the last round
	asking  bool      // a round is under way
	silent  time.Time // since when it answers nothing; zero: it answers
	err     error     // what it failed with last
	refuses error     // why it takes no writes; nil: it does, as far as is known
	refused time.Time // when it last refused one
	tries   bool      // it is asked whether it takes them again
	probed  time.Time // when it was last asked whether it answers
	probes  bool      // it is being asked
}

// isSilent tells whether a server is silent beyond doubt. The lock is held.
func (srv *server) isSilent(now time.Time) bool {
	return !srv.silent.IsZero() && now.Sub(srv.silent) >= doubt
}

// server is the one with this address. The lock is held.
func (t *Timer) server(addr string) *server {
	srv := t.servers[addr]
	if srv == nil {
		srv = &server{addr: addr, guarded: make([]bool, t.cfg.Layout.Partitions)}
		srv.arms = groupcommit.New(2000, 2, func(batch []*arming) { t.flushArms(srv, batch) })
		srv.settles = groupcommit.New(2000, 1, func(batch []settling) { t.flushSettles(srv, batch) })
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
	if at := now.Add(placeAfter); at.Before(t.placeAt) {
		t.placeAt = at
	}
}

// place groups the slots by their servers. The lock is held.
func (t *Timer) place(now time.Time) {
	t.placeAt = now.Add(placeEvery)
	p := placing{timer: t, known: true, old: make(map[*server][]*group), changed: make(map[guarded]bool)}
	for _, srv := range t.servers {
		p.old[srv], srv.groups, srv.guarded = srv.groups, nil, make([]bool, t.cfg.Layout.Partitions)
	}
	for _, id := range slices.Sorted(maps.Keys(t.lines)) {
		l := t.lines[id]
		l.servers = 0
		for i := range l.slots {
			p.locate(&l.slots[i])
			p.join(l, &l.slots[i])
		}
	}
	p.losePartitions()
	switch only := t.servers[""]; {
	case !p.known:
		t.placeAt = now // the next call has the client find out
	case only != nil && len(only.groups) == len(t.lines):
		t.placeAt = forever // there is no other server
	}
	t.rehear()
}

// placing groups all slots anew. The Timer's lock is held.
type placing struct {
	timer   *Timer
	known   bool // the client knows where the slots are
	old     map[*server][]*group
	changed map[guarded]bool // have another guard now
}

type guarded struct {
	server    *server
	partition int
}

// locate notes at which server a slot is.
func (p *placing) locate(s *slotState) {
	addr := ""
	if p.known {
		addr, p.known = p.timer.slots.ServerOf(s.slot)
	}
	srv := p.timer.server(addr)
	if s.server == srv || !p.known && s.server != nil {
		return
	}
	if s.server != nil && s.server.addr != "" {
		s.lose() // a replica that took over may lack what was written last
	}
	s.server, s.seen, s.look = srv, time.Time{}, s.server != nil
}

// join puts a slot into the group of its type at its server. The first one of a partition there is its guard.
func (p *placing) join(l *line, s *slotState) {
	srv := s.server
	if n := len(srv.groups); n == 0 || srv.groups[n-1].line != l {
		g := &group{line: l, failing: true, repairs: true}
		if i := slices.IndexFunc(p.old[srv], func(g *group) bool { return g.line == l }); i >= 0 {
			g.crowd = p.old[srv][i].crowd
		}
		srv.groups = append(srv.groups, g)
		l.servers++
	}
	s.group = srv.groups[len(srv.groups)-1]
	s.group.slots = append(s.group.slots, s)
	if guard := !srv.guarded[s.slot.Partition]; s.guard != guard {
		s.guard = guard
		p.changed[guarded{srv, s.slot.Partition}] = true
	}
	srv.guarded[s.slot.Partition] = true
}

// losePartitions has the slots checked whose guard is another one now: what Redis lost before that was looked at nobody
// would know.
func (p *placing) losePartitions() {
	if len(p.changed) == 0 {
		return
	}
	for srv := range p.old {
		srv.each(func(s *slotState) {
			if p.changed[guarded{srv, s.slot.Partition}] {
				s.lose()
			}
		})
	}
	ring(p.timer.repairs)
}

// judge notes how a call to a server went that began then: with no answer for any slot, it is silent. The lock is held.
func (t *Timer) judge(srv *server, began time.Time, answered bool, err error) {
	if !slots.IsAnswer(err) {
		srv.err = err
		t.placeSoon(t.cfg.Now())
	}
	srv.known = srv.known || answered
	if answered || !srv.silent.IsZero() {
		return
	}
	srv.silent = began
	t.rehear()
	ring(t.silences)
	ring(t.ring)
}

// wrote notes how a write to a server went. One that takes none may answer all the same: its slots are out of reach until
// it takes them again. The lock is held.
func (t *Timer) wrote(srv *server, err error) {
	if !slots.IsRefusal(err) {
		return
	}
	if srv.refuses == nil {
		t.cfg.Logger.Error("Redis refuses writes: tasks of redis-mode biz_types are scanned meanwhile", "error", err)
	}
	srv.refuses, srv.refused = err, t.cfg.Now()
}

// calmAfter is how long a server must not have refused a write before it is believed to take them: one that is nearly
// full takes some.
const calmAfter = 3 * time.Second

// tryWrites asks the servers that refuse writes whether they still do.
func (t *Timer) tryWrites(ctx context.Context) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, srv := range t.servers {
		if srv.refuses == nil || srv.tries || len(srv.groups) == 0 || t.cfg.Now().Sub(srv.refused) < calmAfter {
			continue
		}
		srv.tries = true
		slot := srv.groups[0].slots[0].slot
		t.background.Go(func() {
			err := t.slots.TryWrite(ctx, slot)
			t.mu.Lock()
			defer t.mu.Unlock()
			srv.tries = false
			if t.wrote(srv, err); err == nil {
				srv.refuses = nil
				t.cfg.Logger.Info("Redis takes writes again")
				srv.look()
				ring(t.ring)
			}
		})
	}
}

// answers notes that a server does answer, or has no slots any more: its slots are asked. The lock is held.
func (t *Timer) answers(srv *server) {
	srv.silent, srv.probes = time.Time{}, false
	srv.look()
	t.rehear()
	ring(t.ring)
}

// look has all slots of a server asked soon. The lock is held.
func (srv *server) look() {
	srv.each(func(s *slotState) { s.seen, s.look = time.Time{}, true })
	for _, g := range srv.groups {
		g.changed()
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
			if !srv.silent.IsZero() && !srv.probes {
				srv.probes = true
				probes.Go(func() { t.probeServer(ctx, srv) })
			}
		}
		t.mu.Unlock()
		select {
		case <-t.silences:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (t *Timer) probeServer(ctx context.Context, srv *server) {
	for {
		t.mu.Lock()
		pause := srv.probed.Add(retry).Sub(t.cfg.Now())
		t.mu.Unlock()
		if pause > 0 && wait.For(ctx, pause) != nil {
			return
		}
		t.mu.Lock()
		srv.probed = t.cfg.Now()
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
			t.answers(srv)
			t.mu.Unlock()
			return
		}
		t.mu.Lock()
		t.placeSoon(t.cfg.Now())
		t.mu.Unlock()
		ring(t.ring)
	}
}
