package virtual_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/virtual"
	"github.com/timeoutcenter/toc/migrations"
)

// fault is a verb, and how its effect shows. That of a database breaks database 1.
type fault struct {
	begin, end   func(w *virtual.World, a *virtual.Node)
	says, better string        // records of the log: while it lasts, and when it is over
	readyz       string        // part of what /readyz of node a lists while it lasts
	series       []string      // of node a while it lasts
	redis        bool          // only the redis engine shows it
	late         time.Duration // at most; of tasks of database 0, if database 1 is broken, no more than a second
	again        bool          // a task may run twice: a node was cut off before it had recorded a run
}

// othersUp is of a node for which nothing but database 1 is broken.
const othersUp = `toc_database_up{database="0"} 1`

// ofDatabase is a fault of database 1.
func ofDatabase(reason string, up int, f fault) fault {
	f.end = func(w *virtual.World, _ *virtual.Node) { w.MendDatabase(1) }
	f.series = []string{othersUp, fmt.Sprintf(`toc_database_up{database="1"} %d`, up), `toc_degraded{database="1",reason="` + reason + `"} 1`}
	return f
}

var faults = map[string]fault{
	"hang": ofDatabase("database_down", 0, fault{
		begin: func(w *virtual.World, _ *virtual.Node) { w.HangDatabase(1) },
		says:  "database is out of reach", better: "database answers again", readyz: "database 1 is out of reach: ", late: time.Minute + 15*time.Second,
	}),
	"slow": ofDatabase("database_slow", 1, fault{
		begin: func(w *virtual.World, _ *virtual.Node) { w.SlowDatabase(1, 700*time.Millisecond) },
		says:  "database is slow", better: "database is fast again", readyz: "database 1 is slow: ", late: 10 * time.Second,
	}),
	"lock": {
		begin: func(w *virtual.World, _ *virtual.Node) { w.LockDatabase(1) },
		end:   func(w *virtual.World, _ *virtual.Node) { w.MendDatabase(1) },
		says:  "database is locked", late: time.Minute + 15*time.Second, again: true, series: []string{othersUp},
	},
	"full": { // a disk counts as full for some seconds after a refusal, and later the database may be owned by nobody
		begin: func(w *virtual.World, _ *virtual.Node) { w.FillDatabase(1) },
		end:   func(w *virtual.World, _ *virtual.Node) { w.MendDatabase(1) },
		says:  "database refuses writes", readyz: "database or disk is full", late: time.Minute + 15*time.Second, again: true, series: []string{othersUp},
	},
	"skew": {
		begin: func(_ *virtual.World, a *virtual.Node) { a.Skew(time.Hour) },
		end:   func(_ *virtual.World, a *virtual.Node) { a.Skew(0) },
		says:  "clock is 1h0m0s ahead", late: 10 * time.Second,
	},
	"behind": {
		begin: func(_ *virtual.World, a *virtual.Node) { a.Skew(-3 * time.Second) },
		end:   func(_ *virtual.World, a *virtual.Node) { a.Skew(0) },
		says:  "clock is 3s behind", late: 10 * time.Second,
		series: []string{`toc_clock_skew_seconds{name="b",of="node"} -3`, `toc_clock_skew_seconds{name="0",of="database"} -3`},
	},
	"cut from consul": {
		begin: func(w *virtual.World, a *virtual.Node) { w.Cut(a.Name, "consul") },
		end:   func(w *virtual.World, a *virtual.Node) { w.Mend(a.Name, "consul") },
		says:  "lost consul", better: "consul is back", readyz: "consul does not answer", late: 20 * time.Second,
		series: []string{"toc_consul_up 0", `toc_degraded{database="",reason="consul"} 1`},
	},
	"cut from the database": ofDatabase("database_down", 0, fault{
		begin: func(w *virtual.World, a *virtual.Node) { w.Cut(a.Name, "database-1") },
		says:  "database is out of reach", late: 45 * time.Second, again: true,
	}),
	"cut from each other": {
		begin: func(w *virtual.World, a *virtual.Node) { w.Cut(a.Name, "b") },
		end:   func(w *virtual.World, a *virtual.Node) { w.Mend(a.Name, "b") },
		late:  10 * time.Second,
	},
	"delay": ofDatabase("database_slow", 1, fault{
		begin: func(w *virtual.World, a *virtual.Node) { w.Delay(a.Name, "database-1", 300*time.Millisecond) },
		says:  "database is slow", late: 10 * time.Second,
	}),
	"stop": {
		begin: func(_ *virtual.World, a *virtual.Node) { a.Stop() },
		end:   func(_ *virtual.World, a *virtual.Node) { a.Resume() },
		says:  "database is out of reach", late: 30 * time.Second, again: true,
	},
	"session": {
		begin: func(w *virtual.World, a *virtual.Node) { w.EndSession(a.Name) },
		end:   func(*virtual.World, *virtual.Node) {},
		says:  "session", late: 10 * time.Second, again: true,
	},
	"consul": {
		begin: func(w *virtual.World, _ *virtual.Node) { w.StopConsul() },
		end:   func(w *virtual.World, _ *virtual.Node) { w.StartConsul() },
		says:  "lost consul", better: "consul is back", readyz: "consul does not answer", late: time.Minute + 20*time.Second,
	},
	"silent redis": {
		begin: func(w *virtual.World, _ *virtual.Node) { w.SilenceRedis() },
		end:   func(w *virtual.World, _ *virtual.Node) { w.MendRedis() },
		says:  "Redis is out of reach", better: "Redis is back", readyz: "redis does not answer for", redis: true, late: 20 * time.Second,
		series: []string{"toc_redis_up 0", `toc_degraded{database="",reason="redis"} 1`},
	},
	"flushed redis": {
		begin: func(w *virtual.World, _ *virtual.Node) { w.FlushRedis() },
		end:   func(*virtual.World, *virtual.Node) {},
		late:  20 * time.Second,
	},
}

