package slots_test

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/redistimer/slots"
)

func (s slotSuite) roundTrip(t *testing.T) {
	r := s.open(t)
	first, second, later := ago(2*time.Hour), ago(time.Hour), ahead(time.Hour)
	r.arm(t, orders, member(30, later, 0), member(10, second, 0), member(20, first, 4))

	c := r.claim(t, slots.ClaimRequest{Slot: orders, Limit: 10, Visibility: time.Minute})
	require.Equal(t, []slots.Member{member(20, first, 4), member(10, second, 0)}, c.Members)
	require.Equal(t, later, c.Next)
	require.WithinDuration(t, time.Now(), c.Now, time.Minute)
	expiry := ceilMilli(c.Now.Add(time.Minute))
	require.Equal(t, 2, c.Claims)
	require.Equal(t, state{
		Store:   map[string]string{"30": score(later, 0)},
		Prepare: map[string]string{"10": score(expiry, 0), "20": score(expiry, 4)},
		Dead:    map[string]string{},
	}, r.state(t, orders))

	r.settle(t, slots.SettleRequest{Slot: orders, Done: []uint64{10, 20}})
	require.Equal(t, state{
		Store: map[string]string{"30": score(later, 0)}, Prepare: map[string]string{}, Dead: map[string]string{},
	}, r.state(t, orders))
	c = r.claim(t, slots.ClaimRequest{Slot: orders, Limit: 10, Visibility: time.Minute})
	require.Empty(t, c.Members)
	require.Zero(t, c.Claims)

	r.settle(t, slots.SettleRequest{Slot: orders, Done: []uint64{30}})
	require.Zero(t, r.claim(t, slots.ClaimRequest{Slot: orders, Limit: 10}).Next)
}

// Late tasks stay in the store queue when only fresh ones are claimed, and the others keep their order.
func (s slotSuite) claimsFreshTasksApart(t *testing.T) {
	r := s.open(t)
	late, later := ago(time.Hour), ago(time.Minute)
	fresh, due, next := ago(5*time.Second), ago(time.Second), ahead(time.Hour)
	r.arm(t, orders, member(1, late, 0), member(2, later, 3), member(3, fresh, 2), member(4, due, 0), member(5, next, 0))

	c := r.claim(t, slots.ClaimRequest{Slot: orders, Limit: 1, Visibility: time.Minute, Overdue: 9 * time.Second})
	require.Equal(t, []slots.Member{member(3, fresh, 2)}, c.Members)
	require.Equal(t, late, c.Next)
	c = r.claim(t, slots.ClaimRequest{Slot: orders, Limit: 10, Visibility: time.Minute, Overdue: 9 * time.Second})
	require.Equal(t, []slots.Member{member(4, due, 0)}, c.Members)
	require.Equal(t, 2, c.Claims)
	require.Equal(t, map[string]string{"1": score(late, 0), "2": score(later, 3), "5": score(next, 0)}, r.state(t, orders).Store)
	c = r.claim(t, slots.ClaimRequest{Slot: orders, Limit: 10, Visibility: time.Minute})
	require.Equal(t, []slots.Member{member(1, late, 0), member(2, later, 3)}, c.Members)
	require.Equal(t, next, c.Next)
}

func ceilMilli(t time.Time) time.Time {
	return t.Add(time.Millisecond - 1).Truncate(time.Millisecond)
}

// centuries is enough to claim everything that fits a score.
const centuries = math.MaxInt64 * time.Nanosecond

