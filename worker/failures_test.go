package worker_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/task"
)

// Before, the log said nothing of failed runs until a task was dead, 77 minutes later by default.
func TestFailedRunsAreToldOf(t *testing.T) {
	var down atomic.Bool
	down.Store(true)
	p := &script{f: func(context.Context, task.Task) error {
		if down.Load() {
			return errors.New("connection refused")
		}
		return nil
	}}
	bubble(t, func(t *testing.T, r *rig) {
		counts := func() [3]int {
			return [3]int{r.log.count("runs fail"), r.log.count("runs go on to fail"), r.log.count("runs succeed again")}
		}
		ids := uint64(0)
		for range 250 { // 25 s
			r.submit(1, ids, 0)
			ids++
			r.after(100 * time.Millisecond)
		}
		require.Equal(t, [3]int{1, 2, 0}, counts())
		require.Equal(t, 1, r.log.count(`job_id=`), "one task as an example")
		require.Positive(t, r.log.count("last_error=\"connection refused\""))
		down.Store(false)
		r.after(time.Minute) // the retries end well, and nothing fails
		require.Equal(t, [3]int{1, 3, 1}, counts())
		down.Store(true)
		r.submit(1, ids, 0)
		r.after(time.Second)
		require.Equal(t, [3]int{2, 3, 1}, counts())
		down.Store(false)
	}, lane(p, func(b *task.BizType) { b.MaxRetries, b.BackoffMin, b.BackoffMax = 100, time.Second, time.Second }))
}

func TestAPanicIsToldOfWithItsPlace(t *testing.T) {
	p := &script{f: func(context.Context, task.Task) error { return explode(nil) }}
	bubble(t, func(t *testing.T, r *rig) {
		for id := range uint64(10) {
			r.submit(1, id, 0)
		}
		r.after(time.Second)
		require.Equal(t, 1, r.log.count("stack="))
		require.Equal(t, 1, r.log.count("explode"))
		require.Zero(t, r.log.count("worker.(*worker)"))
	}, lane(p))
}

func explode(m map[int]int) error {
	m[1] = 1
	return nil
}
