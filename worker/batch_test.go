package worker_test

import (
	"context"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/task"
	"github.com/timeoutcenter/toc/worker"
)

// pack is a processor with the batch form.
type pack struct {
	script
	sizes []int
	batch func(ctx context.Context, tasks []task.Task) []error
}

func (p *pack) ProcessBatch(ctx context.Context, tasks []task.Task) []error {
	p.mu.Lock()
	p.sizes = append(p.sizes, len(tasks))
	p.mu.Unlock()
	return p.batch(ctx, tasks)
}

// calls are the sizes of the batches.
func (p *pack) calls() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.sizes)
}

func one(b *task.BizType) { b.Workers = 1 }

func TestTheBatchFormTakesManyTasksAtOnce(t *testing.T) {
	p := &pack{batch: func(_ context.Context, tasks []task.Task) []error {
		time.Sleep(100 * time.Millisecond)
		errs := make([]error, len(tasks))
		for i, t := range tasks {
			switch t.BizID % 4 {
			case 1:
				errs[i] = errDown
			case 2:
				errs[i] = processor.Discard(errDown)
			}
		}
		return errs
	}}
	bubble(t, func(t *testing.T, r *rig) {
		r.near = 0
		var ids []uint64
		for id := range uint64(400) {
			ids = append(ids, r.submit(1, id, 0))
			if id == 0 {
				r.settle()
			}
		}
		r.after(time.Minute)
		require.Equal(t, []int{1, 256, 143}, p.calls(), "what came while the first was running, up to the maximum")
		for bizID, id := range ids {
			require.Equal(t, []task.Status{task.Processed, task.Pending, task.Cancelled, task.Processed}[bizID%4], r.store.row(id).Status)
		}
		require.Equal(t, map[worker.Outcome]int{worker.Processed: 200, worker.Failed: 100, worker.Discarded: 100}, r.tally.counts())
	}, lane(p, one))
}

// After a batch fails as a whole its tasks run one by one, and then none fails.
func TestBatchAnswers(t *testing.T) {
	for _, c := range []struct {
		name  string
		batch func(ctx context.Context, tasks []task.Task) []error
		want  map[worker.Outcome]int
		text  string
	}{
		{"nil is all processed", func(context.Context, []task.Task) []error { return nil }, map[worker.Outcome]int{worker.Processed: 3}, ""},
		{"too few", func(context.Context, []task.Task) []error { return []error{nil} }, map[worker.Outcome]int{worker.Processed: 3}, ""},
		{"none but not nil", func(context.Context, []task.Task) []error { return []error{} }, map[worker.Outcome]int{worker.Processed: 3}, ""},
		{"too many", func(context.Context, []task.Task) []error { return make([]error, 4) }, map[worker.Outcome]int{worker.Processed: 3}, ""},
		{"a panic", func(context.Context, []task.Task) []error { panic("out of cheese") }, map[worker.Outcome]int{worker.Processed: 3}, ""},
		{"an exit", func(context.Context, []task.Task) []error { runtime.Goexit(); return nil }, map[worker.Outcome]int{worker.Processed: 3}, ""},
		{"a time-out", func(ctx context.Context, tasks []task.Task) []error {
			<-ctx.Done()
			return []error{ctx.Err(), ctx.Err(), ctx.Err()}
		}, map[worker.Outcome]int{worker.Failed: 3}, context.DeadlineExceeded.Error()},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := &pack{batch: c.batch}
			bubble(t, func(t *testing.T, r *rig) {
				r.near = 0
				var ids []uint64
				for id := range uint64(3) { // due together, so taken together
					ids = append(ids, r.submit(1, id, time.Second))
				}
				r.after(time.Minute)
				require.Equal(t, []int{3}, p.calls())
				require.Equal(t, c.want, r.tally.counts())
				for _, id := range ids {
					require.Equal(t, c.text, r.store.row(id).LastError)
				}
			}, lane(p, one))
		})
	}
}

func TestTheBatchFormGetsNoTaskThatIsTooLate(t *testing.T) {
	p := &pack{batch: func(context.Context, []task.Task) []error { return nil }}
	bubble(t, func(t *testing.T, r *rig) {
		late := r.submit(1, 1, -time.Hour)
		r.settle()
		require.Empty(t, p.calls())
		require.Equal(t, task.Dead, r.store.row(late).Status)
	}, lane(p, one, func(b *task.BizType) { b.ExpireAfter = time.Minute }))
}

// A panic, exit or missing answer concerns one task only. Before, all 256 tasks of a batch failed when one of
// them made the batch panic.
func TestAPoisonousTaskOfABatchFailsAlone(t *testing.T) {
	for name, poison := range map[string]func(){
		"panics": func() { panic("out of cheese") },
		"exits":  runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			p := &pack{batch: func(_ context.Context, tasks []task.Task) []error {
				for i := range tasks {
					if tasks[i].BizID == 7 {
						poison()
					}
				}
				return nil
			}}
			p.f = func(_ context.Context, t task.Task) error {
				if t.BizID == 7 {
					poison()
				}
				return nil
			}
			bubble(t, func(t *testing.T, r *rig) {
				r.near = 0
				var ids []uint64
				for id := range uint64(20) {
					ids = append(ids, r.submit(1, id, time.Second))
				}
				r.after(time.Minute)
				require.Equal(t, []int{20}, p.calls())
				require.Equal(t, 20, p.runs())
				require.Equal(t, map[worker.Outcome]int{worker.Processed: 19, worker.Failed: 1}, r.tally.counts())
				require.Equal(t, 1, r.store.row(ids[7]).Attempts)
				require.Equal(t, queue.Stats{}, r.queue.Stats(1))
			}, lane(p, one))
		})
	}
}

