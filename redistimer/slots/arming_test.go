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
			return r.Arm(t.Context(), []slots.ArmRequest{{Slot: orders, KeepUntil: at, Members: []slots.Member{member(1, at, 0), member(3, at, 1)}}})
		},
	} {
		require.Equal(t, []slots.ArmResult{{Known: 1, Claimed: 1}}, arm())
	}
	before.Store = map[string]string{"2": score(at, 1), "3": score(at, 1)}
	require.Equal(t, before, r.state(t, orders))
}

// A stored task was armed after its commit, and may be newer than a row that was read before: it comes earlier, but not later.
func (s slotSuite) armsNew(t *testing.T) {
	r := s.open(t)
	early, late := ago(time.Hour), ahead(time.Hour)
	r.arm(t, orders, member(1, late, 5), member(2, early, 0))
	paused := ago(time.Minute) // it was given back, to be claimed again after a pause
	r.arm(t, orders, member(4, paused, 0))
	answers := r.Arm(t.Context(), []slots.ArmRequest{{Slot: orders, KeepUntil: paused.Add(time.Second), Members: []slots.Member{
		member(1, early, 6), member(2, late, 0), member(3, early, 1), member(4, early, 0),
	}}})
	require.Equal(t, []slots.ArmResult{{Known: 3}}, answers)
	require.Equal(t, map[string]string{
		"1": score(early, 6), "2": score(early, 0), "3": score(early, 1), "4": score(paused, 0),
	}, r.state(t, orders).Store)
}

func (s slotSuite) armsTheDead(t *testing.T) {
	r := s.open(t)
	at := ago(time.Hour)
	r.settle(t, slots.SettleRequest{Slot: orders, Dead: []slots.Member{member(1, at, 0), member(2, at, 0), member(3, at, 0)}})

	r.arm(t, orders, member(1, at, 0))
	require.Equal(t, []slots.ArmResult{{}}, r.Arm(t.Context(), []slots.ArmRequest{{Slot: orders, KeepUntil: at, Members: []slots.Member{member(2, at, 0)}}}))
	after := r.state(t, orders)
	require.Equal(t, map[string]string{"1": score(at, 0), "2": score(at, 0)}, after.Store)
	require.Len(t, after.Dead, 1)
	require.Contains(t, after.Dead, "3")
}
