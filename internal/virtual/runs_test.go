package virtual_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/virtual"
	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/task"
)

// A node crashes again and again with runs in hand, while outcomes and Redis take their time: each task is processed, only what was cut
// runs twice, and no claim stays behind.
func TestCrashesLoseNothing(t *testing.T) {
	world(t, nil, func(t *testing.T, w *virtual.World, r *runs) {
		w.SlowDatabase(0, 4*time.Millisecond)
		const tasks, crashes = 400, 2 // a third one might cut a task short for the third time
		n := w.Start("a")
		w.Delay("a", "redis", 3*time.Millisecond)
		for i := range uint64(tasks) {
			submit(t, n, i, 15*time.Second+time.Duration(i)*10*time.Millisecond)
		}
		r.do(func(context.Context, string, task.Task) error { time.Sleep(20 * time.Millisecond); return nil })
		cut := 0
		for range crashes {
			for len(r.all()) < tasks/4*(1+cut) {
				w.Wait(time.Millisecond)
			}
			cut++
			n.Crash()
			w.Wait(time.Second)
			n = w.Start("a")
		}
		w.Wait(2 * time.Minute)
		require.Len(t, r.counts(t), tasks)
		require.Equal(t, tasks, count(t, w, task.Processed))
		require.Greater(t, len(r.all()), tasks, "runs were cut")
		require.LessOrEqual(t, len(r.all()), tasks+crashes*64)
		waiting, claims := inRedis(t, w)
		require.Zero(t, waiting+claims)
	})
}

// crashAll ends all nodes, as a run does that ends its process.
func crashAll(ctx context.Context, w *virtual.World) error {
	for _, n := range w.Nodes() {
		n.Crash()
	}
	<-ctx.Done()
	return ctx.Err()
}

// A task whose run ends the process does so three times, whatever max_retries is, and is dead then; those that are due beside
// it are processed.
func TestATaskThatEndsTheProcessDies(t *testing.T) {
	world(t, single(func(c *configs.Config) { c.BizTypes[0].MaxRetries, c.BizTypes[0].Workers = 2, 4 }), func(t *testing.T, w *virtual.World, r *runs) {
		const tasks, poison = 51, 25
		n := w.Start("a")
		list := make([]client.Task, tasks)
		at := time.Now().Add(20 * time.Second)
		for i := range list {
			list[i] = put(t, n, client.Submit{BizID: uint64(i), ActionTime: at})
		}
		r.do(func(ctx context.Context, _ string, one task.Task) error {
			if one.BizID == poison {
				return crashAll(ctx, w)
			}
			time.Sleep(10 * time.Millisecond)
			return nil
		})
		ends := 0
		for range 20 {
			w.Wait(40 * time.Second)
			if len(w.Nodes()) == 0 {
				ends++
				n = w.Start("a")
			}
		}
		require.Equal(t, 3, ends)
		require.Equal(t, tasks-1, count(t, w, task.Processed))
		dead := get(t, n, list[poison])
		require.Equal(t, []any{"dead", "started 3 times without an end: its run may end the process", 0}, []any{dead.Status, dead.LastError, dead.Attempts})
	})
}

// A node crashes four times while a crowd of overdue tasks waits for two workers. Nothing dies that never ran.
func TestNothingDiesOfSomebodyElsesCrash(t *testing.T) {
	world(t, single(func(c *configs.Config) { c.BizTypes[0].MaxRetries, c.BizTypes[0].Workers = 0, 2 }), func(t *testing.T, w *virtual.World, r *runs) {
		const tasks = 60
		n := w.Start("a")
		at := time.Now().Add(20 * time.Second)
		list := make([]client.Task, tasks)
		for i := range list {
			list[i] = put(t, n, client.Submit{BizID: uint64(i), ActionTime: at})
		}
		r.do(func(context.Context, string, task.Task) error { time.Sleep(time.Second); return nil })
		for range 4 {
			for before := len(r.all()); len(r.all()) < before+4; {
				w.Wait(100 * time.Millisecond)
			}
			w.Wait(500 * time.Millisecond)
			n.Crash()
			n = w.Start("a")
		}
		w.Wait(10 * time.Minute)
		require.Zero(t, count(t, w, task.Pending))
		counts, dead := r.counts(t), 0
		for i, one := range list {
			if get(t, n, one).Status == "dead" {
				require.NotZero(t, counts[uint64(i)])
				dead++
			}
		}
		require.LessOrEqual(t, dead, 2, "as many as a crash can cut")
	})
}

