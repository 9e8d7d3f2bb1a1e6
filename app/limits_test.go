package app_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/limits"
	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/task"
)

// The limits hold for three nodes together, and while one of them leaves.
func TestLimitsInACluster(t *testing.T) {
	t.Parallel()
	consul := testrig.Consul(t)
	r := testrig.Redis(t)
	cfg := inCluster(t, consul.Addr(), consul.Prefix())
	cfg.Redis.Addrs = []string{r.Addr()}
	rated, few := cfg.BizTypes[0], cfg.BizTypes[0]
	rated.RateLimit, rated.Mode, rated.Topic = 100, configs.ModeRedis, r.Prefix()+"rated"
	few.ID, few.Name, few.Topic, few.Processor, few.MaxRunning = 2, "few", r.Prefix()+"few", "few", 5
	cfg.BizTypes = []configs.BizType{rated, few}
	fired := newLedger()
	var running, most, ended atomic.Int64
	slow := processor.Func(func(context.Context, task.Task) error {
		defer ended.Add(1)
		defer running.Add(-1)
		for n := running.Add(1); ; {
			m := most.Load()
			if n <= m || most.CompareAndSwap(m, n) {
				break
			}
		}
		time.Sleep(50 * time.Millisecond)
		return nil
	})
	nodes := runNodes(t, cfg, 3, app.WithProcessor("ledger", fired), app.WithProcessor("few", slow))
	var list []client.Submit
	at := time.Now().Add(time.Second)
	for i := range uint64(1000) {
		list = append(list, client.Submit{BizType: rated.Name, BizID: i, ActionTime: at})
	}
	for i := range uint64(300) {
		list = append(list, client.Submit{BizType: few.Name, BizID: i, ActionTime: at})
	}
	for part := range slices.Chunk(list, 500) {
		stored, err := nodes[0].Tasks().SubmitBatch(t.Context(), part)
		require.NoError(t, err)
		for _, s := range stored {
			require.Nil(t, s.Err)
		}
	}
	time.Sleep(time.Until(at) + 2*time.Second)
	require.Positive(t, nodes[0].App.BizTypes()[0].RateLimit)
	require.NoError(t, nodes[2].stop())
	fired.await(t, 1000, 90*time.Second)
	require.Eventually(t, func() bool { return ended.Load() == 300 }, 60*time.Second, 20*time.Millisecond)
	require.EqualValues(t, 5, most.Load())

	starts := fired.all()
	for i := range starts { // in any two seconds; each node may have a tenth of a second's runs in store
		end := i
		for end < len(starts) && starts[end].Sub(starts[i]) < 2*time.Second {
			end++
		}
		require.LessOrEqual(t, end-i, 200+3*10+10, "from %v on", starts[i])
	}
}

// all are the starts of all tasks, the first one first.
func (l *ledger) all() (starts []time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, runs := range l.fired {
		starts = append(starts, runs...)
	}
	slices.SortFunc(starts, time.Time.Compare)
	return starts
}

// Fresh tasks go before a backlog, of which little is in memory.
func TestCatchUp(t *testing.T) {
	onEngines(t, func(t *testing.T, cfg configs.Config) {
		cfg.BizTypes[0].CatchUp = 40
		fired := newLedger()
		c := run(t, cfg, app.WithProcessor("ledger", fired))
		_, err := c.Pause(t.Context(), "order_close", client.Pause{})
		require.NoError(t, err)
		var list []client.Submit
		for i := range uint64(400) {
			list = append(list, client.Submit{BizType: "order_close", BizID: i, ActionTime: time.Now().Add(-4 * time.Second)})
		}
		stored, err := c.Tasks().SubmitBatch(t.Context(), list)
		require.NoError(t, err)
		for _, s := range stored {
			require.Nil(t, s.Err)
		}
		time.Sleep(limits.LateAfter - 3*time.Second)
		_, err = c.Resume(t.Context(), "order_close")
		require.NoError(t, err)
		fired.await(t, 40, 20*time.Second)
		fresh := map[uint64]time.Time{}
		at := time.Now().Add(500 * time.Millisecond).Truncate(time.Millisecond)
		list = nil
		for i := range uint64(100) {
			list = append(list, client.Submit{BizType: "order_close", BizID: i, ActionTime: at})
		}
		stored, err = c.Tasks().SubmitBatch(t.Context(), list)
		require.NoError(t, err)
		for _, s := range stored {
			require.Nil(t, s.Err)
			fresh[uint64(s.JobID)] = at
		}
		require.LessOrEqual(t, bizTypeNow(t, c, "order_close").QueueDepth, 80+len(fresh), "two seconds of the backlog")
		fired.awaitAll(t, fresh, 20*time.Second)
		require.Less(t, fired.count(), 450, "the backlog is not through yet")
		fired.await(t, 500, 60*time.Second)
		starts := fired.all()
		require.Greater(t, starts[499].Sub(starts[0]), 8*time.Second, "400 late ones at 40 a second")
	})
}

// Of the overdue tasks of a biz_id the latest runs.
func TestCoalesce(t *testing.T) {
	onEngines(t, func(t *testing.T, cfg configs.Config) {
		cfg.BizTypes[0].Coalesce = configs.CoalesceBizID
		fired := newLedger()
		c := run(t, cfg, app.WithProcessor("ledger", fired))
		_, err := c.Pause(t.Context(), "order_close", client.Pause{})
		require.NoError(t, err)
		var ids []uint64
		for i := range 6 {
			got, err := c.Tasks().Submit(t.Context(), client.Submit{BizType: "order_close", BizID: uint64(i % 2), ActionTime: time.Now().Add(time.Duration(i-8) * time.Second / 2)})
			require.NoError(t, err)
			ids = append(ids, uint64(got.Task.JobID))
		}
		time.Sleep(1500 * time.Millisecond) // all of them are overdue by a second
		_, err = c.Resume(t.Context(), "order_close")
		require.NoError(t, err)
		for _, id := range ids[:4] {
			require.Eventually(t, func() bool {
				got, err := c.Tasks().Get(t.Context(), id)
				return err == nil && got.Status == "cancelled" && got.LastError == "coalesced"
			}, 20*time.Second, 20*time.Millisecond)
		}
		fired.await(t, 2, 20*time.Second)
		require.Len(t, fired.runs(ids[4]), 1)
		require.Len(t, fired.runs(ids[5]), 1)
	})
}
