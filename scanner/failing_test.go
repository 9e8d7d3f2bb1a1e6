package scanner_test

import (
	"context"
	"net"
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

func TestADatabaseThatFailsDoesNotStopTheOthers(t *testing.T) {
	bubble(t, layout, 1000, nil, func(t *testing.T, r *rig) {
		r.work(0)
		r.faults.set(func(f *faults) { f.broken = inDatabase(1) })
		r.run()
		var even, odd []uint64
		for id := range uint64(40) { // even biz_ids live in database 0
			even = append(even, r.insert(orders, 2*id, 11*time.Second+time.Duration(id)*time.Second))
			odd = append(odd, r.insert(orders, 2*id+1, 11*time.Second))
		}
		r.after(time.Minute)
		require.Zero(t, r.ranAll(even))
		require.Len(t, r.passes.of(0), 7)
		require.Len(t, r.passes.of(1), 7)
		for d := range 2 {
			for _, p := range r.passes.of(d) {
				require.Equal(t, d == 1, p.err != nil)
			}
		}
		require.Zero(t, r.log.count("is scanned again"))
		require.Zero(t, r.log.count("not scanned whole"), "the store logs once that the database is down")

		r.faults.set(func(f *faults) { f.broken = nil })
		r.after(10 * time.Second)
		r.ranAll(odd)
		require.Equal(t, 1, r.log.count("is scanned again"))
		r.after(time.Minute)
		require.Equal(t, 1, r.log.count("is scanned again"))
	})
}

// A pass over a database none of whose partitions this node owns says nothing about the database. Before, a
// node that had given up all partitions of a dead database counted it as scanned.
func TestAPassWithoutPartitionsCountsForNothing(t *testing.T) {
	bubble(t, layout, 1000, nil, func(t *testing.T, r *rig) {
		r.work(0)
		r.run()
		require.Len(t, r.passes.of(1), 1)
		r.faults.set(func(f *faults) { f.broken = inDatabase(1) })
		r.after(10 * time.Second)
		require.Len(t, r.passes.of(1), 2)
		for p := range layout.Partitions {
			r.owned.set(p, !inDatabase(1)(p))
		}
		r.after(time.Minute)
		failed := r.passes.of(1)[1:]
		for _, p := range failed {
			require.Error(t, p.err)
		}
		require.Zero(t, r.log.count("is scanned again"))
		require.GreaterOrEqual(t, len(r.passes.of(0)), 8)
		r.faults.set(func(f *faults) { f.broken = nil })
		since, why := r.scanner.UnreadSince(1)
		require.Error(t, why)
		require.False(t, since.IsZero())
		r.after(10 * time.Second)
		again, _ := r.scanner.UnreadSince(1)
		require.Equal(t, since, again, "it can be read again, and was not")
		for p := range layout.Partitions {
			r.owned.set(p, true)
		}
		r.after(10 * time.Second)
		require.NoError(t, r.passes.of(1)[1+len(failed)].err)
		require.Equal(t, 1, r.log.count("is scanned again"))
		since, why = r.scanner.UnreadSince(1)
		require.Zero(t, since)
		require.NoError(t, why)
	})
}

// A statement that hangs takes one of the shared places only the first time. From then on its database is read
// outside of them and delays no other. This test runs on the real clock, against a MySQL that accepts
// connections and never answers.
func TestADatabaseThatHangsDoesNotStopTheOthers(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: a server that hangs is waited for in real time")
	}
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer mute.Close()
	hung := func(timeout time.Duration) *store.Store {
		hung, err := store.Open(store.Config{
			Driver: store.MySQL, Layout: layout, Timeout: timeout,
			DSN: "root@tcp(" + mute.Addr().String() + ")/toc_%d",
		})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, hung.Close()) })
		return hung
	}

	r := newRig(t, layout, 1000, func(c *scanner.Config) { noTicks(c); c.Parallel = 1 })
	defer func() { require.NoError(t, r.store.Close()) }()
	r.faults.stores = map[int]*store.Store{1: hung(time.Second)}
	passed := make(chan struct{}, 10)
	r.passes.ring = passed
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.scanner.Run(ctx) }()
	<-passed
	<-passed
	require.ErrorIs(t, r.passes.of(1)[0].err, context.DeadlineExceeded)

	r.faults.set(func(f *faults) { f.stores = map[int]*store.Store{1: hung(time.Hour)} })
	id := r.insert(orders, 0, 0)
	r.scanner.Tick()
	<-passed
	require.Len(t, r.passes.of(0), 2, "its pass is over while the other one hangs")
	require.Len(t, r.passes.of(1), 1)
	taken, err := r.consumers[orders].Take(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, id, taken[0].ID())
	stop()
	require.ErrorIs(t, <-ended, context.Canceled)
}