// A batch of one task has no others to protect: it fails at once.
func TestAPoisonousTaskAloneInABatchRunsOnce(t *testing.T) {
	for text, poison := range map[string]func(){
		"panic: out of cheese":              func() { panic("out of cheese") },
		"the processor ended its goroutine": runtime.Goexit,
	} {
		p := &pack{batch: func(context.Context, []task.Task) []error { poison(); return nil }}
		bubble(t, func(t *testing.T, r *rig) {
			r.near = 0
			id := r.submit(1, 7, time.Second)
			r.after(time.Minute)
			require.Equal(t, []int{1}, p.calls())
			require.Zero(t, p.runs())
			require.Equal(t, text, r.store.row(id).LastError)
		}, lane(p, one))
	}
}

// While the tasks of a failed batch run one by one, the partition may go to another node, or the drain may end:
// the rest stays in the store.
func TestWhatIsLeftOfAFailedBatchStopsWhenTold(t *testing.T) {
	p := &pack{batch: func(context.Context, []task.Task) []error { panic("out of cheese") }}
	p.f = func(context.Context, task.Task) error { time.Sleep(time.Second); return nil }
	bubble(t, func(t *testing.T, r *rig) {
		for id := range uint64(20) {
			r.submit(1, id*uint64(layout.Shards()), time.Second) // of one partition
		}
		r.after(3500 * time.Millisecond)
		r.term.Store(0)
		r.after(time.Minute)
		require.Equal(t, 3, p.runs())
		require.Equal(t, map[worker.Outcome]int{worker.Processed: 3}, r.tally.counts())
		require.Equal(t, queue.Stats{}, r.queue.Stats(1))
	}, lane(p, one))
}

// An edit by plain SQL meanwhile is honoured, too.
func TestWhatIsLeftOfAFailedBatchIsReadAgain(t *testing.T) {
	p := &pack{batch: func(context.Context, []task.Task) []error { panic("out of cheese") }}
	p.f = func(context.Context, task.Task) error { time.Sleep(time.Second); return nil }
	bubble(t, func(t *testing.T, r *rig) {
		var ids []uint64
		for id := range uint64(5) {
			ids = append(ids, r.submit(1, id*uint64(layout.Shards()), 50*time.Millisecond))
		}
		r.after(2500 * time.Millisecond)
		r.store.byHand(ids[3], func(t *task.Task) { t.Status = task.Cancelled })
		r.store.byHand(ids[4], func(t *task.Task) { t.Attribute = "by hand" })
		r.after(time.Minute)
		require.Equal(t, 4, p.runs())
		require.Equal(t, "by hand", p.tasks()[3].Attribute)
		require.Equal(t, map[worker.Outcome]int{worker.Processed: 4}, r.tally.counts())
	}, lane(p, one))
}

// A batch has one time-out for all, so tasks with their own run alone.
func TestATaskWithItsOwnTimeoutRunsByItself(t *testing.T) {
	wait := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	p := &pack{batch: func(ctx context.Context, tasks []task.Task) []error {
		errs := make([]error, len(tasks))
		errs[0] = wait(ctx)
		return errs
	}}
	p.f = func(ctx context.Context, _ task.Task) error { return wait(ctx) }
	bubble(t, func(t *testing.T, r *rig) {
		r.near = 0
		for id := range uint64(4) {
			r.own = time.Duration(id%2) * 3 * time.Second
			r.submit(1, id, time.Second)
		}
		r.after(time.Minute)
		require.Equal(t, []int{2}, p.calls())
		require.Equal(t, 2, p.runs())
		starts := p.starts()
		require.Equal(t, 3*time.Second, starts[1].Sub(starts[0]))
		require.Equal(t, []time.Duration{7 * time.Second, 7 * time.Second, 3 * time.Second, 3 * time.Second}, r.tally.lengths())
	}, lane(p, one, func(b *task.BizType) { b.Timeout = 7 * time.Second }))
}

// limited is a pack that takes only so many tasks a call, and calls at a time.
type limited struct {
	pack
	most, workers int
}

func (p *limited) Limits() (tasks, workers int) { return p.most, p.workers }

func TestWorkersMayBeLimited(t *testing.T) {
	for workers, want := range map[int]int64{0: 4, 1: 1, 3: 3, 9: 4} {
		var running, most atomic.Int64
		p := &limited{most: 5, workers: workers}
		p.batch = func(_ context.Context, tasks []task.Task) []error {
			if n := running.Add(1); n > most.Load() {
				most.Store(n)
			}
			time.Sleep(100 * time.Millisecond)
			running.Add(-1)
			return make([]error, len(tasks))
		}
		bubble(t, func(t *testing.T, r *rig) {
			for id := range uint64(200) {
				r.submit(1, id, time.Second)
			}
			r.after(30 * time.Second)
			require.Equal(t, 200, r.tally.counts()[worker.Processed])
		}, lane(p, func(b *task.BizType) { b.Workers = 4 }))
		require.Equal(t, want, most.Load())
	}
}

func TestABatchMayBeLimited(t *testing.T) {
	for most, want := range map[int]int{0: 100, 1: 0, 7: 7, 256: 100, 1000: 100} {
		p := &limited{most: most}
		p.batch = func(_ context.Context, tasks []task.Task) []error { return make([]error, len(tasks)) }
		bubble(t, func(t *testing.T, r *rig) {
			for id := range uint64(100) {
				r.submit(1, id, time.Second)
			}
			r.after(2 * time.Second)
			require.Equal(t, 100, r.tally.counts()[worker.Processed])
			if want == 0 {
				require.Empty(t, p.calls())
				require.Equal(t, 100, p.runs())
				return
			}
			require.Equal(t, want, slices.Max(p.calls()))
		}, lane(p, one))
	}
}
