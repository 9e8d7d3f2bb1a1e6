package virtual_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/virtual"
	"github.com/timeoutcenter/toc/migrations"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/task"
)

// A center without types of mode redis calls no Redis, whatever is configured.
func TestScanModeCallsNoRedis(t *testing.T) {
	in(t, configs.ModeScan, nil, func(t *testing.T, w *virtual.World, r *runs) {
		submit(t, w.Start("a"), 0, time.Second)
		w.Wait(time.Minute)
		r.requireOnce(t, 1)
		require.Zero(t, w.Net().Dialed())
	})
}

// Redis holds the tasks that are due within the horizon and no others. Tasks are moved in and out of it and cancelled, with Redis
// and without: each fires once, at the time that it was given last.
func TestTheHorizon(t *testing.T) {
	in(t, configs.ModeRedis, single(func(c *configs.Config) {
		c.BizTypes[0].Horizon, c.Redis.OutageAfter, c.Redis.SweepAfter = 30*time.Second, time.Hour, time.Hour // nothing else helps
	}), func(t *testing.T, w *virtual.World, r *runs) {
		n, ctx, due := w.Start("a"), t.Context(), map[uint64]time.Time{}
		var tasks []client.Task
		add := func(in time.Duration) client.Task {
			one := submit(t, n, uint64(len(tasks)), in)
			due[uint64(len(tasks))] = one.ActionTime.Time()
			tasks = append(tasks, one)
			return one
		}
		move := func(one client.Task, in time.Duration) {
			got, err := n.App.Tasks().Reschedule(ctx, uint64(one.JobID), client.Change{Delay: &in})
			require.NoError(t, err)
			for i := range tasks {
				if tasks[i].JobID == one.JobID {
					due[uint64(i)] = got.ActionTime.Time()
				}
			}
		}
		holds := func(want int) {
			t.Helper()
			w.Wait(time.Second)
			waiting, claims := inRedis(t, w)
			require.Equal(t, want, waiting+claims)
		}
		cancel := func(one client.Task) {
			require.NoError(t, n.App.Tasks().Cancel(ctx, uint64(one.JobID)))
			for i := range tasks {
				if tasks[i].JobID == one.JobID {
					delete(due, uint64(i))
				}
			}
		}
		far, in, out, later, gone := add(time.Hour), add(time.Hour), add(20*time.Second), add(20*time.Second), add(20*time.Second)
		add(40 * time.Second) // it comes into the horizon by itself
		holds(3)
		move(in, 10*time.Second)
		move(out, time.Hour)
		move(later, 25*time.Second)
		cancel(gone)
		holds(2)
		w.Wait(time.Minute)
		holds(0)
		require.Len(t, r.all(), 3)

		nearDown, goneDown := add(20*time.Second), add(20*time.Second)
		holds(2)
		w.SilenceRedis()
		for _, change := range []func(){func() { move(far, 15*time.Second) }, func() { move(out, 15*time.Second) }, func() { move(nearDown, 25*time.Second) },
			func() { cancel(goneDown) }, func() { add(12 * time.Second) }} {
			change()
		}
		w.MendRedis()
		w.Wait(time.Minute)
		for bizID, at := range due {
			require.Len(t, r.of(bizID), 1, "%d", bizID)
			require.WithinRange(t, r.of(bizID)[0].at, at, at.Add(2*time.Second), "%d", bizID)
		}
		require.Len(t, r.all(), len(due))
		holds(0)
	})
}

// Tasks that came near during a pause are not in Redis. They run as soon as the pause ends, and not when their rows are read in turn.
func TestAPauseEndsWithARead(t *testing.T) {
	in(t, configs.ModeRedis, single(func(c *configs.Config) { c.Scan.Schedule = "@every 1m" }), func(t *testing.T, w *virtual.World, r *runs) {
		n := w.Start("a")
		w.Wait(time.Minute)
		const tasks = 8 // in several partitions
		for i := range uint64(tasks) {
			submit(t, n, i, 10*time.Minute)
		}
		require.NoError(t, w.Pause(t.Context(), "order_close"))
		w.Wait(11*time.Minute + 20*time.Second)
		waiting, claims := inRedis(t, w)
		require.Zero(t, waiting+claims)
		require.NoError(t, w.Unpause(t.Context(), "order_close"))
		w.Wait(5 * time.Second) // a node looks each second
		r.requireOnce(t, tasks)
	})
}

