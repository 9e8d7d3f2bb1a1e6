package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/sharding"
)

// tower is a pair of clocks that a test sets.
type tower struct{ at instant }

func (w *tower) pass(mono, wall time.Duration) {
	w.at = instant{w.at.mono + int64(mono), w.at.wall + int64(wall)}
}

func leasedOwnership() (*Ownership, *tower) {
	w := &tower{instant{int64(time.Hour), int64(1e18)}}
	o := ownershipOf(4)
	o.clock = func() instant { return w.at }
	set(o, 1, 3, true)
	o.renew(0, w.at.add(2*time.Second))
	return o, w
}

func TestNothingIsOwnedOnceTheLeaseIsOver(t *testing.T) {
	for name, c := range map[string]struct {
		mono, wall time.Duration
		owned      bool
	}{
		"in time":                             {time.Second, time.Second, true},
		"too late":                            {2 * time.Second, 2 * time.Second, false},
		"paused, and the machine's clock too": {0, time.Minute, false},
		"the wall clock was set back":         {time.Second, -time.Hour, true},
		"set back and too late":               {2 * time.Second, -time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			o, w := leasedOwnership()
			defer o.expire(0)
			rings := o.Watch()
			w.pass(c.mono, c.wall)
			require.Equal(t, c.owned, o.Owns(1))
			require.Equal(t, c.owned, len(o.Owned()) == 2)
			require.False(t, o.Owns(0))
			o.lapse(0)
			require.Equal(t, c.owned, len(rings) == 0, "the end is told")
			o.renew(0, w.at.add(time.Second))
			require.Equal(t, []int{1, 2}, o.Owned(), "renewed, all is as before")
		})
	}
}

func TestARenewedLeaseRings(t *testing.T) {
	o, w := leasedOwnership()
	rings := o.Watch()
	o.renew(0, w.at.add(3*time.Second))
	require.Empty(t, rings, "nothing changed")
	o.expire(0)
	require.Len(t, rings, 1)
	<-rings
	require.Empty(t, o.Owned())
	o.renew(0, w.at.add(-time.Second))
	require.Empty(t, rings, "over before it began")
	o.renew(0, w.at.add(time.Second))
	require.Len(t, rings, 1)
	require.Equal(t, []int{1, 2}, o.Owned())
	o.expire(0)
}

func TestTheEndOfALeaseRingsByItself(t *testing.T) {
	o := ownershipOf(1)
	set(o, 0, 1, true)
	rings := o.Watch()
	o.renew(0, now().add(20*time.Millisecond))
	await.Receive(t, rings, "the end of the lease")
	require.False(t, o.Owns(0))
}

func TestOwnsDoesNotAllocate(t *testing.T) {
	o := ownershipOf(4)
	set(o, 2, 3, true)
	o.renew(0, now().add(time.Hour))
	defer o.expire(0)
	require.Zero(t, testing.AllocsPerRun(100, func() { o.Owns(2) }))
}

func BenchmarkOwns(b *testing.B) {
	o := ownershipOf(4)
	set(o, 2, 3, true)
	o.renew(0, now().add(time.Hour))
	defer o.expire(0)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			o.Owns(2)
		}
	})
}

func TestWorkerOrder(t *testing.T) {
	const dir = "toc/workers/"
	key := func(n int, index uint64, session string) *api.KVPair {
		return &api.KVPair{Key: dir + strconv.Itoa(n), ModifyIndex: index, Session: session}
	}
	pairs := api.KVPairs{key(0, 10, "s"), key(1, 30, ""), key(2, 20, ""), {Key: dir + "x"}}
	order := workerOrder(pairs, dir, -1, "x")
	require.Equal(t, []int{3, 4, 5}, order[:3], "those that nobody had")
	require.Equal(t, []int{sharding.MaxWorker, 2, 1}, order[len(order)-3:], "then the longest free")
	require.Len(t, order, sharding.MaxWorker)
	require.Equal(t, []int{1, 3, 4}, workerOrder(pairs, dir, 1, "x")[:3], "one's own first")
	require.Equal(t, []int{0, 3, 4}, workerOrder(pairs, dir, 1, "s")[:3], "what is locked already before all")
}

// idleHost is a MemberHost with nothing to do.
type idleHost struct{}

func (idleHost) Prepare(context.Context, int) error { return nil }
func (idleHost) BeginWaiting()                      {}
func (idleHost) Unreachable() []int                 { return nil }
func (idleHost) Died()                              {}
func (idleHost) SetWorker(int)                      {}
func (idleHost) Drain(_ context.Context, partitions []int, idle func(int)) {
	for _, p := range partitions {
		idle(p)
	}
}

func watched() *Consul {
	c := NewConsul(ConsulConfig{
		Node: "a", Layout: sharding.Layout{Databases: 1, TablesPerDatabase: 4, Partitions: 4}, Logger: slog.New(slog.DiscardHandler), Host: idleHost{},
	})
	c.session = "mine"
	c.names = map[string]name{"": {}} // the peers of these tests have no service of their own
	for p := range 3 {
		c.holds[p] = hold{held, "mine", 20}
	}
	set(c.owned, 0, 3, true)
	c.owned.renew(0, now().add(time.Hour))
	return c
}

