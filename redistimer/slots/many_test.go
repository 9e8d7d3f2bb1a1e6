package slots_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/redistimer/slots"
)

func (s slotSuite) manySlots(t *testing.T) {
	r := s.open(t)
	const n = 200
	at := ago(time.Hour)
	var (
		many   []slots.Slot
		arms   []slots.ArmRequest
		claims []slots.ClaimRequest
		want   [][]uint64
	)
	for i := range n {
		slot := slots.Slot{Topic: "many" + strconv.Itoa(i%3), Partition: i}
		arm := slots.ArmRequest{Slot: slot}
		ids := []uint64{}
		for k := range i % 4 { // some have nothing
			id := uint64(i*10 + k)
			arm.Members = append(arm.Members, member(id, at.Add(time.Duration(k)*time.Second), i%7))
			ids = append(ids, id)
		}
		many, arms, want = append(many, slot), append(arms, arm), append(want, ids)
		claims = append(claims, slots.ClaimRequest{Slot: slot, Limit: 2, Visibility: time.Hour})
	}
	require.Equal(t, make([]slots.ArmResult, n), r.Arm(t.Context(), arms))
	for i, d := range depthsOf(t, r.client, r.Slots, many...) {
		require.Equal(t, depth{Store: int64(i % 4)}, d)
	}

	got := make([][]uint64, n)
	for i := range got {
		got[i] = []uint64{}
	}
	for range 2 {
		for i, c := range r.Claim(t.Context(), claims) {
			require.NoError(t, c.Err)
			got[i] = append(got[i], idsOf(c.Members)...)
		}
	}
	require.Equal(t, want, got)
	for i, d := range depthsOf(t, r.client, r.Slots, many...) {
		require.Equal(t, depth{Prepared: int64(i % 4)}, d)
	}

	// In each slot one task is dead, one goes back, and the last is given back.
	settles, givenBack := make([]slots.SettleRequest, n), make([]slots.SettleResult, n)
	for i := range n {
		settles[i].Slot = many[i]
		members := arms[i].Members
		if len(members) > 0 {
			settles[i].Dead = members[:1]
		}
		if len(members) > 1 {
			settles[i].Back = members[1:2]
		}
		if len(members) > 2 {
			settles[i].GiveBack, givenBack[i].GivenBack = members[2:], 1
		}
	}
	require.Equal(t, givenBack, r.Settle(t.Context(), settles))
	for i, d := range depthsOf(t, r.client, r.Slots, many...) {
		require.Equal(t, depth{Store: int64(max(i%4-1, 0)), Dead: int64(min(i%4, 1))}, d)
	}
}

func (s slotSuite) manyMembers(t *testing.T) {
	r := s.open(t)
	const n = 5000
	at := ago(time.Hour)
	members, ids := make([]slots.Member, n), make([]uint64, n)
	for i := range members {
		members[i], ids[i] = member(1<<62+uint64(i), at.Add(time.Duration(i)*time.Millisecond), i%10), 1<<62+uint64(i)
	}
	require.Zero(t, r.arm(t, orders, members...))
	require.Equal(t, n, r.arm(t, orders, members...))

	c := r.claim(t, slots.ClaimRequest{Slot: orders, Limit: n - 1, Visibility: time.Hour})
	require.Equal(t, members[:n-1], c.Members)
	require.Equal(t, members[n-1].At, c.Next)
	require.Equal(t, members[n-1:], r.claimAll(t, orders))
	require.Equal(t, n, r.arm(t, orders, members...))
	require.Equal(t, []depth{{Prepared: n}}, depthsOf(t, r.client, r.Slots, orders))

	r.giveBack(t, orders, members...)
	require.Equal(t, members, r.claim(t, slots.ClaimRequest{Slot: orders, Limit: 2 * n, Visibility: time.Hour}).Members)

	require.Equal(t, n, r.giveBack(t, orders, members...))
	r.settle(t, slots.SettleRequest{Slot: orders, Done: ids[:1700], Dead: members[1700:3100], Back: members[3100:]})
	require.Equal(t, []depth{{Store: n - 3100, Dead: 1400}}, depthsOf(t, r.client, r.Slots, orders))
	require.Equal(t, members[3100:], r.claim(t, slots.ClaimRequest{Slot: orders, Limit: n, Visibility: time.Hour}).Members)
}

func (s slotSuite) nothing(t *testing.T) {
	r := s.open(t)
	ctx := t.Context()
	require.Empty(t, r.Arm(ctx, nil))
	require.Empty(t, r.Claim(ctx, nil))
	require.Empty(t, r.Settle(ctx, nil))
	require.Empty(t, r.Drop(ctx, nil))
	require.Equal(t, []slots.ArmResult{{}}, r.Arm(ctx, []slots.ArmRequest{{Slot: orders}}))
	require.Equal(t, []slots.SettleResult{{}}, r.Settle(ctx, []slots.SettleRequest{{Slot: orders}}))
	require.Equal(t, state{Store: map[string]string{}, Prepare: map[string]string{}, Dead: map[string]string{}}, r.state(t, orders))
}

