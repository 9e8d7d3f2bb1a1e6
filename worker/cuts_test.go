package worker_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
	"github.com/timeoutcenter/toc/worker"
)

var second = func() *script { return slow(time.Second) }

func TestNothingIsWrittenDownWhereProcessesEndInOrder(t *testing.T) {
	p := second()
	bubble(t, func(t *testing.T, r *rig) {
		r.store.beforeJournal = func(context.Context, int) error {
			require.Empty(t, r.tally.counts(), "asked once, before the first start")
			return nil
		}
		for id := range uint64(10) {
			r.submit(1, id, -time.Minute)
		}
		r.after(500 * time.Millisecond)
		require.Equal(t, 4, p.runs())
		require.Empty(t, r.store.journaled())
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
				require.Equal(t, []store.Running{{JobID: due, Instance: "this", Cuts: 1, Since: r.store.journaled()[0].Since}}, r.store.journaled())
				r.after(time.Second)
				require.Empty(t, r.store.journaled())
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
		require.Len(t, r.store.journaled(), 1)
		of := layout.Partition(layout.Shard(0))
		_, settled := r.settled.Load(of)
		require.False(t, settled, "it runs")
		r.after(4 * time.Second)
		require.Empty(t, r.store.journaled())
		_, settled = r.settled.Load(of)
		require.True(t, settled)
		r.store.beforeJournal = func(context.Context, int) error { t.Error("the journal is used"); return nil }
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
		id := r.submitCutOff(1, 0, -time.Minute, 0)
		r.after(time.Hour)
		require.Equal(t, 4, p.runs(), "max_retries and one; starts without an end are counted apart")
		require.Equal(t, 4, r.store.row(id).Attempts)
		require.Empty(t, r.store.journaled())
	}, lane(p, func(b *task.BizType) { b.BackoffMax = time.Second }))
}

// Before, a task that ended the process was started for ever in scan mode.
func TestATaskThatWasCutOffTooOftenDiesWithoutAStart(t *testing.T) {
	p := answer(nil)
	bubble(t, func(t *testing.T, r *rig) {
		r.killed()
		id := r.submitCutOff(1, 0, -time.Minute, 2)
		other := r.submit(1, 1, -time.Minute)
		r.settle()
		require.Equal(t, 1, p.runs())
		require.Equal(t, task.Processed, r.store.row(other).Status)
		row := r.store.row(id)
		require.Equal(t, task.Dead, row.Status)
		require.Equal(t, "started 3 times without an end: its run may end the process", row.LastError)
		require.Zero(t, row.Attempts, "it never failed")
		require.Empty(t, r.store.journaled())
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
		require.Empty(t, r.store.journaled())
	}, lane(p, func(b *task.BizType) { b.Cuts = 1 }))
}

// Tasks that were cut off once run side by side, after they are recorded; those at their last chance run one at
// a time. They do not hold up other tasks.
func TestTasksAtTheirLastChanceRunAlone(t *testing.T) {
	p := second()
	bubble(t, func(t *testing.T, r *rig) {
		r.killed()
		var once, twice []uint64
		for id := range uint64(3) {
			once = append(once, r.submit(1, id, 50*time.Millisecond))
			r.cutOff(once[id], 0)
			twice = append(twice, r.submit(1, 10+id, 50*time.Millisecond))
			r.cutOff(twice[id], 1)
		}
		begin := time.Now()
		r.after(500 * time.Millisecond)
		require.Equal(t, 3, p.runs(), "those at their last chance wait for calm")
		r.after(5 * time.Second)
		require.Equal(t, 4, p.runs(), "three, and one alone")
		cuts := map[int]int{}
		for _, s := range r.store.journaled() {
			if s.Instance == "this" {
				cuts[s.Cuts]++
			}
		}
		require.Equal(t, map[int]int{2: 1}, cuts)
		for id := range uint64(8) {
			r.submit(1, 100+id, 0)
		}
		r.after(10 * time.Second)
		require.Empty(t, r.store.journaled())
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
		r.store.beforeJournal = func(context.Context, int) error {
			if p.runs() == 1 {
				<-letGo
			}
			return nil
		}
		for id := range uint64(2) {
			r.cutOff(r.submit(1, id, 50*time.Millisecond), 1)
		}
		r.after(time.Minute)
		require.Equal(t, 1, p.runs())
		close(letGo)
		r.settle()
		r.after(time.Second)
		require.Equal(t, 2, p.runs())
		require.Empty(t, r.store.journaled())
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
		hangs, exits := r.submit(1, 1, 50*time.Millisecond), r.submit(1, 2, time.Second)
		r.cutOff(hangs, 1)
		r.cutOff(exits, 1)
		r.after(5 * time.Second)
		require.Equal(t, 1, p.runs(), "the second waits for the first")
		r.after(time.Minute)
		require.Equal(t, 2, p.runs(), "the first is stuck: it hangs, and does not end the process")
		require.Equal(t, "the processor ended its goroutine", r.store.row(exits).LastError)
		require.Equal(t, 1, r.Stuck()[0].Runs)
		r.after(time.Hour)
		require.Equal(t, task.Processed, r.store.row(hangs).Status)
		require.Empty(t, r.store.journaled())
		require.Empty(t, r.Stuck())
	})
}