func (s slotSuite) scoresAreExact(t *testing.T) {
	for _, c := range []struct {
		name string
		m    slots.Member
		want slots.Member // its JobID is not compared
	}{
		{"soon", member(1, time.UnixMilli(1786100000001), 1), member(0, time.UnixMilli(1786100000001), 1)},
		{"the year 2254", member(1, time.Date(2254, 12, 31, 23, 59, 59, 999e6, time.UTC), 999), member(0, time.Date(2254, 12, 31, 23, 59, 59, 999e6, time.UTC), 999)},
		{"2254, one less", member(1, time.Date(2254, 12, 31, 23, 59, 59, 998e6, time.UTC), 998), member(0, time.Date(2254, 12, 31, 23, 59, 59, 998e6, time.UTC), 998)},
		{"a round number, of the year 2033", member(1, time.UnixMilli(2000000000000), 0), member(0, time.UnixMilli(2000000000000), 0)},
		{"a round number", member(1, time.UnixMilli(9000000000000), 0), member(0, time.UnixMilli(9000000000000), 0)},
		{"before 2^52", member(1, time.UnixMilli(4503599627370), 495), member(0, time.UnixMilli(4503599627370), 495)},
		{"after 2^52", member(1, time.UnixMilli(4503599627370), 497), member(0, time.UnixMilli(4503599627370), 497)},
		{"the last that fits", member(1, time.UnixMilli(9007199254739), 999), member(0, time.UnixMilli(9007199254739), 999)},
		{"too late", member(1, time.Date(3000, 1, 1, 0, 0, 0, 0, time.UTC), 5), member(0, time.UnixMilli(9007199254739), 5)},
		{"no time", member(1, time.Time{}, 5), member(0, time.UnixMilli(0), 5)},
		{"too many attempts", member(1, time.UnixMilli(77), 1000), member(0, time.UnixMilli(77), 999)},
		{"too few attempts", member(1, time.UnixMilli(77), -1), member(0, time.UnixMilli(77), 0)},
		{"finer than a millisecond", member(1, time.UnixMilli(77).Add(1), 0), member(0, time.UnixMilli(78), 0)},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := s.open(t)
			r.arm(t, orders, c.m)
			claimed := r.claim(t, slots.ClaimRequest{Slot: orders, Limit: 10, Ahead: centuries, Visibility: centuries})
			c.want.JobID, c.want.At = c.m.JobID, c.want.At.UTC()
			require.Equal(t, []slots.Member{c.want}, claimed.Members)
			// The claims last longer than a score can express; they keep the attempts exactly.
			require.Equal(t, map[string]string{"1": score(time.UnixMilli(9007199254739), c.want.Attempts)}, r.state(t, orders).Prepare)
			claims, err := r.Prepared(t.Context(), orders, 0, 10)
			require.NoError(t, err)
			require.Equal(t, []slots.Member{member(1, time.UnixMilli(9007199254739).UTC(), c.want.Attempts)}, claims)
		})
	}
}

func (s slotSuite) keepsEveryID(t *testing.T) {
	r := s.open(t)
	at := ago(time.Hour)
	ids := []uint64{0, 1, 1<<53 - 1, 1 << 53, 1<<53 + 1, 1<<53 + 2, 1<<63 - 2, 1<<63 - 1, 1 << 63, math.MaxUint64 - 1, math.MaxUint64}
	var members []slots.Member
	for _, id := range ids {
		members = append(members, member(id, at, 0))
	}
	r.arm(t, orders, members...)
	require.ElementsMatch(t, members, r.claimAll(t, orders))
	require.Equal(t, len(ids), r.giveBack(t, orders, members...))
	require.ElementsMatch(t, ids, idsOf(r.claimAll(t, orders)))

	claims, err := r.Prepared(t.Context(), orders, 0, 100)
	require.NoError(t, err)
	require.ElementsMatch(t, ids, idsOf(claims))
	r.giveBack(t, orders, members...)
	require.Len(t, r.state(t, orders).Store, len(ids))
}

func (s slotSuite) claimsInOrder(t *testing.T) {
	r := s.open(t)
	at := ago(time.Hour)
	want := []slots.Member{
		member(9, at, 0),
		member(10, at, 1), // at one moment: tasks with fewer failures first
		member(3, at, 2),
		member(5, at.Add(time.Millisecond), 0),
		member(4, at.Add(time.Second), 999),
		member(2, at.Add(time.Second+time.Millisecond), 0),
		member(1, at.Add(time.Minute), 0),
	}
	r.arm(t, orders, want[3], want[6], want[0], want[5], want[2], want[4], want[1])

	var got []slots.Member
	for _, n := range []int{1, 3, 2, 1} {
		c := r.claim(t, slots.ClaimRequest{Slot: orders, Limit: n, Visibility: time.Minute})
		require.Len(t, c.Members, n)
		got = append(got, c.Members...)
		if len(got) < len(want) {
			require.Equal(t, want[len(got)].At, c.Next)
		}
	}
	require.Equal(t, want, got)
}

func (s slotSuite) claimsTheDue(t *testing.T) {
	r := s.open(t)
	now := r.now(t)
	r.arm(t, orders, member(1, now.Add(-time.Minute), 0), member(2, now.Add(time.Hour), 0), member(3, now.Add(2*time.Hour), 0))

	for _, c := range []struct {
		ahead time.Duration
		want  []uint64
	}{
		{-time.Hour, []uint64{}},
		{0, []uint64{1}},
		{30 * time.Minute, []uint64{}},
		{90 * time.Minute, []uint64{2}},
		{3 * time.Hour, []uint64{3}},
	} {
		got := r.claim(t, slots.ClaimRequest{Slot: orders, Limit: 10, Ahead: c.ahead, Visibility: time.Hour})
		require.Equal(t, c.want, idsOf(got.Members), "%v ahead", c.ahead)
	}
}

