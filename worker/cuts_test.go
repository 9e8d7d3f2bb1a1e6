package worker_test

import (
	"context"
	"maps"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/task"
	"github.com/timeoutcenter/toc/worker"
)

var second = func() *script { return slow(time.Second) }

func TestNothingIsWrittenDownWhereProcessesEndInOrder(t *testing.T) {
	p := second()
	bubble(t, func(t *testing.T, r *rig) {
		r.store.beforeMoves = func(int) error { t.Error("a start is marked"); return nil }
		for id := range uint64(10) {
			r.submit(1, id, -time.Minute)
		}
		r.after(500 * time.Millisecond)
		require.Equal(t, 4, p.runs())
		r.after(time.Minute)
		require.Equal(t, map[worker.Outcome]int{worker.Processed: 10}, r.tally.counts())
	}, lane(p))
}

// Tasks that were due when a killed process was replaced are recorded before they start, until their outcomes
// are durable. Later ones are not.
func TestWhatAKilledProcessMayHaveStartedIsWrittenDownFirst(t *testing.T) {
	for name, p := range map[string]processor.Processor{
		"one by one": second(),
		"batches":    &pack{batch: func(context.Context, []task.Task) []error { time.Sleep(time.Second); return nil }},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.killed()
				due := r.submit(1, 0, -time.Minute)
				later := r.submit(1, 1, 100*time.Millisecond)
				r.after(500 * time.Millisecond)
				require.Equal(t, 2, r.queue.Stats(1).Running)
				require.Equal(t, map[uint64]int{due: 2}, r.store.marks(), "one is supposed")
				r.after(time.Second)
				require.Empty(t, r.store.marks())
				for _, id := range []uint64{due, later} {
					require.Equal(t, task.Processed, r.store.row(id).Status)
				}
			}, lane(p))
		})
	}
}

// Tasks that were due later are not recorded. Once no task from before is pending, the journal is not checked
// any more.
func TestAPartitionIsSettledOnceNothingOfBeforeIsPending(t *testing.T) {
	p := slow(5 * time.Second)
	bubble(t, func(t *testing.T, r *rig) {
		r.killed()
		r.submit(1, 0, -time.Minute)
		later := r.submit(1, 1, time.Hour)
		r.after(4 * time.Second)
		require.Len(t, r.store.marks(), 1)
		of := layout.Partition(layout.Shard(0))
		_, settled := r.settled.Load(of)
		require.False(t, settled, "it runs")
		r.after(4 * time.Second)
		require.Empty(t, r.store.marks())
		_, settled = r.settled.Load(of)
		require.True(t, settled)
		r.store.beforeMoves = func(int) error { t.Error("a start is marked"); return nil }
		r.submit(1, 0, -time.Minute) // stored since, with a time that has passed
		r.after(6 * time.Second)
		require.Equal(t, task.Pending, r.store.row(later).Status)
		require.Equal(t, 2, p.runs())
	}, lane(p))
}

// Permits of the node before are withheld for as long as its runs may go on. Until then the partition is handed on as it was taken.
func TestAPartitionIsSettledOnceItsPermitsMayBeUsed(t *testing.T) {
	p := answer(nil)
	bubble(t, func(t *testing.T, r *rig) {
		r.killed()
		r.limits.SetTypes([]task.BizType{{ID: 1, MaxRunning: 1000, Timeout: 20 * time.Second}})
		of := layout.Partition(layout.Shard(0))
		r.after(20 * time.Second)
		_, settled := r.settled.Load(of)
		require.False(t, settled)
		r.after(4 * time.Second)
		_, settled = r.settled.Load(of)
		require.True(t, settled)
	}, lane(p))
}

func TestAFailedRunIsAnEnd(t *testing.T) {
	p := answer(errDown)
	bubble(t, func(t *testing.T, r *rig) {
		r.killed()
		id := r.submitCutOff(1, 0, -time.Minute, 1)
		r.after(time.Hour)
		require.Equal(t, 4, p.runs(), "max_retries and one; starts without an end are counted apart")
		require.Equal(t, 4, r.store.row(id).Attempts)
		require.Empty(t, r.store.marks())
	}, lane(p, func(b *task.BizType) { b.BackoffMax = time.Second }))
}

