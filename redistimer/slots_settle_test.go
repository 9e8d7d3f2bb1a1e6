package redistimer_test

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/redistimer"
)

func (s slotSuite) settles(t *testing.T) {
	r := s.open(t)
	at, again, died := ago(time.Hour), ahead(time.Hour), ago(time.Minute)
	// Of each three tasks one is claimed, one is stored, and one is not in the slot.
	r.arm(t, orders, member(1, at, 0), member(4, at, 0), member(7, at, 0), member(90, at, 0))
	require.Len(t, r.claimAll(t, orders), 4)
	r.arm(t, orders, member(2, at, 0), member(5, at, 0), member(8, at, 0), member(91, at, 0))
	r.settle(t, redistimer.Settling{Slot: orders, Dead: []redistimer.Member{member(9, at, 0), member(92, at, 0)}})
	before := r.state(t, orders)

	r.settle(t, redistimer.Settling{
		Slot: orders,
		Done: []uint64{1, 2, 3},
		Dead: []redistimer.Member{member(4, died, 17), member(5, died.Add(time.Millisecond), 1), member(6, died, 0)},
		Back: []redistimer.Member{member(7, again, 1), member(8, again, 2), member(9, again, 3)},
	})
	dead := func(at time.Time) string { return strconv.FormatInt(at.UnixMilli(), 10) }
	require.Equal(t, state{
		Store:   map[string]string{"91": score(at, 0), "7": score(again, 1), "8": score(again, 2), "9": score(again, 3)},
		Prepare: map[string]string{"90": before.Prepare["90"]},
		Dead:    map[string]string{"92": dead(at), "4": dead(died), "5": dead(died.Add(time.Millisecond)), "6": dead(died)},
	}, r.state(t, orders))
}

func (s slotSuite) releases(t *testing.T) {
	r := s.open(t)
	at := ago(time.Hour)
	claims := []redistimer.Member{member(1, at, 0), member(2, at, 3), member(3, at, 5), member(4, at, 7)}
	r.arm(t, orders, claims...)
	require.Equal(t, claims, r.claimAll(t, orders))
	r.settle(t, redistimer.Settling{Slot: orders, Done: []uint64{1}, Back: []redistimer.Member{member(3, ahead(time.Hour), 6)}})
	want := r.state(t, orders)
	want.Store["2"] = score(at, 3)
	delete(want.Prepare, "2")

	answers := r.Release(t.Context(), []redistimer.Releasing{{Slot: orders, Members: claims[:3]}})
	require.Equal(t, []error{nil}, answers)
	require.Equal(t, want, r.state(t, orders))
	require.Equal(t, []redistimer.Member{member(2, at, 3)}, r.claimAll(t, orders))
}

func (s slotSuite) recoversTheExpired(t *testing.T) {
	r := s.open(t)
	at := ago(time.Hour)
	r.arm(t, orders, member(1, at, 0), member(2, at, 0), member(3, at, 998), member(4, at, 999))
	require.Len(t, r.claim(t, redistimer.Claiming{Slot: orders, Limit: 10, Visibility: 0}).Members, 4)
	r.arm(t, orders, member(5, at, 0))
	require.Len(t, r.claimAll(t, orders), 1)
	// A claim has just expired at its own time.
	start := r.now(t)
	require.Eventually(t, func() bool {
		claims, err := r.Prepared(t.Context(), orders, 3, 1)
		require.NoError(t, err)
		return !r.now(t).Before(claims[0].At)
	}, time.Minute, time.Millisecond)

	first := r.recover(t, redistimer.Recovering{Slot: orders, Limit: 3})
	require.Len(t, first.Members, 3)
	require.True(t, first.More)
	second := r.recover(t, redistimer.Recovering{Slot: orders, Limit: 3})
	require.Len(t, second.Members, 1)
	require.False(t, second.More)

	attempts := make(map[uint64]int)
	now := state{Store: map[string]string{}}
	for _, m := range append(first.Members, second.Members...) {
		attempts[m.JobID] = m.Attempts
		now.Store[strconv.FormatUint(m.JobID, 10)] = score(m.At, m.Attempts)
		require.False(t, m.At.Before(start.Truncate(time.Millisecond)))
	}
	require.Equal(t, map[uint64]int{1: 1, 2: 1, 3: 999, 4: 999}, attempts)
	after := r.state(t, orders)
	require.Equal(t, now.Store, after.Store)
	require.Len(t, after.Prepare, 1)
	require.Contains(t, after.Prepare, "5")
	require.Empty(t, r.recover(t, redistimer.Recovering{Slot: orders}).Members)
}

func (s slotSuite) recoversTheNamed(t *testing.T) {
	r := s.open(t)
	at := ago(time.Hour)
	r.arm(t, orders, member(1, at, 0), member(2, at, 0), member(3, at, 0))
	require.Len(t, r.claimAll(t, orders), 3)
	r.arm(t, orders, member(4, at, 6))
	want := r.state(t, orders)

	before := r.now(t).Truncate(time.Millisecond)
	got := r.recover(t, redistimer.Recovering{Slot: orders, IDs: []uint64{1, 3, 4, 5}, Limit: 1})
	require.False(t, got.More)
	require.Equal(t, []uint64{1, 3}, idsOf(got.Members))
	for _, m := range got.Members {
		require.Equal(t, 1, m.Attempts)
		require.False(t, m.At.Before(before) || m.At.After(r.now(t)), "the first time it is due at once")
		id := strconv.FormatUint(m.JobID, 10)
		want.Store[id] = score(m.At, 1)
		delete(want.Prepare, id)
	}
	require.Equal(t, want, r.state(t, orders))
	require.Equal(t, redistimer.Recovered{}, r.recover(t, redistimer.Recovering{Slot: orders, IDs: []uint64{}}))
}

