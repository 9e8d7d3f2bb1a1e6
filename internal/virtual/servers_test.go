package virtual_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/client"
	clusters "github.com/timeoutcenter/toc/cluster"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/virtual"
	"github.com/timeoutcenter/toc/migrations"
	"github.com/timeoutcenter/toc/task"
)

// A node starts before Consul and its databases: it says what it waits for, takes no requests, and works when they come. With one of its
// databases it works that one.
func TestANodeWaitsForItsServers(t *testing.T) {
	in(t, configs.ModeScan, nodes(func(c *configs.Config) { c.Store.Databases, c.Store.TablesPerDatabase = 2, 2 }), func(t *testing.T, w *virtual.World, r *runs) {
		w.StopConsul()
		w.HangDatabase(0)
		w.HangDatabase(1)
		n := w.Launch("a")
		w.Wait(time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, n.Ready(ctx), context.DeadlineExceeded)
		for _, server := range []string{"consul", "database 0", "database 1"} {
			require.Contains(t, troubles(t, w, n), "waiting for "+server+", since 2026-")
		}
		_, text := page(t, w, n, "/metrics")
		for _, line := range []string{`toc_degraded{database="",reason="waiting"} 1`, `toc_degraded{database="1",reason="waiting"} 1`,
			`toc_database_up{database="0"} 0`, `toc_database_up{database="1"} 0`, "toc_consul_up 0"} {
			require.Contains(t, text, line+"\n")
		}
		status, _ := page(t, w, n, "/healthz")
		require.Equal(t, http.StatusOK, status)
		for _, path := range []string{"/v1/tasks/1", "/v1/cluster", "/console/", "/elsewhere"} {
			status, text := page(t, w, n, path)
			require.Equal(t, http.StatusServiceUnavailable, status, path)
			require.Contains(t, text, "this node does not take requests yet: it waits for consul, database 0, database 1; see /readyz")
		}
		w.StartConsul()
		w.Wait(time.Minute)
		require.NotContains(t, troubles(t, w, n), "consul")
		w.MendDatabase(0)
		require.NoError(t, n.Ready(t.Context()))
		w.Wait(10 * time.Second)
		require.Contains(t, troubles(t, w, n), "database 1 is out of reach")
		submit(t, n, 0, time.Second)
		_, err := n.App.Tasks().Submit(t.Context(), client.Submit{BizType: "order_close", BizID: 1, Now: true})
		require.ErrorIs(t, err, task.ErrUnavailable)
		w.Wait(20 * time.Second)
		r.requireOnce(t, 1)
		w.MendDatabase(1)
		w.Wait(time.Minute)
		submit(t, n, 1, time.Second)
		w.Wait(20 * time.Second)
		r.requireOnce(t, 2)
		require.Empty(t, troubles(t, w, n))

		// A program that embeds a node learns why it does not start.
		w.HangDatabase(0)
		w.HangDatabase(1)
		b := w.Launch("b")
		w.Wait(30 * time.Second)
		var waited *clusters.WaitError
		err = b.Shutdown()
		require.ErrorAs(t, err, &waited)
		require.ErrorContains(t, err, "while waiting for database 0, since 2026-")
	})
}

// Tasks whose biz_type is not configured stay pending, and this is reported.
func TestTasksOfAnUnknownBizType(t *testing.T) {
	types := withMail
	in(t, configs.ModeScan, single(func(c *configs.Config) { types(c) }), func(t *testing.T, w *virtual.World, r *runs) {
		n := w.Start("a")
		for i := range uint64(3) {
			put(t, n, client.Submit{BizType: mail, BizID: i, Delay: time.Minute})
		}
		require.NoError(t, n.Shutdown())
		types = func(*configs.Config) {}
		n = w.Start("a")
		w.Wait(3 * time.Minute)
		require.Empty(t, r.all())
		require.Contains(t, troubles(t, w, n), "3 overdue tasks have biz_type 2, which is not configured: they stay pending")
		text := metrics(t, w, n)
		require.Contains(t, text, `toc_unknown_type_pending{biz_type="2"} 3`+"\n")
		require.Contains(t, text, `toc_degraded{database="",reason="unknown_type"} 1`+"\n")
	})
}

