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

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/virtual"
)

// log is the log of all nodes.
type log struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// fault is a verb, and how its effect shows.
type fault struct {
	begin, end func(w *virtual.World, a *virtual.Node)
	says       string        // a record of the log while it lasts
	redisSays  string        // the same with the redis engine, if it is another one
	late       time.Duration // at most
	again      bool          // a task may run twice: a node was cut off before it had recorded a run
}

var faults = map[string]fault{
	"hang": {
		begin: func(w *virtual.World, _ *virtual.Node) { w.HangDatabase(0) },
		end:   func(w *virtual.World, _ *virtual.Node) { w.MendDatabase(0) },
		says:  "database is out of reach", late: time.Minute + 15*time.Second,
	},
	"slow": {
		begin: func(w *virtual.World, _ *virtual.Node) { w.SlowDatabase(0, 700*time.Millisecond) },
		end:   func(w *virtual.World, _ *virtual.Node) { w.MendDatabase(0) },
		says:  "database is slow", late: 10 * time.Second,
	},
	"lock": {
		begin: func(w *virtual.World, _ *virtual.Node) { w.LockDatabase(0) },
		end:   func(w *virtual.World, _ *virtual.Node) { w.MendDatabase(0) },
		says:  "database is locked", late: time.Minute + 15*time.Second,
	},
	"full": {
		begin: func(w *virtual.World, _ *virtual.Node) { w.FillDatabase(0) },
		end:   func(w *virtual.World, _ *virtual.Node) { w.MendDatabase(0) },
		says:  "database refuses writes", late: time.Minute + 15*time.Second,
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
	},
	"cut from consul": {
		begin: func(w *virtual.World, a *virtual.Node) { w.Cut(a.Name, "consul") },
		end:   func(w *virtual.World, a *virtual.Node) { w.Mend(a.Name, "consul") },
		says:  "consul", late: 20 * time.Second,
	},
	"cut from the database": {
		begin: func(w *virtual.World, a *virtual.Node) { w.Cut(a.Name, "database-0") },
		end:   func(w *virtual.World, a *virtual.Node) { w.Mend(a.Name, "database-0") },
		says:  "database is out of reach", late: 45 * time.Second, again: true,
	},
	"cut from each other": {
		begin: func(w *virtual.World, a *virtual.Node) { w.Cut(a.Name, "b") },
		end:   func(w *virtual.World, a *virtual.Node) { w.Mend(a.Name, "b") },
		late:  10 * time.Second,
	},
	"delay": {
		begin: func(w *virtual.World, a *virtual.Node) { w.Delay(a.Name, "database-0", 300*time.Millisecond) },
		end:   func(w *virtual.World, a *virtual.Node) { w.Delay(a.Name, "database-0", 0) },
		says:  "database is slow", late: 10 * time.Second,
	},
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
		says:  "consul", late: time.Minute + 20*time.Second,
	},
	"silent redis": {
		begin:     func(w *virtual.World, _ *virtual.Node) { w.SilenceRedis() },
		end:       func(w *virtual.World, _ *virtual.Node) { w.MendRedis() },
		redisSays: "redis", late: 20 * time.Second,
	},
	"flushed redis": {
		begin: func(w *virtual.World, _ *virtual.Node) { w.FlushRedis() },
		end:   func(*virtual.World, *virtual.Node) {},
		late:  20 * time.Second,
	},
}

