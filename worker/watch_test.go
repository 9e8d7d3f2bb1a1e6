package worker_test

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/task"
	"github.com/timeoutcenter/toc/worker"
)

// deaf is a processor whose runs of the first so many biz_ids ignore their
// time-out until let go.
func deaf(first uint64) (p *script, most *atomic.Int32, letGo chan struct{}) {
	var open atomic.Int32
	most, letGo = &atomic.Int32{}, make(chan struct{})
	return &script{f: func(_ context.Context, t task.Task) error {
		if t.BizID < first {
			<-letGo
			return nil
		}
		most.Store(max(most.Load(), open.Add(1)))
		defer open.Add(-1)
		time.Sleep(100 * time.Millisecond)
		return nil
	}}, most, letGo
}

func two(b *task.BizType) { b.Workers, b.Timeout = 2, time.Second }

// Before, two runs that ignored their time-out took both workers for good: none of 50 other tasks ran, and
// there was no sign of it.
func TestARunThatIgnoresItsTimeoutIsToldAndItsWorkerReplaced(t *testing.T) {
	var p *script
	var most *atomic.Int32
	var letGo chan struct{}
	bubbleOf(t, func() []*worker.Lane {
		p, most, letGo = deaf(2)
		return []*worker.Lane{lane(p, two)}
	}, func(t *testing.T, r *rig) {
		letAllGo := sync.OnceFunc(func() { close(letGo) })
		defer letAllGo()
		hung := []uint64{r.submit(1, 0, 0), r.submit(1, 1, 0)}
		for id := range uint64(50) {
			r.submit(1, 10+id, time.Second)
		}
		r.after(10 * time.Second)
		require.Equal(t, 2, p.runs(), "not yet: the grace is 10 s")
		require.Empty(t, r.Stuck())
		require.NotContains(t, r.log.String(), "ignores its time-out")

		r.after(30 * time.Second)
		require.Equal(t, map[worker.Outcome]int{worker.Processed: 50}, r.tally.counts())
		require.EqualValues(t, 2, most.Load(), "as many as workers")
		require.Equal(t, []worker.Stuck{{BizType: "order_close", Runs: 2, For: 39 * time.Second}}, r.Stuck())
		log := r.log.String()
		require.Equal(t, 2, strings.Count(log, "ignores its time-out"), "each is told once")
		require.Contains(t, log, "biz_type=order_close job_id=")
		require.Contains(t, log, "biz_id=1 attempt=1 running_for=11.")
		require.Equal(t, 2, strings.Count(log, "watch_test.go"), "with the stack of the one worker")
		require.Contains(t, log, ".deaf.")

		letAllGo()
		r.settle()
		require.Empty(t, r.Stuck())
		require.Equal(t, 2, strings.Count(r.log.String(), "has ended after all"))
		for _, id := range hung {
			require.Equal(t, task.Processed, r.store.row(id).Status, "its outcome is recorded")
		}
		for id := range uint64(20) {
			r.submit(1, 100+id, 0)
		}
		r.after(10 * time.Second)
		require.EqualValues(t, 2, most.Load(), "the extra workers have gone")
		require.Equal(t, map[worker.Outcome]int{worker.Processed: 72}, r.tally.counts())
	})
}

func TestThereAreNeverMoreThanTwiceTheWorkers(t *testing.T) {
	var p *script
	var letGo chan struct{}
	bubbleOf(t, func() []*worker.Lane {
		p, _, letGo = deaf(10)
		return []*worker.Lane{lane(p, two)}
	}, func(t *testing.T, r *rig) {
		letAllGo := sync.OnceFunc(func() { close(letGo) })
		defer letAllGo()
		for id := range uint64(10) {
			r.submit(1, id, 0)
		}
		r.after(time.Hour)
		require.Equal(t, 4, p.runs(), "two workers, and two in their place")
		require.Equal(t, 4, r.Stuck()[0].Runs)
		letGo <- struct{}{}
		r.after(time.Hour)
		require.Equal(t, 5, p.runs(), "where one ends another may come")
		letAllGo()
		r.after(time.Hour)
		require.Equal(t, map[worker.Outcome]int{worker.Processed: 10}, r.tally.counts())
		require.Empty(t, r.Stuck())
	})
}

// Before, each runtime.Goexit in a processor (t.FailNow) ended a worker for good.
func TestAWorkerSurvivesTheEndOfItsGoroutine(t *testing.T) {
	p := &script{f: func(_ context.Context, t task.Task) error {
		if t.BizID < 10 {
			runtime.Goexit()
		}
		return nil
	}}
	bubble(t, func(t *testing.T, r *rig) {
		r.near = 0
		var ids []uint64
		for id := range uint64(20) {
			ids = append(ids, r.submit(1, id, 0))
		}
		r.settle()
		require.Equal(t, map[worker.Outcome]int{worker.Failed: 10, worker.Processed: 10}, r.tally.counts())
		require.Equal(t, "the processor ended its goroutine", r.store.row(ids[0]).LastError)
		require.Equal(t, 1, r.store.row(ids[0]).Attempts)
		require.Equal(t, queue.Stats{}, r.queue.Stats(1))
	}, lane(p, one))
}