// The watch's state of a lock counts only if it is newer than our locking.
func TestOldAnswersTakeNothingAway(t *testing.T) {
	c := watched()
	defer c.owned.expire(0)
	mine := lock{session: "mine", instance: c.instance, index: 20}
	c.updateLocks([]lock{{index: 15}, {session: "theirs", index: 19}, {}, {}}, 19)
	require.Equal(t, []int{0, 1, 2}, c.owned.Owned())
	c.updateLocks([]lock{mine, mine, {}, {}}, 20)
	require.Equal(t, []int{0, 1}, c.owned.Owned(), "deleted")
	c.updateLocks([]lock{{index: 21}, mine, {}, {}}, 21)
	require.Equal(t, []int{1}, c.owned.Owned(), "free")
	c.updateLocks([]lock{mine, {session: "theirs", index: 22}, {}, {}}, 22)
	require.Empty(t, c.owned.Owned(), "another's")

	c = watched()
	defer c.owned.expire(0)
	c.updateLocks([]lock{mine, mine, mine, {}}, 20)
	c.updateLocks([]lock{{index: 5}, mine, mine, {}}, 10)
	require.Equal(t, []int{1, 2}, c.owned.Owned(), "time went back: nothing is sure")

	c = watched()
	c.cfg.KeepOnLoss = true
	defer c.owned.expire(0)
	c.updateLocks([]lock{{index: 21}, {session: "theirs", index: 22}, mine, {}}, 22)
	require.Equal(t, []int{0, 2}, c.owned.Owned(), "what is free can be kept")
}

func TestHowLongAFreeLockIsLeftAlone(t *testing.T) {
	c := watched()
	defer c.owned.expire(0)
	clock := &tower{instant{int64(time.Hour), int64(1e18)}}
	c.clock = func() instant { return clock.at }
	c.nodes = []peer{{instance: 7, expired: true}, {instance: 8}}
	freed := clock.at
	clock.pass(time.Second, time.Second)
	require.LessOrEqual(t, c.lockableIn(lock{}), time.Duration(0), "never locked, or handed over")
	require.LessOrEqual(t, c.lockableIn(lock{instance: c.instance, freed: freed}), time.Duration(0), "our own")
	require.LessOrEqual(t, c.lockableIn(lock{instance: 7, freed: freed}), time.Duration(0), "silent for a TTL")
	require.Equal(t, 2*time.Second, c.lockableIn(lock{instance: 8, freed: freed}), "it may not know")
	require.Equal(t, 2*time.Second, c.lockableIn(lock{instance: 9, freed: freed}), "nobody knows of it")
	c.cfg.KeepOnLoss, c.returned = true, clock.at
	require.Equal(t, 3*time.Second+rejoinDelay, c.lockableIn(lock{instance: 7, freed: freed}), "it may come back, as we did")
	c.lost = true
	require.Equal(t, 3*time.Second, c.lockableIn(lock{instance: 7, freed: freed}), "nor have we come back")
	c.lost = false
	c.cfg.KeepOnLoss = false
	clock.pass(2*time.Second, 0)
	require.LessOrEqual(t, c.lockableIn(lock{instance: 8, freed: freed}), time.Duration(0))
}

// A node with KeepOnLoss that has lost its session first locks its partitions again, and hands over afterwards.
// If it leaves meanwhile, it hands over at once.
func TestWhatAKeeperDoesWithoutItsSession(t *testing.T) {
	c := watched()
	defer c.owned.expire(0)
	c.cfg.KeepOnLoss, c.phase = true, working
	c.session = ""
	require.Empty(t, c.compare().toRelease)

	c.session = "next"
	c.databases.states[0].prepared = true
	c.nodes = []peer{{name: "b", instance: 8, healthy: true, ready: true}}
	c.locks = make([]lock, 4)
	d := c.compare()
	require.Equal(t, []int{0, 1, 2}, d.toAcquire[:3])
	require.Empty(t, d.toRelease, "though b should have some")

	c.session, c.phase = "", leaving
	require.Equal(t, []int{0, 1, 2}, c.compare().toRelease)
	require.Empty(t, c.compare().toRelease, "once")
}

func TestPeerOf(t *testing.T) {
	entry := func(status ...string) *api.ServiceEntry {
		e := &api.ServiceEntry{Service: &api.AgentService{ID: "toc-a", CreateIndex: 4, Meta: map[string]string{
			metaNode: "a", metaInstance: "ff", metaAddress: "h:1", metaUnreachable: "2,5",
		}}}
		for i, id := range []string{"serfHealth", "toc-a:alive", "toc-a:ready"} {
			e.Checks = append(e.Checks, &api.HealthCheck{CheckID: id, Status: status[i]})
		}
		return e
	}
	const pass, fail = api.HealthPassing, api.HealthCritical
	p, ok := peerOf(entry(pass, pass, pass))
	require.True(t, ok)
	require.Equal(t, peer{name: "a", address: "h:1", service: "toc-a", instance: 255, created: 4, unreachable: []int{2, 5}, healthy: true, ready: true}, p)
	p, _ = peerOf(entry(pass, pass, fail))
	require.True(t, p.healthy && !p.ready, "it leaves")
	p, _ = peerOf(entry(pass, fail, pass))
	require.True(t, !p.healthy && p.expired)
	p, _ = peerOf(entry(fail, pass, pass))
	require.True(t, !p.healthy && !p.expired, "its machine is away")
	resting := entry(pass, pass, pass)
	resting.Checks = append(resting.Checks, &api.HealthCheck{CheckID: "_service_maintenance:toc-a", Status: fail})
	p, _ = peerOf(resting)
	require.True(t, p.healthy && p.inMaintenance)
	_, ok = peerOf(&api.ServiceEntry{Service: &api.AgentService{ID: "another's"}})
	require.False(t, ok)
}

func TestUnreachable(t *testing.T) {
	for err, want := range map[error]bool{
		errors.New("connection refused"):                                           true,
		fmt.Errorf("x: %w", api.StatusError{Code: 500, Body: "No cluster leader"}): true,
		api.StatusError{Code: http.StatusForbidden}:                                false,
		&nameTakenError{}:                   false,
		fmt.Errorf("x: %w", &layoutError{}): false,
	} {
		require.Equal(t, want, unreachable(err), err)
	}
}
