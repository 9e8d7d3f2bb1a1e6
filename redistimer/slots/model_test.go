package slots_test

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/timeoutcenter/toc/redistimer/slots"
)

// agreesWithAModel calls a slot at random, and compares it with a model in memory after each call.
func (s slotSuite) agreesWithAModel(t *testing.T) {
	r := s.open(t)
	var many atomic.Int64
	rapid.Check(t, func(t *rapid.T) {
		m := &slotModel{
			T: t, r: r, slot: slots.Slot{Topic: "model", Partition: int(many.Add(1))},
			store: map[uint64]slots.Member{}, claimed: map[uint64]int{}, dead: map[uint64]time.Time{},
		}
		t.Repeat(map[string]func(*rapid.T){
			"arm":       m.arm,
			"arm new":   m.armNew,
			"claim":     m.claim,
			"settle":    m.settle,
			"give back": m.giveBack,
			"":          m.check,
		})
	})
}

// slotModel is a slot in memory. Its claims do not expire.
type slotModel struct {
	*rapid.T
	r       *slotRig
	slot    slots.Slot
	store   map[uint64]slots.Member
	claimed map[uint64]int // attempts
	dead    map[uint64]time.Time
}

var (
	modelPast   = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	modelFuture = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)
	modelIDs    = []uint64{3, 20, 100, 1<<53 + 1, 1<<53 + 2, 1<<63 - 1}
)

func (m *slotModel) drawIDs(label string) []uint64 {
	return rapid.SliceOfNDistinct(rapid.SampledFrom(modelIDs), 0, len(modelIDs), rapid.ID).Draw(m.T, label)
}

func (m *slotModel) drawMember(id uint64) slots.Member {
	base := rapid.SampledFrom([]time.Time{modelPast, modelFuture}).Draw(m.T, "base")
	after := rapid.IntRange(0, 2).Draw(m.T, "ms")
	return member(id, base.Add(time.Duration(after)*time.Millisecond), rapid.IntRange(0, 2).Draw(m.T, "attempts"))
}

func (m *slotModel) drawMembers(label string) []slots.Member {
	var members []slots.Member
	for _, id := range m.drawIDs(label) {
		members = append(members, m.drawMember(id))
	}
	return members
}

func (m *slotModel) arm(*rapid.T)    { m.arms(time.Time{}) }
func (m *slotModel) armNew(*rapid.T) { m.arms(modelPast.Add(time.Millisecond)) }

func (m *slotModel) arms(keep time.Time) {
	members := m.drawMembers("members")
	got := m.r.Arm(m.Context(), []slots.ArmRequest{{Slot: m.slot, KeepUntil: keep, Members: members}})
	known, held := 0, 0
	for _, one := range members {
		_, claimed := m.claimed[one.JobID]
		old, stored := m.store[one.JobID]
		isBefore := func(at time.Time, attempts int) bool {
			return cmp.Or(at.Compare(old.At), cmp.Compare(attempts, old.Attempts)) < 0
		}
		if claimed || stored {
			known++
		}
		if claimed {
			held++
		} else if keep.IsZero() || !stored || isBefore(one.At, one.Attempts) && isBefore(keep, 0) {
			m.store[one.JobID] = one
		}
		delete(m.dead, one.JobID)
	}
	require.Equal(m, []slots.ArmResult{{Known: known, Claimed: held}}, got)
}

// due returns the due tasks of the store queue in the order of scores.
func (m *slotModel) due() []slots.Member {
	var due []slots.Member
	for _, one := range m.store {
		if one.At.Before(modelFuture) {
			due = append(due, one)
		}
	}
	slices.SortFunc(due, func(a, b slots.Member) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Attempts, b.Attempts),
			cmp.Compare(strconv.FormatUint(a.JobID, 10), strconv.FormatUint(b.JobID, 10)))
	})
	return due
}

func (m *slotModel) claim(*rapid.T) {
	limit := rapid.IntRange(0, 4).Draw(m.T, "limit")
	want := m.due()
	want = want[:min(limit, len(want))]
	got := m.r.claim(m, slots.ClaimRequest{Slot: m.slot, Limit: limit, Visibility: time.Hour})
	require.Equal(m, len(want), len(got.Members))
	for i, one := range want {
		require.Equal(m, one, got.Members[i])
		delete(m.store, one.JobID)
		m.claimed[one.JobID] = one.Attempts
	}
	next := time.Time{}
	for _, one := range m.store {
		if next.IsZero() || one.At.Before(next) {
			next = one.At
		}
	}
	require.Equal(m, next, got.Next)
	require.Equal(m, len(m.claimed), got.Claims)
}

func (m *slotModel) settle(*rapid.T) {
	var s slots.SettleRequest
	s.Slot = m.slot
	for _, id := range m.drawIDs("settled") {
		switch one := m.drawMember(id); rapid.IntRange(0, 2).Draw(m.T, "how") {
		case 0:
			s.Done = append(s.Done, id)
			delete(m.store, id)
			delete(m.dead, id)
		case 1:
			s.Dead = append(s.Dead, one)
			delete(m.store, id)
			m.dead[id] = one.At
		case 2:
			s.Back = append(s.Back, one)
			m.store[id] = one
			delete(m.dead, id)
		}
		delete(m.claimed, id)
	}
	m.r.settle(m, s)
}

func (m *slotModel) giveBack(*rapid.T) {
	members, want := m.drawMembers("given back"), 0
	for _, one := range members {
		if _, claimed := m.claimed[one.JobID]; claimed {
			delete(m.claimed, one.JobID)
			m.store[one.JobID] = one
			want++
		}
	}
	require.Equal(m, want, m.r.giveBack(m, m.slot, members...))
}

func (m *slotModel) check(*rapid.T) {
	got := m.r.state(m, m.slot)
	store := map[string]string{}
	for id, one := range m.store {
		store[strconv.FormatUint(id, 10)] = score(one.At, one.Attempts)
	}
	require.Equal(m, store, got.Store)
	dead := map[string]string{}
	for id, at := range m.dead {
		dead[strconv.FormatUint(id, 10)] = strconv.FormatInt(at.UnixMilli(), 10)
	}
	require.Equal(m, dead, got.Dead)
	require.Len(m, got.Prepare, len(m.claimed))
	for id, attempts := range m.claimed {
		require.Regexp(m, fmt.Sprintf("^[0-9]{13}%03d$", attempts), got.Prepare[strconv.FormatUint(id, 10)])
	}
}