// Each fault is felt and shown by the log, /readyz and a metric, no record says that it is over before it is, and whatever it is,
// no task is early and none is lost. What is not broken goes on.
func TestFaults(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(faults)) {
		for _, mode := range []string{configs.ModeScan, configs.ModeRedis} {
			t.Run(name+"/"+mode, func(t *testing.T) {
				t.Parallel()
				if mode == configs.ModeScan || !slices.Contains([]string{"hang", "silent redis"}, name) {
					testrig.OnlyInAll(t, "hang and silent redis, with the redis engine")
				}
				f, said := faults[name], new(log)
				in(t, mode, func(c *virtual.Config) {
					nodes(func(c *configs.Config) { c.Store.Databases, c.Store.TablesPerDatabase = 2, 2 })(c)
					c.Log = said
				}, func(t *testing.T, w *virtual.World, r *runs) { f.test(t, w, r, said) })
			})
		}
	}
}

func (f *fault) test(t *testing.T, w *virtual.World, r *runs, said *log) {
	a, b := w.Start("a"), w.Start("b")
	w.Wait(10 * time.Second)
	const tasks = 40 // one each three seconds
	for i := range tasks {
		submit(t, []*virtual.Node{a, b}[i%2], uint64(i), time.Duration(i+1)*3*time.Second)
	}
	w.Wait(28 * time.Second) // none is due at this moment
	before := len(said.String())
	since := func() string { return said.String()[before:] }
	shown := !f.redis || typeNow(a).Mode == configs.ModeRedis
	f.begin(w, a)
	w.Wait(45 * time.Second)
	if shown {
		require.Contains(t, since(), f.says)
		if f.readyz != "" {
			require.Contains(t, troubles(t, w, a), f.readyz)
		}
		if len(f.series) > 0 {
			text := metrics(t, w, a)
			for _, line := range f.series {
				require.Contains(t, text, line+"\n")
			}
		}
		if f.better != "" {
			require.NotContains(t, since(), f.better)
		}
	}
	f.end(w, a)
	w.MendAll()
	w.Wait(100 * time.Second)
	if shown {
		require.Contains(t, since(), f.better)
	}
	require.Empty(t, troubles(t, w, a))
	require.Len(t, r.counts(t), tasks, since())
	for _, one := range r.all() {
		most := f.late
		if one.bizID%2 == 0 && slices.Contains(f.series, othersUp) {
			most = time.Second
		}
		require.LessOrEqual(t, one.late, most, "%v", one)
	}
	if !f.again {
		require.Len(t, r.all(), tasks, since())
	}
}

// dump is all that the store holds.
func dump(t *testing.T, w *virtual.World) string {
	t.Helper()
	var text strings.Builder
	eachDatabase(t, w, func(d migrations.Database) {
		for _, table := range tables(t, d) {
			rows, err := d.DB.Query("SELECT * FROM " + table)
			require.NoError(t, err)
			columns, err := rows.Columns()
			require.NoError(t, err)
			values, into := make([]any, len(columns)), make([]any, len(columns))
			for i := range values {
				into[i] = &values[i]
			}
			for rows.Next() {
				require.NoError(t, rows.Scan(into...))
				fmt.Fprintln(&text, table, values)
			}
			require.NoError(t, rows.Close())
		}
	})
	return text.String()
}

