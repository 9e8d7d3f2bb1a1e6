package redistimer_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/queue/dispatch"
	"github.com/timeoutcenter/toc/redistimer"
	"github.com/timeoutcenter/toc/redistimer/slots"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// insert stores a task behind the back of the engine.
func (c *center) insert(bizID uint64, in time.Duration) task.Task {
	one := task.Task{JobID: c.store.NewID(bizID), BizID: bizID, BizType: c.biz.ID, ActionTime: time.Now().Add(in).UTC().Truncate(time.Millisecond)}
	got := c.store.Insert(context.Background(), []task.Task{one})[0]
	require.NoError(c.t, got.Err)
	return got.Task
}

func (c *center) isArmed(id uint64) bool { stored, _ := c.has(id); return stored }

func (c *center) rearmedFor(reason string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rearmed[reason]
}

// A partition is read once in a cycle while something is due there soon, and not otherwise.
func TestRowsThatAreDueSoonAreRead(t *testing.T) {
	inBubble(t, func(t *testing.T, c *center) {
		var reads atomic.Int64
		c.tick = 10 * time.Second
		c.reading = func(p int, q store.Due, real *store.Store) *store.DuePages {
			if p == 0 {
				reads.Add(1)
			}
			return real.DuePages(p, q)
		}
		n := c.start(allPartitions...)
		ticks := func(d time.Duration, next time.Time, none bool) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(10 * time.Second) { // in a bubble
				n.NextDue(0, next, none)
			}
		}
		c.allRead()
		ticks(10*time.Second, time.Now().Add(time.Hour), false)
		reads.Store(0)
		ticks(time.Minute, time.Now().Add(time.Hour), false)
		require.Zero(t, reads.Load())

		soon := c.insert(0, 11*time.Second)
		time.Sleep(1500 * time.Millisecond) // in a bubble
		n.NextDue(0, soon.ActionTime, false)
		c.eventually(func() bool { return c.isArmed(soon.JobID) }, "a row that is due soon is not armed")
		require.EqualValues(t, 1, reads.Load())
		time.Sleep(32 * time.Second) // in a bubble
		require.EqualValues(t, 5, reads.Load(), "one each 8 s")
		ticks(time.Minute, time.Time{}, true)
		require.EqualValues(t, 5, reads.Load())
		time.Sleep(time.Minute) // in a bubble
		require.InDelta(t, 12, reads.Load(), 1, "what the last tick saw holds for a tick")
	})
}

// Redis needs no task that is due later than the horizon.
func TestRedisHoldsTheHorizonOnly(t *testing.T) {
	inBubble(t, func(t *testing.T, c *center) {
		c.tick, c.biz.Horizon = 10*time.Second, 10*time.Second // the least is 24 s: a tick, a cycle and 6 s
		n := c.start(allPartitions...)
		c.allRead()
		var ids []uint64
		for i := range uint64(100) {
			if i%2 == 0 {
				ids = append(ids, c.insert(i, 40*time.Second).JobID)
			} else {
				ids = append(ids, n.submit(i, time.Duration(i)*time.Second).JobID)
			}
			time.Sleep(500 * time.Millisecond) // in a bubble
			last, err := c.redis.ZRangeWithScores(t.Context(), c.slots.StoreKey(c.slot(ids[i])), -1, -1).Result()
			require.NoError(t, err)
			for _, z := range last {
				require.LessOrEqual(t, time.Until(time.UnixMilli(int64(z.Score)/1000)), 24*time.Second)
			}
		}
		for _, id := range ids {
			c.eventually(func() bool { return c.row(id).Status == task.Processed }, "task %d is pending", id)
			require.Less(t, c.runsOf(id)[0].at.Sub(c.row(id).ActionTime), 100*time.Millisecond)
		}
		require.Zero(t, c.rearmedFor(redistimer.ReasonLost))
		require.NotZero(t, c.rearmedFor(redistimer.ReasonHorizon))
	})
}

// A task that was read some time ago does not change what its slot has got since.
func TestConfirm(t *testing.T) {
	inBubble(t, func(t *testing.T, c *center) {
		n := c.start(allPartitions...)
		c.allRead()
		one := n.submit(1, 20*time.Minute)
		key := c.slots.StoreKey(c.slot(one.JobID))
		armed := c.score(key, one.JobID)
		before := one
		before.ActionTime = one.ActionTime.Add(time.Minute)
		n.moved(dispatch.Confirmed, before)
		require.Equal(t, armed, c.score(key, one.JobID))
		require.NoError(t, c.redis.Del(t.Context(), key).Err())
		n.moved(dispatch.Confirmed, one)
		require.Equal(t, armed, c.score(key, one.JobID))
	})
}