// Each fault is felt, and whatever it is, no task is early and none is lost.
func TestFaults(t *testing.T) {
	testrig.OnlyInAll(t, "app's tests of faults on real servers")
	for _, name := range slices.Sorted(maps.Keys(faults)) {
		t.Run(name, func(t *testing.T) {
			f, said := faults[name], new(log)
			world(t, func(c *virtual.Config) { c.Consul, c.Log = true, said }, func(t *testing.T, w *virtual.World, r *runs) {
				said.text.Reset()
				a, b := w.Start("a"), w.Start("b")
				w.Wait(10 * time.Second)
				const tasks = 60 // one every five seconds
				for i := range tasks {
					submit(t, []*virtual.Node{a, b}[i%2], uint64(i), time.Duration(i+1)*5*time.Second)
				}
				w.Wait(time.Minute)
				before := len(said.String())
				f.begin(w, a)
				w.Wait(time.Minute)
				f.end(w, a)
				w.Wait(5 * time.Minute)
				felt := said.String()[before:]
				text := f.says
				if strings.HasSuffix(t.Name(), "/redis") && f.redisSays != "" {
					text = f.redisSays
				}
				require.Contains(t, felt, text)
				ran := make(map[uint64]int)
				for _, run := range r.all() {
					ran[run.bizID]++
					require.GreaterOrEqual(t, run.late, time.Duration(0), "%v", run)
					require.LessOrEqual(t, run.late, f.late, "%v", run)
				}
				require.Len(t, ran, tasks, felt)
				if !f.again {
					require.Len(t, r.all(), tasks, felt)
				}
			})
		})
	}
}

// dump is all that the store holds.
func dump(t *testing.T, w *virtual.World) string {
	t.Helper()
	list, err := app.Databases(w.Config("any"), true)
	require.NoError(t, err)
	defer func() { require.NoError(t, app.CloseDatabases(list)) }()
	var text strings.Builder
	for _, d := range list {
		names, err := d.DB.Query("SELECT name FROM sqlite_master WHERE type='table' ORDER BY name")
		require.NoError(t, err)
		var tables []string
		for names.Next() {
			var name string
			require.NoError(t, names.Scan(&name))
			tables = append(tables, name)
		}
		require.NoError(t, names.Close())
		for _, table := range tables {
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
	}
	return text.String()
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
					time.Sleep(time.Millisecond) // in a bubble
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

// A node without an answer of its database is not the end: it starts when the database answers.
func TestANodeWaitsForItsDatabase(t *testing.T) {
	cluster(t, func(t *testing.T, w *virtual.World, r *runs) {
		w.HangDatabase(0)
		n := w.Launch("a")
		w.Wait(time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, n.Ready(ctx), context.DeadlineExceeded)
		w.MendDatabase(0)
		require.NoError(t, n.Ready(t.Context()))
		submit(t, n, 1, time.Minute)
		w.Wait(2 * time.Minute)
		require.Len(t, r.all(), 1)
	})
}

// Operators change business types while tasks wait: another engine, a pause, and more retries.
func TestOperators(t *testing.T) {
	world(t, func(c *virtual.Config) { c.Consul, c.Reloads = true, true }, func(t *testing.T, w *virtual.World, r *runs) {
		a, b := w.Start("a"), w.Start("b")
		for i := range 30 {
			submit(t, a, uint64(i), time.Duration(i+1)*10*time.Second)
		}
		w.Wait(65 * time.Second)
		require.Len(t, r.all(), 6)
		for _, mode := range []string{configs.ModeScan, configs.ModeRedis} {
			w.SwitchEngine("order_close", mode)
			w.Wait(30 * time.Second)
			for _, n := range []*virtual.Node{a, b} {
				require.Equal(t, mode, n.App.BizTypes()[0].Mode)
			}
		}
		require.NoError(t, w.Pause(t.Context(), "order_close"))
		w.Wait(3 * time.Second)
		ran := len(r.all())
		require.GreaterOrEqual(t, ran, 12)
		w.Wait(time.Minute)
		require.Len(t, r.all(), ran)
		require.NoError(t, w.Unpause(t.Context(), "order_close"))
		w.Wait(5 * time.Minute)
		require.Len(t, r.all(), 30)
		for _, run := range r.all() {
			require.GreaterOrEqual(t, run.late, time.Duration(0), "%v", run)
		}
		require.NoError(t, b.Shutdown())
		require.Len(t, w.Nodes(), 1)
		require.Same(t, a, w.Nodes()[0])
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
