package slots_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/redistimer/slots"
)

// BenchmarkClaimSettle arms, claims and settles a number of tasks in each slot, all slots in one pipeline.
// ids/s counts the three steps together.
func BenchmarkClaimSettle(b *testing.B) {
	for _, many := range []int{1, 64} {
		for _, perSlot := range []int{1, 16, 256} {
			b.Run(fmt.Sprintf("slots=%d/tasks=%d", many, perSlot), func(b *testing.B) {
				benchmarkClaimSettle(b, openSlots(b, sharedRedis), many, perSlot)
			})
		}
	}
}

func benchmarkClaimSettle(b *testing.B, r *slotRig, many, perSlot int) {
	ctx := b.Context()
	at := ago(time.Hour)
	arms := make([]slots.ArmRequest, many)
	claims := make([]slots.ClaimRequest, many)
	settles := make([]slots.SettleRequest, many)
	id := uint64(1) << 62
	for i := range many {
		slot := slots.Slot{Topic: "bench", Partition: i}
		arms[i].Slot, settles[i].Slot = slot, slot
		claims[i] = slots.ClaimRequest{Slot: slot, Limit: perSlot, Visibility: time.Minute}
		for range perSlot {
			id += 1 << 23
			arms[i].Members = append(arms[i].Members, member(id, at, 0))
			settles[i].Done = append(settles[i].Done, id)
		}
	}
	timed := map[string]time.Duration{}
	act := func(name string, do func()) {
		start := time.Now()
		do()
		timed[name] += time.Since(start)
	}
	b.ReportAllocs()
	for b.Loop() {
		act("arm", func() { r.Arm(ctx, arms) })
		act("claim", func() {
			for _, c := range r.Claim(ctx, claims) {
				if len(c.Members) != perSlot {
					require.NoError(b, c.Err)
					require.Len(b, c.Members, perSlot)
				}
			}
		})
		act("settle", func() { r.Settle(ctx, settles) })
	}
	ids := float64(b.N * many * perSlot)
	b.ReportMetric(ids/b.Elapsed().Seconds(), "ids/s")
	for name, d := range timed {
		b.ReportMetric(ids/d.Seconds(), name+"/s")
	}
}

func sharedRedis(t testing.TB) ([]string, string) {
	r := testrig.Redis(t)
	return []string{r.Addr()}, r.Prefix()
}
