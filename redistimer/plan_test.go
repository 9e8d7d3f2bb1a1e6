package redistimer

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/redistimer/slots"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/task"
)

// dueSlots are n slots whose heads are due so long after now, one millisecond apart, the last one first.
func dueSlots(now time.Time, n int, in time.Duration) []*slotState {
	list := make([]*slotState, n)
	for i := range list {
		list[n-1-i] = &slotState{slot: slots.Slot{Partition: i}, lastPoll: now, head: now.Add(in + time.Duration(i)*time.Millisecond)}
	}
	return list
}

func TestChoose(t *testing.T) {
	now := time.Now()
	const soon, far = 0, claimAhead / 2
	idle := backlog{lastSparse: now}
	for _, c := range []struct {
		name       string
		due        []*slotState
		crowd      backlog
		room, most int
		asked      int
		limit      int // of each
		sounds     bool
		urgent     bool
	}{
		{name: "nothing is due", room: 100, most: 100},
		{name: "a few, soon enough together", due: dueSlots(now, 3, far), room: 8192, most: 8192, asked: 3, limit: maxClaim},
		{name: "a few, and at once", due: dueSlots(now, 3, soon), room: 8192, most: 8192, asked: 3, limit: maxClaim, urgent: true},
		{name: "many: a crowd, or not?", due: dueSlots(now, 64, far), room: 8192, most: 8192, asked: sampleSlots, limit: maxClaim, sounds: true, urgent: true},
		{name: "many, of which some were asked", due: dueSlots(now, 64, far), crowd: backlog{sampled: true}, room: 8192, most: 8192, asked: 64, limit: minClaim},
		{name: "many, and no crowd lately", due: dueSlots(now, 64, far), crowd: idle, room: 8192, most: 8192, asked: 64, limit: minClaim},
		{name: "a crowd: as many as there is room for", due: dueSlots(now, 64, far), crowd: backlog{backlogged: true}, room: 1000, most: 8192, asked: 3, limit: maxClaim, urgent: true},
		{name: "a third of the room", due: dueSlots(now, 20, far), crowd: idle, room: 2731, most: 2731, asked: 20, limit: minClaim},
		{name: "a small queue", due: dueSlots(now, 6, far), room: 12, most: 12, asked: 4, limit: 3},
		{name: "a queue of one", due: dueSlots(now, 6, far), room: 1, most: 1, asked: 1, limit: 1},
		{name: "no room", due: dueSlots(now, 6, soon), room: 0, most: 100},
		{name: "no workers", due: dueSlots(now, 6, soon)},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := &group{due: c.due, backlog: c.crowd}
			require.Equal(t, c.urgent, g.choose(now, c.room, c.most))
			require.Equal(t, c.sounds, g.sampling)
			require.Len(t, g.chosen, c.asked)
			for i, a := range g.chosen {
				require.Equal(t, i, a.slot.slot.Partition, "the most pressing first")
				require.Equal(t, c.limit, a.limit)
			}
		})
	}

}

// all owns all partitions.
type all struct{}

func (all) Owns(int) bool          { return true }
func (all) Term(int) uint64        { return 1 }
func (all) Watch() <-chan struct{} { return nil }

// planned returns a timer of six slots of one type that makes no rounds.
func planned(t *testing.T) *Timer {
	client := redis.NewClient(&redis.Options{})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	q := queue.New(queue.Config{Capacity: 1000, Partitions: 6, Ownership: all{}})
	timer := New(Config{
		Client: client, Queue: q, Ownership: all{}, Layout: sharding.Layout{Databases: 1, TablesPerDatabase: 6, Partitions: 6},
		OutageAfter: 5 * time.Second, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
	})
	timer.SetTypes([]BizType{{BizType: task.BizType{ID: 1, Name: "a"}, Topic: "a", Horizon: time.Hour}})
	q.AddType(task.BizType{ID: 1})
	timer.servers[""].isKnown = true
	return timer
}