func TestATaskThatWaitsForItsTurnMayBeTakenAway(t *testing.T) {
	p := second()
	bubble(t, func(t *testing.T, r *rig) {
		for id := range uint64(5) {
			r.cutOff(r.submit(1, id, 50*time.Millisecond), 1)
		}
		r.after(500 * time.Millisecond)
		require.Equal(t, 5, r.queue.Stats(1).Running)
		r.term.Store(0)
		r.after(200 * time.Millisecond)
		require.Equal(t, 1, r.queue.Stats(1).Running, "only the one that has started is waited for")
		r.after(time.Minute)
		require.Equal(t, 1, p.runs())
		cuts := 0
		for _, s := range r.store.journaled() {
			require.Equal(t, "killed", s.Instance, "the next owner finds them as they were")
			cuts += s.Cuts
		}
		require.Equal(t, 4, cuts)
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
			r.cutOff(r.submit(1, id, 50*time.Millisecond), 1)
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
		for _, s := range r.store.journaled() {
			if s.Instance == "this" {
				require.Equal(t, 1, s.Cuts, "a chance is left should the process end now")
			}
		}
		for range 20 {
			r.after(time.Second)
			again()
		}
		require.Equal(t, n, p.runs())
	}, lane(p))
}

// Before, a waiting task counted as running: a cancel was refused, and one that was cancelled by plain SQL ran.
func TestATaskThatWaitsForItsTurnDoesNotRunYet(t *testing.T) {
	p := second()
	bubble(t, func(t *testing.T, r *rig) {
		r.killed()
		var ids []uint64
		for id := range uint64(4) {
			ids = append(ids, r.submit(1, id, 50*time.Millisecond))
			r.cutOff(ids[id], 1)
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
			ids = append(ids, r.submit(1, id, 50*time.Millisecond))
			r.cutOff(ids[id], 1)
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

func TestRowsOfTasksThatCameToAnEndSayNothing(t *testing.T) {
	p := second()
	bubble(t, func(t *testing.T, r *rig) {
		tried, over, next := r.submit(1, 0, time.Second), r.submit(1, 2, time.Hour), r.submit(1, 4, time.Second) // of one database
		for _, id := range []uint64{tried, over, next, 1 << 62} {
			r.cutOff(id, 2)
		}
		r.store.byHand(tried, func(t *task.Task) { t.Attempts = 1 })
		r.store.byHand(over, func(t *task.Task) { t.Status = task.Cancelled })
		r.after(1500 * time.Millisecond)
		require.Equal(t, 1, p.runs())
		require.Equal(t, tried, p.tasks()[0].JobID)
		require.Equal(t, task.Dead, r.store.row(next).Status)
		var left []uint64
		for _, s := range r.store.journaled() {
			left = append(left, s.JobID)
		}
		require.NotContains(t, left, tried)
		require.NotContains(t, left, over)
	}, lane(p))
}

// Without the journal, tasks that must be recorded first stay in the store, and are found when the journal
// works again. Other tasks continue.
func TestWithoutTheJournalNothingStartsThatMustBeWrittenDown(t *testing.T) {
	p := answer(nil)
	bubble(t, func(t *testing.T, r *rig) {
		r.killed()
		shards := uint64(layout.Shards())
		r.submit(1, 0, 0) // the journal of database 0 is read
		r.settle()
		var down atomic.Bool
		down.Store(true)
		r.store.beforeJournal = func(_ context.Context, database int) error {
			if down.Load() && database == 0 {
				return errors.New("the database is down")
			}
			return nil
		}
		changes := r.ticks.Load()
		waits := r.submit(1, 2*shards, -time.Minute)
		later := r.submit(1, 4*shards, time.Second)
		other := r.submit(1, 1, -time.Minute)
		r.after(30 * time.Second)
		require.Equal(t, task.Pending, r.store.row(waits).Status)
		require.Equal(t, task.Processed, r.store.row(later).Status)
		require.Equal(t, task.Processed, r.store.row(other).Status)
		require.Equal(t, queue.Stats{}, r.queue.Stats(1))
		require.Equal(t, changes, r.ticks.Load())

		down.Store(false)
		r.after(5 * time.Second)
		require.Equal(t, changes+1, r.ticks.Load(), "a scan finds what waits")
		r.queue.Offer(nil, queue.Item{Task: r.store.row(waits)})
		r.settle()
		require.Equal(t, task.Processed, r.store.row(waits).Status)
		require.Empty(t, r.store.journaled())
	}, lane(p))
}

func TestWithoutTheJournalANewTermDoesNotBegin(t *testing.T) {
	p := answer(nil)
	bubble(t, func(t *testing.T, r *rig) {
		var down atomic.Bool
		down.Store(true)
		r.store.beforeJournal = func(ctx context.Context, _ int) error {
			if down.Load() {
				<-ctx.Done()
			}
			return ctx.Err()
		}
		id := r.submit(1, 0, 0)
		r.after(30 * time.Second)
		require.Zero(t, p.runs())
		down.Store(false)
		r.after(10 * time.Second)
		r.queue.Offer(nil, queue.Item{Task: r.store.row(id)})
		r.settle()
		require.Equal(t, 1, p.runs())
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
		cuts := func() map[uint64]int {
			counts := map[uint64]int{}
			for _, s := range r.store.journaled() {
				counts[s.JobID] = s.Cuts
			}
			return counts
		}
		require.Equal(t, map[uint64]int{a: 1, b: 1}, cuts(), "one is supposed")
		shard, _ := layout.ShardOf(a)
		r.Abandon(layout.Partition(shard))
		require.Equal(t, map[uint64]int{a: 0, b: 1}, cuts())
		r.cancelDrain()
		r.settle()
		require.Equal(t, map[uint64]int{a: 0, b: 0}, cuts(), "whoever finds them counts one")
	}, lane(p))
}

// Before, a hand that had locked toc_running, or the table of one suspect, stopped all tasks of the database after a start.
// What had to wait for the journal is read again: a hand may have cancelled it meanwhile.
// Before, it ran.
func TestWhatIsDoneByHandWhileTheJournalIsWrittenIsHonoured(t *testing.T) {
	for cuts := range 2 { // the last chance but one, and the last one, which runs alone
		p := answer(nil)
		bubble(t, func(t *testing.T, r *rig) {
			r.store.beforeJournal = func(context.Context, int) error { time.Sleep(1500 * time.Millisecond); return nil }
			cancelled, moved, edited := r.submit(1, 0, 50*time.Millisecond), r.submit(1, 2, 50*time.Millisecond), r.submit(1, 4, 50*time.Millisecond)
			for _, id := range []uint64{cancelled, moved, edited} {
				r.cutOff(id, cuts)
			}
			r.killed()
			r.after([]time.Duration{2 * time.Second, 6 * time.Second}[cuts]) // it is being written
			require.Zero(t, p.runs())
			later := time.Now().UTC().Add(time.Hour)
			r.store.byHand(cancelled, func(t *task.Task) { t.Status = task.Cancelled })
			r.store.byHand(moved, func(t *task.Task) { t.ActionTime = later })
			r.store.byHand(edited, func(t *task.Task) { t.Attribute = "by hand" })
			r.after(30 * time.Second)
			require.Equal(t, 1, p.runs())
			require.Equal(t, "by hand", p.tasks()[0].Attribute)
			require.Zero(t, r.queue.Stats(1).Running)
			for _, row := range r.store.journaled() {
				require.NotEqual(t, "this", row.Instance)
			}
		}, lane(p, one))
	}
}

func TestALockedJournalHoldsUpSuspectsOnly(t *testing.T) {
	p := answer(nil)
	bubble(t, func(t *testing.T, r *rig) {
		var locked atomic.Bool
		locked.Store(true)
		r.store.beforeJournal = func(context.Context, int) error {
			if locked.Load() {
				return fmt.Errorf("read: %w", task.ErrLocked)
			}
			return nil
		}
		id := r.submit(1, 0, 0)
		r.settle()
		require.Equal(t, task.Processed, r.store.row(id).Status, "nothing is suspect")
		r.killed()
		r.term.Store(2)
		suspect := r.submit(1, 1, 0)
		r.after(10 * time.Second)
		require.Equal(t, task.Pending, r.store.row(suspect).Status)
		locked.Store(false)
		r.after(10 * time.Second)
		r.queue.Offer(nil, queue.Item{Task: r.store.row(suspect), Partition: layout.Partition(layout.Shard(1))})
		r.settle()
		require.Equal(t, task.Processed, r.store.row(suspect).Status)
	}, lane(p))
	t.Run("the table of a suspect", func(t *testing.T) {
		p := answer(nil)
		bubble(t, func(t *testing.T, r *rig) {
			suspect, other := r.insert(1, 0, 50*time.Millisecond), r.insert(1, 4, 50*time.Millisecond)
			r.cutOff(suspect.JobID, 0)
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
