package scanner_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/scanner"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// A backlog that is much longer than the queue is worked off without another tick: reading resumes wherever a
// page did not fit.
func TestABacklogLongerThanTheQueueIsWorkedOffWithoutAnotherTick(t *testing.T) {
	for name, batch := range map[string]int{"small pages": 4, "big pages": 500} {
		t.Run(name, func(t *testing.T) {
			bubble(t, layout, 12, func(c *scanner.Config) { noTicks(c); c.Batch = batch }, func(t *testing.T, r *rig) {
				var ids []uint64
				for i := range uint64(150) {
					ids = append(ids, r.insert(orders, i%16, -time.Minute+time.Duration(i*7919%60_000)*time.Millisecond))
				}
				r.work(time.Millisecond)
				r.run()
				r.after(20 * time.Second)
				r.ranAll(ids)
				require.Len(t, r.passes.of(0), 1)
				require.Equal(t, queue.Stats{}, r.queue.Stats(orders))
			})
		})
	}
}

// A business type whose workers stand still costs a pass one roomTimeout. The other types go on.
func TestATypeThatStandsStillDoesNotHoldUpTheOthers(t *testing.T) {
	bubble(t, layout, 20, func(c *scanner.Config) { noTicks(c); c.Batch = 4 }, func(t *testing.T, r *rig) {
		delete(r.consumers, orders) // no worker for orders
		r.work(0)
		var others []uint64
		for id := range uint64(16) {
			for range 10 {
				r.insert(orders, id, -time.Hour)
			}
			others = append(others, r.insert(mails, id, 3*time.Second))
		}
		r.run()
		r.after(3 * time.Second)
		r.ranAll(others)
		for d := range layout.Databases {
			require.Less(t, r.passes.of(d)[0].took, 150*time.Millisecond)
		}
		require.Equal(t, queue.Stats{Depth: 20, ResumePoints: 4}, r.queue.Stats(orders))
		require.Equal(t, 160, r.countOverdue(orders), "those that were not read are overdue, too")
	})
}

// A business type whose workers are slow may delay a pass by a tenth of a tick in all. Then the pass goes on
// with the other types.
func TestASlowTypeDoesNotHoldUpTheOthersForLong(t *testing.T) {
	one := sharding.Layout{Databases: 1, TablesPerDatabase: 4, Partitions: 4}
	bubble(t, one, 8, func(c *scanner.Config) { noTicks(c); c.Batch = 4 }, func(t *testing.T, r *rig) {
		r.work(20 * time.Millisecond)
		var ids []uint64
		for range 150 {
			ids = append(ids, r.insert(orders, r.bizID(0, 0), -time.Minute))
		}
		mail := r.insert(mails, r.bizID(3, 0), 0)
		r.run()
		r.after(1200 * time.Millisecond)
		r.ranAll([]uint64{mail})
		require.Len(t, r.passes.of(0), 1)
		r.after(3 * time.Second)
		r.ranAll(ids)
	})
}

func (r *rig) countOverdue(bizType uint64) int { return r.scanner.Overdue()[bizType].Count }

// A task that is due never waits behind one that is not, also when the queue is full before its partition is
// read.
func TestAQueueFullOfLookaheadDoesNotDelayWhatIsDue(t *testing.T) {
	wide := sharding.Layout{Databases: 1, TablesPerDatabase: 16, Partitions: 8}
	bubble(t, wide, 40, noTicks, func(t *testing.T, r *rig) {
		r.work(0)
		for table := range 2 {
			for range 40 { // fills the queue from the first partition
				r.insert(orders, r.bizID(0, table), 8*time.Second)
			}
		}
		var ids []uint64
		for p := 1; p < 8; p++ {
			for table := range 2 {
				ids = append(ids, r.insert(orders, r.bizID(p, table), -time.Second), r.insert(orders, r.bizID(p, table), 500*time.Millisecond))
			}
		}
		r.run()
		r.after(2 * time.Second)
		// The first pass waits its 100 ms for room; no task waits for the 8 s.
		require.LessOrEqual(t, r.ranAll(ids), 1200*time.Millisecond)
		for _, id := range ids {
			row, err := r.store.Get(t.Context(), id)
			require.NoError(t, err)
			if late := r.runs(id)[0].Sub(row.ActionTime); row.ActionTime.After(r.start) {
				require.Zero(t, late)
			}
		}
	})
}

// A page has some rows of each table. A task that does not fit may thus be later than rows of another table
// that were not read yet.
func TestUnreadRowsAreReadAfterTasksThatDidNotFit(t *testing.T) {
	one := sharding.Layout{Databases: 1, TablesPerDatabase: 2, Partitions: 1}
	bubble(t, one, 24, func(c *scanner.Config) { noTicks(c); c.Batch = 8 }, func(t *testing.T, r *rig) {
		r.work(50 * time.Millisecond) // too slow for the roomTimeout of the pass
		var ids []uint64
		for i := range 60 { // the first table: many that are due early
			ids = append(ids, r.insert(orders, r.bizID(0, 0), -time.Hour+time.Duration(i)*time.Second))
		}
		for range 40 { // the second: late ones
			ids = append(ids, r.insert(orders, r.bizID(0, 1), 8*time.Second))
		}
		r.run()
		r.after(5 * time.Second)
		r.ranAll(ids[:60])
		r.after(5 * time.Second)
		r.ranAll(ids)
	})
}

