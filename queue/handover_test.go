package queue_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/queue"
)

// A partition may be lost while its tasks wait: by a pause of the process, before
// anybody could take them out.
func TestWhatIsNotOwnedDoesNotStart(t *testing.T) {
	bubble(t, 10, func(t *testing.T, r *rig) {
		r.read(r.order(1, 0), r.order(2, 0), r.order(5, 0), r.order(6, 0))
		r.lost = 1
		require.Equal(t, []uint64{2, 6}, r.ids(r.lane))
		require.Equal(t, []string{"given back"}, r.receipts(1))
		require.Equal(t, []string{"given back"}, r.receipts(5))
		require.Equal(t, queue.LaneStats{Running: 2}, r.Stats(orders))
		r.read(r.order(9, 0))
		require.Equal(t, []string{"given back"}, r.receipts(9), "nothing is taken in")

		r.lost = 0
		r.read(r.order(1, 0))
		require.Equal(t, []uint64{1}, r.ids(r.lane), "ours again")
	})
}

func TestWaitPartition(t *testing.T) {
	bubble(t, 10, func(t *testing.T, r *rig) {
		require.NoError(t, r.WaitPartition(t.Context(), 1), "nothing of it was ever here")
		r.read(r.order(1, 0), r.order(2, 0))
		running := r.due(r.lane, 2)
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
		h.Gone()
		synctest.Wait()
		require.Len(t, emptied, 1, "what is of another partition does not count")
		require.NoError(t, <-emptied)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, r.WaitPartition(ctx, 2), context.DeadlineExceeded)
	})
}