// Cancels race against firing: a task whose cancel was answered never fires, any other fires once.
func TestCancelsRaceAgainstFiring(t *testing.T) {
	world(t, nil, func(t *testing.T, w *virtual.World, r *runs) {
		n := w.Start("a")
		const tasks = 400
		list := make([]client.Task, tasks)
		for i := range list {
			list[i] = submit(t, n, uint64(i), 15*time.Second+time.Duration(i)*5*time.Millisecond)
		}
		w.SlowDatabase(0, 4*time.Millisecond)
		w.Delay("a", "redis", 3*time.Millisecond)
		var all sync.WaitGroup
		var mu sync.Mutex
		cancelled, refused := map[uint64]bool{}, map[task.Conflict]int{}
		for i, one := range list {
			all.Go(func() { // around the moment at which it is claimed and fires
				time.Sleep(time.Until(one.ActionTime.Time()) + time.Duration(i%60-40)*time.Millisecond/4)
				err := n.App.Tasks().Cancel(context.Background(), uint64(one.JobID))
				mu.Lock()
				defer mu.Unlock()
				var conflict *task.ConflictError
				if errors.As(err, &conflict) {
					refused[conflict.Conflict]++
				} else if cancelled[uint64(i)] = true; err != nil {
					t.Errorf("cancel %d: %v", i, err)
				}
			})
		}
		all.Wait()
		w.Wait(time.Minute)
		counts := r.counts(t)
		for i := range uint64(tasks) {
			require.Equal(t, !cancelled[i], counts[i] == 1, "%d: %v", i, refused)
		}
		require.NotEmpty(t, cancelled)
		require.Less(t, len(cancelled), tasks)
		require.Equal(t, len(cancelled), count(t, w, task.Cancelled))
		require.Equal(t, tasks-len(cancelled), count(t, w, task.Processed))
	})
}

// A task that runs refuses cancels and new times, also when its claim is lost or expires under it, and its outcome stands.
func TestARunningTaskRefusesChanges(t *testing.T) {
	in(t, configs.ModeRedis, single(func(c *configs.Config) {
		c.BizTypes[0].Visibility, c.BizTypes[0].Timeout = 2*time.Second, time.Second
	}), func(t *testing.T, w *virtual.World, r *runs) {
		end := make(chan struct{})
		r.do(func(context.Context, string, task.Task) error { <-end; return nil })
		n := w.Start("a")
		one := submit(t, n, 0, 10*time.Second)
		w.Wait(10500 * time.Millisecond)
		refuses := func() {
			t.Helper()
			_, moved := n.App.Tasks().Reschedule(t.Context(), uint64(one.JobID), client.Change{Delay: new(time.Hour)})
			for _, err := range []error{n.App.Tasks().Cancel(t.Context(), uint64(one.JobID)), moved} {
				var conflict *task.ConflictError
				require.ErrorAs(t, err, &conflict)
				require.Equal(t, task.ConflictRunning, conflict.Conflict)
			}
		}
		refuses()
		w.FlushRedis()
		w.Wait(time.Minute)
		waiting, claims := inRedis(t, w)
		require.Zero(t, waiting+claims, "this node holds it")
		refuses()
		close(end)
		w.Wait(time.Minute)
		waiting, claims = inRedis(t, w)
		require.Zero(t, waiting+claims)
		r.requireOnce(t, 1)
		require.Equal(t, "processed", get(t, n, one).Status)
	})
}

// Redis is away for longer than outage_after: due tasks are scanned, and why says so. When it is back, tasks use it again, also those
// that were submitted meanwhile.
func TestRedisIsAway(t *testing.T) {
	in(t, configs.ModeRedis, single(func(c *configs.Config) { c.BizTypes[0].Horizon = time.Hour }), func(t *testing.T, w *virtual.World, r *runs) {
		n := w.Start("a")
		is := func(bizID uint64, where, text string) {
			t.Helper()
			one := submit(t, n, bizID, 25*time.Minute)
			w.Wait(time.Second)
			is, because := why(t, n, one)
			require.Equal(t, where, is)
			require.Contains(t, because, text)
		}
		w.Wait(10 * time.Second)
		is(0, "slot", " in Redis; node a claims it at its time")
		submit(t, n, 1, 30*time.Second)
		w.SilenceRedis()
		w.Wait(15 * time.Second)
		require.Contains(t, troubles(t, w, n), "the scanner serves")
		is(2, "store", "Redis is out of reach for its slot for ")
		submit(t, n, 3, 20*time.Second)
		w.Wait(time.Minute)
		require.Len(t, r.all(), 2)
		w.MendRedis()
		w.Wait(time.Minute)
		require.Empty(t, troubles(t, w, n))
		is(4, "slot", " in Redis; node a claims it at its time")
		waiting, _ := inRedis(t, w)
		require.Equal(t, 2, waiting)
		w.Wait(22*time.Minute + 40*time.Second)
		waiting, _ = inRedis(t, w)
		require.Equal(t, 2, waiting, "also the one of the outage, before its time")
		w.Wait(30 * time.Minute)
		r.requireOnce(t, 5)
	})
}

// The line to Redis is cut again and again, also between a claim and its answer: what is claimed in vain is found again.
func TestTheLineToRedisIsCutAgainAndAgain(t *testing.T) {
	in(t, configs.ModeRedis, single(func(c *configs.Config) { c.Redis.SweepAfter = time.Hour }), func(t *testing.T, w *virtual.World, r *runs) {
		n := w.Start("a")
		w.Delay("a", "redis", 5*time.Millisecond)
		const tasks = 600
		for i := range uint64(tasks) {
			submit(t, n, i, 10*time.Second+time.Duration(i)*50*time.Millisecond)
		}
		w.Wait(10 * time.Second)
		for i := range 15 {
			w.Wait(time.Duration(700+i*67) * time.Millisecond)
			w.Cut("a", "redis")
			w.Wait(time.Duration(50+i*211) * time.Millisecond)
			w.Mend("a", "redis")
		}
		w.Wait(time.Minute)
		r.requireOnce(t, tasks)
		for _, one := range r.all() {
			require.Less(t, one.late, 10*time.Second, "less than visibility: nobody waits for that")
		}
		waiting, claims := inRedis(t, w)
		require.Zero(t, waiting+claims)
	})
}

