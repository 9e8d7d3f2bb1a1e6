package task_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/timeoutcenter/toc/task"
)

// A row has its lease as long as nobody sets another time.
func TestLeaseNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		end := time.UnixMilli(rapid.Int64Range(0, 4e12).Draw(t, "end")).UTC()
		lease := task.NewLease(end)
		require.Less(t, lease, uint64(1)<<63)
		row := task.Task{Lease: lease, ActionTime: end}
		require.True(t, row.HasLease())
		require.True(t, row.IsLeased(end.Add(-1)))
		require.False(t, row.IsLeased(end))

		other := end.Add(time.Duration(rapid.Int64Range(1, 1<<24-1).Draw(t, "moved")) * time.Millisecond)
		row.ActionTime = other
		require.False(t, row.HasLease())
		row.Lease = task.LeaseUntil(lease, other)
		require.True(t, row.HasLease())
		require.True(t, task.IsSameLease(lease, row.Lease))
		require.False(t, task.IsSameLease(lease, task.NewLease(end)))
	})
	require.False(t, (&task.Task{}).HasLease())
}
