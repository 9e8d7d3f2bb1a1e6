package app_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/limits"
	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/task"
)

// The limits hold for three nodes together, and while one of them leaves.
func TestLimitsInACluster(t *testing.T) {
	t.Parallel()
	consul := testrig.Consul(t)
	r := testrig.Redis(t)
	cfg := inPatientCluster(t, consul.Addr(), consul.Prefix())
	cfg.Redis.Addrs = []string{r.Addr()}
	rated, few := cfg.BizTypes[0], cfg.BizTypes[0]
	rated.RateLimit, rated.Mode, rated.Topic = 100, configs.ModeRedis, r.Prefix()+"rated"
	few.ID, few.Name, few.Topic, few.Processor, few.MaxRunning = 2, "few", r.Prefix()+"few", "few", 5
	cfg.BizTypes = []configs.BizType{rated, few}
	fired := newLedger()
	var running, most, ended atomic.Int64
	five, gates := make(chan struct{}), make(chan chan struct{}, 1) // a run waits for the gate of its time
	reached := sync.OnceFunc(func() { close(five) })
	first, second, none := make(chan struct{}), make(chan struct{}), make(chan struct{})
	close(none)
	gates <- first
	next := func(gate chan struct{}) {
		if gate := <-gates; gate != none {
			close(gate)
		}
		gates <- gate
	}
	defer func() {
		if t.Failed() {
			next(none)
		}
	}()
	slow := processor.Func(func(context.Context, task.Task) error {
		defer ended.Add(1)
		defer running.Add(-1)
		n := running.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		if n == 5 {
			reached()
		}
		gate := <-gates
		gates <- gate
		<-gate
		return nil
	})
	nodes := runNodes(t, cfg, 3, app.WithProcessor("ledger", fired), app.WithProcessor("few", slow))
	const many, ofFew, atOnce = 500, 60, 3*10 + 10 // each node may have a tenth of a second's runs in store
	var list []client.Submit
	at := time.Now().Add(time.Second).Truncate(time.Millisecond)
	for i := range uint64(many) {
		list = append(list, client.Submit{BizType: rated.Name, BizID: i, ActionTime: at})
	}
	for i := range uint64(ofFew) {
		list = append(list, client.Submit{BizType: few.Name, BizID: i, ActionTime: at})
	}
	stored, err := nodes[0].Tasks().SubmitBatch(t.Context(), list)
	require.NoError(t, err)
	for _, s := range stored {
		require.Nil(t, s.Err)
	}
	await.Receive(t, five, "five run")
	fired.await(t, many/5) // a sixth could start
	require.Positive(t, nodes[0].App.BizTypes()[0].RateLimit)
	next(second)
	stopped := make(chan error, 1)
	go func() { stopped <- nodes[2].stop() }()
	fired.await(t, fired.count()+many/5)
	next(none)
	require.NoError(t, await.Receive(t, stopped, "a node leaves"))
	fired.await(t, many)
	await.That(t, func() bool { return ended.Load() == ofFew }, "all of the other type have run")
	require.EqualValues(t, 5, most.Load())

	// When a run starts the processor sees it late on a busy machine, but never before the limit allows it.
	for i, start := range fired.all() {
		require.LessOrEqual(t, i+1, int(start.Sub(at).Seconds()*100)+atOnce, "%s after their time", start.Sub(at))
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
		const catchUp, backlog = 8, 600
		cfg.BizTypes[0].CatchUp = catchUp
		fired := newLedger()
		c := run(t, cfg, app.WithProcessor("ledger", fired))
		_, err := c.Pause(t.Context(), "order_close", client.Pause{})
		require.NoError(t, err)
		var list []client.Submit
		due := time.Now().Add(-limits.LateAfter)
		for i := range uint64(backlog) {
			list = append(list, client.Submit{BizType: "order_close", BizID: i, ActionTime: due, Past: client.Fire})
		}
		stored, err := c.Tasks().SubmitBatch(t.Context(), list)
		require.NoError(t, err)
		for _, s := range stored {
			require.Nil(t, s.Err)
		}
		began := time.Now()
		_, err = c.Resume(t.Context(), "order_close")
		require.NoError(t, err)
		fired.await(t, catchUp)
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
		require.LessOrEqual(t, bizTypeNow(t, c, "order_close").QueueDepth, 2*catchUp+len(fresh), "two seconds of the backlog")
		fired.awaitAll(t, fresh)
		late := fired.count() - len(fresh)
		require.LessOrEqual(t, late, int(time.Since(began).Seconds()*catchUp)+2*catchUp)
		require.Less(t, late, backlog, "the backlog is not through yet")
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
		start := time.Now().Add(-1500 * time.Millisecond) // they are overdue by more than a second
		for i := range 6 {
			at := start.Add(time.Duration(i) * 10 * time.Millisecond)
			got, err := c.Tasks().Submit(t.Context(), client.Submit{BizType: "order_close", BizID: uint64(i % 2), ActionTime: at})
			require.NoError(t, err)
			ids = append(ids, uint64(got.Task.JobID))
		}
		_, err = c.Resume(t.Context(), "order_close")
		require.NoError(t, err)
		for _, id := range ids[:4] {
			await.That(t, func() bool {
				got, err := c.Tasks().Get(t.Context(), id)
				return err == nil && got.Status == "cancelled" && got.LastError == "coalesced"
			}, "task %d gives way to a later one", id)
		}
		fired.await(t, 2)
		require.Len(t, fired.runs(ids[4]), 1)
		require.Len(t, fired.runs(ids[5]), 1)
	})
}
