package virtual_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/virtual"
	"github.com/timeoutcenter/toc/migrations"
	"github.com/timeoutcenter/toc/task"
)

// Operators change business types while tasks wait: another engine, a pause, other workers, a second type, and a file that is
// refused.
func TestOperators(t *testing.T) {
	in(t, configs.ModeRedis, func(c *virtual.Config) { c.Consul, c.Reloads = true, true }, func(t *testing.T, w *virtual.World, r *runs) {
		a, b := w.Start("a"), w.Start("b")
		for i := range 30 {
			submit(t, a, uint64(i), time.Duration(i+1)*5*time.Second)
		}
		w.Wait(67 * time.Second)
		require.Len(t, r.all(), 13)
		for _, mode := range []string{configs.ModeScan, configs.ModeRedis} {
			w.SwitchEngine("order_close", mode)
			w.Wait(15 * time.Second)
			for _, n := range []*virtual.Node{a, b} {
				require.Equal(t, mode, typeNow(n).Mode)
			}
		}
		require.NoError(t, w.Pause(t.Context(), "order_close"))
		w.Wait(3 * time.Second)
		ran := len(r.all())
		require.GreaterOrEqual(t, ran, 18)
		w.Wait(20 * time.Second)
		require.Len(t, r.all(), ran)
		require.NoError(t, w.Unpause(t.Context(), "order_close"))

		types := w.Config("any").BizTypes
		types[0].Workers = 1
		second := types[0]
		second.ID, second.Name = 2, mail
		good := append(slices.Clone(types), second)
		w.Reload(good)
		w.Wait(2 * time.Second)
		put(t, b, client.Submit{BizType: mail, BizID: 30, Delay: time.Minute})
		second.Mode = "nonsense"
		w.Reload([]configs.BizType{second})
		w.Wait(2 * time.Second)
		require.Contains(t, troubles(t, w, a), "the configuration file is refused; the one before stays in force: ")
		submit(t, a, 31, time.Minute)
		w.Reload(good)
		w.Wait(90 * time.Second)
		require.Empty(t, troubles(t, w, a))
		r.requireOnce(t, 32)
		require.NoError(t, b.Shutdown())
		require.Len(t, w.Nodes(), 1)
		require.Same(t, a, w.Nodes()[0])
	})
}

