package virtual_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/virtual"
	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/task"
)

// run is one run of a task.
type run struct {
	node  string
	bizID uint64
	at    time.Time
	late  time.Duration
}

// runs are those of a test.
type runs struct {
	mu   sync.Mutex
	list []run
	errs map[uint64]error // by biz_id: what its runs return
}

func (r *runs) options(node string) []app.Option {
	return []app.Option{app.WithProcessor("note", processor.Func(func(_ context.Context, t task.Task) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.list = append(r.list, run{node, t.BizID, time.Now().UTC(), time.Since(t.ActionTime)})
		return r.errs[t.BizID]
	}))}
}

func (r *runs) all() []run {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]run(nil), r.list...)
}

func bizType(name, mode string) configs.BizType {
	b := configs.DefaultBizType()
	b.ID, b.Name, b.Mode, b.Processor = 1, name, mode, "note"
	return b
}

// world runs f in a bubble, for each engine.
func world(t *testing.T, change func(*virtual.Config), f func(t *testing.T, w *virtual.World, r *runs)) {
	for _, mode := range []string{configs.ModeScan, configs.ModeRedis} {
		t.Run(mode, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &runs{errs: map[uint64]error{}}
				cfg := virtual.Config{
					Options:   r.options,
					Configure: func(c *configs.Config) { c.BizTypes = []configs.BizType{bizType("order_close", mode)} },
				}
				if change != nil {
					change(&cfg)
				}
				f(t, virtual.New(t, cfg), r)
			})
		})
	}
}

func submit(t *testing.T, n *virtual.Node, bizID uint64, delay time.Duration) client.Task {
	t.Helper()
	got, err := n.App.Tasks().Submit(t.Context(), client.Submit{BizType: "order_close", BizID: bizID, Delay: delay})
	require.NoError(t, err)
	return got.Task
}

func TestATaskFiresInVirtualTime(t *testing.T) {
	world(t, nil, func(t *testing.T, w *virtual.World, r *runs) {
		require.Equal(t, virtual.Start, time.Now().UTC())
		n := w.Start("a")
		require.Zero(t, time.Since(virtual.Start), "a start takes no time")
		got := submit(t, n, 42, 30*time.Minute)
		w.Wait(30*time.Minute - time.Millisecond)
		require.Empty(t, r.all())
		w.Wait(time.Second)
		require.Equal(t, []run{{"a", 42, virtual.Start.Add(30 * time.Minute), 0}}, r.all())
		after, err := n.App.Tasks().Get(t.Context(), uint64(got.JobID))
		require.NoError(t, err)
		require.Equal(t, "processed", after.Status)
	})
}
