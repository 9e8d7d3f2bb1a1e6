package scanner_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/scanner"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

func TestRowsAreReadOneTickAhead(t *testing.T) {
	bubble(t, layout, 1000, nil, func(t *testing.T, r *rig) {
		for id := range uint64(16) { // every table
			r.insert(orders, id, -time.Hour)
			r.insert(orders, id, 10*time.Second)
			r.insert(orders, id, 15*time.Second)
		}
		r.run()
		require.Equal(t, queue.Stats{Depth: 32}, r.queue.Stats(orders))
		r.after(10*time.Second - time.Millisecond)
		require.Equal(t, queue.Stats{Depth: 32}, r.queue.Stats(orders))
		r.after(time.Millisecond)
		require.Equal(t, queue.Stats{Depth: 48}, r.queue.Stats(orders))
	})
}

// With a lookahead of one tick no task is late that is known a tick ahead.
func TestEachTaskRunsAtItsOwnMillisecond(t *testing.T) {
	bubble(t, layout, 1000, nil, func(t *testing.T, r *rig) {
		r.work(0)
		r.run()
		var ids []uint64
		for i := range 80 {
			ids = append(ids, r.insert(orders, uint64(i), 10*time.Second+time.Duration(i*337)*time.Millisecond))
		}
		r.after(time.Minute)
		require.Zero(t, r.ranAll(ids))
	})
}

func TestChangesBySQLAreHonoured(t *testing.T) {
	bubble(t, layout, 1000, nil, func(t *testing.T, r *rig) {
		r.work(0)
		r.run()
		move := func(id uint64, to task.Status, in time.Duration) {
			r.move(id, to, store.Set{ActionTime: new(now().Add(in))})
		}
		cancelled, earlier, later := r.insert(orders, 1, 19*time.Second), r.insert(orders, 2, time.Hour), r.insert(orders, 3, 19*time.Second)
		r.after(15 * time.Second) // the first and the third are in memory
		move(cancelled, task.Cancelled, 0)
		move(earlier, task.Pending, 3*time.Second)
		move(later, task.Pending, 30*time.Second)
		r.after(time.Minute)
		require.Empty(t, r.runs(cancelled))
		require.Equal(t, []time.Time{r.start.Add(20 * time.Second)}, r.runs(earlier), "at the tick that found it")
		require.Equal(t, []time.Time{r.start.Add(45 * time.Second)}, r.runs(later))
	})
}

func TestAPassAtOnceAndAtEveryTick(t *testing.T) {
	bubble(t, layout, 10, nil, func(t *testing.T, r *rig) {
		r.run()
		r.after(30 * time.Second)
		for d := range layout.Databases {
			var at []time.Duration
			for _, p := range r.passes.of(d) {
				require.NoError(t, p.err)
				at = append(at, p.ended.Sub(r.start))
			}
			require.Equal(t, []time.Duration{0, 10 * time.Second, 20 * time.Second, 30 * time.Second}, at)
		}
	})
}

func TestACronSpecWithSeconds(t *testing.T) {
	schedule, err := cron.NewParser(cron.Second | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow).Parse("30 */2 * * * *")
	require.NoError(t, err)
	bubble(t, layout, 10, func(c *scanner.Config) { c.Schedule = schedule }, func(t *testing.T, r *rig) {
		r.run()
		r.after(5 * time.Minute)
		var at []time.Duration
		for _, p := range r.passes.of(0) {
			at = append(at, p.ended.Sub(r.start))
		}
		require.Equal(t, []time.Duration{0, 30 * time.Second, 150 * time.Second, 270 * time.Second}, at)
	})
}

// A tick that comes during a pass is neither run at the same time nor lost; several of them count as one.
func TestTicksDuringAPassMakeOneMorePass(t *testing.T) {
	bubble(t, layout, 10, noTicks, func(t *testing.T, r *rig) {
		r.run()
		require.Len(t, r.passes.of(0), 1)
		var inside, most atomic.Int32
		r.faults.set(func(f *faults) {
			f.reading = func(p int) {
				if p == 0 {
					most.Store(max(most.Load(), inside.Add(1)))
					time.Sleep(time.Minute)
					inside.Add(-1)
				}
			}
		})
		r.scanner.Tick()
		r.after(time.Second)
		for range 5 {
			r.scanner.Tick()
		}
		r.after(time.Hour)
		require.Len(t, r.passes.of(0), 3)
		require.EqualValues(t, 1, most.Load())
		require.GreaterOrEqual(t, len(r.passes.of(1)), 3, "the other database does not wait")
	})
}

