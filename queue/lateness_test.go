package queue_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/task"
)

// A task that is moved to an earlier time is found when its new row is read, and one that is held keeps its parts. Each time
// it starts 12 s after the beginning, when a worker is free.
func TestLatenessOfAMovedTask(t *testing.T) {
	at := func(r *rig, s time.Duration) time.Time { return r.start.UTC().Add(s * time.Second) }
	move := func(r *rig, action time.Duration) queue.Item {
		return r.stored(task.Task{JobID: 1, BizType: orders, ActionTime: at(r, action)})
	}
	for name, row := range map[string]struct {
		do   func(t *testing.T, r *rig)
		want queue.Lateness
	}{
		"moved, a read finds it": {func(_ *testing.T, r *rig) {
			r.read(move(r, 60))
			r.after(10 * time.Second)
			r.read(move(r, 4))
			r.after(2 * time.Second)
		}, queue.Lateness{Find: 6 * time.Second, Wait: 2 * time.Second}},
		"moved, a check finds it": {func(t *testing.T, r *rig) {
			r.read(move(r, 10))
			r.after(9950 * time.Millisecond)
			checks := r.checks()
			require.Len(t, checks, 1)
			r.after(1050 * time.Millisecond)
			r.ApplyChecks(checks, map[uint64]task.Task{1: move(r, 4).Task})
			r.after(time.Second)
		}, queue.Lateness{Find: 7 * time.Second, Wait: time.Second}},
		"moved to a later time while it was checked": {func(t *testing.T, r *rig) {
			r.read(move(r, 4))
			r.after(4 * time.Second)
			checks := r.checks()
			r.after(2 * time.Second)
			r.ApplyChecks(checks, map[uint64]task.Task{1: move(r, 9).Task})
			r.check()
			r.after(6 * time.Second)
		}, queue.Lateness{Wait: 3 * time.Second}},
		"held while it waits": {func(t *testing.T, r *rig) {
			r.read(move(r, 4))
			r.after(4 * time.Second)
			checks := r.checks()
			r.after(500 * time.Millisecond)
			r.ApplyChecks(checks, map[uint64]task.Task{1: r.row(1)})
			r.after(500 * time.Millisecond)
			h, err := r.Hold(t.Context(), 1, 1)
			require.NoError(t, err)
			r.after(2 * time.Second)
			h.Restore()
			r.check()
			r.after(5 * time.Second)
		}, queue.Lateness{Check: 500 * time.Millisecond, Wait: 7500 * time.Millisecond}},
		"claimed, and its row is read slowly": {func(_ *testing.T, r *rig) {
			it := move(r, 4)
			r.after(3 * time.Second)
			it.Claimed, it.Found = true, time.Now()
			r.after(3 * time.Second)
			r.read(it)
			r.after(6 * time.Second)
		}, queue.Lateness{Check: 2 * time.Second, Wait: 6 * time.Second}},
		"its check failed": {func(_ *testing.T, r *rig) {
			r.read(move(r, 4))
			r.after(4 * time.Second)
			checks := r.checks()
			r.after(time.Second)
			r.FailChecks(checks)
			r.after(time.Second)
			r.read(move(r, 4))
			r.after(6 * time.Second)
		}, queue.Lateness{Find: 2 * time.Second, Wait: 6 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 10, func(t *testing.T, r *rig) {
				row.do(t, r)
				require.Equal(t, 12*time.Second, time.Since(r.start))
				r.check() // a row that was read long ago is read again
				got, first := r.one(r.orders).Called(time.Now())
				require.True(t, first)
				require.Equal(t, row.want, got)
				require.Equal(t, time.Since(r.row(1).ActionTime), got.Total())
			})
		})
	}
}