// Before, a task that ended the process was started for ever in scan mode.
func TestATaskThatWasCutOffTooOftenDiesWithoutAStart(t *testing.T) {
	p := answer(nil)
	bubble(t, func(t *testing.T, r *rig) {
		r.killed()
		id := r.submitCutOff(1, 0, -time.Minute, 3)
		other := r.submit(1, 1, -time.Minute)
		r.settle()
		require.Equal(t, 1, p.runs())
		require.Equal(t, task.Processed, r.store.row(other).Status)
		row := r.store.row(id)
		require.Equal(t, task.Dead, row.Status)
		require.Equal(t, "started 3 times without an end: its run may end the process", row.LastError)
		require.Zero(t, row.Attempts, "it never failed")
		require.Empty(t, r.store.marks())
		require.Equal(t, map[worker.Outcome]int{worker.Processed: 1, worker.Dead: 1}, r.tally.counts())
		require.Equal(t, queue.Stats{}, r.queue.Stats(1))

		r.store.byHand(id, func(t *task.Task) { t.Status = task.Pending })
		r.queue.Offer(nil, queue.Item{Task: r.store.row(id)})
		r.settle()
		require.Equal(t, task.Processed, r.store.row(id).Status, "a redrive has all its starts again")
	}, lane(p))
}

func TestWhatIsOnlySupposedMakesNothingDead(t *testing.T) {
	p := answer(nil)
	bubble(t, func(t *testing.T, r *rig) {
		r.killed()
		id := r.submit(1, 0, -time.Minute)
		r.after(6 * time.Second) // at their last chance tasks run alone, after some calm
		require.Equal(t, task.Processed, r.store.row(id).Status)
		require.Empty(t, r.store.marks())
	}, lane(p, func(b *task.BizType) { b.Cuts = 1 }))
}

// Tasks that were cut off once run side by side, after they are recorded; those at their last chance run one at
// a time. They do not hold up other tasks.
func TestTasksAtTheirLastChanceRunAlone(t *testing.T) {
	p := second()
	bubble(t, func(t *testing.T, r *rig) {
		r.killed()
		for id := range uint64(3) {
			r.submitCutOff(1, id, 50*time.Millisecond, 1)
			r.submitCutOff(1, 10+id, 50*time.Millisecond, 2)
		}
		begin := time.Now()
		r.after(500 * time.Millisecond)
		require.Equal(t, 3, p.runs(), "those at their last chance wait for calm")
		r.after(5 * time.Second)
		require.Equal(t, 4, p.runs(), "three, and one alone")
		cuts := map[int]int{}
		for _, n := range r.store.marks() {
			cuts[n]++
		}
		require.Equal(t, map[int]int{2: 2, 3: 1}, cuts)
		for id := range uint64(8) {
			r.submit(1, 100+id, 0)
		}
		r.after(10 * time.Second)
		require.Empty(t, r.store.marks())
		require.Equal(t, map[worker.Outcome]int{worker.Processed: 14}, r.tally.counts())
		var alone []time.Duration
		tasks, starts := p.tasks(), p.starts()
		for i := range tasks {
			if id := tasks[i].BizID; id >= 10 && id < 100 {
				alone = append(alone, starts[i].Sub(begin))
			} else {
				require.Less(t, starts[i].Sub(begin), 8*time.Second)
			}
		}
		require.Len(t, alone, 3)
		require.GreaterOrEqual(t, alone[0], 5*time.Second-50*time.Millisecond)
		require.GreaterOrEqual(t, alone[1], alone[0]+time.Second)
		require.GreaterOrEqual(t, alone[2], alone[1]+time.Second)
	}, lane(p))
}