// The keys of one slot are not sorted sets. The other slots are not affected.
func (s slotSuite) oneSlotFails(t *testing.T) {
	r := s.open(t)
	ctx := t.Context()
	at := ago(time.Hour)
	broken := slots.Slot{Topic: "broken", Partition: 1}
	many := []slots.Slot{{Topic: "a"}, broken, {Topic: "b"}}
	for _, key := range []string{r.StoreKey(broken), r.PrepareKey(broken), r.DeadKey(broken)} {
		require.NoError(t, r.client.Set(ctx, key, "x", 0).Err())
	}
	check := func(errs ...error) {
		t.Helper()
		require.Len(t, errs, 3)
		require.NoError(t, errs[0])
		require.ErrorContains(t, errs[1], " slot "+r.StoreKey(broken)+": ")
		require.ErrorContains(t, errs[1], "WRONGTYPE")
		require.NoError(t, errs[2])
	}

	members := []slots.Member{member(1, at, 0), member(2, at, 0)}
	var arms []slots.ArmRequest
	var claims []slots.ClaimRequest
	var settles []slots.SettleRequest
	for _, slot := range many {
		arms = append(arms, slots.ArmRequest{Slot: slot, Members: members})
		claims = append(claims, slots.ClaimRequest{Slot: slot, Limit: 2, Visibility: time.Hour})
		settles = append(settles, slots.SettleRequest{Slot: slot, Done: []uint64{1}})
	}
	errs := func(n int, err func(int) error) []error {
		list := make([]error, n)
		for i := range list {
			list[i] = err(i)
		}
		return list
	}
	armed := r.Arm(ctx, arms)
	check(errs(len(armed), func(i int) error { return armed[i].Err })...)
	claimed := r.Claim(ctx, claims)
	check(errs(len(claimed), func(i int) error { return claimed[i].Err })...)
	require.Equal(t, members, claimed[0].Members)
	require.Equal(t, members, claimed[2].Members)
	for i := range settles {
		settles[i].GiveBack = members
	}
	check(settleErrors(r.Settle(ctx, settles))...)
	require.Equal(t, []depth{{Store: 1}}, depthsOf(t, r.client, r.Slots, many[2]))
	_, err := r.Prepared(ctx, broken, 0, 1)
	require.ErrorContains(t, err, "WRONGTYPE")
}

func (s slotSuite) drops(t *testing.T) {
	r := s.open(t)
	ctx := t.Context()
	at := ago(time.Hour)
	many := []slots.Slot{{Topic: "drop", Partition: 0}, {Topic: "drop", Partition: 1}, {Topic: "drop", Partition: 2}}
	for _, slot := range many {
		r.arm(t, slot, member(1, at, 0))
		r.claimAll(t, slot)
		r.arm(t, slot, member(2, at, 0))
		r.settle(t, slots.SettleRequest{Slot: slot, Dead: []slots.Member{member(3, at, 0)}})
	}
	kept := r.state(t, many[2])

	require.Equal(t, make([]error, 2), r.Drop(ctx, many[:2]))
	for _, slot := range many[:2] {
		require.Equal(t, state{Store: map[string]string{}, Prepare: map[string]string{}, Dead: kept.Dead}, r.state(t, slot))
	}
	require.Equal(t, kept, r.state(t, many[2]))
}

func (s slotSuite) reloadsScripts(t *testing.T) {
	r := s.open(t)
	ctx := t.Context()
	at := ago(time.Hour)
	var many []slots.Slot
	for i := range 16 {
		many = append(many, slots.Slot{Topic: "flushed", Partition: i})
	}
	forget := func() {
		r.masters(t, func(ctx context.Context, client *redis.Client) error { return client.ScriptFlush(ctx).Err() })
	}
	for _, slot := range many {
		forget()
		r.arm(t, slot, member(1, at, 0), member(2, at, 0))
	}
	forget()
	var claims []slots.ClaimRequest
	for _, slot := range many {
		claims = append(claims, slots.ClaimRequest{Slot: slot, Limit: 1, Visibility: time.Hour})
	}
	for _, c := range r.Claim(ctx, claims) {
		require.NoError(t, c.Err)
		require.Equal(t, []slots.Member{member(1, at, 0)}, c.Members)
	}
	forget()
	r.settle(t, slots.SettleRequest{Slot: many[0], Done: []uint64{1}})
	forget()
	require.Equal(t, 1, r.giveBack(t, many[1], member(1, at, 0)))
}

func (s slotSuite) isCancelled(t *testing.T) {
	r := s.open(t)
	r.arm(t, orders, member(1, ago(time.Hour), 0))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r.failsEverywhere(t, ctx, context.Canceled)
	require.Len(t, r.state(t, orders).Store, 1)
}

// failsEverywhere makes every call, for two slots where the call takes several, and expects this error for each
// slot; nil: any error.
func (r *slotRig) failsEverywhere(t testing.TB, ctx context.Context, want error) {
	t.Helper()
	many := []slots.Slot{orders, {Topic: "other", Partition: 1}}
	members := []slots.Member{member(1, ago(time.Hour), 0)}
	errs := make(map[string][]error)
	note := func(call string, err error) { errs[call] = append(errs[call], err) }
	var arms []slots.ArmRequest
	var claims []slots.ClaimRequest
	var settles []slots.SettleRequest
	for _, slot := range many {
		arms = append(arms, slots.ArmRequest{Slot: slot, Members: members})
		claims = append(claims, slots.ClaimRequest{Slot: slot, Limit: 1})
		settles = append(settles, slots.SettleRequest{Slot: slot, Done: []uint64{1}})
	}
	for _, a := range r.Arm(ctx, arms) {
		note("arm", a.Err)
	}
	for _, c := range r.Claim(ctx, claims) {
		note("claim", c.Err)
		require.Empty(t, c.Members)
	}
	errs["settle"] = settleErrors(r.Settle(ctx, settles))
	errs["drop"] = r.Drop(ctx, many)
	for call, list := range errs {
		require.Len(t, list, len(many), call)
		for i, err := range list {
			require.ErrorContains(t, err, r.StoreKey(many[i]), call)
			if want != nil {
				require.ErrorIs(t, err, want, call)
			}
		}
	}
	_, err := r.Prepared(ctx, orders, 0, 1)
	require.Error(t, err)
}
