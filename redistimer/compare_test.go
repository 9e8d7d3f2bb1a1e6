package redistimer_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/redistimer"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// Slots and rows that agree show no differences, whatever goes on. A task that is taken out of its slot by hand, and one
// that is put there, are counted, and repaired.
func TestSlotsAreComparedWithRows(t *testing.T) {
	inBubble(t, func(t *testing.T, c *center) {
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
				require.NoError(t, n.desk.Cancel(t.Context(), got.JobID))
			case 1:
				when := time.Hour / 2
				_, err := n.desk.Reschedule(t.Context(), got.JobID, api.Change{Delay: &when})
				require.NoError(t, err)
			}
			time.Sleep(10 * time.Millisecond) // in a bubble
			require.Zero(t, n.Differences(c.biz.ID))
		}
		time.Sleep(5 * time.Second) // in a bubble
		require.Zero(t, n.Differences(c.biz.ID))

		c.repairs(n, tasks[20:])
	})
}

// repairs makes one difference of each kind by hand. Each is seen, mended, and then gone. None of the tasks is the first of
// its slot, whose loss is noticed at once.
func (c *center) repairs(n *node, tasks []task.Task) {
	for name, row := range map[string]struct {
		spoil func(one task.Task, key string)
		want  redistimer.Differences
		left  bool // it stays in its slot
	}{
		"taken out": {func(one task.Task, key string) {
			require.NoError(c.t, c.redis.ZRem(context.Background(), key, fmt.Sprint(one.JobID)).Err())
		}, redistimer.Differences{Missing: 1}, true},
		"moved to an earlier time by SQL": {func(one task.Task, _ string) { c.moveBySQL(one, -10*time.Minute) }, redistimer.Differences{Missing: 1}, true},
		"moved to a later time by SQL":    {func(one task.Task, _ string) { c.moveBySQL(one, 5*time.Minute) }, redistimer.Differences{Ghost: 1}, true},
		"moved beyond the horizon by SQL": {func(one task.Task, _ string) { c.moveBySQL(one, time.Hour) }, redistimer.Differences{Ghost: 1}, false},
		"cancelled by SQL": {func(one task.Task, _ string) {
			_, err := c.store.Move(context.Background(), store.Move{JobID: one.JobID, From: task.Pending, To: task.Cancelled})
			require.NoError(c.t, err)
		}, redistimer.Differences{Ghost: 1}, false},
		"of no task": {func(one task.Task, key string) {
			at := float64(one.ActionTime.UnixMilli() * 1000)
			require.NoError(c.t, c.redis.ZAdd(context.Background(), key, redis.Z{Score: at, Member: "1"}).Err())
		}, redistimer.Differences{Ghost: 1}, true},
	} {
		one := tasks[0]
		tasks = tasks[1:]
		row.spoil(one, c.slots.StoreKey(c.slot(one.JobID)))
		c.eventually(func() bool { return n.Differences(c.biz.ID) == row.want }, "%s: not seen", name)
		c.eventually(func() bool {
			score, due := c.score(c.slots.StoreKey(c.slot(one.JobID)), one.JobID), c.row(one.JobID).ActionTime
			return row.left && score/1000 == due.UnixMilli() || !row.left && score == 0
		}, "%s: not repaired", name)
		c.eventually(func() bool { return c.score(c.slots.StoreKey(c.slot(one.JobID)), 1) == 0 }, "%s: it stays in the slot", name)
		c.eventually(func() bool { return n.Differences(c.biz.ID) == redistimer.Differences{} }, "%s: still counted", name)
	}
}

func (c *center) moveBySQL(one task.Task, by time.Duration) {
	at := one.ActionTime.Add(by)
	_, err := c.store.Move(context.Background(), store.Move{JobID: one.JobID, From: task.Pending, To: task.Pending, Set: store.Set{ActionTime: &at}})
	require.NoError(c.t, err)
}

// The same beside a type whose horizon is so short that its slots cannot be compared.
func TestSlotsOfAShortHorizonAreNotCompared(t *testing.T) {
	inBubble(t, func(t *testing.T, c *center) {
		c.compareEvery, c.guarded, c.guardHorizon = 200*time.Millisecond, true, 5*time.Second
		n := c.start(allPartitions...)
		c.filled()
		var tasks []task.Task
		for i := range uint64(40) {
			tasks = append(tasks, n.submit(i, time.Hour-10*time.Minute))
		}
		c.repairs(n, tasks[20:])
		require.Zero(t, n.Differences(c.biz.ID-1))
	})
}

// On three masters, tasks that are taken out of their slots are put back.
func TestSlotsOfAClusterAreComparedWithRows(t *testing.T) {
	t.Parallel()
	cluster := testrig.StartRedisCluster(t)
	c := open(t, func(testing.TB) ([]string, string) { return cluster.Addrs(), "" })
	c.compareEvery = 200 * time.Millisecond
	n := c.start(allPartitions...)
	c.filled()
	var tasks []task.Task
	for i := range uint64(40) {
		tasks = append(tasks, n.submit(i, time.Hour-10*time.Minute))
	}
	for _, one := range tasks {
		c.eventually(func() bool { stored, _ := c.has(one.JobID); return stored }, "it is not armed")
	}
	only := c.slot(tasks[20].JobID)                                                                      // the slots of each partition are looked at twice, one partition after the other
	tasks = slices.DeleteFunc(tasks[20:], func(one task.Task) bool { return c.slot(one.JobID) != only }) // none is the first of its slot
	for _, one := range tasks {
		require.NoError(t, c.redis.ZRem(t.Context(), c.slots.StoreKey(c.slot(one.JobID)), fmt.Sprint(one.JobID)).Err())
	}
	for _, one := range tasks {
		c.eventually(func() bool { stored, _ := c.has(one.JobID); return stored }, "it is not put back")
	}
	c.eventually(func() bool { return n.Differences(c.biz.ID) == redistimer.Differences{} }, "differences are still counted")
}

// A task in a slot of another business type is a ghost there, and stays in its own.
func TestAGhostOfAnotherType(t *testing.T) {
	inBubble(t, func(t *testing.T, c *center) {
		c.compareEvery, c.guarded = 200*time.Millisecond, true
		n := c.start(allPartitions...)
		c.filled()
		one := n.submit(1, time.Hour/2)
		other := c.slot(one.JobID)
		other.Topic = "guard"
		require.NoError(t, c.redis.ZAdd(t.Context(), c.slots.StoreKey(other), redis.Z{Score: float64(one.ActionTime.UnixMilli() * 1000), Member: fmt.Sprint(one.JobID)}).Err())
		c.eventually(func() bool { return n.Differences(c.biz.ID-1) == redistimer.Differences{Ghost: 1} }, "not seen")
		c.eventually(func() bool { return c.score(c.slots.StoreKey(other), one.JobID) == 0 }, "not repaired")
		c.eventually(func() bool { return n.Differences(c.biz.ID-1) == redistimer.Differences{} }, "still counted")
		require.NotZero(t, c.score(c.slots.StoreKey(c.slot(one.JobID)), one.JobID))
	})
}