func TestATypeThatIsAddedLaterGetsItsTasksAtTheNextTick(t *testing.T) {
	bubble(t, layout, 10, noTicks, func(t *testing.T, r *rig) {
		r.queue.RemoveType(orders)
		id := r.insert(orders, 1, 0)
		r.run()
		r.consumers[orders] = r.queue.AddType(task.BizType{ID: orders})
		r.work(0)
		r.scanner.Tick()
		r.after(time.Second)
		r.ranAll([]uint64{id})
	})
}

// Each pass and database logs one line, and no row is read twice.
func TestUnknownBizTypesStayPending(t *testing.T) {
	bubble(t, layout, 1000, func(c *scanner.Config) { c.Batch = 4 }, func(t *testing.T, r *rig) {
		r.work(0)
		var known []uint64
		r.queue.AddType(task.BizType{ID: pushes})
		for id := range uint64(64) {
			r.insert(hidden, id, -time.Hour)
			r.insert(pushes, id, -time.Hour) // the redis engine serves them
			if id%8 == 0 {
				known = append(known, r.insert(orders, id, -time.Minute))
			}
		}
		r.run()
		r.after(time.Second)
		r.ranAll(known)
		require.Equal(t, queue.Stats{}, r.queue.Stats(pushes))
		require.Equal(t, layout.Databases, r.log.count("biz_type that is not configured"))
		r.after(10 * time.Second)
		require.Equal(t, layout.Databases, r.log.count("biz_type=9"), "logged once")
		r.cfg.Catalog.Store(r.cfg.Catalog.Load())
		r.after(10 * time.Second)
		require.Equal(t, layout.Databases, r.log.count("biz_type=9"))
		types, err := task.NewTypes(r.cfg.Catalog.Load().All()...)
		require.NoError(t, err)
		r.cfg.Catalog.Store(types)
		r.after(10 * time.Second)
		require.Equal(t, 2*layout.Databases, r.log.count("biz_type=9"), "and after a reload once more")
		require.Equal(t, 64, r.scanner.Overdue()[hidden].Count)
		for id := range uint64(64) {
			rows, err := r.store.List(t.Context(), id, store.Filter{Limit: 10})
			require.NoError(t, err)
			for _, row := range rows {
				if row.BizType == hidden && id != 5 {
					_, err := r.store.Move(t.Context(), store.Move{JobID: row.JobID, From: task.Pending, To: task.Cancelled})
					require.NoError(t, err)
				}
			}
		}
		r.after(10 * time.Second)
		require.Equal(t, 1, r.scanner.Overdue()[hidden].Count)
		hiddenRows, err := r.store.List(t.Context(), 5, store.Filter{Limit: 10})
		require.NoError(t, err)
		require.Len(t, hiddenRows, 2)
		for _, row := range hiddenRows {
			require.Equal(t, task.Pending, row.Status)
		}
	})
}

func TestOnlyOwnPartitionsAreRead(t *testing.T) {
	bubble(t, layout, 1000, nil, func(t *testing.T, r *rig) {
		r.work(0)
		r.owned.set(1, false)
		r.owned.set(3, false)
		r.faults.set(func(f *faults) {
			f.reading = func(p int) {
				if !r.owned.Owns(p) {
					t.Errorf("partition %d was read", p)
				}
			}
		})
		var mine, others []uint64
		for p := range layout.Partitions {
			for table := range 2 {
				id := r.insert(orders, r.bizID(p, table), 0)
				if p%2 == 0 {
					mine = append(mine, id)
				} else {
					others = append(others, id)
				}
			}
		}
		r.run()
		r.after(time.Minute)
		r.ranAll(mine)
		for _, id := range others {
			require.Empty(t, r.runs(id))
		}
		r.owned.set(1, true)
		r.after(0)
		r.ranAll(others[:2])
		require.Empty(t, r.runs(others[2]))
	})
}