// A row that SQL inserts, or moves to an earlier time, fires at its millisecond if it is due more than two ticks later.
func TestChangesBySQLAreOnTime(t *testing.T) {
	world(t, func(v *virtual.Config) {
		also(v, func(c *configs.Config) {
			c.Store.TablesPerDatabase, c.Cluster.Partitions, c.Redis.SweepAfter = 4, 4, time.Hour // nothing else helps
		})
	}, func(t *testing.T, w *virtual.World, r *runs) {
		n, due := w.Start("a"), plan{}
		const tick, each = 10 * time.Second, 700 * time.Millisecond
		for id := range uint64(40) {
			submit(t, n, id, time.Hour)
		}
		eachDatabase(t, w, func(d migrations.Database) {
			for id := range uint64(40) { // over some ticks, in all tables
				table, at := sharding.TableName(int(id%4)), time.Now().UTC().Add(2*tick).Truncate(time.Millisecond)
				if id%8 < 4 {
					_, err := d.DB.Exec("UPDATE "+table+" SET action_time = ? WHERE biz_id = ?", at.Format("2006-01-02 15:04:05.000"), id)
					require.NoError(t, err)
				} else {
					_, err := d.DB.Exec("INSERT INTO "+table+" (job_id, biz_id, biz_type, action_time) VALUES (?, ?, 1, ?)",
						(time.Now().UnixMilli()-1735689600000)<<23|int64(id%4)<<10|1023, 100+id, at.Format("2006-01-02 15:04:05.000"))
					require.NoError(t, err)
					id += 100
				}
				due[id] = at
				w.Wait(each)
			}
		})
		w.Wait(2 * tick)
		due.late(t, r, nil)
	})
}

// A task that Redis has lost is armed by a second submit of its dedup_key, and why says where it is.
func TestADuplicateArmsAgain(t *testing.T) {
	in(t, configs.ModeRedis, single(func(c *configs.Config) { c.BizTypes[0].Horizon = time.Hour }), func(t *testing.T, w *virtual.World, r *runs) {
		n := w.Start("a")
		w.Wait(time.Second) // the slot is filled from the store, so nothing else arms
		for i, in := range []time.Duration{time.Minute, 30 * time.Minute} {
			s := client.Submit{BizID: uint64(i), Delay: in, DedupKey: "k"}
			first := put(t, n, s)
			is := func(want, because string) {
				t.Helper()
				where, text := why(t, n, first)
				require.Equal(t, want, where, text)
				require.Contains(t, text, because)
			}
			is("slot", "it is in its slot order_close_0 in Redis; ")
			_, err := w.Redis().ZRem("order_close_0", strconv.FormatInt(int64(first.JobID), 10))
			require.NoError(t, err)
			is("store", "it is only in the store: it comes into its slot in Redis some seconds before its time")
			require.Equal(t, first.JobID, put(t, n, s).JobID)
			is("slot", "it is in its slot order_close_0 in Redis; ")

			earlier := first.ActionTime.Time().Add(-time.Second)
			eachDatabase(t, w, func(d migrations.Database) {
				_, err := d.DB.Exec("UPDATE timeout_task_0000 SET action_time = ? WHERE biz_id = ?", earlier.Format("2006-01-02 15:04:05.000"), i)
				require.NoError(t, err)
			})
			is("slot", "it is in its slot order_close_0 in Redis only at "+first.ActionTime.String())
			put(t, n, s)
			is("slot", "it is in its slot order_close_0 in Redis; ")
			w.Wait(in)
			require.Len(t, r.of(uint64(i)), 1)
			require.Equal(t, earlier, r.of(uint64(i))[0].at.Truncate(time.Millisecond))
		}
	})
}

// At night the schedule has no ticks. Tasks that are submitted and are due then are read all the same. Before, what the last tick
// had seen held until the morning.
func TestAScheduleWithANight(t *testing.T) {
	in(t, configs.ModeRedis, single(func(c *configs.Config) {
		c.Scan.Schedule = "CRON_TZ=UTC */10 * 0-12 * * *"
	}), func(t *testing.T, w *virtual.World, r *runs) {
		n := w.Start("a") // at noon
		w.Wait(90 * time.Minute)
		for i := range uint64(20) {
			submit(t, n, i, time.Duration(i+1)*10*time.Second)
		}
		w.Wait(10 * time.Minute)
		r.requireOnce(t, 20)
		for _, one := range r.all() {
			require.Less(t, one.late, 100*time.Millisecond, "%v", one)
		}
	})
}