// Nothing of a paused type starts, by any node, over a restart and whatever server is away. Another type goes on, and what fell due
// meanwhile runs in the end.
func TestPause(t *testing.T) {
	in(t, configs.ModeRedis, nodes(func(c *configs.Config) {
		withMail(c)
		c.Store.Databases, c.Cluster.OnConsulLoss = 2, configs.ConsulLossKeep
	}), func(t *testing.T, w *virtual.World, r *runs) {
		ctx := t.Context()
		a, b := w.Start("a"), w.Start("b")
		w.Wait(10 * time.Second)
		for i := range uint64(40) { // those of 15 s are in memory at the pause
			submit(t, a, i, time.Duration(15+i%2*15)*time.Second)
		}
		w.Wait(12 * time.Second)
		until := time.Now().Add(time.Hour).UTC()
		got, err := api(w, b).Pause(ctx, "order_close", client.Pause{Reason: "the shop is down", Until: until})
		require.NoError(t, err)
		require.Equal(t, []string{"the shop is down", "api"}, []string{got.Paused.Reason, got.Paused.By})
		require.Equal(t, until, got.Paused.Until.Time())
		w.Wait(2 * time.Second) // it is in force everywhere by now
		last := submit(t, b, 40, 0)
		cancelled, moved := submit(t, a, 41, time.Second), submit(t, a, 42, time.Second)
		require.NoError(t, a.App.Tasks().Cancel(ctx, uint64(cancelled.JobID)))
		_, err = a.App.Tasks().Reschedule(ctx, uint64(moved.JobID), client.Change{Delay: new(time.Hour)})
		require.NoError(t, err)
		w.Wait(time.Minute)
		require.Empty(t, r.all())
		overdue := 0
		for _, n := range w.Nodes() {
			now := typeNow(n)
			require.NotNil(t, now.Paused)
			require.Zero(t, now.QueueDepth+now.Running, "nothing of it is in memory")
			overdue += now.Overdue
			all, err := api(w, n).BizTypes(ctx)
			require.NoError(t, err)
			require.Equal(t, 41, all[0].Overdue, "each node shows what is overdue in all")
		}
		require.Equal(t, 41, overdue)
		_, because := why(t, a, last)
		require.Contains(t, because, "order_close is paused by api since ")

		for i, away := range []struct{ begin, end func() }{
			{w.SilenceRedis, w.MendRedis}, {w.StopConsul, w.StartConsul}, {func() { w.HangDatabase(1) }, func() { w.MendDatabase(1) }},
			{func() { require.NoError(t, b.Shutdown()) }, func() { b = w.Start("b") }},
		} {
			away.begin()
			w.Wait(12 * time.Second)
			put(t, a, client.Submit{BizType: mail, BizID: uint64(100 + 2*i), Delay: time.Second})
			w.Wait(20 * time.Second)
			require.Len(t, r.all(), i+1)
			away.end()
			w.Wait(12 * time.Second)
		}
		resumed, err := api(w, b).Resume(ctx, "order_close")
		require.NoError(t, err)
		require.Nil(t, resumed.Paused)
		audit, err := a.App.Tasks().Audit(ctx, client.Audit{Limit: 10})
		require.NoError(t, err)
		require.Equal(t, "resume", audit.Entries[0].Action)
		require.Contains(t, audit.Entries[1].Detail, "the shop is down")
		w.Wait(15 * time.Second)
		counts := r.counts(t)
		require.Len(t, counts, 45)
		require.Len(t, r.all(), 45)
		require.Zero(t, counts[41]+counts[42])

		// One ends by itself, and one by plain SQL.
		until = time.Now().Add(30 * time.Second)
		_, err = a.App.Pause(ctx, "order_close", client.Pause{Until: until})
		require.NoError(t, err)
		w.Wait(2 * time.Second)
		submit(t, a, 43, 0)
		w.Wait(time.Minute)
		require.Len(t, r.of(43), 1)
		require.WithinRange(t, r.of(43)[0].at, until, until.Add(2*time.Second))
		got, err = a.App.Pause(ctx, "order_close", client.Pause{})
		require.NoError(t, err)
		require.Equal(t, "embedder", got.Paused.By)
		w.Wait(2 * time.Second)
		submit(t, a, 44, 0)
		w.Wait(time.Minute)
		require.Empty(t, r.of(44))
		eachDatabase(t, w, func(d migrations.Database) {
			_, err := d.DB.Exec("UPDATE toc_control SET paused=0")
			require.NoError(t, err)
		})
		w.Wait(15 * time.Second)
		require.Len(t, r.of(44), 1)
	})
}

func TestPauseIsRefused(t *testing.T) {
	in(t, configs.ModeScan, single(func(*configs.Config) {}), func(t *testing.T, w *virtual.World, _ *runs) {
		n := w.Start("a")
		for _, pause := range []func(context.Context, string, client.Pause) (client.BizType, error){n.App.Pause, api(w, n).Pause} {
			_, err := pause(t.Context(), "nobody", client.Pause{})
			require.ErrorIs(t, err, task.ErrNotFound)
			for field, p := range map[string]client.Pause{"until": {Until: time.Now().Add(-time.Second)}, "reason": {Reason: string(make([]byte, 256))}} {
				_, err = pause(t.Context(), "order_close", p)
				var refused *task.FieldError
				require.ErrorAs(t, err, &refused)
				require.Equal(t, field, refused.Field)
			}
		}
		require.Nil(t, typeNow(n).Paused)
	})
}

// die stores n tasks that are dead, with the biz_ids from 0.
func die(t *testing.T, w *virtual.World, r *runs, n *virtual.Node, many int) []client.Task {
	t.Helper()
	r.do(func(context.Context, string, task.Task) error { return errors.New("the shop is down") })
	list := make([]client.Task, many)
	for i := range list {
		list[i] = submit(t, n, uint64(i), 0)
	}
	w.Wait(20 * time.Second)
	require.Equal(t, many, count(t, w, task.Dead))
	r.do(nil)
	return list
}

func noRetries(c *configs.Config) { c.BizTypes[0].MaxRetries = 0 }

func operation(t *testing.T, n *virtual.Node, id client.ID) client.Operation {
	t.Helper()
	o, err := n.App.Tasks().Operation(t.Context(), uint64(id))
	require.NoError(t, err)
	return o
}