func TestALostPartitionIsDropped(t *testing.T) {
	bubble(t, layout, 1000, noTicks, func(t *testing.T, r *rig) {
		for p := range layout.Partitions {
			r.insert(orders, r.bizID(p, 0), 5*time.Second)
		}
		r.run()
		require.Equal(t, 4, r.queue.Stats(orders).Depth)
		r.owned.set(2, false)
		synctest.Wait()
		require.Equal(t, 3, r.queue.Stats(orders).Depth)
	})
}

// A page that was read before the partition was lost comes too late: its rows belong to another node now.
func TestAPartitionThatIsLostWhileItIsReadStaysDropped(t *testing.T) {
	for name, read := range map[string]func(r *rig){
		"by a pass": func(r *rig) { r.scanner.Tick() },
		"on":        func(r *rig) { r.queue.SetResume(orders, 1, task.Key{}) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, layout, 1000, noTicks, func(t *testing.T, r *rig) {
				r.run()
				r.insert(orders, r.bizID(1, 0), 5*time.Second)
				var once atomic.Bool
				r.faults.set(func(f *faults) {
					f.reading = func(p int) {
						if p == 1 && once.CompareAndSwap(false, true) {
							r.owned.set(1, false)
							time.Sleep(time.Second) // the loss is handled before the rows come
						}
					}
				})
				read(r)
				r.after(2 * time.Second)
				require.True(t, once.Load())
				require.Equal(t, queue.Stats{}, r.queue.Stats(orders))
			})
		})
	}
}

func TestUntil(t *testing.T) {
	bubble(t, layout, 10, noTicks, func(t *testing.T, r *rig) {
		r.owned.set(3, false)
		until := func() time.Duration {
			at, serves := r.scanner.Until(orders, 3)
			require.True(t, serves, "whose the partition is does not matter")
			return at.Sub(now())
		}
		require.Equal(t, 10500*time.Millisecond, until(), "the lookahead, and half a second for the pass")
		_, serves := r.scanner.Until(99, 0)
		require.False(t, serves, "not configured")

		// A slow pass reaches its last partition late: the slack is twice its time.
		r.faults.set(func(f *faults) { f.reading = func(int) { time.Sleep(time.Second) } })
		r.run()
		r.after(time.Minute)
		require.Equal(t, 14*time.Second, until())
	})
}

func TestRunEndsWithItsContext(t *testing.T) {
	bubble(t, layout, 1, func(c *scanner.Config) { c.Retention = time.Hour; c.Batch = 1 }, func(t *testing.T, r *rig) {
		for id := range uint64(100) {
			r.insert(orders, id, 0) // the queue is full: the pass waits for room
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.scanner.Run(ctx) }()
		time.Sleep(50 * time.Millisecond)
		stop()
		require.ErrorIs(t, <-ended, context.Canceled)
		require.Equal(t, 50*time.Millisecond, now().Sub(r.start))
	})
}

var errBroken = errors.New("connection refused")

func TestOverdueTasksAreCounted(t *testing.T) {
	bubble(t, layout, 1000, nil, func(t *testing.T, r *rig) {
		var ids []uint64
		for id := range uint64(40) {
			ids = append(ids, r.insert(orders, id, -time.Duration(id+2)*time.Second))
			if id%4 == 0 {
				ids = append(ids, r.insert(mails, id, -time.Minute))
			}
		}
		r.insert(hidden, 0, -2*time.Hour)
		r.insert(orders, 0, time.Hour)
		r.insert(orders, 0, 0) // due, but not late yet
		require.Empty(t, r.scanner.Overdue())
		r.run()
		got := r.scanner.Overdue()
		require.Equal(t, 41, got[orders].Count)
		require.Equal(t, r.start.Add(-41*time.Second), got[orders].Oldest)
		minute, hours := r.start.Add(-time.Minute), r.start.Add(-2*time.Hour)
		require.Equal(t, store.Overdue{Count: 10, Oldest: minute, Promised: minute}, got[mails])
		require.Equal(t, store.Overdue{Count: 1, Oldest: hours, Promised: hours}, got[hidden], "also unknown types")

		r.work(0)
		r.after(10 * time.Second)
		r.ranAll(ids)
		r.after(10 * time.Second)
		require.NotContains(t, r.scanner.Overdue(), orders)
	})
}

