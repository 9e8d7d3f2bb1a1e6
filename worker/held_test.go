package worker_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/task"
	"github.com/timeoutcenter/toc/worker"
)

// Before, one locked row made its whole batch wait, and no task of its database started as long as it was locked.
func TestAnOutcomeWhoseRowIsLockedWaitsApart(t *testing.T) {
	for _, verdict := range []error{nil, errDown} {
		p := answer(verdict)
		bubble(t, func(t *testing.T, r *rig) {
			r.near = 0
			held := r.submit(1, 42, time.Millisecond)
			r.store.lock(held)
			r.after(time.Millisecond)
			r.settle()
			require.Empty(t, r.tally.counts())
			for id := range uint64(50) { // of the same partition and of others
				r.submit(1, id, 0)
				r.after(20 * time.Millisecond)
			}
			want := map[worker.Outcome]int{worker.Processed: 50}
			if verdict != nil {
				want = map[worker.Outcome]int{worker.Failed: 50}
			}
			require.Equal(t, want, r.tally.counts())
			require.Equal(t, queue.Stats{Running: 1}, r.queue.Stats(1), "it runs until its outcome is durable")
			r.after(39 * time.Second)
			require.Equal(t, []worker.Trouble{{Kind: worker.RowLocked, Text: fmt.Sprintf("outcome of job_id %d waits for a row lock for 40s", held)}}, r.Degraded())
			require.Equal(t, task.Pending, r.store.row(held).Status)
			require.Zero(t, r.store.row(held).Attempts)

			r.store.unlock()
			require.Equal(t, 51, p.runs())
			r.after(time.Second)
			require.Empty(t, r.Degraded())
			row := r.store.row(held)
			if verdict == nil {
				require.Equal(t, task.Processed, row.Status)
			} else {
				require.Equal(t, 2, row.Attempts, "its back-off is over by now, so it has run once more")
			}
			require.Equal(t, queue.Stats{}, r.queue.Stats(1))
			require.Contains(t, r.log.String(), fmt.Sprintf("outcome settled: the row is free again\" job_id=%d", held))
		}, lane(p))
	}
}

// A table that is gone holds up its own tasks only. Before, no task of its database started.
func TestATableThatCannotBeWrittenHoldsUpItself(t *testing.T) {
	p := answer(nil)
	bubble(t, func(t *testing.T, r *rig) {
		r.store.table = errors.New("table 'timeout_task_0002' does not exist")
		held := r.submit(1, 42, time.Millisecond)
		r.store.lock(held)
		r.after(time.Millisecond)
		r.settle()
		for id := range uint64(50) {
			other := r.submit(1, id, 0)
			r.after(20 * time.Millisecond)
			require.Equal(t, task.Processed, r.store.row(other).Status)
		}
		require.Equal(t, []worker.Trouble{{Kind: worker.Unwritten,
			Text: fmt.Sprintf("outcome of job_id %d cannot be recorded for 1s: table 'timeout_task_0002' does not exist", held)}}, r.Degraded())
		r.store.unlock()
		r.after(time.Second)
		require.Equal(t, task.Processed, r.store.row(held).Status)
		require.Empty(t, r.Degraded())
	}, lane(p))
}

// Where many rows of a table are locked, its tasks do not start: they would pile up. Those of others do.
func TestManyLockedRowsHoldUpTheirTable(t *testing.T) {
	p := answer(nil)
	bubble(t, func(t *testing.T, r *rig) {
		shard := layout.Shard(0)
		var ids []uint64
		for i := range uint64(16) {
			ids = append(ids, r.submit(1, i*uint64(layout.Shards()), 10*time.Second))
		}
		r.store.lock(ids...)
		r.after(10 * time.Second)
		require.Equal(t, 16, p.runs())
		require.Len(t, r.Degraded(), 4, "the oldest, and how many more")

		waits := r.submit(1, 1600*uint64(layout.Shards()), 0)
		r.settle()
		require.Equal(t, 16, p.runs())
		for biz := range uint64(layout.Shards()) {
			if layout.Shard(biz) != shard {
				id := r.submit(1, biz, 0)
				r.settle()
				require.Equal(t, task.Processed, r.store.row(id).Status)
			}
		}
		changes := r.ticks.Load()
		r.store.unlock()
		r.after(2 * time.Second)
		require.Equal(t, changes+1, r.ticks.Load(), "so that a scan finds what was held up")
		require.Equal(t, task.Pending, r.store.row(waits).Status)
		r.queue.Offer(nil, queue.Item{Task: r.store.row(waits), Partition: layout.Partition(shard)})
		r.settle()
		require.Equal(t, task.Processed, r.store.row(waits).Status)
	}, lane(p))
}

// The row was edited while its task ran, and is locked as well. Before, where its table was, no outcome of the database was recorded.
func TestAnEditedRowIsLocked(t *testing.T) {
	for _, tables := range []bool{false, true} {
		p := &script{f: func(context.Context, task.Task) error { time.Sleep(time.Second); return errDown }}
		bubble(t, func(t *testing.T, r *rig) {
			r.near = 0
			id := r.submit(1, 42, 0)
			r.settle()
			moved := time.Now().UTC().Add(time.Hour)
			r.store.byHand(id, func(t *task.Task) { t.ActionTime = moved })
			r.after(900 * time.Millisecond)
			if tables { // it is locked between the update, which does not apply, and the look at the row
				r.store.lockLater(id)
			} else {
				r.store.lock(id)
			}
			r.after(5 * time.Second)
			other := r.submit(1, 43, 0)
			r.after(5 * time.Second)
			require.Equal(t, 1, r.store.row(other).Attempts)
			require.Len(t, r.Degraded(), 1)
			r.store.unlock()
			r.after(2 * time.Second)
			row := r.store.row(id)
			require.Equal(t, moved, row.ActionTime)
			require.Equal(t, 1, row.Attempts)
			require.Equal(t, map[worker.Fence]int{worker.FencedMoved: 1}, r.tally.fences)
			require.Empty(t, r.Degraded())
		}, lane(p))
	}
}

// The drain waits for a locked row as long as it may.
func TestTheEndOfPatienceBesideALockedRow(t *testing.T) {
	p := answer(nil)
	bubble(t, func(t *testing.T, r *rig) {
		id := r.submit(1, 42, time.Millisecond)
		r.store.lock(id)
		r.after(time.Minute)
		ended := make(chan error, 1)
		go func() { ended <- r.stopped() }()
		r.after(time.Minute)
		require.Empty(t, ended)
		r.cancelDrain()
		require.ErrorIs(t, <-ended, context.Canceled)
		require.Equal(t, task.Pending, r.store.row(id).Status)
		require.Contains(t, r.log.String(), "these tasks will run again")
	}, lane(p))
}
