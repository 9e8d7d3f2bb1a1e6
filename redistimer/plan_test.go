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
	bt.servers = 3
	clear(timer.servers)
	for i, addr := range []string{"x", "y", "z"} {
		srv := timer.server(addr)
		srv.isKnown = true
		g := &group{bizTimer: bt}
		for p := 2 * i; p < 2*i+2; p++ {
			bt.slots[p].server = srv
			g.slots = append(g.slots, &bt.slots[p])
		}
		srv.groups = []*group{g}
	}
	fellBack := func() bool {
		select {
		case <-timer.Watch():
			return true
		default:
			return false
		}
	}
	plan := func() (asked map[string]int, wait time.Duration) {
		timer.nextPlacement = now.Add(time.Hour) // the client knows one server
		rounds, wait := timer.plan(now)
		asked = map[string]int{}
		for _, r := range rounds {
			asked[r.server.addr] = len(r.slots)
			for _, a := range r.slots {
				require.Same(t, r.server, a.slot.server)
			}
		}
		return asked, wait
	}
	end := func(addr string) { // of a round
		r := round{server: timer.servers[addr]}
		for _, s := range r.server.groups[0].slots {
			r.slots = append(r.slots, polledSlot{slot: s})
			s.lastPoll, s.pollNow = now, false
		}
		timer.endRound(r)
	}

	asked, _ := plan()
	require.Equal(t, map[string]int{"x": 2, "y": 2, "z": 2}, asked)
	require.True(t, timer.hasInflight(0), "a claim is on its way")
	end("x")
	require.False(t, timer.hasInflight(0))
	require.True(t, timer.hasInflight(2))
	bt.slots[0].head = now
	now = now.Add(minRoundGap)
	asked, _ = plan()
	require.Equal(t, map[string]int{"x": 1}, asked, "x does not wait for the rounds at y and z")
	end("x")
	end("y")
	end("z")

	bt.slots[0].head, bt.slots[2].head, bt.slots[4].head = now.Add(minRoundGap), now.Add(minRoundGap), now.Add(minRoundGap)
	began := now
	timer.recordCall(timer.servers["y"], began, false, errors.New("no answer"))
	now = now.Add(minRoundGap)
	asked, wait := plan()
	require.Equal(t, map[string]int{"x": 1, "z": 1}, asked, "y is silent")
	require.False(t, fellBack())
	require.LessOrEqual(t, wait, longestWait)
	require.Equal(t, began, bt.slots[3].unreachableSince, "one that was not asked is out of reach as well")
	require.Zero(t, bt.slots[0].unreachableSince)
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
	timer.endSilence(timer.servers["y"])
	asked, _ = plan()
	require.Equal(t, 2, asked["y"])
	require.False(t, fellBack())
}

// Two rounds that polled one slot at once took each other's claims for orphans, and rolled them back.
func TestASlotThatMovesIsNotPolledTwice(t *testing.T) {
	timer := planned(t)
	now := time.Now()
	bt := timer.bizTimers[1]
	s := &bt.slots[0]
	rounds, _ := timer.plan(now)
	require.Len(t, rounds, 1)
	before := rounds[0]

	other := timer.server("other")
	other.isKnown = true
	s.server, s.lastPoll, s.head = other, time.Time{}, now
	s.group = &group{bizTimer: bt, slots: []*slotState{s}}
	before.server.groups, other.groups = nil, []*group{s.group}
	timer.nextPlacement = now.Add(time.Hour)
	rounds, _ = timer.plan(now)
	require.Empty(t, rounds, "the round before has not ended")
	timer.endRound(before)
	rounds, _ = timer.plan(now)
	require.Len(t, rounds, 1)
	require.Same(t, other, rounds[0].server)
}
