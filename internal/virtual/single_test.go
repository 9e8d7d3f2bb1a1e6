package virtual_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/virtual"
)

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
