package queue_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/queue/limits"
	"github.com/timeoutcenter/toc/task"
)

// TakenUncleanly makes a rig the limits' Ownership.
func (r *rig) TakenUncleanly(int) (time.Time, bool) { return time.Time{}, false }

// limited runs a test with limits of orders.
func limited(t *testing.T, b task.BizType, f func(t *testing.T, r *rig)) {
	t.Helper()
	b.ID = orders
	reloaded(t, b, func(t *testing.T, r *rig, _ *limits.Limits) { f(t, r) })
}

// reloaded is limited for tests that replace the business types.
func reloaded(t *testing.T, b task.BizType, f func(t *testing.T, r *rig, l *limits.Limits)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, start: time.Now().UTC(), rows: map[uint64]task.Task{}, receipts: map[uint64][]string{}, term: 1}
		l := limits.New(limits.Config{Partitions: 4, Ownership: r})
		l.SetTypes([]task.BizType{b})
		r.Queue = queue.New(queue.Config{Capacity: 1000, Partitions: 4, Ownership: r, Limits: l, StaleAfter: time.Hour})
		r.orders = r.AddType(b)
		f(t, r, l)
	})
}

// takeFor takes tasks one by one for a while, and returns when they were taken. Those of hold seconds end later.
func (r *rig) takeFor(d, hold time.Duration) (taken []*queue.Entry) {
	ctx, stop := r.t.Context(), time.After(d)
	for {
		next := make(chan []*queue.Entry, 1)
		go func() {
			list, _ := r.orders.Take(ctx, 1)
			next <- list
		}()
		select {
		case list := <-next:
			taken = append(taken, list...)
			for _, e := range list {
				time.AfterFunc(hold, func() { r.Done(e, e.Task, false) })
			}
		case <-stop:
			r.Close()
			<-next
			return taken
		}
	}
}

func TestRateLimit(t *testing.T) {
	limited(t, task.BizType{RateLimit: 50}, func(t *testing.T, r *rig) {
		require.Equal(t, 100, r.Capacity(orders), "two seconds' worth: the rest stays in the store")
		for id := range uint64(100) {
			r.read(r.order(id, -time.Second))
		}
		require.Equal(t, []uint64{orders}, r.read(r.order(100, -time.Second)))
		taken := r.takeFor(time.Second, time.Millisecond)
		require.InDelta(t, 50, len(taken), 5)
	})
}

func TestMaxRunning(t *testing.T) {
	limited(t, task.BizType{MaxRunning: 3}, func(t *testing.T, r *rig) {
		for id := range uint64(24) {
			r.read(r.order(id, -time.Second))
		}
		require.Len(t, r.takeFor(450*time.Millisecond, 100*time.Millisecond), 15, "three at once, and each takes a tenth of a second")
		require.NoError(t, r.WaitIdle(t.Context()))
	})
}

// A run counts until it ends, also if its type had no limit when it started, or was out of the file meanwhile. At 799f0ec
// up to 6 ran at once.
func TestMaxRunningOutlivesAReload(t *testing.T) {
	three := task.BizType{ID: orders, MaxRunning: 3}
	for name, files := range map[string][][]task.BizType{
		"out of the file and back":  {{three}, {}, {three}},
		"its limit out and back":    {{three}, {{ID: orders}}, {three}},
		"its first limit":           {{{ID: orders}}, {three}},
		"a first limit, out, again": {{{ID: orders}}, {three}, {}, {three}},
	} {
		t.Run(name, func(t *testing.T) {
			reloaded(t, files[0][0], func(t *testing.T, r *rig, l *limits.Limits) {
				for id := range uint64(3) {
					r.read(r.order(id, -time.Second))
				}
				var running []*queue.Entry
				for range 3 {
					list, err := r.orders.Take(t.Context(), 1)
					require.NoError(t, err)
					running = append(running, list...)
				}
				for _, types := range files[1:] {
					l.SetTypes(types)
					r.RemoveType(orders)
					for _, b := range types {
						r.orders = r.AddType(b)
					}
				}
				for id := range uint64(3) {
					r.read(r.order(10+id, -time.Second))
				}
				took := func() int {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					for n := 0; ; n++ {
						list, err := r.orders.Take(ctx, 1)
						if err != nil {
							return n
						}
						running = append(running, list...)
					}
				}
				require.Zero(t, took(), "three run")
				for _, e := range running[:2] {
					r.Done(e, e.Task, false)
				}
				require.Equal(t, 2, took())
				for _, e := range running[2:] {
					r.Done(e, e.Task, false)
				}
				require.Equal(t, 1, took())
				r.Done(running[5], running[5].Task, false)
				require.True(t, l.Settled())
			})
		})
	}
}

// A hand-over waits until no run uses a permit of the partition.
func TestAHandOverWaitsForPermits(t *testing.T) {
	limited(t, task.BizType{MaxRunning: 4}, func(t *testing.T, r *rig) {
		for id := range uint64(4) {
			r.read(r.order(4*id, -time.Second)) // all in partition 0
		}
		var running []*queue.Entry
		for range 4 {
			list, err := r.orders.Take(t.Context(), 1)
			require.NoError(t, err)
			running = append(running, list...)
		}
		r.lost = 2
		r.lose(2)
		handed := make(chan error, 1)
		go func() { handed <- r.WaitPartition(t.Context(), 2) }()
		time.Sleep(time.Minute)
		require.Empty(t, handed, "four run, and the permits of three partitions are left")
		r.Done(running[0], running[0].Task, false)
		require.NoError(t, <-handed)
		for _, e := range running[1:] {
			r.Done(e, e.Task, false)
		}
	})
}

// Fresh tasks go before those that are late by more than 10 s, which start at their own rate.
func TestCatchUp(t *testing.T) {
	limited(t, task.BizType{CatchUp: 10}, func(t *testing.T, r *rig) {
		for id := range uint64(20) {
			require.Empty(t, r.read(r.order(id, -time.Hour)))
		}
		require.Equal(t, []uint64{orders}, r.read(r.order(20, -time.Hour)), "two seconds' worth are in memory")
		require.False(t, r.WaitRoom(t.Context(), orders, time.Hour), "its fresh tasks are read apart")
		for id := range uint64(100) {
			require.Empty(t, r.read(r.order(100+id, -time.Second)))
		}
		taken := r.takeFor(time.Second, time.Millisecond)
		for i, e := range taken {
			require.Equal(t, i < 100, e.ID() >= 100, "at place %d", i)
		}
		require.InDelta(t, 110, len(taken), 2)
	})
}

// What becomes late in memory counts, too.
func TestTasksBecomeLateInMemory(t *testing.T) {
	limited(t, task.BizType{CatchUp: 10}, func(t *testing.T, r *rig) {
		for id := range uint64(100) {
			require.Empty(t, r.read(r.order(id, 0)))
		}
		time.Sleep(limits.LateAfter + time.Second)
		require.InDelta(t, 10, len(r.takeFor(time.Second, time.Millisecond)), 2)
	})
}