// On a clock that stands still, due is to the millisecond and a claim lasts to
// the microsecond.
func TestClaimToTheMillisecond(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	r := openSlots(t, func(testing.TB) ([]string, string) { return []string{server.Addr()}, "" })
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	server.SetTime(noon.Add(1999 * time.Microsecond))
	r.arm(t, orders, member(1, noon.Add(time.Millisecond), 999), member(2, noon.Add(2*time.Millisecond), 0), member(3, noon.Add(3*time.Millisecond), 0))

	c := r.claim(t, slots.ClaimRequest{Slot: orders, Limit: 10, Visibility: 10 * time.Microsecond})
	require.Equal(t, []uint64{1}, idsOf(c.Members))
	require.Equal(t, noon.Add(1999*time.Microsecond), c.Now)
	require.Equal(t, noon.Add(2*time.Millisecond), c.Next)
	require.Equal(t, map[string]string{"1": score(noon.Add(3*time.Millisecond), 999)}, r.state(t, orders).Prepare,
		"2009 µs after noon, rounded up")

	c = r.claim(t, slots.ClaimRequest{Slot: orders, Limit: 10, Ahead: time.Microsecond, Visibility: time.Hour})
	require.Equal(t, []uint64{2}, idsOf(c.Members))
}

func (s slotSuite) looks(t *testing.T) {
	r := s.open(t)
	at := ago(time.Hour)
	r.arm(t, orders, member(1, at, 0))
	before := r.state(t, orders)
	for _, limit := range []int{0, -1} {
		c := r.claim(t, slots.ClaimRequest{Slot: orders, Limit: limit, Visibility: time.Hour})
		require.Empty(t, c.Members)
		require.Equal(t, at, c.Next)
		require.Zero(t, c.Claims)
	}
	require.Equal(t, before, r.state(t, orders))

	r.claim(t, slots.ClaimRequest{Slot: orders, Limit: 1, Visibility: time.Hour})
	c := r.claim(t, slots.ClaimRequest{Slot: orders})
	require.Zero(t, c.Next)
	require.Equal(t, 1, c.Claims)
}

func (s slotSuite) claimsOnce(t *testing.T) {
	r := s.open(t)
	const tasks, claimers = 1000, 8
	at := ago(time.Hour)
	members := make([]slots.Member, tasks)
	for i := range members {
		members[i] = member(uint64(i), at.Add(time.Duration(i%50)*time.Millisecond), i%5)
	}
	r.arm(t, orders, members...)

	got, errs := make([][]slots.Member, claimers), make([]error, claimers)
	var wg sync.WaitGroup
	for i := range claimers {
		wg.Go(func() {
			for len(got[i]) <= tasks {
				c := r.Claim(t.Context(), []slots.ClaimRequest{{Slot: orders, Limit: 7 + i, Visibility: time.Hour}})[0]
				if errs[i] = c.Err; c.Err != nil || len(c.Members) == 0 {
					return
				}
				got[i] = append(got[i], c.Members...)
				// A claimed task that is armed again must not be claimed a second time.
				r.Arm(t.Context(), []slots.ArmRequest{{Slot: orders, Members: c.Members}})
			}
		})
	}
	wg.Wait()
	require.Equal(t, make([]error, claimers), errs)
	all := slices.Concat(got...)
	slices.SortFunc(all, func(a, b slots.Member) int { return cmp.Compare(a.JobID, b.JobID) })
	require.True(t, slices.Equal(members, all), "%d tasks were claimed %d times", tasks, len(all))
}

func (s slotSuite) removesInvalidMembers(t *testing.T) {
	r := s.open(t)
	at := ago(time.Hour)
	invalid := []redis.Z{
		{Score: 1, Member: "12 34"}, {Score: 2, Member: "x"}, {Score: 3, Member: ""}, {Score: 4, Member: "-5"},
		{Score: -7, Member: "7"}, {Score: 1.5, Member: "8"}, {Score: math.Inf(-1), Member: "9"},
		{Score: 6, Member: "99999999999999999999999"},
	}
	require.NoError(t, r.client.ZAdd(t.Context(), r.StoreKey(orders), invalid...).Err())
	r.arm(t, orders, member(42, at, 0))

	c := r.claim(t, slots.ClaimRequest{Slot: orders, Limit: 100, Visibility: 0})
	require.ElementsMatch(t, []uint64{7, 8, 9, 42}, idsOf(c.Members))
	require.Zero(t, c.Next)
	for _, m := range c.Members {
		require.GreaterOrEqual(t, m.Attempts, 0)
		require.False(t, m.At.Before(time.UnixMilli(0)))
	}
	prepared := r.state(t, orders).Prepare
	for _, member := range []string{"12 34", "x", "", "-5"} {
		require.NotContains(t, prepared, member)
	}

	require.NoError(t, r.client.ZAdd(t.Context(), r.PrepareKey(orders), invalid...).Err())
	claims, err := r.Prepared(t.Context(), orders, 0, 100)
	require.NoError(t, err)
	require.ElementsMatch(t, []uint64{7, 8, 9, 42}, idsOf(claims))
	require.Equal(t, 4, r.giveBack(t, orders, claims...))
}