// Counting a huge backlog takes long; it may take a tenth of the time.
func TestCountingTakesATenthOfTheTimeAtMost(t *testing.T) {
	bubble(t, layout, 1000, nil, func(t *testing.T, r *rig) {
		r.insert(orders, r.bizID(0, 0), -time.Hour) // without a worker
		var counted []time.Duration
		r.faults.set(func(f *faults) {
			f.overdue = func(p int) error {
				counted = append(counted, now().Sub(r.start)) // one database has overdue rows, so one goroutine comes here
				time.Sleep(4 * time.Second)
				return nil
			}
		})
		r.run()
		r.after(100 * time.Second)
		r.faults.mu.Lock()
		defer r.faults.mu.Unlock()
		require.Equal(t, []time.Duration{0, 40 * time.Second, 80 * time.Second}, counted)
	})
}

// Tasks that have failed are counted while some may run again. Before and after that it costs nothing.
func TestTasksThatRunAgainAreCounted(t *testing.T) {
	var until atomic.Int64
	retries := func() time.Time { return time.UnixMilli(until.Load()) }
	bubble(t, layout, 1000, func(c *scanner.Config) { c.Retries = retries }, func(t *testing.T, r *rig) {
		var counts atomic.Int64
		r.faults.set(func(f *faults) { f.retrying = func() { counts.Add(1) } })
		counted := func() int { return int(counts.Swap(0)) }
		before := r.insertFailed(orders, r.bizID(0, 0), 3*time.Minute) // before the start, so it is found without being told
		r.run()
		require.Equal(t, layout.Partitions, counted(), "each partition is looked at once")
		require.Equal(t, store.Retrying{Count: 1, Later: 1, Promised: r.start, Last: r.start.Add(3 * time.Minute)}, r.scanner.Retrying()[orders])
		r.move(before, task.Processed, store.Set{})
		r.after(20 * time.Second)
		require.Empty(t, r.scanner.Retrying())
		counted()
		r.after(time.Minute)
		require.Zero(t, counted())

		until.Store(now().Add(2 * time.Minute).UnixMilli())
		r.insertFailed(mails, r.bizID(1, 0), 90*time.Second) // without a worker
		r.after(10 * time.Second)
		require.Equal(t, 1, r.scanner.Retrying()[mails].Count)
		r.after(3 * time.Minute)
		require.Equal(t, 1, r.scanner.Retrying()[mails].Count, "it is due, and has not run")
	})
}

// A partition that was another node's for a while is looked at again: its tasks may have failed there.
func TestTasksThatFailedElsewhereAreCounted(t *testing.T) {
	bubble(t, layout, 1000, nil, func(t *testing.T, r *rig) {
		r.run()
		require.Empty(t, r.scanner.Retrying())
		r.owned.set(0, false)
		r.after(20 * time.Second)
		r.insertFailed(orders, r.bizID(0, 0), 3*time.Minute)
		r.after(20 * time.Second)
		require.Empty(t, r.scanner.Retrying(), "another node counts it")
		r.owned.set(0, true)
		r.after(20 * time.Second)
		require.Equal(t, 1, r.scanner.Retrying()[orders].Count)
		r.owned.set(0, false)
		r.after(20 * time.Second)
		require.Empty(t, r.scanner.Retrying())
	})
}

