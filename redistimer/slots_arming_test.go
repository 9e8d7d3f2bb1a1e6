package redistimer_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/redistimer"
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

	for _, arm := range []func() []redistimer.Armed{
		func() []redistimer.Armed {
			return r.Arm(t.Context(), []redistimer.Arming{{Slot: orders, Members: []redistimer.Member{member(1, at, 0), member(2, at, 1)}}})
		},
		func() []redistimer.Armed {
			return r.ArmMissing(t.Context(), []redistimer.Arming{{Slot: orders, Members: []redistimer.Member{member(1, at, 0), member(3, at, 1)}}})
		},
	} {
		require.Equal(t, []redistimer.Armed{{Known: 1}}, arm())
	}
	before.Store = map[string]string{"2": score(at, 1), "3": score(at, 1)}
	require.Equal(t, before, r.state(t, orders))
}

// A row knows less than the slot of a task that was rolled back, and more of one
// that an admin moved.
func (s slotSuite) armsMissing(t *testing.T) {
	r := s.open(t)
	early, late := ago(time.Hour), ahead(time.Hour)
	r.arm(t, orders, member(1, late, 5), member(2, late, 5), member(3, late, 5))

	answers := r.ArmMissing(t.Context(), []redistimer.Arming{{Slot: orders, Members: []redistimer.Member{
		member(1, early, 4), member(2, early, 5), member(3, early, 6), member(4, early, 0),
	}}})
	require.Equal(t, []redistimer.Armed{{Known: 3}}, answers)
	require.Equal(t, map[string]string{"1": score(late, 5), "2": score(early, 5), "3": score(early, 6), "4": score(early, 0)}, r.state(t, orders).Store)
	require.Equal(t, []redistimer.Armed{{Known: 1}}, r.ArmMissing(t.Context(), []redistimer.Arming{{Slot: orders, Members: []redistimer.Member{member(1, early, 0)}}}))
}

func (s slotSuite) armsTheDead(t *testing.T) {
	r := s.open(t)
	at := ago(time.Hour)
	r.settle(t, redistimer.Settling{Slot: orders, Dead: []redistimer.Member{member(1, at, 0), member(2, at, 0), member(3, at, 0)}})

	r.arm(t, orders, member(1, at, 0))
	require.Equal(t, []redistimer.Armed{{}}, r.ArmMissing(t.Context(), []redistimer.Arming{{Slot: orders, Members: []redistimer.Member{member(2, at, 0)}}}))
	after := r.state(t, orders)
	require.Equal(t, map[string]string{"1": score(at, 0), "2": score(at, 0)}, after.Store)
	require.Len(t, after.Dead, 1)
	require.Contains(t, after.Dead, "3")
}

func (s slotSuite) cancels(t *testing.T) {
	r := s.open(t)
	at := ago(time.Hour)
	r.arm(t, orders, member(1, at, 0))
	r.claimAll(t, orders)
	r.arm(t, orders, member(2, at, 0), member(3, at, 0))
	want := r.state(t, orders)
	delete(want.Store, "2")

	for _, c := range []struct {
		id    uint64
		found redistimer.Found
	}{{1, redistimer.Prepared}, {2, redistimer.Stored}, {2, redistimer.Absent}, {4, redistimer.Absent}} {
		found, err := r.Cancel(t.Context(), orders, c.id)
		require.NoError(t, err)
		require.Equal(t, c.found, found, "task %d", c.id)
	}
	require.Equal(t, want, r.state(t, orders))
}

func (s slotSuite) reschedules(t *testing.T) {
	r := s.open(t)
	at, later := ago(time.Hour), ahead(time.Hour)
	r.arm(t, orders, member(1, at, 0))
	r.claimAll(t, orders)
	r.arm(t, orders, member(2, at, 0))
	want := r.state(t, orders)
	want.Store = map[string]string{"2": score(later, 7), "3": score(later, 1)}

	for _, c := range []struct {
		member redistimer.Member
		found  redistimer.Found
	}{
		{member(1, later, 0), redistimer.Prepared},
		{member(2, later, 7), redistimer.Stored},
		{member(3, later, 1), redistimer.Absent},
	} {
		found, err := r.Reschedule(t.Context(), orders, c.member)
		require.NoError(t, err)
		require.Equal(t, c.found, found, "task %d", c.member.JobID)
	}
	require.Equal(t, want, r.state(t, orders))
}
