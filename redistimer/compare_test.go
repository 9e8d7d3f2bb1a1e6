package redistimer_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/redistimer"
	"github.com/timeoutcenter/toc/task"
)

// Slots and rows that agree show no differences, whatever goes on. A task that is taken out of its slot by hand, and one
// that is put there, are counted, and repaired.
func TestSlotsAreComparedWithRows(t *testing.T) {
	t.Parallel()
	c := open(t, sharedRedis)
	c.compareEvery = 200 * time.Millisecond
	n := c.start(allPartitions...)
	c.filled()
	var tasks []task.Task
	for i := range uint64(40) {
		tasks = append(tasks, n.submit(i, time.Hour-10*time.Minute))
	}
	for i := range uint64(200) { // work that must not be mistaken for differences
		got := n.submit(100+i, 6*time.Second)
		switch i % 3 {
		case 0:
			require.NoError(t, n.desk.CancelIf(t.Context(), got.JobID, nil))
		case 1:
			when := intake.In(time.Hour / 2)
			_, err := n.desk.Reschedule(t.Context(), got.JobID, intake.Change{When: &when})
			require.NoError(t, err)
		}
		time.Sleep(10 * time.Millisecond)
		require.Zero(t, n.Differences(c.biz.ID))
	}
	time.Sleep(5 * time.Second)
	require.Zero(t, n.Differences(c.biz.ID))

	lost := tasks[7]
	require.NoError(t, c.redis.ZRem(t.Context(), c.slots.StoreKey(c.slot(lost.JobID)), fmt.Sprint(lost.JobID)).Err())
	c.eventually(func() bool { return n.Differences(c.biz.ID) == redistimer.Differences{Missing: 1} }, "it is not missed")
	c.eventually(func() bool { stored, _ := c.has(lost.JobID); return stored }, "it is not put back")

	over := tasks[8]
	require.NoError(t, n.desk.CancelIf(t.Context(), over.JobID, nil))
	c.eventually(func() bool { stored, _ := c.has(over.JobID); return !stored }, "it is still in its slot")
	key := c.slots.StoreKey(c.slot(over.JobID))
	require.NoError(t, c.redis.ZAdd(t.Context(), key, redis.Z{Score: float64(over.ActionTime.UnixMilli() * 1000), Member: fmt.Sprint(over.JobID)}).Err())
	c.eventually(func() bool { return n.Differences(c.biz.ID).Ghost == 1 }, "the ghost is not seen")
	c.eventually(func() bool { stored, _ := c.has(over.JobID); return !stored }, "the ghost is still there")
}