// Counting them reads many rows, so it may take a fiftieth of the time.
func TestCountingTasksThatRunAgainTakesAFiftiethOfTheTimeAtMost(t *testing.T) {
	bubble(t, sharding.Layout{Databases: 1, TablesPerDatabase: 1, Partitions: 1}, 1000, func(c *scanner.Config) {
		c.Retries = func() time.Time { return now().Add(time.Minute) }
	}, func(t *testing.T, r *rig) {
		var counted []time.Duration
		r.faults.set(func(f *faults) {
			f.retrying = func() { counted = append(counted, now().Sub(r.start)); time.Sleep(2 * time.Second) }
		})
		r.run()
		r.after(210 * time.Second)
		r.faults.mu.Lock()
		defer r.faults.mu.Unlock()
		require.Equal(t, []time.Duration{0, 100 * time.Second, 200 * time.Second}, counted)
	})
}

func TestTasksThatHaveRunAreNotCountedAsOverdue(t *testing.T) {
	bubble(t, layout, 1000, nil, func(t *testing.T, r *rig) {
		r.insert(orders, r.bizID(0, 0), -time.Hour)
		r.faults.set(func(f *faults) { f.overdue = func(int) error { time.Sleep(time.Minute); return nil } })
		r.run()
		r.after(time.Minute)
		require.Equal(t, 1, r.countOverdue(orders))
		r.work(0)
		r.after(20 * time.Second) // the next count is nine minutes away, but there is nothing to count either
		require.Empty(t, r.scanner.Overdue())
	})
}

// A clock that is set back must not stop the scans until it has caught up.
func TestTicksGoOnWhenTheClockIsSetBack(t *testing.T) {
	var back atomic.Int64
	shifted := func() time.Time { return now().Add(-time.Duration(back.Load())) }
	bubble(t, layout, 10, func(c *scanner.Config) { c.Now = shifted }, func(t *testing.T, r *rig) {
		r.run()
		r.after(25 * time.Second)
		require.Len(t, r.passes.of(0), 3)
		back.Store(int64(time.Hour))
		r.after(time.Second)
		require.Len(t, r.passes.of(0), 4)
		r.after(30 * time.Second)
		require.Len(t, r.passes.of(0), 7)
		back.Store(0)
		r.after(31 * time.Second)
		require.Len(t, r.passes.of(0), 11, "and at once when it is set forward")
	})
}

func TestACountThatFailsDoesNotFailThePass(t *testing.T) {
	bubble(t, layout, 1000, nil, func(t *testing.T, r *rig) {
		r.insert(orders, r.bizID(0, 0), -time.Hour) // without a worker
		r.run()
		require.Equal(t, 1, r.countOverdue(orders))
		r.insert(orders, r.bizID(0, 0), -time.Hour)
		r.faults.set(func(f *faults) { f.overdue = func(int) error { return errBroken } })
		r.after(10 * time.Second)
		require.Equal(t, 1, r.countOverdue(orders), "the last count stands")
		require.Equal(t, 1, r.log.count("overdue tasks not counted"))
		require.NoError(t, r.passes.of(0)[1].err)
		r.faults.set(func(f *faults) { f.overdue = nil })
		r.after(10 * time.Second)
		require.Equal(t, 2, r.countOverdue(orders))
	})
}

func TestPurge(t *testing.T) {
	bubble(t, layout, 1000, func(c *scanner.Config) { c.Retention, c.Schedule = time.Hour, never{} }, func(t *testing.T, r *rig) {
		r.owned.set(3, false)
		// Three tasks of each kind in each partition.
		kinds := map[task.Status][]uint64{}
		var others []uint64
		for p := range layout.Partitions {
			for _, status := range []task.Status{task.Processed, task.Cancelled, task.Dead, task.Pending} {
				for range 3 {
					id := r.insert(hidden, r.bizID(p, 1), 0)
					_, err := r.store.Move(t.Context(), store.Move{JobID: id, From: task.Pending, To: status})
					require.NoError(t, err)
					if p == 3 {
						others = append(others, id)
					} else {
						kinds[status] = append(kinds[status], id)
					}
				}
			}
		}
		left := func(ids []uint64) int {
			rows, err := r.store.Load(t.Context(), ids)
			require.NoError(t, err)
			return len(rows)
		}
		var calls atomic.Int32
		r.faults.set(func(f *faults) {
			f.purge = func(p int) error {
				if calls.Add(1) <= 2 {
					return errBroken
				}
				return nil
			}
		})
		r.run()
		r.after(59 * time.Minute)
		require.Equal(t, 9, left(kinds[task.Processed]))
		require.Equal(t, 2, r.log.count("not purged"), "and the partitions after those were looked at all the same")
		r.after(20 * time.Minute)
		require.Zero(t, left(kinds[task.Processed]))
		require.Zero(t, left(kinds[task.Cancelled]))
		require.Equal(t, 9, left(kinds[task.Dead]))
		require.Equal(t, 9, left(kinds[task.Pending]))
		require.Equal(t, len(others), left(others), "not ours")
		require.Equal(t, store.Purged{Processed: 9, Cancelled: 9}, r.passes.purged)
		require.Zero(t, r.passes.lags[0])
	})
}

