package slots_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/redistimer/slots"
)

func (s slotSuite) settles(t *testing.T) {
	r := s.open(t)
	at, again, died := ago(time.Hour), ahead(time.Hour), ago(time.Minute)
	// Of each three tasks one is claimed, one is stored, and one is not in the slot.
	r.arm(t, orders, member(1, at, 0), member(4, at, 0), member(7, at, 0), member(90, at, 0))
	require.Len(t, r.claimAll(t, orders), 4)
	r.arm(t, orders, member(2, at, 0), member(5, at, 0), member(8, at, 0), member(91, at, 0))
	r.settle(t, slots.SettleRequest{Slot: orders, Dead: []slots.Member{member(9, at, 0), member(92, at, 0)}})
	before := r.state(t, orders)

	r.settle(t, slots.SettleRequest{
		Slot: orders,
		Done: []uint64{1, 2, 3},
		Dead: []slots.Member{member(4, died, 17), member(5, died.Add(time.Millisecond), 1), member(6, died, 0)},
		Back: []slots.Member{member(7, again, 1), member(8, again, 2), member(9, again, 3)},
	})
	dead := func(at time.Time) string { return strconv.FormatInt(at.UnixMilli(), 10) }
	require.Equal(t, state{
		Store:   map[string]string{"91": score(at, 0), "7": score(again, 1), "8": score(again, 2), "9": score(again, 3)},
		Prepare: map[string]string{"90": before.Prepare["90"]},
		Dead:    map[string]string{"92": dead(at), "4": dead(died), "5": dead(died.Add(time.Millisecond)), "6": dead(died)},
	}, r.state(t, orders))
}

// In a listpack each of many tasks that come back would be searched from the front.
func (s slotSuite) beginsAsASkiplist(t *testing.T) {
	r := s.open(t)
	at, again := ago(time.Hour), ahead(time.Hour)
	r.arm(t, orders, member(1, at, 0), member(2, at, 0))
	require.Len(t, r.claimAll(t, orders), 2)
	r.arm(t, orders, member(3, at, 0))
	r.settle(t, slots.SettleRequest{Slot: orders, Done: []uint64{3}, Back: []slots.Member{member(1, again, 1), member(2, again, 1)}})
	require.Equal(t, map[string]string{"1": score(again, 1), "2": score(again, 1)}, r.state(t, orders).Store)
	require.Positive(t, r.client.TTL(t.Context(), r.StoreKey(orders)).Val())
	form, err := r.client.ObjectEncoding(t.Context(), r.StoreKey(orders)).Result()
	if err != nil && strings.Contains(err.Error(), "unknown") { // the Redis inside the process
		return
	}
	require.NoError(t, err)
	require.Equal(t, "skiplist", form)
}

func (s slotSuite) releases(t *testing.T) {
	r := s.open(t)
	at := ago(time.Hour)
	claims := []slots.Member{member(1, at, 0), member(2, at, 3), member(3, at, 5), member(4, at, 7)}
	r.arm(t, orders, claims...)
	require.Equal(t, claims, r.claimAll(t, orders))
	r.settle(t, slots.SettleRequest{Slot: orders, Done: []uint64{1}, Back: []slots.Member{member(3, ahead(time.Hour), 6)}})
	want := r.state(t, orders)
	want.Store["2"] = score(at, 3)
	delete(want.Prepare, "2")

	require.Equal(t, 1, r.giveBack(t, orders, claims[:3]...), "the others are settled")
	require.Equal(t, want, r.state(t, orders))
	require.Equal(t, []slots.Member{member(2, at, 3)}, r.claimAll(t, orders))
}

func (s slotSuite) boundsTheDead(t *testing.T) {
	r := s.open(t)
	first := ago(time.Hour)
	var dead []slots.Member
	for i := range 12_000 {
		dead = append(dead, member(uint64(i), first.Add(time.Duration(i)*time.Millisecond), 0))
	}
	r.settle(t, slots.SettleRequest{Slot: orders, Dead: dead})
	kept := r.state(t, orders).Dead
	require.Len(t, kept, 10_000)
	require.NotContains(t, kept, "1999")
	require.Contains(t, kept, "2000", "the newest stay")
	left, err := r.client.TTL(t.Context(), r.DeadKey(orders)).Result()
	require.NoError(t, err)
	require.InDelta(t, 7*24*time.Hour, left, float64(time.Minute))
}

// The first task of a queue sets the queue's expiry, and the owner of the slot postpones it. So the queues of a
// topic without an owner do not stay for ever.
func (s slotSuite) expires(t *testing.T) {
	r := s.open(t)
	at := ago(time.Hour)
	check := func(key string) {
		t.Helper()
		left, err := r.client.TTL(t.Context(), key).Result()
		require.NoError(t, err)
		require.InDelta(t, 24*time.Hour, left, float64(time.Minute))
	}
	r.arm(t, orders, member(1, at, 0))
	check(r.StoreKey(orders))
	r.claimAll(t, orders)
	check(r.PrepareKey(orders))
	require.Equal(t, 1, r.giveBack(t, orders, member(1, at, 0)))
	check(r.StoreKey(orders))
	r.claimAll(t, orders)
	r.settle(t, slots.SettleRequest{Slot: orders, Back: []slots.Member{member(1, at, 0)}})
	check(r.StoreKey(orders))

	require.NoError(t, r.client.Expire(t.Context(), r.StoreKey(orders), time.Hour).Err())
	r.arm(t, orders, member(2, at, 0))
	check(r.StoreKey(orders))
}

func (s slotSuite) listsClaims(t *testing.T) {
	r := s.open(t)
	at := ago(time.Hour)
	var want []slots.Member
	for i := range 5 {
		r.arm(t, orders, member(uint64(100-i), at, i))
		c := r.claim(t, slots.ClaimRequest{Slot: orders, Limit: 1, Visibility: time.Duration(i+1) * time.Minute})
		want = append(want, member(uint64(100-i), ceilMilli(c.Now.Add(time.Duration(i+1)*time.Minute)), i))
	}
	for _, c := range []struct {
		offset, limit int
		want          []slots.Member
	}{{0, 2, want[:2]}, {2, 2, want[2:4]}, {4, 2, want[4:]}, {0, 100, want}, {5, 2, []slots.Member{}}, {0, 0, nil}} {
		got, err := r.Prepared(t.Context(), orders, c.offset, c.limit)
		require.NoError(t, err)
		require.Equal(t, c.want, got, "%d from %d", c.limit, c.offset)
	}
	got, err := r.Prepared(t.Context(), slots.Slot{Topic: "none"}, 0, 10)
	require.NoError(t, err)
	require.Empty(t, got)
}