// Slots and rows that agree show no differences, whatever goes on. A task that is taken out of its slot by hand, and one that
// was cancelled behind the back of its slot, are counted once.
func TestDifferences(t *testing.T) {
	inBubble(t, func(t *testing.T, c *center) {
		c.tick = 10 * time.Second
		n := c.start(allPartitions...)
		c.allRead()
		for i := range uint64(300) { // work that must not be mistaken for differences
			got := n.submit(100+i, 6*time.Second)
			switch i % 4 {
			case 0:
				require.NoError(t, n.desk.Cancel(t.Context(), got.JobID))
			case 1:
				when := 20 * time.Second
				_, err := n.desk.Reschedule(t.Context(), got.JobID, api.Change{Delay: &when})
				require.NoError(t, err)
			case 2:
				c.insert(500+i, 30*time.Second)
			}
			time.Sleep(100 * time.Millisecond) // in a bubble
			require.Zero(t, n.Differences(c.biz.ID))
		}
		require.Zero(t, c.rearmedFor(redistimer.ReasonLost))

		out, gone := n.submit(1, 20*time.Second), n.submit(2, 20*time.Second)
		_, err := c.store.Move(t.Context(), store.Move{JobID: gone.JobID, From: task.Pending, To: task.Cancelled})
		require.NoError(t, err)
		time.Sleep(10 * time.Second) // in a bubble: both have been read
		require.NoError(t, c.redis.ZRem(t.Context(), c.slots.StoreKey(c.slot(out.JobID)), fmt.Sprint(out.JobID)).Err())
		c.eventually(func() bool { return n.Differences(c.biz.ID) == redistimer.Differences{Missing: 1} }, "the missing one is not seen")
		c.settled(out.JobID, task.Processed)
		require.Less(t, c.runsOf(out.JobID)[0].at.Sub(out.ActionTime), 100*time.Millisecond)
		c.eventually(func() bool { return n.Differences(c.biz.ID) == redistimer.Differences{Ghost: 1} }, "the ghost is not seen")
		c.eventually(func() bool { return n.Differences(c.biz.ID) == redistimer.Differences{} }, "they are counted for ever")
		require.Empty(t, c.runsOf(gone.JobID))
	})
}

// SQL moves a task that is in its slot: to an earlier time, to a later one, and far away. It runs at its new time.
func TestTasksThatSQLMoves(t *testing.T) {
	inBubble(t, func(t *testing.T, c *center) {
		c.tick = 10 * time.Second
		n := c.start(allPartitions...)
		c.allRead()
		by := []time.Duration{-30 * time.Second, -20 * time.Second, -10 * time.Second, time.Second, 10 * time.Second, 10 * time.Minute}
		var ids []uint64
		moved := time.Now()
		for i := range uint64(60) {
			one := n.submit(i, 50*time.Second)
			at := one.ActionTime.Add(by[i%6])
			_, err := c.store.Move(t.Context(), store.Move{JobID: one.JobID, From: task.Pending, To: task.Pending, Set: store.Set{ActionTime: &at}})
			require.NoError(t, err)
			ids = append(ids, one.JobID)
		}
		time.Sleep(11*time.Minute - time.Since(moved)) // in a bubble
		for _, id := range ids {
			c.eventually(func() bool { return c.row(id).Status == task.Processed }, "task %d is pending", id)
			due := c.row(id).ActionTime
			require.WithinRange(t, c.runsOf(id)[0].at, due, due.Add(100*time.Millisecond))
		}
	})
}

// Of a backlog a read arms some, the others follow when the slot has nothing that is due. Fresh tasks are on time meanwhile.
func TestABacklogIsReadInParts(t *testing.T) {
	inBubble(t, func(t *testing.T, c *center) {
		c.tick, c.capacity = 10*time.Second, 40
		const backlog = 3000
		rows := make([]task.Task, backlog)
		for i := range rows {
			rows[i] = task.Task{JobID: c.store.NewID(0), BizType: c.biz.ID, ActionTime: time.Now().Add(-time.Minute).UTC().Truncate(time.Millisecond)}
		}
		for _, got := range c.store.Insert(t.Context(), rows) {
			require.NoError(t, got.Err)
		}
		g := newGate()
		c.process = g.process
		n := c.start(allPartitions...)
		c.allRead()
		c.eventually(func() bool { return g.inside.Load() > 0 }, "none runs")
		time.Sleep(25 * time.Second) // in a bubble; a second after a read of the partition, seven before its next turn
		require.EqualValues(t, 2000, c.depth().Store+c.depth().Prepared)
		fresh := n.submit(4, 20*time.Second)
		c.eventually(func() bool { return c.isArmed(fresh.JobID) }, "a fresh task is not armed")
		g.open()
		opened := time.Now()
		for _, row := range rows {
			c.settled(row.JobID, task.Processed)
			require.Len(t, c.runsOf(row.JobID), 1)
		}
		require.Less(t, time.Since(opened), 5*time.Second, "the parts follow each other at once")
		c.settled(fresh.JobID, task.Processed)
		require.Less(t, c.runsOf(fresh.JobID)[0].at.Sub(fresh.ActionTime), 100*time.Millisecond)
	})
}