// One partition that cannot be read, because a table was dropped for example, does not hide those after it.
func TestAPartitionThatFailsDoesNotStopItsDatabase(t *testing.T) {
	bubble(t, layout, 1000, nil, func(t *testing.T, r *rig) {
		r.work(0)
		r.faults.set(func(f *faults) { f.broken = func(p int) bool { return p == 2 } })
		hurt, fine := r.insert(orders, r.bizID(2, 0), 0), r.insert(orders, r.bizID(3, 0), 0)
		r.run()
		r.ranAll([]uint64{fine})
		require.Empty(t, r.runs(hurt))
		require.ErrorContains(t, r.passes.of(1)[0].err, "partition 2:")
		r.faults.set(func(f *faults) { f.broken = nil })
		r.after(10 * time.Second)
		r.ranAll([]uint64{hurt, fine})
	})
}

// Each statement to a database that is down may take its whole time-out, so a pass does not try all partitions.
func TestAPassGivesUpADatabaseThatIsDown(t *testing.T) {
	wide := sharding.Layout{Databases: 1, TablesPerDatabase: 16, Partitions: 16}
	bubble(t, wide, 1000, nil, func(t *testing.T, r *rig) {
		var reads atomic.Int32
		r.faults.set(func(f *faults) {
			f.reading = func(int) { reads.Add(1) }
			f.broken = func(int) bool { return true }
		})
		r.run()
		require.EqualValues(t, 2, reads.Load())
	})
}

// Neighbouring partitions that can never be read do not hide those after them: a missing table is not the fault
// of the database.
func TestPartitionsThatFailDoNotHideTheOthers(t *testing.T) {
	wide := sharding.Layout{Databases: 1, TablesPerDatabase: 16, Partitions: 16}
	bubble(t, wide, 1000, nil, func(t *testing.T, r *rig) {
		r.work(0)
		r.faults.set(func(f *faults) { f.broken = func(p int) bool { return p < 5 } })
		var fine []uint64
		for p := 5; p < 16; p++ {
			fine = append(fine, r.insert(orders, r.bizID(p, 0), 0))
		}
		r.run()
		require.Len(t, r.passes.of(0), 1)
		r.ranAll(fine)
		fresh := r.insert(orders, r.bizID(15, 0), 21*time.Second)
		r.after(30 * time.Second)
		require.Zero(t, r.ranAll([]uint64{fresh}))
	})
}

// A statement to a database that hangs takes its whole time-out. The two refill goroutines spend that twice,
// and not for each partition that has more.
func TestRefillsLeaveADatabaseThatHangsAlone(t *testing.T) {
	wide := sharding.Layout{Databases: 2, TablesPerDatabase: 16, Partitions: 32}
	bubble(t, wide, 20, noTicks, func(t *testing.T, r *rig) {
		for i := range 200 {
			r.insert(orders, uint64(i), 0) // more in every partition than the queue holds
		}
		r.run()
		r.after(5 * time.Second) // the passes are over
		var reads atomic.Int32
		hangs := func(p int) bool { return wide.PartitionDatabase(p) == 1 }
		r.faults.set(func(f *faults) {
			f.reading = func(p int) {
				if hangs(p) {
					reads.Add(1)
					time.Sleep(15 * time.Second)
				}
			}
			f.broken = hangs
		})
		r.work(0)
		r.after(40 * time.Second)
		require.LessOrEqual(t, reads.Load(), int32(4), "two at a time, until three have failed")
		require.Positive(t, reads.Load())
		var healthy []uint64
		for id := range r.ran {
			if shard, _ := wide.ShardOf(id); wide.Database(shard) == 0 {
				healthy = append(healthy, id)
			}
		}
		require.Len(t, healthy, 100, "all of the other database ran")
	})
}

// The next tick finds what a refill could not read.
func TestARefillThatFailsIsMadeUpByTheNextTick(t *testing.T) {
	bubble(t, layout, 4, nil, func(t *testing.T, r *rig) {
		var ids []uint64
		for range 12 {
			ids = append(ids, r.insert(orders, r.bizID(3, 1), 0))
		}
		r.run() // four are in memory
		require.Equal(t, queue.Stats{Depth: 4, ResumePoints: 1}, r.queue.Stats(orders))
		r.faults.set(func(f *faults) { f.broken = inDatabase(1) })
		r.work(0)
		r.after(time.Second)
		require.Equal(t, 1, r.log.count("partition read interrupted; the next tick resumes it"))
		require.Equal(t, queue.Stats{}, r.queue.Stats(orders))
		r.faults.set(func(f *faults) { f.broken = nil })
		r.after(10 * time.Second)
		r.ranAll(ids)
	})
}

// All rows are found again after the database was away, whatever had been in memory.
func TestNothingIsLostWhileADatabaseComesAndGoes(t *testing.T) {
	bubble(t, layout, 20, nil, func(t *testing.T, r *rig) {
		r.work(10 * time.Millisecond)
		r.run()
		var ids []uint64
		for i := range 100 {
			ids = append(ids, r.insert(orders, uint64(i%8), time.Duration(i*300)*time.Millisecond))
		}
		for i := range 20 {
			r.faults.set(func(f *faults) { f.broken = inDatabase(i % 3) })
			r.after(1700 * time.Millisecond)
		}
		r.faults.set(func(f *faults) { f.broken = nil })
		r.after(20 * time.Second)
		r.ranAll(ids)
		rows, err := r.store.Load(context.Background(), ids)
		require.NoError(t, err)
		for _, row := range rows {
			require.Equal(t, task.Processed, row.Status)
		}
	})
}
