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

// A count of starts is no lease at any time, and no lease is a count.
func TestACountIsNoLease(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cuts := rapid.IntRange(1, 255).Draw(t, "cuts")
		end := time.UnixMilli(rapid.Int64Range(0, 4e12).Draw(t, "end")).UTC()
		row := task.Task{Lease: uint64(cuts), ActionTime: end}
		require.Equal(t, cuts, row.Cuts())
		require.False(t, row.HasLease())
		row.Lease = task.NewLease(end)
		require.Zero(t, row.Cuts())
		row.Lease = task.LeaseUntil(row.Lease, end.Add(time.Hour))
		require.Zero(t, row.Cuts())
		require.False(t, task.IsSameLease(row.Lease, uint64(cuts)))
	})
	at := time.UnixMilli(1) // the mark of this end is 1
	require.False(t, (&task.Task{Lease: 1, ActionTime: at}).HasLease())
	require.Zero(t, (&task.Task{}).Cuts())
}
