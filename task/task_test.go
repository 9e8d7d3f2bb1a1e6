package task_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/timeoutcenter/toc/task"
)

func TestStatusWordsRoundTrip(t *testing.T) {
	for _, s := range []task.Status{task.Pending, task.Processed, task.Cancelled, task.Dead} {
		back, err := task.ParseStatus(s.String())
		require.NoError(t, err)
		require.Equal(t, s, back)
	}
	_, err := task.ParseStatus("done")
	require.ErrorContains(t, err, "pending, processed, cancelled or dead")
	require.Equal(t, "status(1)", task.Status(1).String())
}

func TestMoves(t *testing.T) {
	all := []task.Status{task.Pending, task.Processed, task.Cancelled, task.Dead}
	allowed := map[[2]task.Status]bool{
		{task.Pending, task.Pending}:   true,
		{task.Pending, task.Processed}: true,
		{task.Pending, task.Cancelled}: true,
		{task.Pending, task.Dead}:      true,
		{task.Dead, task.Pending}:      true,
		{task.Dead, task.Cancelled}:    true,
	}
	for _, from := range all {
		for _, to := range all {
			require.Equal(t, allowed[[2]task.Status{from, to}], from.CanBecome(to), "%s to %s", from, to)
		}
	}
}

func TestCeilMilliNeverGoesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := time.Unix(0, rapid.Int64Range(0, 1<<62).Draw(t, "ns"))
		up := task.CeilMilli(at)
		require.False(t, up.Before(at))
		require.Less(t, up.Sub(at), time.Millisecond)
		require.Zero(t, up.Nanosecond()%int(time.Millisecond))
		require.Equal(t, time.UTC, up.Location())
	})
}

func TestTypes(t *testing.T) {
	set, err := task.NewTypes(task.BizType{ID: 7, Name: "order_close"}, task.BizType{ID: 9, Name: "coupon"})
	require.NoError(t, err)
	b, ok := set.ByName("coupon")
	require.True(t, ok)
	require.EqualValues(t, 9, b.ID)
	_, ok = set.ByID(8)
	require.False(t, ok)

	_, err = task.NewTypes(task.BizType{ID: 7, Name: "a"}, task.BizType{ID: 7, Name: "b"})
	require.ErrorContains(t, err, "id 7")
	_, err = task.NewTypes(task.BizType{ID: 7, Name: "a"}, task.BizType{ID: 8, Name: "a"})
	require.ErrorContains(t, err, `name "a"`)
}
