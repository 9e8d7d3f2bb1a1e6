package slots_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/redistimer/slots"
)

type wakeUp struct {
	slot slots.Slot
	at   time.Time
}

// listener receives wake-ups. Probes are kept apart: some may come late.
type listener struct {
	received chan wakeUp
	sent     int          // probes
	probed   atomic.Int64 // the last probe that was received
}

// listen receives all wake-ups from now on, until the test ends.
func (r *slotRig) listen(t testing.TB) *listener {
	t.Helper()
	l := &listener{received: make(chan wakeUp, 1000)}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Listen(ctx, "", l.hear, func() {}) }()
	t.Cleanup(func() {
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
	})
	r.awaitListener(t, l)
	return l
}

func (l *listener) hear(slot slots.Slot, at time.Time) {
	if slot.Topic == "probe" {
		l.probed.Store(int64(slot.Partition))
		return
	}
	l.received <- wakeUp{slot, at}
}

// awaitListener sends probes until one of them is received.
func (r *slotRig) awaitListener(t testing.TB, l *listener) {
	t.Helper()
	first := l.sent + 1
	require.Eventually(t, func() bool {
		l.sent++
		_ = r.client.Publish(t.Context(), r.WakeChannel(), strconv.Itoa(l.sent)+" 1 probe").Err() // the server may still be starting
		return l.probed.Load() >= int64(first)
	}, time.Minute, 10*time.Millisecond)
}

func (s slotSuite) wakes(t *testing.T) {
	r := s.open(t)
	l := r.listen(t)
	tomorrow := ahead(24 * time.Hour)
	at := func(minutes int) time.Time { return tomorrow.Add(time.Duration(minutes) * time.Minute) }

	// Each call says whether it publishes a wake-up, and exactly these must arrive.
	var want []wakeUp
	act := func(wakes bool, head time.Time, do func()) {
		t.Helper()
		do()
		if wakes {
			want = append(want, wakeUp{orders, head})
		}
	}
	armNew := func(m slots.Member) {
		require.NoError(t, r.Arm(t.Context(), []slots.ArmRequest{{Slot: orders, KeepUntil: ago(48 * time.Hour), Members: []slots.Member{m}}})[0].Err)
	}
	release := func(m slots.Member) {
		r.giveBack(t, orders, m)
	}
	claim := func() {
		t.Helper()
		require.Len(t, r.claim(t, slots.ClaimRequest{Slot: orders, Limit: 1, Ahead: 48 * time.Hour, Visibility: time.Hour}).Members, 1)
	}
	back := func(m slots.Member) {
		r.settle(t, slots.SettleRequest{Slot: orders, Back: []slots.Member{m}})
	}

	act(true, at(50), func() { r.arm(t, orders, member(1, at(60), 1), member(2, at(50), 0)) })
	act(false, at(50), func() { r.arm(t, orders, member(3, at(50), 0)) })
	act(false, at(50), func() { r.arm(t, orders, member(4, at(50), 9)) })
	act(false, at(50), func() { r.arm(t, orders, member(2, at(70), 0)) })
	act(true, at(49), func() { r.arm(t, orders, member(2, at(49), 0)) })
	act(false, at(49), func() { armNew(member(1, at(90), 0)) }) // keeps its place
	act(true, at(48), func() { armNew(member(5, at(48), 0)) })
	act(true, at(46), func() { armNew(member(3, at(46), 0)) })
	act(false, at(48), func() { r.arm(t, orders, member(3, at(50), 0)) })
	act(false, at(48), func() { r.arm(t, orders, member(6, at(48), 1)) })
	act(true, at(47), func() { r.arm(t, orders, member(6, at(47), 1)) })
	act(false, at(48), func() { claim() }) // 6
	act(false, at(48), func() { r.arm(t, orders, member(6, at(1), 1)) })
	act(true, at(47), func() { release(member(6, at(47), 1)) })
	act(false, at(48), func() { claim() })
	act(false, at(48), func() { release(member(6, at(90), 1)) })
	act(false, at(48), func() { release(member(6, at(1), 1)) }) // not a claim any more
	act(false, at(49), func() { claim() })                      // 5
	act(false, at(49), func() { back(member(5, at(49), 1)) })
	act(true, at(46), func() { back(member(5, at(46), 1)) })
	act(false, at(46), func() {
		r.settle(t, slots.SettleRequest{Slot: orders, Done: []uint64{5}, Back: []slots.Member{member(7, at(46), 0)}})
	})
	act(false, at(46), func() {
		r.settle(t, slots.SettleRequest{Slot: orders, Done: []uint64{1}, Dead: []slots.Member{member(3, at(0), 0)}})
	})
	act(false, at(49), func() { claim() }) // 7
	act(true, at(3), func() { release(member(7, at(3), 0)) })
	act(true, time.UnixMilli(0).UTC(), func() { r.arm(t, orders, member(8, time.Time{}, 0)) })

	for _, w := range want {
		select {
		case got := <-l.received:
			require.Equal(t, w, got)
		case <-time.After(time.Minute):
			t.Fatalf("no wake-up %v", w)
		}
	}
}

// Listening survives a restart of the server. A message that cannot be parsed is dropped.
func TestWakesAgain(t *testing.T) {
	t.Parallel()
	server := testrig.StartRedis(t)
	r := openSlots(t, func(testing.TB) ([]string, string) { return []string{server.Addr()}, server.Prefix() })
	l := r.listen(t)
	for _, garbage := range []string{"", "x", "1", "1 2", "1 2 ", "x 2 topic", "1 x topic"} {
		require.NoError(t, r.client.Publish(t.Context(), r.WakeChannel(), garbage).Err())
	}
	at := ahead(time.Hour)
	r.arm(t, orders, member(1, at, 0))
	require.Equal(t, wakeUp{orders, at}, <-l.received)

	server.Kill()
	server.Start()
	r.awaitListener(t, l)
	r.arm(t, orders, member(2, at.Add(-time.Minute), 0))
	require.Equal(t, wakeUp{orders, at.Add(-time.Minute)}, <-l.received)
}

func TestWakesOfAClosedClient(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: testrig.Redis(t).Addr()})
	require.NoError(t, client.Close())
	err := slots.New(client, "").Listen(t.Context(), "", func(slots.Slot, time.Time) {}, func() {})
	require.ErrorIs(t, err, redis.ErrClosed)
}