// Until the end of a run is recorded, its task could be blamed when the next one ends the process.
func TestTheNextOneWaitsForTheEndOfTheOneBefore(t *testing.T) {
	p := answer(nil)
	bubble(t, func(t *testing.T, r *rig) {
		letGo := make(chan struct{})
		r.store.beforeApply = func(_ context.Context, database int) error {
			if p.runs() == 1 {
				<-letGo
			}
			return nil
		}
		for id := range uint64(2) { // of two databases
			r.submitCutOff(1, id, 50*time.Millisecond, 2)
		}
		r.after(30 * time.Second)
		require.Equal(t, 1, p.runs())
		close(letGo)
		r.settle()
		r.after(time.Second)
		require.Equal(t, 2, p.runs())
		require.Empty(t, r.store.marks())
	}, lane(p))
}

func TestATaskThatRunsAloneMayHangOrEndItsGoroutine(t *testing.T) {
	p := &script{}
	bubbleOf(t, func() []*worker.Lane {
		letGo := make(chan struct{})
		time.AfterFunc(time.Hour, func() { close(letGo) })
		p.f = func(_ context.Context, t task.Task) error {
			if t.BizID == 1 {
				<-letGo
			} else {
				runtime.Goexit()
			}
			return nil
		}
		return []*worker.Lane{lane(p, func(b *task.BizType) { b.Timeout = time.Second })}
	}, func(t *testing.T, r *rig) {
		r.near = 0
		hangs, exits := r.submitCutOff(1, 1, 50*time.Millisecond, 2), r.submitCutOff(1, 2, 6*time.Second, 2)
		r.after(10 * time.Second)
		require.Equal(t, 1, p.runs(), "the second waits for the first")
		r.after(time.Minute)
		require.Equal(t, 2, p.runs(), "the first is stuck: it hangs, and does not end the process")
		require.Equal(t, "the processor ended its goroutine", r.store.row(exits).LastError)
		require.Equal(t, 1, r.Stuck()[0].Runs)
		r.after(time.Hour)
		require.Equal(t, task.Processed, r.store.row(hangs).Status)
		require.Empty(t, r.store.marks())
		require.Empty(t, r.Stuck())
	})
}

func TestATaskThatWaitsForItsTurnMayBeTakenAway(t *testing.T) {
	p := second()
	bubble(t, func(t *testing.T, r *rig) {
		for id := range uint64(5) {
			r.submitCutOff(1, id, 50*time.Millisecond, 2)
		}
		r.after(5500 * time.Millisecond)
		require.Equal(t, 5, r.queue.Stats(1).Running)
		r.term.Store(0)
		r.after(200 * time.Millisecond)
		require.Equal(t, 1, r.queue.Stats(1).Running, "only the one that has started is waited for")
		r.after(time.Minute)
		require.Equal(t, 1, p.runs())
		require.Equal(t, []int{2, 2, 2, 2}, slices.Collect(maps.Values(r.store.marks())), "the next owner finds them as they were")
	}, lane(p))
}

// Before, tasks that were cut off by processes that ended for another reason ran one after the other, all of
// them.
func TestAMinuteOfRunningAloneIsEnough(t *testing.T) {
	p := second()
	bubble(t, func(t *testing.T, r *rig) {
		r.killed()
		const n = 100
		for id := range uint64(n) {
			r.submitCutOff(1, id, 50*time.Millisecond, 2)
		}
		again := func() { // as a tick does
			for _, row := range r.store.all() {
				if row.Status == task.Pending {
					r.queue.Offer(nil, queue.Item{Task: row, Partition: layout.Partition(layout.Shard(row.BizID))})
				}
			}
		}
		r.after(64 * time.Second)
		alone := p.runs()
		require.InDelta(t, 59, alone, 2)
		r.after(2 * time.Second)
		again()
		r.after(500 * time.Millisecond)
		for _, n := range r.store.marks() {
			require.Equal(t, 2, n, "a chance is left should the process end now")
		}
		for range 20 {
			r.after(time.Second)
			again()
		}
		require.Equal(t, n, p.runs())
	}, lane(p))
}

