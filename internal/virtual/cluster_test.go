package virtual_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/internal/virtual"
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
