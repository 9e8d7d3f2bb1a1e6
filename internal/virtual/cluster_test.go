package virtual_test

import (
	"context"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/internal/virtual"
	"github.com/timeoutcenter/toc/internal/wait"
	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/task"
)

// Nodes share the tasks, and take over from one that crashed. Each task runs once.
func TestAClusterLosesANode(t *testing.T) {
	in(t, configs.ModeRedis, nodes(func(*configs.Config) {}), func(t *testing.T, w *virtual.World, r *runs) {
		a, b := w.Start("a"), w.Start("b")
		w.Wait(10 * time.Second)
		for i := range 40 {
			n := []*virtual.Node{a, b}[i%2]
			submit(t, n, uint64(i), time.Duration(1+i%4)*time.Minute)
		}
		w.Wait(90 * time.Second)
		require.Len(t, r.all(), 10)
		b.Crash()
		w.Wait(3 * time.Minute)
		nodes := make(map[string]int)
		for _, run := range r.all() {
			nodes[run.node]++
			require.LessOrEqual(t, run.late, 10*time.Second, "%v", run)
			require.GreaterOrEqual(t, run.late, time.Duration(0))
		}
		require.Len(t, r.all(), 40)
		require.NotZero(t, nodes["b"], fmt.Sprint(nodes))
		c := w.Start("b")
		require.NotSame(t, b, c)
		submit(t, c, 100, time.Minute)
		await.That(t, func() bool { return len(r.all()) == 41 }, "the task of the new node runs")
	})
}

// Tasks that run for long are claimed in Redis meanwhile. A node that fills its slots anew, because another one died, must not take
// them for lost heads and look for them again and again.
func TestALongRunIsNotLookedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := virtual.New(t, virtual.Config{
			Consul: true, Log: io.Discard,
			Options: func(string) []app.Option {
				return []app.Option{app.WithProcessor("note", processor.Func(func(ctx context.Context, _ task.Task) error {
					return wait.For(ctx, 50*time.Second)
				}))}
			},
			Configure: func(c *configs.Config) {
				first, second := bizType("first", configs.ModeRedis), bizType("order_close", configs.ModeRedis)
				second.ID, second.Timeout = 2, time.Minute
				c.BizTypes = []configs.BizType{first, second}
			},
		})
		a, b := w.Start("a"), w.Start("b")
		w.Wait(10 * time.Second)
		// Answers must take some time, or the loop would last for ever.
		w.Delay("a", "redis", 200*time.Microsecond)
		for i := range 40 {
			submit(t, a, uint64(i), time.Second)
		}
		w.Wait(2 * time.Second)
		b.Crash()
		before := w.Redis().Server().TotalCommands()
		w.Wait(40 * time.Second)
		require.Less(t, w.Redis().Server().TotalCommands()-before, 2000)
	})
}