// A clock that was behind for a moment holds nothing up when it is right again. At 799f0ec a scan type stood still for as long as
// the step was, new tasks included.
func TestAClockThatWasBehind(t *testing.T) {
	world(t, nil, func(t *testing.T, w *virtual.World, r *runs) {
		n := w.Start("a")
		for id := range uint64(20) {
			submit(t, n, id, time.Duration(id+1)*time.Second)
		}
		w.Wait(5500 * time.Millisecond)
		n.Skew(-time.Hour)
		w.Wait(20 * time.Second)
		n.Skew(0)
		w.Wait(15 * time.Second) // for ten of them it is a jump ahead that no other clock confirms
		require.Len(t, r.all(), 20)
		for id := range uint64(10) {
			submit(t, n, 100+id, time.Second)
			w.Wait(2 * time.Second)
		}
		list := r.all()
		require.Len(t, list, 30)
		for _, one := range list {
			require.GreaterOrEqual(t, one.late, time.Duration(0))
			if one.bizID >= 100 {
				require.Less(t, one.late, 100*time.Millisecond)
			}
		}
	})
}

// While a database is silent the tasks in memory and in the slots are overdue. At 799f0ec none was, for a quarter of a minute.
func TestTasksAreOverdueWhileTheirDatabaseIsSilent(t *testing.T) {
	world(t, nil, func(t *testing.T, w *virtual.World, r *runs) {
		n := w.Start("a")
		for id := range uint64(20) {
			submit(t, n, id, 5*time.Second)
		}
		w.Wait(2 * time.Second)
		for d := range w.Config("a").Store.Databases {
			w.HangDatabase(d)
		}
		w.Wait(14 * time.Second)
		require.Empty(t, r.all())
		late := n.App.BizTypes()[0]
		require.Equal(t, 20, late.Overdue)
		require.InDelta(t, 11, late.OldestOverdue, 0.1)
		w.MendAll()
		w.Wait(time.Minute)
		require.Len(t, r.all(), 20)
		require.Zero(t, n.App.BizTypes()[0].Overdue)
	})
}

// Nothing that a node does after its crash reaches a server: it crashes in the middle of submits and runs, while each statement
// takes some time.
func TestNothingIsWrittenAfterACrash(t *testing.T) {
	world(t, nil, func(t *testing.T, w *virtual.World, r *runs) {
		n := w.Start("a")
		w.SlowDatabase(0, 7*time.Millisecond)
		w.Delay("a", "redis", 3*time.Millisecond)
		ctx, cancel := context.WithCancel(t.Context())
		var submits sync.WaitGroup
		for i := range 20 {
			submits.Go(func() {
				for id := uint64(i); ctx.Err() == nil; id += 20 {
					_, _ = n.App.Tasks().Submit(ctx, client.Submit{BizType: "order_close", BizID: id, Delay: time.Duration(id%100) * 10 * time.Millisecond})
					time.Sleep(time.Millisecond)
				}
			})
		}
		w.Wait(2*time.Second + 5*time.Millisecond)
		before := dump(t, w)
		w.Wait(23 * time.Millisecond) // some statements
		require.True(t, before != dump(t, w), "it was writing")
		require.NotEmpty(t, r.all())
		n.Crash()
		at, crashed := dump(t, w), time.Now()
		w.Wait(10 * time.Millisecond)
		redis := w.Redis().Dump() // with the commands that were on their way for 3 ms
		w.Wait(time.Second)
		cancel()
		submits.Wait()
		w.Wait(2 * time.Minute)
		require.Equal(t, at, dump(t, w))
		require.Equal(t, redis, w.Redis().Dump())
		for _, run := range r.all() {
			require.False(t, run.at.After(crashed), "%v", run)
		}
		ran := len(r.all())
		require.Error(t, n.App.Tasks().Cancel(t.Context(), 1))

		w.MendAll()
		w.Start("a")
		w.Wait(2 * time.Minute)
		require.Greater(t, len(r.all()), ran, "the next node goes on")
	})
}

// A clock that was wrong for a moment, too short for others to see it, leaves nothing behind.
func TestAClockThatWasWrongForAMoment(t *testing.T) {
	for _, ahead := range []time.Duration{-10 * time.Minute, 10 * time.Minute, time.Hour} {
		t.Run(ahead.String(), func(t *testing.T) {
			world(t, nil, func(t *testing.T, w *virtual.World, r *runs) {
				n := w.Start("a")
				w.Wait(20 * time.Second)
				n.Skew(ahead)
				w.Wait(1500 * time.Millisecond)
				n.Skew(0)
				w.Wait(15 * time.Second)
				const tasks = 10
				for i := range tasks {
					submit(t, n, uint64(i), time.Duration(i+1)*time.Second)
				}
				w.Wait(30 * time.Second)
				require.Len(t, r.all(), tasks)
				for _, run := range r.all() {
					require.Less(t, run.late, time.Second, "%v", run)
					require.GreaterOrEqual(t, run.late, time.Duration(0), "%v", run)
				}
			})
		})
	}
}
