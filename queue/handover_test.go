package queue_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/task"
)

// A partition may be lost while its tasks wait: in a pause of the process, before DropPartitions is called.
func TestWhatIsNotOwnedDoesNotStart(t *testing.T) {
	bubble(t, 10, func(t *testing.T, r *rig) {
		r.read(r.order(1, 0), r.order(2, 0), r.order(5, 0), r.order(6, 0))
		r.lost = 1
		require.Equal(t, []uint64{2, 6}, r.ids(r.orders))
		require.Equal(t, []string{"released"}, r.receiptsOf(1))
		require.Equal(t, []string{"released"}, r.receiptsOf(5))
		require.Equal(t, queue.Stats{Running: 2}, r.Stats(orders))
		r.read(r.order(9, 0))
		require.Equal(t, []string{"released"}, r.receiptsOf(9), "nothing is taken in")

		r.lost = 0
		r.read(r.order(1, 0))
		require.Equal(t, []uint64{1}, r.ids(r.orders), "ours again")
	})
}

// A partition may even be lost and taken again within such a pause. Then another node may have run what is in
// memory.
func TestWhatIsOfAnEarlierTermIsReadAgain(t *testing.T) {
	again := func(r *rig, it queue.Item) {
		r.t.Helper()
		require.Empty(r.t, r.ids(r.orders))
		refill, err := r.NextRefill(r.t.Context())
		require.NoError(r.t, err)
		require.Equal(r.t, queue.Refill{BizType: orders, Partition: it.Partition, From: task.KeyOf(&it.Task)}, refill)
	}
	t.Run("in the queue", func(t *testing.T) {
		bubble(t, 10, func(t *testing.T, r *rig) {
			r.read(r.order(1, 0), r.order(2, time.Hour))
			r.term++
			require.Empty(t, r.ids(r.orders))
			require.Equal(t, []string{"released"}, r.receiptsOf(1))
			r.read(r.order(2, 0))
			require.Equal(t, []uint64{2}, r.ids(r.orders), "its row was seen again")
		})
	})
	t.Run("while it is checked", func(t *testing.T) {
		bubble(t, 10, func(t *testing.T, r *rig) {
			r.read(r.order(1, time.Second))
			r.after(950 * time.Millisecond)
			entries := r.checks()
			r.term++
			r.ApplyChecks(entries, map[uint64]task.Task{1: r.row(1)})
			r.after(time.Second)
			require.Empty(t, r.ids(r.orders))
			require.Equal(t, []string{"released"}, r.receiptsOf(1))
		})
	})
	t.Run("being read", func(t *testing.T) {
		bubble(t, 10, func(t *testing.T, r *rig) {
			read := r.BeginRead(1)
			r.term++
			r.Offer(read, r.order(1, 0))
			read.End()
			require.Empty(t, r.ids(r.orders))
			require.Equal(t, []string{"released"}, r.receiptsOf(1))
		})
	})
	t.Run("held and put", func(t *testing.T) {
		bubble(t, 10, func(t *testing.T, r *rig) {
			h := r.hold(1)
			r.term++
			it := r.order(1, 0)
			h.Requeue(it, true)
			again(r, it)
		})
	})
	t.Run("held and released", func(t *testing.T) {
		bubble(t, 10, func(t *testing.T, r *rig) {
			it := r.order(1, 0)
			r.read(it)
			h := r.hold(1)
			r.term++
			h.Restore()
			require.Equal(t, []string{"released"}, r.receiptsOf(1))
			again(r, it)
		})
	})
	t.Run("to run once more", func(t *testing.T) {
		bubble(t, 10, func(t *testing.T, r *rig) {
			r.read(r.order(1, 0))
			e := r.due(r.orders, 1)[0]
			r.term++
			it := r.order(1, 0)
			r.Done(e, it.Task, true)
			again(r, it)
		})
	})
}

func TestWaitPartition(t *testing.T) {
	bubble(t, 10, func(t *testing.T, r *rig) {
		require.NoError(t, r.WaitPartition(t.Context(), 1), "nothing of it was ever here")
		r.read(r.order(1, 0), r.order(2, 0))
		running := r.due(r.orders, 2)
		h, err := r.Hold(t.Context(), 5, 1)
		require.NoError(t, err)

		emptied := make(chan error, 1)
		go func() { emptied <- r.WaitPartition(t.Context(), 1) }()
		waits := func(why string) {
			synctest.Wait()
			require.Empty(t, emptied, why)
		}
		waits("one is running, one is held")
		r.processed(running[0])
		waits("one is held")
		h.Remove()
		synctest.Wait()
		require.Len(t, emptied, 1, "what is of another partition does not count")
		require.NoError(t, <-emptied)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, r.WaitPartition(ctx, 2), context.DeadlineExceeded)
	})
}
