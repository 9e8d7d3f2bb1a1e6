package virtual_test

import (
	"context"
	"database/sql"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/virtual"
	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

const (
	day   = 24 * time.Hour
	month = 30 * day
)

// plan is when the tasks of a test are due, by biz_id.
type plan map[uint64]time.Time

// scatter submits tasks that are due at random times within a span.
func scatter(t *testing.T, n *virtual.Node, tasks int, span time.Duration) plan {
	chance, due := rand.New(rand.NewPCG(1, 2)), plan{}
	for id := range uint64(tasks) {
		due[id] = submit(t, n, id, time.Duration(1+chance.Int64N(int64(span/time.Millisecond)))*time.Millisecond).ActionTime.Time()
	}
	return due
}

// late requires that each task ran once, and no later than most allows for its time; none: at its millisecond.
func (p plan) late(t *testing.T, r *runs, most func(due time.Time) time.Duration) {
	t.Helper()
	at := make(map[uint64]time.Time)
	for _, run := range r.all() {
		require.NotContains(t, at, run.bizID, "it ran twice")
		at[run.bizID] = run.at
	}
	require.Len(t, at, len(p))
	for id, due := range p {
		after := at[id].Sub(due)
		require.GreaterOrEqual(t, after, time.Duration(0), "task %d", id)
		allowed := time.Duration(0)
		if most != nil {
			allowed = most(due)
		}
		require.LessOrEqual(t, after.Truncate(time.Millisecond), allowed, "task %d of %s", id, due)
	}
}

func advance(w *virtual.World, d time.Duration) {
	w.Advance(d)
	synctest.Wait()
}

// All tasks of a month start at their milliseconds. A rest costs no polls.
func TestAMonthIsExact(t *testing.T) {
	world(t, nil, func(t *testing.T, w *virtual.World, r *runs) {
		due := scatter(t, w.Start("a"), 40, month)
		advance(w, month)
		due.late(t, r, nil)
		require.Equal(t, virtual.Start.Add(month), time.Now().UTC())
		if w.Net().OpenTo("redis:6379") > 0 {
			before := w.Redis().CommandCount()
			advance(w, month)
			require.Less(t, w.Redis().CommandCount()-before, 50_000, "a poll in each three seconds would be 800,000")
		}
	})
}

// Whatever happens in the middle is as it would be without a rest: tasks are late only by what it says, and the others exact.
func TestWhatHappensWithinAnAdvance(t *testing.T) {
	const moved = 3000 // biz_id of a task that is changed by hand
	const span = 12 * day
	begins := virtual.Start.Add(5*day + 5*time.Hour + 123*time.Millisecond)
	// between allows tasks that are due in a span to start at its end, or a little after it.
	between := func(d, more time.Duration) func(time.Time) time.Duration {
		return func(due time.Time) time.Duration {
			if end := begins.Add(d); !due.Before(begins) && due.Before(end) {
				return end.Sub(due) + more
			}
			return 0
		}
	}
	for name, it := range map[string]struct {
		happens func(t *testing.T, w *virtual.World, due plan)
		most    func(due time.Time) time.Duration
	}{
		"a pause with an end": {func(t *testing.T, w *virtual.World, _ plan) {
			_, err := w.Nodes()[0].App.Pause(context.Background(), "order_close", client.Pause{Until: begins.Add(20 * time.Minute)})
			require.NoError(t, err)
		}, between(20*time.Minute, 2*time.Second)},
		"a pause and its end": {func(t *testing.T, w *virtual.World, _ plan) {
			require.NoError(t, w.Pause(context.Background(), "order_close"))
			time.Sleep(20 * time.Minute)
			require.NoError(t, w.Unpause(context.Background(), "order_close"))
		}, between(20*time.Minute, time.Second)},
		"a crash": {func(_ *testing.T, w *virtual.World, _ plan) {
			w.Nodes()[0].Crash()
			time.Sleep(time.Hour)
			w.Start("a")
		}, between(time.Hour, time.Second)},
		"redis is lost": {func(_ *testing.T, w *virtual.World, _ plan) {
			w.SilenceRedis()
			w.FlushRedis()
			time.Sleep(5 * time.Minute)
			w.MendRedis()
		}, between(5*time.Minute, 10*time.Second)},
		"the database hangs": {func(_ *testing.T, w *virtual.World, _ plan) {
			w.HangDatabase(0)
			time.Sleep(5 * time.Minute)
			w.MendDatabase(0)
		}, between(5*time.Minute, 15*time.Second)},
		"another engine": {func(_ *testing.T, w *virtual.World, _ plan) {
			for _, mode := range []string{configs.ModeRedis, configs.ModeScan, configs.ModeRedis} {
				w.SwitchEngine("order_close", mode)
				time.Sleep(day)
			}
		}, nil},
		"submits": {func(t *testing.T, w *virtual.World, due plan) {
			for i := range uint64(20) {
				id, delay := 1000+i, time.Duration(20*i)*time.Second+time.Millisecond
				due[id] = submit(t, w.Nodes()[0], id, delay).ActionTime.Time()
				time.Sleep(5 * time.Hour)
			}
		}, nil},
		"changes by hand": {func(t *testing.T, w *virtual.World, due plan) {
			c := w.Config("a")
			db, err := sql.Open("sqlite", store.SQLiteDSN(c.Store.SQLite.Dir, 0, false))
			require.NoError(t, err)
			defer db.Close()
			time.Sleep(2 * time.Hour) // into a rest
			at := time.Now().UTC().Add(12 * time.Minute)
			_, err = db.Exec("INSERT INTO "+sharding.TableName(0)+" (job_id, biz_id, biz_type, action_time) VALUES (?, 2000, 1, ?)",
				(time.Now().UnixMilli()-1735689600000)<<23|1023, at.Format("2006-01-02 15:04:05.000"))
			require.NoError(t, err)
			due[2000] = at.Truncate(time.Millisecond)
			at = at.Add(8 * time.Minute)
			_, err = db.Exec("UPDATE "+sharding.TableName(0)+" SET action_time = ? WHERE biz_id = ?", at.Format("2006-01-02 15:04:05.000"), moved)
			require.NoError(t, err)
			due[moved] = at.Truncate(time.Millisecond)
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			world(t, func(c *virtual.Config) { c.Reloads = true }, func(t *testing.T, w *virtual.World, r *runs) {
				n := w.Start("a")
				due := scatter(t, n, 15, span)
				due[moved] = submit(t, n, moved, 11*day).ActionTime.Time()
				for i := range uint64(10) { // around the moment
					id := 100 + i
					due[id] = submit(t, n, id, time.Until(begins)+time.Duration(i)*47*time.Second+11*time.Millisecond).ActionTime.Time()
				}
				done := make(chan struct{})
				go func() {
					defer close(done)
					time.Sleep(time.Until(begins))
					it.happens(t, w, due)
				}()
				advance(w, span)
				<-done
				due.late(t, r, it.most)
			})
		})
	}
}

// A run that takes long is one run, and its task is not run again.
func TestALongRunWithinAnAdvance(t *testing.T) {
	var begun []time.Time
	slow := processor.Func(func(context.Context, task.Task) error {
		begun = append(begun, time.Now().UTC())
		time.Sleep(40 * time.Minute)
		return nil
	})
	world(t, func(c *virtual.Config) {
		begun = nil
		configure := c.Configure
		c.Configure = func(c *configs.Config) {
			configure(c)
			c.BizTypes[0].Timeout = time.Hour
		}
		c.Options = func(string) []app.Option { return []app.Option{app.WithProcessor("note", slow)} }
	}, func(t *testing.T, w *virtual.World, _ *runs) {
		got := submit(t, w.Start("a"), 1, day)
		advance(w, day)
		advance(w, month)
		require.Equal(t, []time.Time{got.ActionTime.Time()}, begun)
	})
}

// A fault ends a rest, and there is none until a little after its end.
func TestNoRestInAFault(t *testing.T) {
	world(t, nil, func(t *testing.T, w *virtual.World, _ *runs) {
		w.Start("a")
		isRest := func() bool { // for a minute
			before := w.Redis().CommandCount()
			time.Sleep(time.Minute)
			return w.Redis().CommandCount()-before < 10
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.Advance(4 * time.Hour)
		}()
		time.Sleep(2 * time.Hour)
		if w.Net().OpenTo("redis:6379") > 0 {
			require.True(t, isRest())
			w.HangDatabase(0)
			require.False(t, isRest())
			time.Sleep(3 * time.Minute)
			require.False(t, isRest())
			w.MendDatabase(0)
			time.Sleep(time.Hour)
			require.True(t, isRest())
			w.MendAll()
			require.False(t, isRest())
		}
		<-done
	})
}