// The rows of a paused type are not read. When it is resumed, a read finds what it must run.
func TestPausedTypesAreNotRead(t *testing.T) {
	inBubble(t, func(t *testing.T, c *center) {
		c.tick = 10 * time.Second
		n := c.start(allPartitions...)
		c.allRead()
		n.queue.SetPaused([]uint64{c.biz.ID})
		one := c.insert(1, 5*time.Second)
		time.Sleep(time.Minute) // in a bubble
		require.False(t, c.isArmed(one.JobID))
		n.queue.SetPaused(nil)
		n.Reread()
		resumed := time.Now()
		c.settled(one.JobID, task.Processed)
		require.Less(t, time.Since(resumed), time.Second)
	})
}

// A database that hangs delays no read of another one, and is read as soon as it is back.
func TestADatabaseThatHangs(t *testing.T) {
	inBubble(t, func(t *testing.T, c *center) {
		c.tick = 10 * time.Second
		broken, err := store.Open(store.Config{Driver: store.SQLite, Layout: layout, Dir: t.TempDir()})
		require.NoError(t, err)
		require.NoError(t, broken.Close())
		var hangs atomic.Bool
		var mu sync.Mutex
		tries := 0
		c.reading = func(p int, q store.Due, real *store.Store) *store.DuePages {
			if !hangs.Load() || layout.PartitionDatabase(p) == 0 {
				return real.DuePages(p, q)
			}
			mu.Lock()
			tries++
			mu.Unlock()
			time.Sleep(5 * time.Second) // in a bubble
			return broken.DuePages(p, q)
		}
		c.start(allPartitions...)
		c.allRead()
		hangs.Store(true)
		var there, away []task.Task
		for i := range uint64(16) {
			one := c.insert(i, 30*time.Second)
			if layout.PartitionDatabase(c.slot(one.JobID).Partition) == 0 {
				there = append(there, one)
			} else {
				away = append(away, one)
			}
		}
		for _, one := range there {
			c.eventually(func() bool { return c.row(one.JobID).Status == task.Processed }, "task %d is pending", one.JobID)
			require.Less(t, c.runsOf(one.JobID)[0].at.Sub(one.ActionTime), 100*time.Millisecond)
		}
		time.Sleep(time.Minute) // in a bubble
		mu.Lock()
		require.InDelta(t, 15, tries, 8, "it is not asked without a pause")
		mu.Unlock()
		hangs.Store(false)
		back := time.Now()
		for _, one := range away {
			c.settled(one.JobID, task.Processed)
		}
		require.Less(t, time.Since(back), 11*time.Second, "a read that hangs, and the pause after it")
	})
}

// A read at once that has failed is made again, even if the partition is read in turn meanwhile and nothing seemed to be due
// there. Before, that turn was taken for the read.
func TestATurnDoesNotReplaceAReadAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, c *center) {
		c.tick = 10 * time.Second
		broken, err := store.Open(store.Config{Driver: store.SQLite, Layout: layout, Dir: t.TempDir()})
		require.NoError(t, err)
		require.NoError(t, broken.Close())
		var fails atomic.Bool
		c.reading = func(p int, q store.Due, real *store.Store) *store.DuePages {
			if fails.Load() {
				return broken.DuePages(p, q)
			}
			return real.DuePages(p, q)
		}
		n := c.start(allPartitions...)
		c.allRead()
		for p := range allPartitions {
			n.NextDue(p, time.Time{}, true)
		}
		for i := range uint64(32) { // each quarter of a second of a cycle
			time.Sleep(20*time.Second + 250*time.Millisecond) // in a bubble
			one := c.insert(i, 0)
			fails.Store(true)
			n.Reread()
			time.Sleep(100 * time.Millisecond) // in a bubble
			fails.Store(false)
			c.settled(one.JobID, task.Processed)
			require.Less(t, c.runsOf(one.JobID)[0].at.Sub(one.ActionTime), 1500*time.Millisecond, "the pause after a failure is a second")
		}
	})
}

