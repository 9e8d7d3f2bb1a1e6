package worker_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/task"
)

// A row that waits in memory is read again right before it runs.
func TestWhatIsDoneByHandWhileATaskWaitsIsHonoured(t *testing.T) {
	p := answer(nil)
	bubble(t, func(t *testing.T, r *rig) {
		start := time.Now()
		cancelled, moved, edited, gone := r.submit(1, 1, 5*time.Second), r.submit(1, 2, 5*time.Second), r.submit(1, 3, 5*time.Second), r.submit(1, 4, 5*time.Second)
		r.after(4 * time.Second)
		r.store.byHand(cancelled, func(t *task.Task) { t.Status = task.Cancelled })
		r.store.byHand(moved, func(t *task.Task) { t.ActionTime = start.Add(8 * time.Second) })
		r.store.byHand(edited, func(t *task.Task) { t.Attribute = "by hand" })
		r.store.mu.Lock()
		delete(r.store.rows, gone)
		r.store.mu.Unlock()

		r.after(time.Second)
		require.Equal(t, 1, p.runs())
		require.Equal(t, "by hand", p.tasks()[0].Attribute)
		r.after(3 * time.Second)
		require.Equal(t, 2, p.runs())
		require.Equal(t, moved, p.tasks()[1].JobID)
		require.Equal(t, start.Add(8*time.Second), p.starts()[1])
		r.after(time.Minute)
		require.Equal(t, 2, p.runs())
	}, lane(p))
}

func TestRowsThatCannotBeCheckedStayInTheStore(t *testing.T) {
	p := answer(nil)
	bubble(t, func(t *testing.T, r *rig) {
		r.store.beforeLoad = func(_ context.Context, database int) error {
			if database == 1 {
				return errStore
			}
			return nil
		}
		even, odd := r.submit(1, 0, time.Second), r.submit(1, 1, time.Second)
		r.after(time.Second)
		require.Equal(t, task.Processed, r.store.row(even).Status)
		require.Equal(t, task.Pending, r.store.row(odd).Status)
		require.Equal(t, queue.Stats{ResumePoints: 1}, r.queue.Stats(1))
		require.Contains(t, r.log.String(), "they stay in the store")
	}, lane(p))
}

func TestADatabaseThatHangsHoldsUpItsOwnChecksOnly(t *testing.T) {
	p := answer(nil)
	bubble(t, func(t *testing.T, r *rig) {
		r.store.beforeLoad = func(ctx context.Context, database int) error {
			if database == 1 {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
		odd := r.submit(1, 1, time.Second)
		for i := range uint64(20) {
			even := r.submit(1, 2*i, time.Second)
			r.after(time.Second)
			require.Equal(t, task.Processed, r.store.row(even).Status)
		}
		require.Equal(t, task.Pending, r.store.row(odd).Status)
		r.stop() // does not wait for the database
		require.NotContains(t, r.log.String(), "not checked", "that is no news while stopping")
	}, lane(p))
}

func TestChecksOfADatabaseShareALoad(t *testing.T) {
	p := answer(nil)
	bubble(t, func(t *testing.T, r *rig) {
		var loads atomic.Int32
		r.store.beforeLoad = func(context.Context, int) error {
			loads.Add(1)
			time.Sleep(20 * time.Millisecond)
			return nil
		}
		start := time.Now()
		for i := range uint64(200) {
			r.submit(1, 2*i, time.Second+time.Duration(i%20)*time.Millisecond)
		}
		r.after(2 * time.Second)
		require.Equal(t, 200, p.runs())
		require.EqualValues(t, 1, loads.Load())
		begun := p.tasks()
		for i, at := range p.starts() {
			require.Equal(t, begun[i].ActionTime, at.UTC(), "%s", at.Sub(start))
		}
	}, lane(p))
}