// An operation outlives the node that runs it, and each task runs once.
func TestAnOperationOutlivesItsNode(t *testing.T) {
	in(t, configs.ModeScan, nodes(noRetries), func(t *testing.T, w *virtual.World, r *runs) {
		a, b := w.Start("a"), w.Start("b")
		w.Wait(10 * time.Second)
		const many = 300
		die(t, w, r, a, many)
		got, err := api(w, a).RedriveDead(t.Context(), client.RedriveDead{BizType: "order_close", Rate: 10})
		require.NoError(t, err)
		require.Equal(t, []int{many, 0}, []int{got.Matched, got.Redriven})
		w.Wait(10 * time.Second)
		cluster, err := api(w, a).Cluster(t.Context())
		require.NoError(t, err)
		runs, other := a, b // it runs where partition 0 is
		if slices.ContainsFunc(cluster.Nodes, func(n client.Node) bool { return n.Name == b.Name && slices.Contains(n.Partitions, 0) }) {
			runs, other = b, a
		}
		require.Equal(t, "running", operation(t, other, got.Operation).State)
		runs.Crash()
		w.Wait(2 * time.Minute)
		o := operation(t, other, got.Operation)
		require.Equal(t, "done", o.State)
		require.Equal(t, []int{many, many, 0}, []int{o.Matched, o.Done, o.Skipped})
		for id, n := range r.counts(t) {
			require.Equal(t, 2, n, id)
		}
	})
}

// A stop leaves what was done, and the counts say how much that is. The audit has the start and the stop.
func TestStopOfAnOperation(t *testing.T) {
	in(t, configs.ModeScan, single(noRetries), func(t *testing.T, w *virtual.World, r *runs) {
		n, ctx := w.Start("a"), t.Context()
		api := n.App.Tasks()
		die(t, w, r, n, 100)
		got, err := api.DiscardDead(ctx, client.DiscardDead{Rate: 10})
		require.NoError(t, err)
		w.Wait(5500 * time.Millisecond)
		stopped, err := api.StopOperation(ctx, uint64(got.Operation))
		require.NoError(t, err)
		require.Equal(t, "stopped", stopped.State)
		require.GreaterOrEqual(t, stopped.Done, 20)
		require.LessOrEqual(t, stopped.Done, 60, "no more than the rate")
		w.Wait(time.Minute)
		list, err := api.Operations(ctx, 0)
		require.NoError(t, err)
		require.Equal(t, []client.Operation{stopped}, list)
		require.Equal(t, 100-stopped.Done, count(t, w, task.Dead))

		page, err := api.Audit(ctx, client.Audit{})
		require.NoError(t, err)
		require.Len(t, page.Entries, 2)
		require.Equal(t, []any{"stop", got.Operation.String(), stopped.Done}, []any{page.Entries[0].Action, page.Entries[0].Target, page.Entries[0].Count})
		require.Equal(t, "discard", page.Entries[1].Action)
		require.Contains(t, page.Entries[1].Detail, got.Operation.String())

		_, err = api.Operation(ctx, 1)
		require.ErrorIs(t, err, task.ErrNotFound)
		_, err = api.DiscardDead(ctx, client.DiscardDead{Rate: -1})
		var field *task.FieldError
		require.ErrorAs(t, err, &field)
		require.Equal(t, "rate", field.Field)
	})
}

// What an operation has redriven and what has not started since is dead again, as it was. What has run stays.
func TestUndoOfAnOperation(t *testing.T) {
	world(t, single(noRetries), func(t *testing.T, w *virtual.World, r *runs) {
		n, ctx := w.Start("a"), t.Context()
		api := n.App.Tasks()
		list := die(t, w, r, n, 40)
		undo := func(of client.ID) client.Operation {
			o, err := api.UndoOperation(ctx, uint64(of))
			require.NoError(t, err)
			require.Equal(t, of, o.Undoes)
			w.Wait(15 * time.Second)
			o = operation(t, n, o.ID)
			require.Equal(t, "done", o.State)
			return o
		}
		_, err := n.App.Pause(ctx, "order_close", client.Pause{})
		require.NoError(t, err)
		some, err := api.RedriveDead(ctx, client.RedriveDead{Rate: 2})
		require.NoError(t, err)
		w.Wait(5 * time.Second)
		u := undo(some.Operation)
		stopped := operation(t, n, some.Operation)
		require.Equal(t, "stopped", stopped.State)
		require.NotZero(t, stopped.Done)
		require.Equal(t, []int{stopped.Done, stopped.Done, 0}, []int{u.Matched, u.Done, u.Skipped})
		for _, one := range list {
			got := get(t, n, one)
			require.Equal(t, []any{"dead", 1, "the shop is down"}, []any{got.Status, got.Attempts, got.LastError})
		}
		_, err = n.App.Resume(ctx, "order_close")
		require.NoError(t, err)
		again := undo(some.Operation)
		require.Zero(t, again.Done)
		_, err = api.UndoOperation(ctx, uint64(again.ID))
		var field *task.FieldError
		require.ErrorAs(t, err, &field)
		w.Wait(15 * time.Second)
		require.Len(t, r.all(), 40, "none has run again")

		all, err := api.RedriveDead(ctx, client.RedriveDead{Rate: 1000})
		require.NoError(t, err)
		w.Wait(15 * time.Second)
		require.Equal(t, 40, operation(t, n, all.Operation).Done)
		require.Len(t, r.all(), 80)
		u = undo(all.Operation)
		require.Equal(t, []int{40, 0, 40}, []int{u.Matched, u.Done, u.Skipped})
		require.Equal(t, 40, count(t, w, task.Processed))
		audit, err := api.Audit(ctx, client.Audit{Action: "undo"})
		require.NoError(t, err)
		require.Len(t, audit.Entries, 3)
	})
}