// Rows that should be gone and cannot be deleted are seen: how long they should be gone, and at least how long nobody knows.
func TestPurgeLag(t *testing.T) {
	bubble(t, layout, 1000, func(c *scanner.Config) { c.Retention, c.Schedule = time.Hour, never{} }, func(t *testing.T, r *rig) {
		lag := func() time.Duration {
			r.passes.mu.Lock()
			defer r.passes.mu.Unlock()
			return r.passes.lags[0]
		}
		r.faults.set(func(f *faults) { f.purge = func(int) error { return errBroken } })
		r.run()
		r.after(26 * time.Minute) // five rounds, the first one after a minute
		require.Equal(t, 25*time.Minute, lag())
		r.faults.set(func(f *faults) { f.purge = nil })
		r.after(6 * time.Minute)
		require.Zero(t, lag())
	})
}

// A purge rests for most of the time while it keeps up. When it falls behind, it takes half of a database's time, and the lag is shown
// before the round ends.
func TestPurgeThatFallsBehind(t *testing.T) {
	bubble(t, layout, 1000, func(c *scanner.Config) { c.Retention, c.Schedule = 100*time.Minute, never{} }, func(t *testing.T, r *rig) {
		var busy, left, took atomic.Int64
		took.Store(int64(3 * time.Millisecond))
		r.faults.set(func(f *faults) {
			f.batch = func() store.Purged {
				took := took.Load()
				busy.Add(took)
				time.Sleep(time.Duration(took))
				if left.Add(-1) < 0 {
					return store.Purged{}
				}
				return store.Purged{Processed: 100, More: true, Oldest: now().Add(-130 * time.Minute)}
			}
		})
		share := func(d time.Duration, batches int64) float64 {
			busy.Store(0)
			left.Store(batches)
			r.after(d)
			return float64(busy.Load()) / float64(d) / float64(layout.Databases)
		}
		lag := func() time.Duration {
			r.passes.mu.Lock()
			defer r.passes.mu.Unlock()
			return r.passes.lags[0].Round(time.Second)
		}
		r.run()
		r.after(11*time.Minute - time.Second)
		require.Zero(t, lag())
		require.InDelta(t, 1./16, share(20*time.Second, 1e9), 0.01)
		r.after(10 * time.Minute)
		require.InDelta(t, 1./2, share(time.Minute, 1e9), 0.01)
		took.Store(int64(200 * time.Millisecond))
		require.InDelta(t, 1./2, share(time.Minute, 1e9), 0.01, "also of a database that is slow")
		require.Equal(t, 30*time.Minute, lag())
		require.Less(t, share(30*time.Minute, 0), 0.001)
		require.Zero(t, lag())
	})
}

// Locked rows end no round. The log names them once a round, and the lag goes on.
func TestPurgeOfLockedRows(t *testing.T) {
	bubble(t, layout, 1000, func(c *scanner.Config) { c.Retention, c.Schedule = time.Hour, never{} }, func(t *testing.T, r *rig) {
		var batches atomic.Int64
		r.owned.set(1, false)
		r.owned.set(2, false)
		r.owned.set(3, false)
		r.faults.set(func(f *faults) {
			f.batch = func() store.Purged {
				one := store.Purged{More: true, Oldest: now().Add(-2 * time.Hour), Locked: 2}
				if batches.Add(1) <= 3 {
					one.Processed = 100
				}
				return one
			}
		})
		r.run()
		r.after(2 * time.Minute) // one round
		require.EqualValues(t, 4, batches.Load(), "it went on while rows were deleted")
		require.Equal(t, 300, r.passes.purged.Processed)
		require.Equal(t, 1, r.log.count("locked"))
		require.Equal(t, time.Hour, r.passes.lags[0].Round(time.Minute))
	})
}