// spread is where in its spread a task is due, as recover.lua has it.
func spread(id uint64, attempts int, least, widest time.Duration) time.Duration {
	if attempts < 2 {
		return 0
	}
	window := math.Min(float64(widest.Milliseconds()), float64(least.Milliseconds())*math.Pow(2, math.Min(float64(attempts), 50)-1))
	sum := sha1.Sum(fmt.Appendf(nil, "%d %d", id, attempts))
	hash, _ := strconv.ParseUint(hex.EncodeToString(sum[:4]), 16, 32)
	return time.Duration(math.Floor(float64(hash)/(1<<32)*(window+1))) * time.Millisecond
}

func (s slotSuite) spreads(t *testing.T) {
	r := s.open(t)
	at := ago(time.Hour)
	const least, widest = time.Second, time.Minute
	for _, attempts := range []int{0, 1, 2, 5, 6, 100, 998} {
		slot := redistimer.Slot{Topic: "spread", Partition: attempts}
		var members []redistimer.Member
		var ids []uint64
		for i := range uint64(20) {
			id := uint64(1)<<62 + i<<23
			ids, members = append(ids, id), append(members, member(id, at, attempts))
		}
		r.arm(t, slot, members...)
		require.Len(t, r.claimAll(t, slot), len(ids))
		before := r.now(t).Truncate(time.Millisecond)
		got := r.recover(t, redistimer.Recovering{Slot: slot, IDs: ids, SpreadMin: least, SpreadMax: widest})
		after := r.now(t)
		require.Len(t, got.Members, len(ids))
		for _, m := range got.Members {
			require.Equal(t, attempts+1, m.Attempts)
			offset := spread(m.JobID, attempts+1, least, widest)
			require.LessOrEqual(t, offset, widest)
			require.False(t, m.At.Before(before.Add(offset)) || m.At.After(after.Add(offset)), "%v is not %v after %v", m.At, offset, before)
		}
	}
}

// On a clock that stands still: tasks that were claimed together part, and spread
// evenly over a window that doubles up to its limit.
func TestRecoverySpread(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	r := openSlots(t, func(testing.TB) ([]string, string) { return []string{server.Addr()}, "" })
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	server.SetTime(noon)
	const least, widest = time.Second, 10 * time.Second
	const tasks = 1000
	var ids []uint64
	var members []redistimer.Member
	for i := range uint64(tasks) { // as one process makes them: one a millisecond, in one of four shards
		id := (uint64(46e9)+i)<<23 | i%4<<10 | 3
		ids, members = append(ids, id), append(members, member(id, noon, 0))
	}
	r.arm(t, orders, members...)

	for attempts, window := range map[int]time.Duration{1: 0, 2: 2 * time.Second, 3: 4 * time.Second, 4: 8 * time.Second, 5: widest, 60: widest} {
		r.settle(t, redistimer.Settling{Slot: orders, Done: ids})
		for i := range members {
			members[i].Attempts = attempts - 1
		}
		r.arm(t, orders, members...)
		require.Len(t, r.claimAll(t, orders), tasks)
		got := r.recover(t, redistimer.Recovering{Slot: orders, IDs: ids, SpreadMin: least, SpreadMax: widest}).Members
		require.Len(t, got, tasks)
		var tenths [10]int
		for _, m := range got {
			offset := m.At.Sub(noon)
			require.Equal(t, spread(m.JobID, attempts, least, widest), offset)
			require.True(t, offset >= 0 && offset <= window, "%v is not in [0, %v]", offset, window)
			if window > 0 {
				tenths[min(int(offset*10/window), 9)]++
			}
		}
		for _, n := range tenths {
			if window > 0 {
				require.InDelta(t, tasks/10, n, tasks/20, "attempt %d: %v", attempts, tenths)
			}
		}
	}

	near := 0 // where they were the time before
	for _, id := range ids {
		if moved := spread(id, 60, least, widest) - spread(id, 61, least, widest); moved.Abs() < widest/100 {
			near++
		}
	}
	require.Less(t, near, tasks/20)
}

func (s slotSuite) listsClaims(t *testing.T) {
	r := s.open(t)
	at := ago(time.Hour)
	var want []redistimer.Member
	for i := range 5 {
		r.arm(t, orders, member(uint64(100-i), at, i))
		c := r.claim(t, redistimer.Claiming{Slot: orders, Limit: 1, Visibility: time.Duration(i+1) * time.Minute})
		want = append(want, member(uint64(100-i), ceilMilli(c.Now.Add(time.Duration(i+1)*time.Minute)), i))
	}
	for _, c := range []struct {
		offset, limit int
		want          []redistimer.Member
	}{{0, 2, want[:2]}, {2, 2, want[2:4]}, {4, 2, want[4:]}, {0, 100, want}, {5, 2, []redistimer.Member{}}, {0, 0, nil}} {
		got, err := r.Prepared(t.Context(), orders, c.offset, c.limit)
		require.NoError(t, err)
		require.Equal(t, c.want, got, "%d from %d", c.limit, c.offset)
	}
	got, err := r.Prepared(t.Context(), redistimer.Slot{Topic: "none"}, 0, 10)
	require.NoError(t, err)
	require.Empty(t, got)
}
