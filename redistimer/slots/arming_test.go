package slots_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/redistimer/slots"
)

func (s slotSuite) armsAgain(t *testing.T) {
	r := s.open(t)
	early, late := ago(time.Hour), ahead(time.Hour)

	require.Zero(t, r.arm(t, orders, member(1, late, 0), member(2, late, 3)))
	require.Equal(t, state{
		Store: map[string]string{"1": score(late, 0), "2": score(late, 3)}, Prepare: map[string]string{}, Dead: map[string]string{},
	}, r.state(t, orders))

	require.Equal(t, 2, r.arm(t, orders, member(2, early, 4), member(1, late, 0), member(3, early, 0)))
	require.Equal(t, map[string]string{"1": score(late, 0), "2": score(early, 4), "3": score(early, 0)}, r.state(t, orders).Store)
}

func (s slotSuite) armsNoClaimed(t *testing.T) {
	r := s.open(t)
	at := ago(time.Hour)
	r.arm(t, orders, member(1, at, 2))
	require.Len(t, r.claimAll(t, orders), 1)
	before := r.state(t, orders)

	for _, arm := range []func() []slots.ArmResult{
		func() []slots.ArmResult {
			return r.Arm(t.Context(), []slots.ArmRequest{{Slot: orders, Members: []slots.Member{member(1, at, 0), member(2, at, 1)}}})
		},
		func() []slots.ArmResult {
			return r.Arm(t.Context(), []slots.ArmRequest{{Slot: orders, Keep: true, Members: []slots.Member{member(1, at, 0), member(3, at, 1)}}})
		},
	} {
		require.Equal(t, []slots.ArmResult{{Known: 1}}, arm())
	}
	before.Store = map[string]string{"2": score(at, 1), "3": score(at, 1)}
	require.Equal(t, before, r.state(t, orders))
}

// A stored task was armed after its commit, and may be newer than a row that was read before: it comes earlier, but not later.
func (s slotSuite) armsNew(t *testing.T) {
	r := s.open(t)
	early, late := ago(time.Hour), ahead(time.Hour)
	r.arm(t, orders, member(1, late, 5), member(2, early, 0))
	answers := r.Arm(t.Context(), []slots.ArmRequest{{Slot: orders, Keep: true, Members: []slots.Member{
		member(1, early, 6), member(2, late, 0), member(3, early, 1),
	}}})
	require.Equal(t, []slots.ArmResult{{Known: 2}}, answers)
	require.Equal(t, map[string]string{"1": score(early, 6), "2": score(early, 0), "3": score(early, 1)}, r.state(t, orders).Store)
}

// In a slot that has another store's marker no task is claimed or armed, and the marker stays.
func (s slotSuite) leavesForeignSlotsAlone(t *testing.T) {
	ctx := t.Context()
	r := s.open(t)
	at := ago(time.Hour)
	const theirs = "toc/2 theirs 1x1x1 serving host:1:a 0"
	require.Equal(t, []error{nil}, r.mark(ctx, []slots.Slot{orders}, theirs))
	r.arm(t, orders, member(1, at, 0)) // a center that does not know its store yet takes every slot for its own
	before := r.state(t, orders)

	r.StoreID = func() string { return "ours" }
	armed := r.Arm(ctx, []slots.ArmRequest{{Slot: orders, Members: []slots.Member{member(1, at, 1), member(2, at, 0)}}})
	require.ErrorContains(t, armed[0].Err, "redis.prefix")
	got := r.claim(t, slots.ClaimRequest{Slot: orders, Limit: 10, Visibility: time.Hour})
	require.Empty(t, got.Members)
	require.Equal(t, theirs, got.Marker)
	require.Equal(t, []slots.MarkResult{{}}, r.Mark(ctx, []slots.MarkRequest{{Slot: orders, Value: "x", TTL: time.Hour}}))
	require.Equal(t, before, r.state(t, orders))

	r.StoreID = func() string { return "theirs" }
	require.Equal(t, []uint64{1}, idsOf(r.claimAll(t, orders)))
	// A marker of an earlier version belongs to no store.
	require.Equal(t, []error{nil}, r.mark(ctx, []slots.Slot{orders}, "6f7f1e 1786100000000"))
	r.StoreID = func() string { return "ours" }
	r.arm(t, orders, member(3, at, 0))
	require.Equal(t, []uint64{3}, idsOf(r.claimAll(t, orders)))
}

func (s slotSuite) armsTheDead(t *testing.T) {
	r := s.open(t)
	at := ago(time.Hour)
	r.settle(t, slots.SettleRequest{Slot: orders, Dead: []slots.Member{member(1, at, 0), member(2, at, 0), member(3, at, 0)}})

	r.arm(t, orders, member(1, at, 0))
	require.Equal(t, []slots.ArmResult{{}}, r.Arm(t.Context(), []slots.ArmRequest{{Slot: orders, Keep: true, Members: []slots.Member{member(2, at, 0)}}}))
	after := r.state(t, orders)
	require.Equal(t, map[string]string{"1": score(at, 0), "2": score(at, 0)}, after.Store)
	require.Len(t, after.Dead, 1)
	require.Contains(t, after.Dead, "3")
}
