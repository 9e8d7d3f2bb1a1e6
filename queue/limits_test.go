package queue_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/limits"
	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/task"
)

// TakenUncleanly makes a rig the limits' Ownership.
func (r *rig) TakenUncleanly(int) (time.Time, bool) { return time.Time{}, false }

// limited runs a test with limits of orders.
func limited(t *testing.T, b task.BizType, f func(t *testing.T, r *rig)) {
	t.Helper()
	b.ID = orders
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, start: time.Now().UTC(), rows: map[uint64]task.Task{}, receipts: map[uint64][]string{}, term: 1}
		l := limits.New(limits.Config{Partitions: 4, Ownership: r, Now: time.Now})
		l.SetTypes([]task.BizType{b})
		r.Queue = queue.New(queue.Config{Capacity: 1000, Partitions: 4, Ownership: r, Limits: l, StaleAfter: time.Hour})
		r.orders = r.AddType(b)
		f(t, r)
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