// Before, with cuts: 1 the tasks that were left after the minute had no chance left: the next process made all of them dead.
func TestAfterTheMinuteOneCutIsAsTwo(t *testing.T) {
	p := slow(time.Minute)
	bubble(t, func(t *testing.T, r *rig) {
		r.killed()
		for id := range uint64(3) {
			r.submit(1, id, -time.Second)
		}
		r.after(30 * time.Second)
		require.Equal(t, []int{2}, slices.Collect(maps.Values(r.store.marks())), "one runs alone")
		r.after(36 * time.Second)
		for _, row := range r.store.all() { // as a tick does
			if row.Status == task.Pending {
				r.offer(row)
			}
		}
		r.settle()
		require.Equal(t, 3, p.runs())
		require.Equal(t, []int{1, 1}, slices.Collect(maps.Values(r.store.marks())), "a chance is left should the process end now")
		r.after(2 * time.Minute)
		require.Empty(t, r.store.marks())
	}, lane(p, func(b *task.BizType) { b.Cuts, b.Timeout = 1, 2*time.Minute }))
}

// Before, with cuts: 1 a task with one cut had no chance left.
func TestOneCutIsAsTwo(t *testing.T) {
	p := answer(nil)
	bubble(t, func(t *testing.T, r *rig) {
		r.killed()
		one, two := r.submitCutOff(1, 0, -time.Minute, 1), r.submitCutOff(1, 1, -time.Minute, 2)
		r.after(6 * time.Second)
		require.Equal(t, task.Processed, r.store.row(one).Status)
		require.Equal(t, task.Dead, r.store.row(two).Status)
	}, lane(p, func(b *task.BizType) { b.Cuts = 1 }))
}

// Before, a waiting task counted as running: a cancel was refused, and one that was cancelled by plain SQL ran.
func TestATaskThatWaitsForItsTurnDoesNotRunYet(t *testing.T) {
	p := second()
	bubble(t, func(t *testing.T, r *rig) {
		r.killed()
		var ids []uint64
		for id := range uint64(4) {
			ids = append(ids, r.submitCutOff(1, id, 50*time.Millisecond, 2))
		}
		r.after(time.Second)
		for _, id := range ids {
			_, runs := r.queue.RunningSince(id)
			require.False(t, runs)
			require.Equal(t, queue.Alone, r.queue.Look(id).State)
		}
		h, err := r.queue.Hold(t.Context(), ids[1], layout.Partition(layout.Shard(1)))
		require.NoError(t, err)
		r.store.byHand(ids[1], func(t *task.Task) { t.Status = task.Cancelled })
		h.Remove()
		r.store.byHand(ids[2], func(t *task.Task) { t.Status = task.Cancelled })
		r.after(time.Minute)
		require.Equal(t, 2, p.runs())
		require.Equal(t, task.Processed, r.store.row(ids[0]).Status)
		require.Equal(t, task.Cancelled, r.store.row(ids[1]).Status)
		require.Equal(t, task.Cancelled, r.store.row(ids[2]).Status)
		require.Equal(t, task.Processed, r.store.row(ids[3]).Status)
	}, lane(p))
}

// Before, a drain waited until each of them had run, or until its own time-out.
func TestADrainDoesNotWaitForThoseThatAreToRunAlone(t *testing.T) {
	p := second()
	bubble(t, func(t *testing.T, r *rig) {
		r.killed()
		var ids []uint64
		for id := range uint64(20) {
			ids = append(ids, r.submitCutOff(1, id, 50*time.Millisecond, 2))
		}
		r.after(5500 * time.Millisecond)
		require.Equal(t, 1, p.runs(), "the first one runs")
		began := time.Now()
		r.stop()
		require.LessOrEqual(t, time.Since(began), 2*time.Second)
		require.Equal(t, 1, p.runs())
		pending := 0
		for _, id := range ids {
			if r.store.row(id).Status == task.Pending {
				pending++
			}
		}
		require.Equal(t, 19, pending)
	}, lane(p))
}

