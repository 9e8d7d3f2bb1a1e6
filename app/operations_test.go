package app_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// die stores tasks of the type order_close that are dead.
func die(t *testing.T, cfg configs.Config, c *center, n int) (ids []uint64) {
	t.Helper()
	list := make([]client.Submit, n)
	for i := range list {
		list[i] = client.Submit{BizType: "order_close", BizID: rand.Uint64(), ActionTime: time.Now().Add(time.Hour)}
	}
	results, err := c.Tasks().SubmitBatch(t.Context(), list)
	require.NoError(t, err)
	cfg.Cluster.Partitions = cfg.Store.Databases // it matters to nobody here
	s, err := store.Open(app.StoreConfig(cfg))
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	moves := make(map[int][]store.Move)
	for _, r := range results {
		shard, ok := app.Layout(cfg).ShardOf(uint64(r.JobID))
		require.True(t, ok)
		d := app.Layout(cfg).Database(shard)
		moves[d] = append(moves[d], store.Move{JobID: uint64(r.JobID), To: task.Dead})
		ids = append(ids, uint64(r.JobID))
	}
	for d, of := range moves {
		_, err := s.Apply(t.Context(), d, s.Stamp(d), of)
		require.NoError(t, err)
	}
	died := time.Now()
	await.That(t, func() bool { return time.Since(died) > 2*time.Millisecond }, "they died before what comes")
	return ids
}

// An operation outlives the node that runs it, and each task runs once.
func TestAnOperationOutlivesItsNode(t *testing.T) {
	t.Parallel()
	consul := testrig.Consul(t)
	cfg := inPatientCluster(t, consul.Addr(), consul.Prefix()+"toc")
	fired := newLedger()
	nodes := runNodes(t, cfg, 2, app.WithProcessor("ledger", fired))
	ids := die(t, cfg, nodes[0], 300)

	got, err := askHTTP(nodes[0]).RedriveDead(t.Context(), client.RedriveDead{BizType: "order_close", Rate: 100})
	require.NoError(t, err)
	require.Equal(t, 300, got.Matched)
	require.Zero(t, got.Redriven)
	fired.await(t, 1, await.Patience)
	shares, err := askHTTP(nodes[0]).Cluster(t.Context())
	require.NoError(t, err)
	runs := slices.IndexFunc(nodes, func(c *center) bool {
		return slices.ContainsFunc(shares.Nodes, func(n client.Node) bool { return n.Name == c.Node() && slices.Contains(n.Partitions, 0) })
	})
	require.GreaterOrEqual(t, runs, 0)
	require.NoError(t, nodes[runs].stop())

	other := askHTTP(nodes[1-runs])
	await.That(t, func() bool {
		o, err := other.Operation(t.Context(), uint64(got.Operation))
		return err == nil && o.State == "done"
	}, "the operation is done")
	o, err := other.Operation(t.Context(), uint64(got.Operation))
	require.NoError(t, err)
	require.Equal(t, []int{300, 300, 0}, []int{o.Matched, o.Done, o.Skipped})
	fired.await(t, 300, await.Patience)
	for _, id := range ids {
		require.Len(t, fired.runs(id), 1)
	}
}

// A stop leaves what was done, and the counts say how much that is. The audit has the start and the stop.
func TestStopOfAnOperation(t *testing.T) {
	onSQLite(t, func(t *testing.T, cfg configs.Config) {
		fired := newLedger()
		c := run(t, cfg, app.WithProcessor("ledger", fired))
		dead := func() int {
			p, err := c.Tasks().ListDead(t.Context(), client.ListDead{Limit: 1000})
			require.NoError(t, err)
			return len(p.Tasks)
		}
		die(t, cfg, c, 300)
		require.Equal(t, 300, dead())
		got, err := c.Tasks().DiscardDead(t.Context(), client.DiscardDead{Rate: 10})
		require.NoError(t, err)
		await.That(t, func() bool { return dead() < 300 }, "some are discarded")
		stopped, err := c.Tasks().StopOperation(t.Context(), uint64(got.Operation))
		require.NoError(t, err)
		require.Equal(t, "stopped", stopped.State)
		ticksPass(t, c, "order_close", fired)
		list, err := c.Tasks().Operations(t.Context(), 0)
		require.NoError(t, err)
		require.Equal(t, []client.Operation{stopped}, list)
		require.Equal(t, 300-stopped.Done, dead())
		require.Less(t, stopped.Done, 300)

		page, err := c.Tasks().Audit(t.Context(), client.Audit{})
		require.NoError(t, err)
		require.Len(t, page.Entries, 2)
		require.Equal(t, "stop", page.Entries[0].Action)
		require.Equal(t, got.Operation.String(), page.Entries[0].Target)
		require.Equal(t, stopped.Done, page.Entries[0].Count)
		require.Equal(t, "discard", page.Entries[1].Action)
		require.True(t, strings.Contains(page.Entries[1].Detail, got.Operation.String()))

		_, err = c.Tasks().Operation(t.Context(), 1)
		require.ErrorIs(t, err, task.ErrNotFound)
		_, err = c.Tasks().DiscardDead(t.Context(), client.DiscardDead{Rate: -1})
		var field *task.FieldError
		require.ErrorAs(t, err, &field)
		require.Equal(t, "rate", field.Field)
	})
}