// When more tasks are due within the lookahead than the queue holds, each still runs at its time: earlier tasks
// displace later ones, which are read again.
func TestMoreLookaheadThanTheQueueHolds(t *testing.T) {
	bubble(t, layout, 30, nil, func(t *testing.T, r *rig) {
		r.work(0)
		r.run()
		var ids []uint64
		for i := range 150 {
			ids = append(ids, r.insert(orders, uint64(i%16), 11*time.Second+time.Duration(i*7919%8_000)*time.Millisecond))
		}
		r.after(25 * time.Second)
		require.LessOrEqual(t, r.ranAll(ids), 10*time.Millisecond)
	})
}

// Rows of a type are read again and again for other types; each still runs once.
func TestTwoTypesWithLongBacklogs(t *testing.T) {
	bubble(t, layout, 8, func(c *scanner.Config) { c.Batch = 8 }, func(t *testing.T, r *rig) {
		r.work(2 * time.Millisecond)
		var ids []uint64
		for i := range uint64(60) {
			ids = append(ids, r.insert(orders, i%16, -time.Minute), r.insert(mails, i%5, -time.Duration(i)*time.Second))
		}
		r.run()
		r.after(30 * time.Second)
		r.ranAll(ids)
	})
}

// Workers, cancels and ticks at once, with rows that are read while they finish.
func TestNothingRunsTwiceWhileItIsReadAgain(t *testing.T) {
	bubble(t, layout, 20, func(c *scanner.Config) { c.Batch = 8 }, func(t *testing.T, r *rig) {
		r.work(time.Millisecond)
		r.faults.set(func(f *faults) { f.reading = func(int) { time.Sleep(3 * time.Millisecond) } })
		r.run()
		var ids, cancelled []uint64
		for i := range uint64(100) {
			ids = append(ids, r.insert(orders, i%16, time.Duration(i)*5*time.Millisecond))
			if i%20 == 0 {
				id := r.insert(orders, i%16, time.Duration(i)*5*time.Millisecond+time.Second)
				cancelled = append(cancelled, id)
			}
			r.scanner.Tick()
			r.after(time.Millisecond)
		}
		for _, id := range cancelled {
			shard, _ := layout.ShardOf(id)
			h, err := r.queue.Hold(t.Context(), id, layout.Partition(shard))
			if err != nil {
				continue // it is running
			}
			_, err = r.store.Move(t.Context(), store.Move{JobID: id, From: task.Pending, To: task.Cancelled})
			require.NoError(t, err)
			h.Remove()
			r.scanner.Tick()
			r.after(time.Millisecond)
		}
		r.after(20 * time.Second)
		r.ranAll(ids)
		rows, err := r.store.Load(t.Context(), cancelled)
		require.NoError(t, err)
		for _, row := range rows {
			require.Equal(t, row.Status == task.Processed, len(r.runs(row.JobID)) == 1)
			require.Equal(t, row.Status == task.Cancelled, len(r.runs(row.JobID)) == 0)
		}
	})
}

// A clock that is set while a partition is read does not make the read a long one. At 799f0ec a row that SQL inserts in the past was
// not found for nine times as long as the step was.
func TestAClockThatIsSetDuringARead(t *testing.T) {
	var ahead atomic.Int64
	bubble(t, layout, 1000, func(cfg *scanner.Config) {
		cfg.Now = func() time.Time { return now().Add(time.Duration(ahead.Load())) }
	}, func(t *testing.T, r *rig) {
		r.work(0)
		r.insert(orders, 0, -time.Hour)
		r.faults.set(func(f *faults) { f.due = func(int, store.Due) { ahead.Store(int64(time.Hour)) } })
		r.run()
		r.after(30 * time.Second)
		old := r.insert(orders, 0, -time.Hour)
		r.after(time.Minute)
		require.Len(t, r.runs(old), 1)
	})
}

// Rows of a business type that is not configured lie before all others, and reading past them takes long.
// Before, each tick did it: 1.6 million of them made each pass take 10 s, and other tasks 8 s late.
func TestRowsOfUnknownTypesDoNotSlowEachTick(t *testing.T) {
	bubble(t, layout, 1000, nil, func(t *testing.T, r *rig) {
		r.work(0)
		var mu sync.Mutex
		whole := 0
		r.faults.set(func(f *faults) {
			f.due = func(p int, q store.Due) {
				if p == 0 && q.From == (task.Key{}) {
					mu.Lock()
					whole++
					mu.Unlock()
					time.Sleep(10 * time.Second) // the time to read past the rows that are not configured
				}
			}
		})
		r.insert(hidden, 0, -time.Hour)
		r.run()
		r.after(10 * time.Second)
		old := r.insert(orders, 0, -time.Hour) // inserted by SQL, and only a whole read can find it
		var ids []uint64
		for i := range 12 { // all in partition 0
			ids = append(ids, r.insert(orders, 0, 25*time.Second+time.Duration(i)*time.Second))
		}
		r.after(40 * time.Second)
		require.Zero(t, r.ranAll(ids), "tasks that fall due are found at each tick, and are not late")
		mu.Lock()
		require.Equal(t, 1, whole, "one pass")
		mu.Unlock()
		require.Empty(t, r.runs(old))
		r.after(80 * time.Second)
		require.Len(t, r.runs(old), 1, "a tenth of the time is for reading everything")

		again := r.insert(orders, 0, -time.Hour)
		r.scanner.Tick()
		r.after(20 * time.Second)
		require.Len(t, r.runs(again), 1, "something has changed: everything is read at once")
	})
}