// refused is how long no suspect of a table is tried after one could not be marked.
const refused = 5 * time.Second

// Where rows cannot be marked, suspects stay in the store. Other tasks start.
func TestWhatCannotBeMarkedDoesNotStart(t *testing.T) {
	p := answer(nil)
	bubble(t, func(t *testing.T, r *rig) {
		r.killed()
		shards := uint64(layout.Shards())
		var down atomic.Bool
		down.Store(true)
		r.store.beforeMoves = func(database int) error {
			if down.Load() && database == 0 {
				return errDown
			}
			return nil
		}
		waits := r.submit(1, 2*shards, -time.Minute)
		later := r.submit(1, 4*shards, time.Second)
		other := r.submit(1, 1, -time.Minute)
		r.after(4 * time.Second)
		require.Equal(t, task.Pending, r.store.row(waits).Status)
		require.Equal(t, task.Processed, r.store.row(later).Status)
		require.Equal(t, task.Processed, r.store.row(other).Status)
		require.Equal(t, queue.Stats{}, r.queue.Stats(1))
		require.Equal(t, errDown, r.Holds(waits, 0).Unmarked)
		require.Equal(t, 1, r.log.count("rows cannot be marked"))

		r.offer(r.store.row(waits)) // as a tick does
		r.settle()
		require.Equal(t, 1, r.log.count("rows cannot be marked"), "it is not tried again so soon")
		r.after(refused)
		require.NoError(t, r.Holds(waits, 0).Unmarked)
		down.Store(false)
		r.offer(r.store.row(waits))
		r.settle()
		require.Equal(t, task.Processed, r.store.row(waits).Status)
		require.Empty(t, r.store.marks())
	}, lane(p))
}

// A database that does not answer a mark holds up its own tasks, and a worker for two seconds.
func TestAMarkThatHangsHoldsUpItsOwnTask(t *testing.T) {
	for name, p := range map[string]processor.Processor{"one by one": answer(nil), "a batch": &pack{batch: func(context.Context, []task.Task) []error { return nil }}} {
		t.Run(name, func(t *testing.T) {
			bubbleOf(t, func() []*worker.Lane {
				return []*worker.Lane{lane(p, func(b *task.BizType) { b.Workers = 1 })}
			}, func(t *testing.T, r *rig) {
				r.killed()
				letGo := make(chan struct{})
				r.store.beforeMoves = func(database int) error {
					if database == 0 {
						<-letGo
					}
					return nil
				}
				hangs, other := r.submit(1, 0, -time.Minute), r.submit(1, 1, -time.Minute)
				r.after(2 * time.Second)
				require.Equal(t, task.Processed, r.store.row(other).Status)
				require.Equal(t, queue.Stats{}, r.queue.Stats(1))
				close(letGo) // the mark is made now, although nothing waits for it
				r.settle()
				require.Equal(t, map[uint64]int{hangs: 2}, r.store.marks())
				r.after(refused)
				letGo = make(chan struct{})
				r.offer(r.store.row(hangs))
				r.settle()
				require.Equal(t, map[uint64]int{hangs: 2}, r.store.marks(), "the start that was none does not count")
				close(letGo)
				r.settle()
				require.Equal(t, task.Processed, r.store.row(hangs).Status)
			})
		})
	}
}

// The answer to a mark may be lost again and again: that makes no task dead.
func TestAMarkWhoseAnswerIsLostCountsOnce(t *testing.T) {
	p := answer(nil)
	bubble(t, func(t *testing.T, r *rig) {
		r.killed()
		id := r.insert(1, 0, -time.Minute).JobID
		lost := true
		r.store.afterMoves = func() error {
			if lost {
				return errDown
			}
			return nil
		}
		for range 10 {
			r.offer(r.store.row(id))
			r.after(refused / 2)
			r.offer(r.store.row(id)) // it is not tried yet
			r.after(refused / 2)
			require.Equal(t, map[uint64]int{id: 2}, r.store.marks())
			require.Zero(t, p.runs())
		}
		lost = false
		r.offer(r.store.row(id))
		r.settle()
		require.Equal(t, 1, p.runs())
		require.Equal(t, task.Processed, r.store.row(id).Status)

		lost = true
		id = r.insert(1, 0, -time.Minute).JobID
		r.offer(r.store.row(id))
		r.settle()
		lost = false
		r.Abandon(layout.Partition(layout.Shard(0)))
		require.Equal(t, map[uint64]int{id: 1}, r.store.marks(), "nor does it count for the next owner")
	}, lane(p))
}