// The limits hold for three nodes together, and while one of them leaves.
func TestLimitsInACluster(t *testing.T) {
	world(t, nodes(func(c *configs.Config) {
		withMail(c)
		c.BizTypes[0].RateLimit, c.BizTypes[1].MaxRunning = 100, 5
	}), func(t *testing.T, w *virtual.World, r *runs) {
		w.Start("a")
		w.Start("b")
		c := w.Start("c")
		for _, n := range w.Nodes() { // a node that may start none of those that are due asks again at once: answers take some time
			w.Delay(n.Name, "redis", time.Millisecond)
		}
		w.Wait(10 * time.Second)
		running, most, ended := 0, 0, 0
		r.do(func(ctx context.Context, _ string, one task.Task) error {
			if one.BizType == 2 {
				r.mu.Lock()
				running++
				most = max(most, running)
				r.mu.Unlock()
				time.Sleep(700 * time.Millisecond)
				r.mu.Lock()
				running--
				ended++
				r.mu.Unlock()
			}
			return nil
		})
		const many, few, atOnce = 600, 60, 3*10 + 10 // each node may have a tenth of a second's runs in store
		at := time.Now().Add(15 * time.Second)
		var list []client.Submit
		for i := range uint64(many) {
			list = append(list, client.Submit{BizType: "order_close", BizID: i, ActionTime: at})
		}
		for i := range uint64(few) {
			list = append(list, client.Submit{BizType: mail, BizID: many + i, ActionTime: at})
		}
		_, err := c.App.Tasks().SubmitBatch(t.Context(), list)
		require.NoError(t, err)
		w.Wait(17 * time.Second)
		require.NoError(t, c.Shutdown())
		w.Wait(15 * time.Second)
		r.requireOnce(t, many+few)
		require.Equal(t, []int{5, few}, []int{most, ended})
		starts := slices.DeleteFunc(r.all(), func(one run) bool { return one.bizID >= many })
		for i, one := range starts {
			require.LessOrEqual(t, i+1, int(one.late.Seconds()*100)+atOnce, "%s after their time", one.late)
		}
		require.Less(t, starts[many-1].late, 15*time.Second, "the rate is used")
	})
}

// Fresh tasks go before a backlog, of which little is in memory.
func TestCatchUp(t *testing.T) {
	const catchUp, backlog = 8, 200
	world(t, single(func(c *configs.Config) { c.BizTypes[0].CatchUp = catchUp }), func(t *testing.T, w *virtual.World, r *runs) {
		n := w.Start("a")
		_, err := n.App.Pause(t.Context(), "order_close", client.Pause{})
		require.NoError(t, err)
		for i := range uint64(backlog) {
			submit(t, n, i, 0)
		}
		w.Wait(30 * time.Second)
		began := time.Now()
		_, err = n.App.Resume(t.Context(), "order_close")
		require.NoError(t, err)
		for i := range uint64(50) {
			submit(t, n, backlog+i, 5*time.Second)
		}
		w.Wait(8 * time.Second)
		require.LessOrEqual(t, typeNow(n).QueueDepth, 2*catchUp, "two seconds of the backlog")
		late := len(r.all()) - 50
		require.InDelta(t, time.Since(began).Seconds()*catchUp, late, 2*catchUp)
		for i := range uint64(50) {
			require.Len(t, r.of(backlog+i), 1)
			require.Less(t, r.of(backlog + i)[0].late, time.Second)
		}
		w.Wait(30 * time.Second)
		r.requireOnce(t, backlog+50)
	})
}