// A node that is stopped and started again and again in the middle of firing runs nothing twice, loses nothing and leaves no claim.
func TestStopsDoubleNothing(t *testing.T) {
	world(t, nil, func(t *testing.T, w *virtual.World, r *runs) {
		w.SlowDatabase(0, 4*time.Millisecond)
		n := w.Start("a")
		w.Delay("a", "redis", 3*time.Millisecond)
		const tasks = 400
		for i := range uint64(tasks) {
			submit(t, n, i, 15*time.Second+time.Duration(i)*10*time.Millisecond)
		}
		r.do(func(context.Context, string, task.Task) error { time.Sleep(20 * time.Millisecond); return nil })
		w.Wait(14 * time.Second)
		for range 3 {
			w.Wait(1300 * time.Millisecond)
			require.NoError(t, n.Shutdown())
			_, claims := inRedis(t, w)
			require.Zero(t, claims)
			n = w.Start("a")
		}
		w.Wait(time.Minute)
		r.requireOnce(t, tasks)
		require.Equal(t, tasks, count(t, w, task.Processed))
	})
}

// A stop waits for the runs under way, as long as shutdown.drain says. What is not recorded by then runs again.
func TestAStopWaitsForItsRuns(t *testing.T) {
	in(t, configs.ModeScan, nil, func(t *testing.T, w *virtual.World, r *runs) {
		for _, c := range []struct {
			takes, waits time.Duration
			err          string
		}{{takes: 20 * time.Second, waits: 20 * time.Second}, {takes: time.Minute, waits: 30 * time.Second, err: "shutdown.drain"}} {
			r.do(func(ctx context.Context, _ string, _ task.Task) error {
				select {
				case <-time.After(c.takes):
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			})
			n := w.Start("a")
			one := put(t, n, client.Submit{BizID: uint64(len(r.all())), Now: true, Timeout: time.Hour})
			w.Wait(time.Second)
			began := time.Now()
			err := n.Shutdown()
			require.InDelta(t, c.waits, time.Since(began), float64(2*time.Second))
			if c.err == "" {
				require.NoError(t, err)
				continue
			}
			require.ErrorContains(t, err, c.err)
			require.Equal(t, 1, count(t, w, task.Pending))
			r.do(nil)
			n = w.Start("a")
			w.Wait(10 * time.Second)
			require.Equal(t, "processed", get(t, n, one).Status)
		}
	})
	in(t, configs.ModeScan, single(func(c *configs.Config) { c.Shutdown.Drain = 0 }), func(t *testing.T, w *virtual.World, _ *runs) {
		n := w.Start("a")
		submit(t, n, 1, time.Hour)
		require.NoError(t, n.Shutdown(), "no time for a drain is no failure")
	})
}

// requireFailedRuns requires that a task has these failed runs, with times that go on.
func requireFailedRuns(t *testing.T, n *virtual.Node, one client.Task, want ...string) {
	t.Helper()
	why, err := n.App.Tasks().Why(t.Context(), uint64(one.JobID))
	require.NoError(t, err)
	var got []string
	before := virtual.Start
	for _, r := range why.FailedRuns {
		require.WithinRange(t, r.At.Time(), before, time.Now())
		before = r.At.Time()
		got = append(got, fmt.Sprint(r.Attempt, " ", r.Error))
	}
	require.Equal(t, want, got)
}

// Each run that failed and counted is kept, across a redrive; a run that was no attempt is not, nor one that discards.
func TestFailedRuns(t *testing.T) {
	world(t, single(func(c *configs.Config) { c.BizTypes[0].MaxRetries = 2 }), func(t *testing.T, w *virtual.World, r *runs) {
		r.do(func(context.Context, string, task.Task) error {
			switch n := len(r.all()); n {
			case 2:
				return processor.NoAttempt(0, errors.New("not now"))
			case 4:
				panic("run 4")
			case 6:
				return processor.Discard(errors.New("paid"))
			default:
				return fmt.Errorf("run %d", n)
			}
		})
		n := w.Start("a")
		one := submit(t, n, 42, 0)
		w.Wait(time.Minute)
		require.Equal(t, "dead", get(t, n, one).Status)
		requireFailedRuns(t, n, one, "1 run 1", "2 run 3", "3 panic: run 4")
		_, err := n.App.Tasks().Redrive(t.Context(), uint64(one.JobID))
		require.NoError(t, err)
		w.Wait(time.Minute)
		require.Equal(t, "cancelled", get(t, n, one).Status)
		requireFailedRuns(t, n, one, "1 run 1", "2 run 3", "3 panic: run 4", "1 run 5")
	})
}

// So is a lease that its consumer has not settled, and one that it has given back.
func TestFailedRunsOfLeases(t *testing.T) {
	in(t, configs.ModeScan, func(v *virtual.Config) {
		single(func(c *configs.Config) {
			b := &c.BizTypes[0]
			b.Processor, b.Pull.TTR, b.MaxRetries = configs.ProcessorPull, 10*time.Second, 1
		})(v)
		v.Options = nil // nobody calls a processor
	}, func(t *testing.T, w *virtual.World, _ *runs) {
		n := w.Start("a")
		one := submit(t, n, 42, 0)
		var lease string
		for range 2 {
			w.Wait(30 * time.Second)
			got, err := api(w, n).Lease(t.Context(), "order_close", client.AskLease{})
			require.NoError(t, err)
			require.Len(t, got.Tasks, 1)
			lease = got.Tasks[0].Lease.String()
		}
		results, err := api(w, n).Settle(t.Context(), client.Settlement{Lease: lease, Do: client.Nack, Error: "locked"})
		require.NoError(t, err)
		require.Equal(t, "ok", results[0].Result)
		w.Wait(time.Second)
		require.Equal(t, "dead", get(t, n, one).Status)
		requireFailedRuns(t, n, one, "1 the lease is over: its consumer has not settled it in time", "2 locked")
	})
}

// Runs that ignore their time-out are shown, and hold nobody up.
func TestRunsThatIgnoreTheirTimeout(t *testing.T) {
	world(t, single(func(c *configs.Config) { c.BizTypes[0].Workers, c.BizTypes[0].Timeout = 2, 2*time.Second }), func(t *testing.T, w *virtual.World, r *runs) {
		end := make(chan struct{})
		r.do(func(_ context.Context, _ string, one task.Task) error {
			if one.BizID < 2 {
				<-end
			}
			return nil
		})
		n := w.Start("a")
		for i := range uint64(20) {
			submit(t, n, i, time.Duration(i/2)*time.Millisecond)
		}
		w.Wait(time.Minute)
		require.Contains(t, troubles(t, w, n), "2 runs of order_close have ignored their time-out for ")
		require.Contains(t, metrics(t, w, n), "toc_runs_stuck{biz_type=\"order_close\"} 2\n")
		r.requireOnce(t, 20)
		close(end)
		w.Wait(time.Minute)
		require.Empty(t, troubles(t, w, n))
		require.Contains(t, metrics(t, w, n), "toc_runs_stuck{biz_type=\"order_close\"} 0\n")
		require.Equal(t, 20, count(t, w, task.Processed))
	})
}

// The parts of lateness add up to it, and the part to blame is the one that grows.
func TestThePartToBlame(t *testing.T) {
	for _, c := range []struct {
		mode, name, blame   string
		redis, store, takes time.Duration // how late they answer, and how long a run keeps the only worker busy
	}{
		{mode: configs.ModeRedis, name: "redis by 500 ms", redis: 250 * time.Millisecond, blame: "find"},
		{mode: configs.ModeRedis, name: "database by 300 ms", store: 300 * time.Millisecond, blame: "check"},
		{mode: configs.ModeRedis, name: "workers", takes: 40 * time.Millisecond, blame: "wait"},
		{mode: configs.ModeScan, name: "database by 100 ms", store: 100 * time.Millisecond, blame: "check"},
		{mode: configs.ModeScan, name: "workers", takes: 40 * time.Millisecond, blame: "wait"},
	} {
		t.Run(c.mode+"/"+c.name, func(t *testing.T) {
			in(t, c.mode, single(func(v *configs.Config) {
				if c.takes > 0 {
					v.BizTypes[0].Workers = 1
				}
			}), func(t *testing.T, w *virtual.World, r *runs) {
				r.do(func(context.Context, string, task.Task) error { time.Sleep(c.takes); return nil })
				n := w.Start("a")
				const tasks = 50
				for i := range uint64(tasks) {
					submit(t, n, i, 20*time.Second+time.Duration(i)*10*time.Millisecond)
				}
				w.Wait(15 * time.Second)
				w.Delay("a", "redis", c.redis)
				w.SlowDatabase(0, c.store)
				w.Wait(30 * time.Second)
				r.requireOnce(t, tasks)
				var late, sum float64
				for _, one := range r.all() {
					late += one.late.Seconds()
				}
				parts, most := map[string]float64{}, "find"
				text := metrics(t, w, n)
				for _, m := range regexp.MustCompile(`(?m)^toc_lateness_(?:part_)?seconds_sum\{(?:.*part="(\w+)")?.*\} (.+)$`).FindAllStringSubmatch(text, -1) {
					value, err := strconv.ParseFloat(m[2], 64)
					require.NoError(t, err)
					parts[m[1]] += value
				}
				total := parts[""]
				delete(parts, "")
				require.Len(t, parts, 4)
				for part, value := range parts {
					sum += value
					if value > parts[most] {
						most = part
					}
				}
				require.Equal(t, c.blame, most, "%v", parts)
				require.NotZero(t, total)
				require.InDelta(t, total, sum, 0.001*tasks)
				require.InDelta(t, late, total, 0.001*tasks)
			})
		})
	}
}

// blockingHandler is a slog.Handler whose Handle does not return before the end of the test.
type blockingHandler struct {
	slog.Handler
	gate chan struct{}
}

func (h blockingHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h blockingHandler) Handle(context.Context, slog.Record) error {
	<-h.gate
	return nil
}
func (h blockingHandler) WithAttrs([]slog.Attr) slog.Handler { return h }

// The log handler of a program that embeds the center blocks for ever. Submits, firing, failed runs, the hand-over of
// partitions and the stop work without it.
func TestALogHandlerThatBlocksHoldsUpNothing(t *testing.T) {
	gate := make(chan struct{})
	in(t, configs.ModeScan, func(v *virtual.Config) {
		gate = make(chan struct{})
		nodes(noRetries)(v)
		before := v.Options
		v.Options = func(node string) []app.Option {
			return append(before(node), app.WithLogger(slog.New(blockingHandler{gate: gate})))
		}
	}, func(t *testing.T, w *virtual.World, r *runs) {
		defer close(gate)
		r.do(func(_ context.Context, _ string, one task.Task) error {
			if one.BizID == 7 {
				return errors.New("no luck")
			}
			return nil
		})
		a, b := w.Start("a"), w.Start("b")
		w.Wait(10 * time.Second)
		for i := range uint64(16) { // of all partitions
			submit(t, []*virtual.Node{a, b}[i%2], i, time.Second)
			submit(t, a, 16+i, 30*time.Second)
		}
		w.Wait(10 * time.Second)
		require.Equal(t, 1, count(t, w, task.Dead))
		require.NoError(t, a.Shutdown())
		w.Wait(time.Minute)
		r.requireOnce(t, 32)
		require.NoError(t, b.Shutdown())
	})
}

// A task says at each stage of its life why it is there, in process and over HTTP.
func TestWhy(t *testing.T) {
	world(t, single(func(c *configs.Config) {
		b := &c.BizTypes[0]
		b.Workers, b.MaxRetries, b.Backoff = 1, 1, configs.Backoff{Min: 3 * time.Hour, Max: 3 * time.Hour}
	}), func(t *testing.T, w *virtual.World, r *runs) {
		free := make(chan struct{})
		r.do(func(_ context.Context, _ string, one task.Task) error {
			switch one.BizID {
			case 2:
				return errors.New("no luck")
			case 3:
				<-free
			}
			return nil
		})
		n, ctx := w.Start("a"), t.Context()
		says := func(one client.Task, state, where, because string) {
			t.Helper()
			w.Wait(time.Second)
			for _, ask := range []func(context.Context, uint64) (client.Why, error){n.App.Tasks().Why, api(w, n).Why} {
				why, err := ask(ctx, uint64(one.JobID))
				require.NoError(t, err)
				require.Equal(t, []string{state, where, "a"}, []string{why.State, why.Where, why.Node})
				require.Contains(t, fmt.Sprint(why.Because), because)
				_, err = ask(ctx, 1)
				require.ErrorIs(t, err, task.ErrNotFound)
			}
		}
		later := put(t, n, client.Submit{BizID: 1, Delay: 2 * time.Hour, DedupKey: "later"})
		says(later, "pending", "store", "its time has not come: it is due at ")
		byKey, err := api(w, n).WhyByKey(ctx, client.Key{BizType: "order_close", BizID: 1, DedupKey: "later"})
		require.NoError(t, err)
		require.Equal(t, "store", byKey.Where)
		failed := submit(t, n, 2, 0)
		says(failed, "pending", "store", "it has failed once and waits for its back-off until ")
		holds := submit(t, n, 3, 0)
		says(holds, "pending", "running", "it runs on node a for ")
		waits := submit(t, n, 4, 0)
		says(waits, "pending", "queue", "it waits for the only worker of order_close on node a, which has been busy for ")
		close(free)
		says(waits, "processed", "done", "it was processed at ")
		require.NoError(t, n.App.Tasks().Cancel(ctx, uint64(later.JobID)))
		says(later, "cancelled", "done", "it was cancelled at ")
		_, err = n.App.Tasks().Reschedule(ctx, uint64(failed.JobID), client.Change{Delay: new(time.Duration)})
		require.NoError(t, err)
		says(failed, "dead", "done", "no luck; it had failed 2 times")
	})
}