// A database that is down is shown at once and by everything: what is overdue there counts on, and what was not read was not scanned.
func TestWhatADatabaseThatIsDownHides(t *testing.T) {
	in(t, configs.ModeScan, single(func(c *configs.Config) { c.Store.Databases, c.Cluster.Partitions = 2, 2 }), func(t *testing.T, w *virtual.World, r *runs) {
		n := w.Start("a")
		w.Wait(20 * time.Second)
		scanned := func(database string) (line string) {
			for one := range strings.Lines(metrics(t, w, n)) {
				if strings.HasPrefix(one, `toc_last_scan_timestamp_seconds{database="`+database+`"}`) {
					return one
				}
			}
			require.Fail(t, "no such series")
			return ""
		}
		one := submit(t, n, 1, 20*time.Second)
		w.Wait(10 * time.Second)
		w.HangDatabase(1)
		w.Wait(30 * time.Second)
		zero, its := scanned("0"), scanned("1")
		w.Wait(20 * time.Second)
		require.NotEqual(t, zero, scanned("0"))
		require.Equal(t, its, scanned("1"))
		require.NotContains(t, metrics(t, w, n), `toc_oldest_overdue_seconds{biz_type="order_close"} 0`+"\n")
		got, err := n.App.Tasks().Why(t.Context(), uint64(one.JobID))
		require.NoError(t, err)
		require.Equal(t, "unknown", got.State)
		require.Contains(t, strings.Join(got.Because, "\n"), "database 1 is out of reach or hangs for ")
		w.MendDatabase(1)
		w.Wait(30 * time.Second)
		require.NotEqual(t, its, scanned("1"))
		require.Contains(t, metrics(t, w, n), `toc_oldest_overdue_seconds{biz_type="order_close"} 0`+"\n")
		require.Equal(t, "processed", get(t, n, one).Status)
	})
}

// Without Consul partitions stop or go on, as is configured; submits are accepted all the time.
func TestConsulIsAway(t *testing.T) {
	for _, onLoss := range []string{configs.ConsulLossStop, configs.ConsulLossKeep} {
		t.Run(onLoss, func(t *testing.T) {
			in(t, configs.ModeScan, nodes(func(c *configs.Config) { c.Cluster.OnConsulLoss = onLoss }), func(t *testing.T, w *virtual.World, r *runs) {
				a, b := w.Start("a"), w.Start("b")
				w.Wait(10 * time.Second)
				w.StopConsul()
				w.Wait(10 * time.Second)
				for i := range uint64(20) {
					submit(t, []*virtual.Node{a, b}[i%2], i, time.Second)
				}
				later := submit(t, a, 20, time.Hour)
				w.Wait(30 * time.Second)
				if onLoss == configs.ConsulLossStop {
					require.Empty(t, r.all(), "a partition was worked without its lock")
					require.ErrorIs(t, a.App.Tasks().Cancel(t.Context(), uint64(later.JobID)), task.ErrUnavailable)
				} else {
					r.requireOnce(t, 20)
				}
				w.StartConsul()
				w.Wait(time.Minute)
				require.Empty(t, troubles(t, w, a)+troubles(t, w, b))
				r.requireOnce(t, 20)
			})
		})
	}
}

// owned are the partitions of a node, as it says.
func owned(t *testing.T, w *virtual.World, n *virtual.Node) []int {
	t.Helper()
	c, err := api(w, n).Cluster(t.Context())
	require.NoError(t, err)
	i := slices.IndexFunc(c.Nodes, func(one client.Node) bool { return one.Name == n.Name })
	require.GreaterOrEqual(t, i, 0)
	return c.Nodes[i].Partitions
}

