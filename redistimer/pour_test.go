package redistimer_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// insert stores a task behind the back of the engine.
func (c *center) insert(bizID uint64, in time.Duration) task.Task {
	one := task.Task{JobID: c.store.NewID(bizID), BizID: bizID, BizType: c.biz.ID, ActionTime: time.Now().Add(in).UTC().Truncate(time.Millisecond)}
	got := c.store.Insert(c.t.(*testing.T).Context(), []task.Task{one})[0]
	require.NoError(c.t, got.Err)
	return got.Task
}

// A partition is read once in a cycle while something is due there soon, and not otherwise. What was written at that moment is
// left to whoever wrote it, and what is beyond the horizon to the fill.
func TestRowsThatAreDueSoonAreRead(t *testing.T) {
	inBubble(t, func(t *testing.T, c *center) {
		var reads atomic.Int64
		var justNow atomic.Pointer[task.Task]
		c.tick = 10 * time.Second
		c.reading = func(p int, q store.Due, real *store.Store) *store.DuePages {
			if q.Narrow && p == 0 {
				if reads.Add(1); justNow.Load() == nil {
					justNow.Store(new(c.insert(0, 11*time.Second)))
				}
			}
			return real.DuePages(p, q)
		}
		n := c.start(allPartitions...)
		n.NextDue(0, time.Now().Add(time.Hour), false)
		time.Sleep(time.Minute) // in a bubble
		require.Zero(t, reads.Load())

		soon := c.insert(0, 11*time.Second)
		has := func(one task.Task) bool { stored, _ := c.has(one.JobID); return stored }
		time.Sleep(1500 * time.Millisecond) // in a bubble
		n.NextDue(0, soon.ActionTime, false)
		c.eventually(func() bool { return has(soon) }, "a row that is due soon is not armed")
		require.EqualValues(t, 1, reads.Load())
		require.False(t, has(*justNow.Load()))
		time.Sleep(9 * time.Second) // in a bubble
		require.True(t, has(*justNow.Load()))
		time.Sleep(24 * time.Second) // in a bubble
		require.EqualValues(t, 5, reads.Load(), "one each 8 s")
		n.NextDue(0, time.Time{}, true)
		time.Sleep(time.Minute) // in a bubble
		require.EqualValues(t, 5, reads.Load())
	})
}

func TestWhatIsBeyondTheHorizonIsNotArmed(t *testing.T) {
	inBubble(t, func(t *testing.T, c *center) {
		c.tick, c.biz.Horizon = 10*time.Second, 10*time.Second
		c.start(allPartitions...) // nothing says that nothing is due soon
		for i := range uint64(100) {
			one := c.insert(4*i, 30*time.Second)
			time.Sleep(500 * time.Millisecond) // in a bubble
			last, err := c.redis.ZRangeWithScores(t.Context(), c.slots.StoreKey(c.slot(one.JobID)), -1, -1).Result()
			require.NoError(t, err)
			for _, z := range last {
				require.LessOrEqual(t, time.Until(time.UnixMilli(int64(z.Score)/1000)), c.biz.Horizon)
			}
		}
	})
}

// A task that was read some time ago does not change what its slot has got since.
func TestConfirm(t *testing.T) {
	inBubble(t, func(t *testing.T, c *center) {
		n := c.start(allPartitions...)
		c.filled()
		one := n.submit(1, 20*time.Minute)
		key := c.slots.StoreKey(c.slot(one.JobID))
		armed := c.score(key, one.JobID)
		before := one
		before.ActionTime = one.ActionTime.Add(time.Minute)
		n.Confirm(before)
		require.Equal(t, armed, c.score(key, one.JobID))
		require.NoError(t, c.redis.Del(t.Context(), key).Err())
		n.Confirm(one)
		require.Equal(t, armed, c.score(key, one.JobID))
	})
}