// The dead are purged after a time of their own, also where the Timer lists them.
func TestPurgeOfTheDead(t *testing.T) {
	listed := &timer{}
	bubble(t, layout, 1000, func(c *scanner.Config) { c.DeadRetention, c.Schedule, c.Timer = time.Hour, never{}, listed }, func(t *testing.T, r *rig) {
		r.owned.set(3, false)
		id := r.insert(hidden, r.bizID(0, 1), 0)
		_, err := r.store.Move(t.Context(), store.Move{JobID: id, From: task.Pending, To: task.Dead})
		require.NoError(t, err)
		began := now()
		r.run()
		left := func() int {
			rows, err := r.store.Load(t.Context(), []uint64{id})
			require.NoError(t, err)
			return len(rows)
		}
		r.after(59 * time.Minute)
		require.Equal(t, 1, left())
		r.after(10 * time.Minute)
		require.Zero(t, left())
		listed.mu.Lock()
		defer listed.mu.Unlock()
		partitions := map[int]bool{}
		for _, one := range listed.purged {
			partitions[one.partition] = true
			require.False(t, one.before.After(began.Add(10*time.Minute)))
		}
		require.Equal(t, map[int]bool{0: true, 1: true, 2: true}, partitions, "those of this node")
	})
}

// The clock of this machine jumps ahead by a day. Before, all finished tasks were deleted at once, and their
// dedup_keys with them.
func TestPurgeBesideAClockThatJumps(t *testing.T) {
	var ahead atomic.Int64
	bubble(t, layout, 1000, func(c *scanner.Config) {
		c.Retention, c.Schedule = time.Hour, never{}
		c.Now = func() time.Time { return now().Add(time.Duration(ahead.Load())) }
	}, func(t *testing.T, r *rig) {
		id := r.insert(hidden, r.bizID(0, 1), 0)
		_, err := r.store.Move(t.Context(), store.Move{JobID: id, To: task.Processed})
		require.NoError(t, err)
		left := func() int {
			rows, err := r.store.Load(t.Context(), []uint64{id})
			require.NoError(t, err)
			return len(rows)
		}
		r.run()
		ahead.Store(int64(24 * time.Hour))
		r.after(59 * time.Minute)
		require.Equal(t, 1, left())
		r.after(20 * time.Minute)
		require.Zero(t, left())
	})
}

func TestWithoutRetentionNothingIsPurged(t *testing.T) {
	bubble(t, layout, 10, noTicks, func(t *testing.T, r *rig) {
		r.faults.set(func(f *faults) {
			f.purge = func(int) error { t.Error("purged"); return nil }
		})
		r.run()
		r.after(time.Hour)
	})
}

// Another node that reaches Redis puts tasks into slots that this one does not reach. Before, they waited for the
// next tick of the schedule.
func TestTasksAreScannedEachSecondWhileRedisIsAway(t *testing.T) {
	bubble(t, layout, 10, func(c *scanner.Config) { c.Schedule = cron.Every(time.Hour) }, func(t *testing.T, r *rig) {
		r.queue.AddType(task.BizType{ID: pushes})
		r.timer.mu.Lock()
		r.timer.out = true
		r.timer.mu.Unlock()
		r.run()
		r.after(time.Minute)
		r.insert(pushes, 1, 0)
		r.after(2 * time.Second)
		require.Equal(t, 1, r.queue.Stats(pushes).Depth)
		r.timer.mu.Lock()
		r.timer.out = false
		r.timer.mu.Unlock()
		r.after(time.Minute)
		passes := len(r.passes.of(0))
		r.after(time.Minute)
		require.Len(t, r.passes.of(0), passes, "all is well again")
	})
}