// A row that changes while its start is about to be marked is read again first: by hand, by an owner before that is late, or by a
// request on another node.
func TestAChangedRowIsNotMarked(t *testing.T) {
	for name, change := range map[string]func(*task.Task){
		"cancelled": func(t *task.Task) { t.Status = task.Cancelled },
		"moved":     func(t *task.Task) { t.ActionTime = t.ActionTime.Add(time.Hour) },
		"run":       func(t *task.Task) { t.Attempts++ },
		"marked":    func(t *task.Task) { t.Lease = 1 },
		"leased":    func(t *task.Task) { t.Lease = task.NewLease(t.ActionTime) },
	} {
		t.Run(name, func(t *testing.T) {
			p := answer(nil)
			bubble(t, func(t *testing.T, r *rig) {
				r.killed()
				row := r.insert(1, 0, -time.Minute)
				r.store.byHand(row.JobID, change)
				changed := r.store.row(row.JobID)
				r.offer(row)
				r.after(10 * time.Second)
				require.Zero(t, p.runs())
				require.Equal(t, changed, r.store.row(row.JobID))
				require.Equal(t, queue.Stats{}, r.queue.Stats(1))
			}, lane(p))
		})
	}
}

// The column lease has leases of consumers as well: a type that was pulled is not any more, or is pulled now.
func TestACountAndALeaseReplaceEachOther(t *testing.T) {
	p := second()
	bubble(t, func(t *testing.T, r *rig) {
		r.killed()
		row := r.insert(1, 0, -time.Minute)
		row.Lease = task.NewLease(row.ActionTime.Add(time.Hour)) // a void one
		r.store.byHand(row.JobID, func(t *task.Task) { *t = row })
		r.offer(row)
		r.settle()
		require.Equal(t, map[uint64]int{row.JobID: 2}, r.store.marks())
		r.after(2 * time.Second)
		require.Equal(t, task.Processed, r.store.row(row.JobID).Status)
	}, lane(p))
	bubble(t, func(t *testing.T, r *rig) {
		id := r.submitCutOff(1, 0, -time.Minute, 3)
		leased := r.leaseIn(time.Minute)
		require.Len(t, leased, 1)
		require.Equal(t, id, leased[0].JobID)
		require.Empty(t, r.store.marks())
		require.Zero(t, r.store.row(id).Attempts)
	}, pullLane())
}

// Who edits the row of a suspect while it runs keeps his edit, as of any task; see TestAnEditDuringTheRunWins.
func TestAnEditOfAMarkedRow(t *testing.T) {
	p := &script{f: func(context.Context, task.Task) error { time.Sleep(time.Second); return errDown }}
	bubble(t, func(t *testing.T, r *rig) {
		r.killed()
		later := time.Now().UTC().Add(time.Hour)
		id := r.submit(1, 0, -time.Minute)
		r.after(500 * time.Millisecond)
		r.store.byHand(id, func(t *task.Task) { t.ActionTime = later })
		r.after(time.Second)
		row := r.store.row(id)
		require.Equal(t, 1, row.Attempts)
		require.Equal(t, later, row.ActionTime)
		require.Zero(t, row.Lease)
	}, lane(p))
}