// Whichever node is asked, the owner of the task decides. One that cannot be reached is no reason to guess.
func TestTheOwnerDecides(t *testing.T) {
	in(t, configs.ModeScan, nodes(func(*configs.Config) {}), func(t *testing.T, w *virtual.World, r *runs) {
		ctx := t.Context()
		a, b := w.Start("a"), w.Start("b")
		w.Wait(10 * time.Second)
		for i := range uint64(8) { // due before the next tick
			submit(t, []*virtual.Node{a, b}[i%2], 50+i, time.Second)
		}
		w.Wait(2 * time.Second)
		require.Len(t, r.all(), 8)
		for _, one := range r.all() {
			require.Less(t, one.late, 100*time.Millisecond, "%v", one)
		}
		var cut []client.Task
		for i := range uint64(4) { // a task of each partition
			one := submit(t, a, i, time.Hour)
			attribute := "changed"
			row, err := api(w, b).Reschedule(ctx, uint64(one.JobID), client.Change{Delay: new(2 * time.Hour), Attribute: &attribute})
			require.NoError(t, err)
			require.Equal(t, attribute, row.Attribute)
			require.Equal(t, time.Now().Add(2*time.Hour).UTC(), row.ActionTime.Time())
			require.NoError(t, a.App.Tasks().Cancel(ctx, uint64(one.JobID)))
			var refused *client.Error
			require.ErrorAs(t, api(w, b).Cancel(ctx, uint64(one.JobID)), &refused)
			require.Equal(t, string(task.ConflictCancelled), refused.Outcome)
			cut = append(cut, submit(t, a, 10+i, time.Hour))
		}
		w.Cut("a", "b")
		w.Wait(time.Second)
		made := 0
		for _, one := range cut {
			asked, cancel := context.WithTimeout(ctx, 30*time.Second)
			err := a.App.Tasks().Cancel(asked, uint64(one.JobID))
			cancel()
			where, err2 := a.App.Tasks().Why(ctx, uint64(one.JobID))
			require.NoError(t, err2)
			require.Equal(t, "a", where.Node, "it says what it knows")
			if err == nil {
				made++
				require.Equal(t, "cancelled", get(t, a, one).Status)
				continue
			}
			require.ErrorIs(t, err, task.ErrUnavailable)
			require.Equal(t, "pending", get(t, a, one).Status)
			require.Regexp(t, `^partition \d+ is owned by node b, which has not answered`, where.Because[0])
			require.NoError(t, b.App.Tasks().Cancel(ctx, uint64(one.JobID)), "its owner decides")
		}
		require.Equal(t, len(owned(t, w, a)), made)
		w.Mend("a", "b")

		// A run is known by its owner alone. A node that leaves hands its partitions over, but for those whose tasks still run.
		end := make(chan struct{})
		r.do(func(context.Context, string, task.Task) error { <-end; return nil })
		w.Wait(10 * time.Second)
		one := submit(t, a, 100, 0)
		w.Wait(time.Second)
		require.Len(t, r.of(100), 1)
		for _, n := range []*virtual.Node{a, b} {
			var refused *client.Error
			require.ErrorAs(t, api(w, n).Cancel(ctx, uint64(one.JobID)), &refused)
			require.Equal(t, string(task.ConflictRunning), refused.Outcome)
			got, err := api(w, n).Why(ctx, uint64(one.JobID))
			require.NoError(t, err)
			require.Equal(t, []string{"running", r.of(100)[0].node}, []string{got.Where, got.Node})
		}
		leaves, stays := a, b
		if r.of(100)[0].node == "b" {
			leaves, stays = b, a
		}
		stopped := make(chan error, 1)
		go func() { stopped <- leaves.Shutdown() }()
		w.Wait(15 * time.Second)
		require.Len(t, owned(t, w, stays), 3)
		require.Empty(t, stopped)
		close(end)
		require.NoError(t, <-stopped)
		w.Wait(10 * time.Second)
		require.Len(t, owned(t, w, stays), 4)
		require.Len(t, r.of(100), 1)
		require.Equal(t, 9, count(t, w, task.Processed))
	})
}

// All that an operator does by plain SQL is honoured within a tick of the engine.
func TestSQLByHand(t *testing.T) {
	world(t, nil, func(t *testing.T, w *virtual.World, r *runs) {
		n := w.Start("a")
		exec := func(text string, args ...any) {
			t.Helper()
			eachDatabase(t, w, func(d migrations.Database) {
				res, err := d.DB.Exec(text, args...)
				require.NoError(t, err)
				changed, err := res.RowsAffected()
				require.NoError(t, err)
				require.EqualValues(t, 1, changed)
			})
		}
		at := func(in time.Duration) string { return time.Now().Add(in).UTC().Format("2006-01-02 15:04:05.000") }
		const table, insert = "timeout_task_0000", "INSERT INTO timeout_task_0000 (job_id, biz_id, biz_type, action_time, status, attempts) VALUES (?, ?, 1, ?, ?, ?)"
		id := func(bizID int64) int64 { return (time.Now().UnixMilli()-1735689600000-bizID)<<23 | 1023 }
		exec(insert, id(0), 0, at(-time.Hour), 0, 0)
		exec(insert, id(1), 1, at(15*time.Second), 0, 0)
		exec(insert, id(2), 2, at(-time.Hour), 4, 17)
		exec("UPDATE " + table + " SET status = 0 WHERE biz_id = 2 AND status = 4")
		submit(t, n, 3, time.Hour)
		exec("UPDATE "+table+" SET action_time = ? WHERE biz_id = 3", at(0))
		attribute := ""
		r.do(func(_ context.Context, _ string, one task.Task) error {
			if one.BizID == 4 {
				attribute = one.Attribute
			}
			return nil
		})
		for i, change := range []string{"attribute = 'by hand'", "status = 3", "action_time = '2027-01-01 00:00:00.000'"} {
			submit(t, n, uint64(4+i), 8*time.Second) // it is in memory, or in its slot
			exec("UPDATE " + table + " SET " + change + " WHERE biz_id = " + string(rune('4'+i)))
		}
		w.Wait(time.Minute)
		require.Len(t, r.counts(t), 5)
		r.requireOnce(t, 5)
		require.Equal(t, "by hand", attribute)
		require.Equal(t, 1, count(t, w, task.Cancelled))
		require.Equal(t, 1, count(t, w, task.Pending))
	})
}