// A slot that cannot be armed delays no other slot of its partition. Before, the read ended with the page of its rows.
func TestASlotThatCannotBeArmed(t *testing.T) {
	inBubble(t, func(t *testing.T, c *center) {
		c.tick = 10 * time.Second
		n := c.start(allPartitions...)
		other := c.biz
		other.ID, other.Name, other.Topic = 8, "other", "other"
		n.SetTypes([]redistimer.BizType{c.biz, other})
		c.allRead()
		broken := c.slot(c.store.NewID(0))
		require.NoError(t, c.redis.Set(t.Context(), c.slots.DeadKey(broken), "not a sorted set", 0).Err())
		for range 1500 { // more than a page
			c.insert(0, 20*time.Second)
		}
		due := time.Now().Add(21 * time.Second).UTC().Truncate(time.Millisecond)
		behind := task.Task{JobID: c.store.NewID(0), BizType: other.ID, ActionTime: due}
		require.NoError(t, c.store.Insert(t.Context(), []task.Task{behind})[0].Err)
		key := c.slots.StoreKey(slots.Slot{Topic: other.Topic, Partition: broken.Partition})
		c.eventually(func() bool {
			return c.redis.ZScore(t.Context(), key, fmt.Sprint(behind.JobID)).Err() == nil
		}, "the other slot is not armed")
		require.True(t, time.Now().Before(behind.ActionTime))
	})
}

// A slot in which nothing was is left to the scan engine if Redis refuses its rows, and served again when Redis takes them.
func TestASlotThatRefusesItsRowsIsScanned(t *testing.T) {
	inBubble(t, func(t *testing.T, c *center) {
		c.tick, c.outage = 10*time.Second, 5*time.Second
		n := c.start(allPartitions...)
		c.allRead()
		broken := c.slot(c.store.NewID(0))
		require.NoError(t, c.redis.Set(t.Context(), c.slots.StoreKey(broken), "not a sorted set", 0).Err())
		c.insert(0, 2*time.Second)
		time.Sleep(20 * time.Second) // in a bubble
		require.False(t, n.Serves(c.biz.ID, broken.Partition))
		require.Contains(t, n.Degraded(), "WRONGTYPE")
		require.True(t, n.Serves(c.biz.ID, 1-broken.Partition), "another slot")

		require.NoError(t, c.redis.Del(t.Context(), c.slots.StoreKey(broken)).Err())
		late := c.insert(0, 12*time.Second)
		c.eventually(func() bool { return len(c.runsOf(late.JobID)) == 1 }, "the slot is not served again")
		require.True(t, n.Serves(c.biz.ID, broken.Partition))
		require.Empty(t, n.Degraded())
	})
}

// A row that comes into the store queue fires, although Redis has answered with an error because of the dead queue.
func TestASlotWithABrokenDeadQueueFires(t *testing.T) {
	inBubble(t, func(t *testing.T, c *center) {
		c.tick = 10 * time.Second
		c.start(allPartitions...)
		c.allRead()
		broken := c.slot(c.store.NewID(0))
		require.NoError(t, c.redis.Set(t.Context(), c.slots.DeadKey(broken), "not a sorted set", 0).Err())
		row := c.insert(0, 2*time.Second)
		time.Sleep(20 * time.Second) // in a bubble
		require.Len(t, c.runsOf(row.JobID), 1)
	})
}

// Where rows of other types must be skipped, the reads from the first row on take a tenth of the time of their database, however
// many partitions it has.
func TestReadsThatSkipManyRows(t *testing.T) {
	inBubble(t, func(t *testing.T, c *center) {
		c.tick = 10 * time.Second
		var took atomic.Int64
		c.reading = func(p int, q store.Due, real *store.Store) *store.DuePages {
			if q.From.ActionTime.IsZero() && layout.PartitionDatabase(p) == 0 {
				time.Sleep(700 * time.Millisecond) // in a bubble
				took.Add(int64(700 * time.Millisecond))
			}
			return real.DuePages(p, q)
		}
		c.start(allPartitions...)
		c.allRead()
		time.Sleep(time.Minute) // in a bubble
		took.Store(0)
		time.Sleep(10 * time.Minute) // in a bubble
		require.InDelta(t, time.Minute, took.Load(), float64(20*time.Second))
	})
}