// A run that is cut off by a stop or a hand-over is not to blame for it. Earlier starts still count. Before,
// they were forgotten as well, so a task that ends its process after the time of a hand-over ended four.
func TestWhatIsAbandonedDoesNotCount(t *testing.T) {
	p := &script{f: func(context.Context, task.Task) error { time.Sleep(time.Hour); return nil }}
	bubble(t, func(t *testing.T, r *rig) {
		r.killed()
		a, b := r.submit(1, 0, -time.Minute), r.submit(1, 1, -time.Minute)
		r.settle()
		require.Equal(t, map[uint64]int{a: 2, b: 2}, r.store.marks(), "one is supposed")
		shard, _ := layout.ShardOf(a)
		r.Abandon(layout.Partition(shard))
		require.Equal(t, map[uint64]int{a: 1, b: 2}, r.store.marks())
		r.cancelDrain()
		r.settle()
		require.Equal(t, map[uint64]int{a: 1, b: 1}, r.store.marks())
	}, lane(p))
}

// What had to wait for its mark is read again: a hand may have cancelled it meanwhile.
func TestWhatIsDoneByHandWhileAStartIsMarkedIsHonoured(t *testing.T) {
	for cuts := range 2 { // the last chance but one, and the last one, which runs alone
		p := answer(nil)
		bubble(t, func(t *testing.T, r *rig) {
			r.store.beforeMoves = func(int) error { time.Sleep(1500 * time.Millisecond); return nil }
			var ids [3]uint64
			for i := range ids {
				ids[i] = r.submitCutOff(1, 2*uint64(i), 50*time.Millisecond, cuts+1)
			}
			cancelled, moved, edited := ids[0], ids[1], ids[2]
			r.killed()
			r.after([]time.Duration{time.Second, 6 * time.Second}[cuts]) // it is being marked
			require.Zero(t, p.runs())
			later := time.Now().UTC().Add(time.Hour)
			r.store.byHand(cancelled, func(t *task.Task) { t.Status = task.Cancelled })
			r.store.byHand(moved, func(t *task.Task) { t.ActionTime = later })
			r.store.byHand(edited, func(t *task.Task) { t.Attribute = "by hand" })
			r.after(30 * time.Second)
			require.Equal(t, 1, p.runs())
			require.Equal(t, "by hand", p.tasks()[0].Attribute)
			require.Zero(t, r.queue.Stats(1).Running)
			require.EqualValues(t, cuts+1, r.store.row(moved).Lease, "it did not start")
		}, lane(p, one))
	}
}

// A row that somebody has locked cannot be marked. It holds up its own task.
func TestALockedRowOfASuspect(t *testing.T) {
	p := answer(nil)
	bubble(t, func(t *testing.T, r *rig) {
		r.killed()
		suspect, other := r.submit(1, 0, -time.Minute), r.submit(1, 1, -time.Minute)
		r.store.lock(suspect)
		later := r.submit(1, 4, time.Second)
		r.after(2 * time.Second)
		require.Equal(t, task.Pending, r.store.row(suspect).Status)
		require.Equal(t, task.Processed, r.store.row(other).Status)
		require.Equal(t, task.Processed, r.store.row(later).Status)
		r.store.unlock()
		r.after(refused)
		r.offer(r.store.row(suspect)) // as a tick does
		r.settle()
		require.Equal(t, task.Processed, r.store.row(suspect).Status)
	}, lane(p))
	t.Run("with its table", func(t *testing.T) {
		p := answer(nil)
		bubble(t, func(t *testing.T, r *rig) {
			suspect, other := r.insert(1, 0, 50*time.Millisecond), r.insert(1, 4, 50*time.Millisecond)
			r.cutOff(suspect.JobID, 1)
			r.store.lockTables(suspect.JobID) // before the queue reads its row again
			r.offer(suspect)
			r.offer(other)
			r.after(time.Second)
			require.Equal(t, task.Processed, r.store.row(other.JobID).Status)
			require.Equal(t, 1, p.runs(), "what cannot be read again does not run")
			r.store.unlock()
			r.offer(suspect) // as a refill does
			r.after(2 * time.Second)
			require.Equal(t, task.Processed, r.store.row(suspect.JobID).Status)
		}, lane(p))
	})
}