// What an operation has redriven and what has not started since is dead again, as it was. What has run stays.
func TestUndoOfAnOperation(t *testing.T) {
	onEngines(t, func(t *testing.T, cfg configs.Config) {
		cfg.BizTypes[0].MaxRetries = 0
		var healed atomic.Bool
		fired := newLedger()
		fired.answer = func(task.Task) error {
			if healed.Load() {
				return nil
			}
			return errors.New("the shop is down")
		}
		c := run(t, cfg, app.WithProcessor("ledger", fired))
		var ids []uint64
		for i := range uint64(40) {
			got, err := c.Tasks().Submit(t.Context(), client.Submit{BizType: "order_close", BizID: i, ActionTime: time.Now()})
			require.NoError(t, err)
			ids = append(ids, uint64(got.Task.JobID))
		}
		dead := func() (n int) {
			for _, id := range ids {
				got, err := c.Tasks().Get(t.Context(), id)
				require.NoError(t, err)
				if got.Status == "dead" {
					require.Equal(t, 1, got.Attempts)
					require.Equal(t, "the shop is down", got.LastError)
					n++
				}
			}
			return n
		}
		ended := func(id uint64) (o client.Operation) {
			await.That(t, func() bool {
				var err error
				o, err = c.Tasks().Operation(t.Context(), id)
				return err == nil && o.State == "done"
			}, "the operation is done")
			return o
		}
		await.That(t, func() bool { return dead() == 40 }, "all have died")
		died := time.Now()
		await.That(t, func() bool { return time.Since(died) > 2*time.Millisecond }, "they died before what comes")

		_, err := c.Pause(t.Context(), "order_close", client.Pause{})
		require.NoError(t, err)
		got, err := c.Tasks().RedriveDead(t.Context(), client.RedriveDead{Rate: 2})
		require.NoError(t, err)
		await.That(t, func() bool { return dead() < 40 }, "some are redriven")
		undo, err := c.Tasks().UndoOperation(t.Context(), uint64(got.Operation))
		require.NoError(t, err)
		require.Equal(t, got.Operation, undo.Undoes)
		stopped, err := c.Tasks().Operation(t.Context(), uint64(got.Operation))
		require.NoError(t, err)
		require.Equal(t, "stopped", stopped.State)
		undo = ended(uint64(undo.ID))
		require.Equal(t, []int{stopped.Done, stopped.Done, 0}, []int{undo.Matched, undo.Done, undo.Skipped})
		require.Equal(t, 40, dead())
		before := fired.count()
		_, err = c.Resume(t.Context(), "order_close")
		require.NoError(t, err)
		again, err := c.Tasks().UndoOperation(t.Context(), uint64(got.Operation))
		require.NoError(t, err)
		require.Zero(t, ended(uint64(again.ID)).Done)
		_, err = c.Tasks().UndoOperation(t.Context(), uint64(again.ID))
		var field *task.FieldError
		require.ErrorAs(t, err, &field)

		healed.Store(true)
		ticksPass(t, c, "order_close", fired)
		require.Equal(t, before+1, fired.count())
		got, err = c.Tasks().RedriveDead(t.Context(), client.RedriveDead{Rate: 1000})
		require.NoError(t, err)
		require.Equal(t, 40, ended(uint64(got.Operation)).Done)
		await.That(t, func() bool { return dead() == 0 && bizTypeNow(t, c, "order_close").Running == 0 }, "none is dead or runs")
		for _, id := range ids {
			await.That(t, func() bool { return len(fired.runs(id)) == 2 }, "task %d ran twice", id)
		}
		await.That(t, func() bool { return bizTypeNow(t, c, "order_close").Running == 0 }, "none runs")
		undo, err = c.Tasks().UndoOperation(t.Context(), uint64(got.Operation))
		require.NoError(t, err)
		undo = ended(uint64(undo.ID))
		require.Equal(t, []int{40, 0, 40}, []int{undo.Matched, undo.Done, undo.Skipped})
		require.Zero(t, dead())

		audit, err := c.Tasks().Audit(t.Context(), client.Audit{Action: "undo"})
		require.NoError(t, err)
		require.Len(t, audit.Entries, 3)
	})
}