// Servers are planned separately: a server in a round, or a silent one, does not delay the others. The scan
// engine takes over the slots of a silent server in time, however long its calls take.
func TestPlanServers(t *testing.T) {
	timer := planned(t)
	now := time.Now()
	bt := timer.bizTimers[1]
	clear(timer.servers)
	timer.planner.sweeps = nil
	for i, addr := range []string{"x", "y", "z"} {
		srv := timer.placement.server(addr)
		srv.isKnown = true
		for p := 2 * i; p < 2*i+2; p++ {
			bt.slots[p] = &slotState{slot: slots.Slot{Topic: "a", Partition: p}, partition: &timer.partitions[p], group: bt.groupAt(srv)}
			timer.planner.ask(bt.slots[p])
		}
	}
	headAt := func(at time.Time, partitions ...int) {
		for _, p := range partitions {
			bt.slots[p].head = at
			timer.planner.update(bt.slots[p])
		}
	}
	fellBack := func() bool {
		select {
		case <-timer.Watch():
			return true
		default:
			return false
		}
	}
	plan := func() (polled map[string]int, wait time.Duration) {
		timer.placement.nextPlacement = now.Add(time.Hour) // the client knows one server
		rounds, wait := timer.planner.plan(now)
		polled = map[string]int{}
		for _, r := range rounds {
			polled[r.server.addr] = len(r.slots)
			for _, a := range r.slots {
				require.Same(t, r.server, a.group.server)
			}
		}
		return polled, wait
	}
	end := func(addr string) { // of a round
		r := round{server: timer.servers[addr]}
		for _, s := range bt.slots {
			if s.group.server == r.server && s.phase == asked {
				s.lastPoll, s.pollNow, s.head = now, false, now.Add(time.Hour)
				r.slots = append(r.slots, s)
			}
		}
		timer.claimer.endRound(r)
	}

	polled, _ := plan()
	require.Equal(t, map[string]int{"x": 2, "y": 2, "z": 2}, polled)
	require.Equal(t, 1, timer.partitions[0].busy, "a claim is on its way")
	end("x")
	require.Zero(t, timer.partitions[0].busy)
	require.Equal(t, 1, timer.partitions[2].busy)
	headAt(now, 0)
	now = now.Add(minRoundGap)
	polled, _ = plan()
	require.Equal(t, map[string]int{"x": 1}, polled, "x does not wait for the rounds at y and z")
	end("x")
	end("y")
	end("z")

	headAt(now.Add(minRoundGap), 0, 2, 4)
	began := now
	timer.health.recordCall(timer.servers["y"], began, false, errors.New("no answer"))
	now = now.Add(minRoundGap)
	polled, wait := plan()
	require.Equal(t, map[string]int{"x": 1, "z": 1}, polled, "y is silent")
	require.False(t, fellBack())
	require.LessOrEqual(t, wait, longestWait)
	require.Equal(t, began, timer.health.unreachableSince(bt, 3), "one that was not asked is out of reach as well")
	require.Zero(t, timer.health.unreachableSince(bt, 0))
	require.True(t, timer.Serves(1, 3))

	now = began.Add(timer.cfg.OutageAfter - time.Millisecond)
	_, wait = plan()
	require.False(t, fellBack())
	require.Equal(t, time.Millisecond, wait)
	now = now.Add(time.Millisecond)
	plan()
	require.True(t, fellBack())
	for p := range 6 {
		require.Equal(t, p/2 != 1, timer.Serves(1, p), "partition %d", p)
	}

	end("x")
	end("z")
	timer.health.endSilence(timer.servers["y"])
	polled, _ = plan()
	require.Equal(t, 2, polled["y"])
	require.False(t, fellBack())
}

// Two rounds that polled one slot at once took each other's claims for orphans, and rolled them back.
func TestASlotThatMovesIsNotPolledTwice(t *testing.T) {
	timer := planned(t)
	now := time.Now()
	bt := timer.bizTimers[1]
	timer.planner.sweeps = nil
	timer.planner.ask(timer.planner.slotOf(bt, 0))
	rounds, _ := timer.planner.plan(now)
	require.Len(t, rounds, 1)
	before := rounds[0]

	other := timer.placement.server("other")
	other.isKnown = true
	timer.placement.move(bt.slots[0], other)
	timer.placement.nextPlacement = now.Add(time.Hour)
	rounds, _ = timer.planner.plan(now)
	require.Empty(t, rounds, "the round before has not ended")
	timer.claimer.endRound(before)
	rounds, _ = timer.planner.plan(now)
	require.Len(t, rounds, 1)
	require.Same(t, other, rounds[0].server)
}

// term is an ownership of all partitions in a term.
type term struct {
	all
	now uint64
}

func (o *term) Term(int) uint64 { return o.now }

// A new owner asks each slot once. A slot that has nothing is in memory only as long as that takes.
func TestANewOwnerAsksEachSlotOnce(t *testing.T) {
	timer := planned(t)
	now, owned := time.Now(), &term{now: 1}
	timer.cfg.Ownership = owned
	asks := func() (n int) {
		for range 5 {
			now = now.Add(time.Second)
			rounds, _ := timer.planner.plan(now)
			for _, r := range rounds {
				n += len(r.slots)
				for _, s := range r.slots {
					s.lastPoll, s.pollNow, s.hasOrphans = now, false, false
				}
				timer.claimer.endRound(r)
			}
		}
		require.Empty(t, timer.bizTimers[1].slots)
		return n
	}
	require.Equal(t, 6, asks())
	require.Zero(t, asks())
	owned.now++
	timer.takeOver()
	require.Equal(t, 6, asks())
	require.Zero(t, asks())
}

// While many tasks are due, a slot is polled once in each turn, and takes what is due until the next one. A later task is claimed at its time.
func TestTurns(t *testing.T) {
	timer := planned(t)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	timer.partitions[2].term, timer.partitions[3].term = 1, 1
	bt := timer.bizTimers[1]
	first, second := timer.planner.slotOf(bt, 2), timer.planner.slotOf(bt, 3)
	g := first.group
	at := func(ms int) time.Time { return now.Add(time.Duration(ms) * time.Millisecond) }

	first.head = at(5000)
	require.Equal(t, at(4800), first.nextPoll(at(0)))
	require.Equal(t, at(5200), first.claimUntil(at(5000)))

	g.isDense = true
	begin := first.turnAt(at(5000))
	require.Equal(t, begin.Add(turnEvery/6), second.turnAt(begin.Add(turnEvery/2)), "the turns follow each other")
	require.Equal(t, begin.Add(-claimAhead), first.nextPoll(at(0)), "the whole turn is claimed in time")
	require.Equal(t, begin.Add(turnEvery), first.claimUntil(begin.Add(-claimAhead)))

	first.lastPoll = begin.Add(-claimAhead)
	first.head = begin.Add(turnEvery)
	require.Equal(t, begin.Add(turnEvery-claimAhead), first.nextPoll(at(0)), "the next turn")
	first.head = begin.Add(turnEvery / 2) // armed after the poll of its turn
	require.Equal(t, first.head.Add(-claimAhead), first.nextPoll(at(0)))
}

func TestAGroupIsDense(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	g := &group{}
	rate := func(perSecond int) bool {
		for range 40 {
			now = now.Add(50 * time.Millisecond)
			g.countClaims(perSecond/20, now)
		}
		return g.isDense
	}
	require.False(t, rate(400))
	require.True(t, rate(600))
	require.False(t, rate(0))
}