// Of the overdue tasks of a biz_id the latest runs.
func TestCoalesce(t *testing.T) {
	world(t, single(func(c *configs.Config) { c.BizTypes[0].Coalesce = configs.CoalesceBizID }), func(t *testing.T, w *virtual.World, r *runs) {
		n := w.Start("a")
		_, err := n.App.Pause(t.Context(), "order_close", client.Pause{})
		require.NoError(t, err)
		var list []client.Task
		for i := range 6 {
			list = append(list, submit(t, n, uint64(i%2), time.Duration(i)*10*time.Millisecond))
		}
		w.Wait(10 * time.Second)
		_, err = n.App.Resume(t.Context(), "order_close")
		require.NoError(t, err)
		w.Wait(15 * time.Second)
		for _, one := range list[:4] {
			got := get(t, n, one)
			require.Equal(t, []string{"cancelled", "coalesced"}, []string{got.Status, got.LastError})
		}
		for _, one := range list[4:] {
			require.Equal(t, "processed", get(t, n, one).Status)
		}
		require.Len(t, r.all(), 2)
	})
}

// What is to come is in the forecast, in the list of all tasks and in toc_due, in process and over HTTP.
func TestWhatIsToCome(t *testing.T) {
	in(t, configs.ModeScan, single(func(*configs.Config) {}), func(t *testing.T, w *virtual.World, _ *runs) {
		n, ctx := w.Start("a"), t.Context()
		at := time.Now().Add(20 * time.Minute).UTC()
		ids := make(map[string]bool)
		for i := range uint64(12) {
			ids[submit(t, n, i, 20*time.Minute+time.Duration(i/11)*time.Hour).JobID.String()] = true
		}
		for _, ask := range []interface {
			Forecast(ctx context.Context, q client.AskForecast) (client.Forecast, error)
			ListAll(ctx context.Context, q client.ListAll) (client.Page, error)
		}{n.App.Tasks(), api(w, n)} {
			f, err := ask.Forecast(ctx, client.AskForecast{BizType: "order_close", Step: time.Minute, Span: time.Hour})
			require.NoError(t, err)
			require.False(t, f.Estimated)
			require.Equal(t, 60, f.StepSeconds)
			require.Len(t, f.Buckets, 1)
			require.Equal(t, at, f.Buckets[0].At.Time())
			require.Equal(t, 11, f.Buckets[0].Due)
			require.Len(t, f.Crowded, 1)
			require.Equal(t, []any{at, "order_close", 11}, []any{f.Crowded[0].Second.Time(), f.Crowded[0].BizType, f.Crowded[0].Due})
			f, err = ask.Forecast(ctx, client.AskForecast{})
			require.NoError(t, err)
			require.Len(t, f.Buckets, 2)
			listed := make(map[string]bool)
			for q := (client.ListAll{From: at, To: at.Add(2 * time.Hour), Limit: 5}); ; {
				p, err := ask.ListAll(ctx, q)
				require.NoError(t, err)
				for _, one := range p.Tasks {
					listed[one.JobID.String()] = true
				}
				if q.Cursor = p.NextCursor; q.Cursor == "" {
					break
				}
			}
			require.Equal(t, ids, listed)
		}
		w.Wait(2 * time.Minute)
		text := metrics(t, w, n)
		for within, want := range map[string]string{"1m": "0", "1h": "11", "1d": "12"} {
			require.Contains(t, text, `toc_due{biz_type="order_close",within="`+within+`"} `+want+"\n")
		}
	})
}

// A Reload that comes while a node is launched is seen by that node.
func TestAReloadDuringALaunch(t *testing.T) {
	var w *virtual.World
	reloads := func(c *virtual.Config) {
		c.Reloads = true
		options := c.Options
		c.Options = func(node string) []app.Option { // after the node has its configuration
			w.SwitchEngine("order_close", configs.ModeRedis)
			return options(node)
		}
	}
	in(t, configs.ModeScan, reloads, func(t *testing.T, made *virtual.World, _ *runs) {
		w = made
		n := w.Start("a")
		w.Wait(2 * time.Second)
		require.Equal(t, configs.ModeRedis, n.App.BizTypes()[0].Mode)
	})
}
