package worker_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/task"
	"github.com/timeoutcenter/toc/worker"
)

var errStore = errors.New("connection refused")

func TestAnOutcomeIsTriedUntilItIsDurable(t *testing.T) {
	p := answer(nil)
	bubble(t, func(t *testing.T, r *rig) {
		start, fails := time.Now(), 12
		r.store.beforeApply = func(context.Context, int) error {
			if fails--; fails >= 0 {
				return errStore
			}
			return nil
		}
		id := r.submit(1, 42, 0)
		r.settle()
		for len(r.tally.counts()) == 0 {
			require.Equal(t, task.Pending, r.store.row(id).Status)
			require.Equal(t, queue.Stats{Running: 1}, r.queue.Stats(1), "it runs until its outcome is durable")
			_, err := r.queue.Hold(t.Context(), id, 0)
			require.Error(t, err)
			r.after(time.Second)
		}
		require.Equal(t, map[worker.Outcome]int{worker.Processed: 1}, r.tally.counts())
		require.Equal(t, task.Processed, r.store.row(id).Status)
		require.Equal(t, 1, p.runs())
		require.Equal(t, queue.Stats{}, r.queue.Stats(1))

		// Every try is the same batch under the same stamp, so that the store can tell
		// what an earlier try has done. The pauses grow from 50 ms to 2 s: a database that is back is used soon.
		require.Len(t, r.store.applyCalls(), 13)
		want := []time.Duration{50, 100, 200, 400, 800, 1600, 2000, 2000, 2000, 2000, 2000, 2000}
		at := start
		for i, call := range r.store.applyCalls() {
			require.Equal(t, at, call.at)
			require.Equal(t, r.store.applyCalls()[0].stamp, call.stamp)
			require.Equal(t, r.store.applyCalls()[0].moves, call.moves)
			if i < len(want) {
				at = at.Add(want[i] * time.Millisecond)
			}
		}
		require.Contains(t, r.log.String(), "outcomes recorded after all")
	}, lane(p))
}

// While a database does not record outcomes, its own tasks do not start: they would pile up, and run again
// after a restart. Other databases are not affected.
func TestADatabaseThatFailsHoldsUpItsOwnTasksOnly(t *testing.T) {
	p := answer(nil)
	bubble(t, func(t *testing.T, r *rig) {
		var up atomic.Bool
		r.store.beforeApply = func(_ context.Context, database int) error {
			if !up.Load() && database == 1 {
				return errStore
			}
			return nil
		}
		ran := r.submit(1, 1, 0) // the failure is not known yet
		r.settle()
		var even, odd []uint64
		for id := range uint64(50) {
			even, odd = append(even, r.submit(1, 2*id, 0)), append(odd, r.submit(1, 2*id+1, 0))
			r.after(time.Millisecond)
		}
		for i := range even {
			require.Equal(t, task.Processed, r.store.row(even[i]).Status)
			require.Equal(t, task.Pending, r.store.row(odd[i]).Status)
		}
		require.Equal(t, map[worker.Outcome]int{worker.Processed: 50}, r.tally.counts())
		require.Equal(t, 51, p.runs())
		require.Equal(t, queue.Stats{Running: 1}, r.queue.Stats(1), "the others are given back to the store")
		changes := r.ticks.Load()

		up.Store(true)
		r.after(10 * time.Second)
		require.Equal(t, task.Processed, r.store.row(ran).Status)
		require.Equal(t, changes+1, r.ticks.Load(), "so that a scan finds them again")
		for i, id := range odd {
			r.queue.Offer(nil, queue.Item{Task: r.store.row(id), Partition: 2})
			r.after(time.Millisecond)
			require.Equal(t, map[worker.Outcome]int{worker.Processed: 52 + i}, r.tally.counts())
		}
		require.Equal(t, 101, p.runs())
	}, lane(p))
}

func TestADatabaseThatHangsHoldsUpItsOwnOutcomesOnly(t *testing.T) {
	p := answer(nil)
	bubble(t, func(t *testing.T, r *rig) {
		r.store.beforeApply = func(_ context.Context, database int) error {
			if database == 1 {
				time.Sleep(time.Minute)
			}
			return nil
		}
		odd := r.submit(1, 1, 0)
		for id := range uint64(10) {
			even := r.submit(1, 2*id, 0)
			r.settle()
			require.Equal(t, task.Processed, r.store.row(even).Status)
		}
		require.Equal(t, task.Pending, r.store.row(odd).Status)
		r.after(time.Minute)
		require.Equal(t, task.Processed, r.store.row(odd).Status)
	}, lane(p))
}

// Outcomes are flushed at once when nothing is being flushed; what arrives
// meanwhile shares the next flush.
func TestOutcomesShareFlushes(t *testing.T) {
	p := answer(nil)
	bubble(t, func(t *testing.T, r *rig) {
		r.store.beforeApply = func(context.Context, int) error { time.Sleep(10 * time.Millisecond); return nil }
		r.submit(1, 0, 0)
		r.settle()
		for id := range uint64(100) {
			r.submit(1, 2*id+2, 0)
		}
		r.settle()
		r.after(time.Second)
		require.Len(t, r.store.applyCalls(), 2)
		require.Len(t, r.store.applyCalls()[0].moves, 1)
		require.Len(t, r.store.applyCalls()[1].moves, 100)
		require.NotEqual(t, r.store.applyCalls()[0].stamp, r.store.applyCalls()[1].stamp)
	}, lane(p))
}

// From 25 outcomes a second on a flush waits 50 ms for more, from 500 on until a table has eight.
func TestManyOutcomesShareFlushes(t *testing.T) {
	p := answer(nil)
	bubble(t, func(t *testing.T, r *rig) {
		r.submit(1, 0, time.Hour) // else each outcome is the last of its type
		var ofTables []uint64     // a biz_id of each table of a database
		for id := uint64(0); len(ofTables) < layout.TablesPerDatabase; id++ {
			if layout.Shard(id) == len(ofTables) {
				ofTables = append(ofTables, id)
			}
		}
		flushes := func(each time.Duration) (perSecond int) {
			for i := range 4 * int(time.Second/each) {
				if i == 2*int(time.Second/each) {
					perSecond = -len(r.store.applyCalls())
				}
				r.submit(1, ofTables[i%len(ofTables)], 0)
				r.after(each)
			}
			return (perSecond + len(r.store.applyCalls())) / 2
		}
		require.InDelta(t, 10, flushes(100*time.Millisecond), 1, "each alone")
		require.InDelta(t, 20, flushes(10*time.Millisecond), 2, "each 50 ms")
		require.InDelta(t, 10, flushes(1800*time.Microsecond), 1, "each 100 ms: after 50 there are 29 outcomes for four tables")
		n := len(r.store.applyCalls())
		r.submit(1, 2, 0)
		synctest.Wait()
		require.Len(t, r.store.applyCalls(), n)
		r.Hurry()
		synctest.Wait()
		require.Len(t, r.store.applyCalls(), n+1, "another node waits")
		r.submit(1, 2, 0)
		synctest.Wait()
		require.Len(t, r.store.applyCalls(), n+1)
		r.after(50 * time.Millisecond)
		require.Len(t, r.store.applyCalls(), n+2, "no more have come")
	}, lane(p))
}

// The outcomes of a type with few places in memory do not wait for those of a busy type, in whichever databases they are.
func TestOutcomesLeaveRoomForOtherTasks(t *testing.T) {
	small := orders()
	small.ID, small.Name, small.MaxRunning = 2, "small", 2 // 16 places
	bubble(t, func(t *testing.T, r *rig) {
		r.limits.SetTypes([]task.BizType{small})
		r.after(time.Minute) // the permits of the node before are free
		r.submit(1, 0, time.Hour)
		r.submit(2, 0, time.Hour)
		for id := range uint64(3000) { // 750 a second of each database
			r.submit(1, id, 0)
			r.after(time.Second / 1500)
		}
		flushes := len(r.store.applyCalls())
		for id := range uint64(5) {
			r.submit(2, id*uint64(layout.TablesPerDatabase), 0)
			synctest.Wait()
		}
		require.Equal(t, flushes, len(r.store.applyCalls()))
		r.submit(2, 5*uint64(layout.TablesPerDatabase), 0)
		synctest.Wait()
		require.Equal(t, flushes+layout.Databases, len(r.store.applyCalls()))
		require.Equal(t, queue.Stats{Depth: 1}, r.queue.Stats(2))
	}, lane(answer(nil)), &worker.Lane{BizType: small, Processor: answer(nil)})
}

// A limit counts what runs, and not what waits for the database.
func TestAnEndedRunGivesBackItsPermit(t *testing.T) {
	p := answer(nil)
	bubble(t, func(t *testing.T, r *rig) {
		r.limits.SetTypes([]task.BizType{{ID: 1, MaxRunning: 10}})
		r.after(time.Minute) // the permits of the node before are free
		r.store.beforeApply = func(context.Context, int) error { time.Sleep(time.Second); return nil }
		for id := range uint64(50) {
			r.submit(1, id, 0)
		}
		r.after(100 * time.Millisecond)
		require.Equal(t, 50, p.runs())
		r.after(time.Minute)
		require.Equal(t, queue.Stats{}, r.queue.Stats(1))
	}, lane(p, func(b *task.BizType) { b.MaxRunning = 10 }))
}

func TestARunWhoseRowWasChangedMeanwhileIsFenced(t *testing.T) {
	for _, verdict := range []error{nil, errDown} {
		p := &script{f: func(context.Context, task.Task) error { time.Sleep(time.Second); return verdict }}
		bubble(t, func(t *testing.T, r *rig) {
			id := r.submit(1, 42, 0)
			r.settle()
			r.store.byHand(id, func(t *task.Task) { t.Status = task.Cancelled })
			r.after(time.Second)
			require.Equal(t, queue.Stats{}, r.queue.Stats(1), "it is not tried again from memory")
			r.after(time.Minute)
			require.Equal(t, task.Cancelled, r.store.row(id).Status)
			require.Equal(t, map[worker.Outcome]int{worker.Fenced: 1}, r.tally.counts())
			require.Equal(t, 1, p.runs())
		}, lane(p))
	}
}

// TestAnEditDuringARunWins: plain SQL, or the next owner of the partition, changes a task while it runs, and
// the run fails. Before, the failed run wrote its own attempts and pause over the edit.
func TestAnEditDuringARunWins(t *testing.T) {
	in2030 := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	move := func(t *task.Task) { t.ActionTime = in2030 }
	attempts := func(t *task.Task) { t.Attempts = 7 }
	for name, c := range map[string]struct {
		retries int
		edit    func(*task.Task)
		want    func(t *testing.T, row task.Task, pause time.Duration)
		fences  map[worker.Fence]int
	}{
		"moved": {3, move, func(t *testing.T, row task.Task, _ time.Duration) {
			require.Equal(t, in2030, row.ActionTime)
			require.Equal(t, 1, row.Attempts)
		}, map[worker.Fence]int{worker.FencedMoved: 1}},
		"attempts": {3, attempts, func(t *testing.T, row task.Task, pause time.Duration) {
			require.Equal(t, 7, row.Attempts)
			require.GreaterOrEqual(t, pause, time.Second, "it waits for its pause all the same")
		}, map[worker.Fence]int{worker.FencedAttempts: 1}},
		"both": {3, func(t *task.Task) { move(t); attempts(t) }, func(t *testing.T, row task.Task, _ time.Duration) {
			require.Equal(t, in2030, row.ActionTime)
			require.Equal(t, 7, row.Attempts)
		}, map[worker.Fence]int{worker.FencedMoved: 1, worker.FencedAttempts: 1}},
		"moved in its last run": {0, move, func(t *testing.T, row task.Task, _ time.Duration) {
			require.Equal(t, in2030, row.ActionTime)
			require.Equal(t, 1, row.Attempts)
		}, map[worker.Fence]int{worker.FencedMoved: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			p := &script{f: func(context.Context, task.Task) error { time.Sleep(100 * time.Millisecond); return errDown }}
			bubble(t, func(t *testing.T, r *rig) {
				id := r.submit(1, 42, 0)
				r.settle()
				r.store.byHand(id, c.edit)
				ends := time.Now().Add(100 * time.Millisecond)
				r.after(100 * time.Millisecond)
				row := r.store.row(id)
				require.Equal(t, task.Pending, row.Status)
				require.Equal(t, errDown.Error(), row.LastError)
				c.want(t, row, row.ActionTime.Sub(ends))
				require.Equal(t, c.fences, r.tally.fences)
				require.Equal(t, map[worker.Outcome]int{worker.Failed: 1}, r.tally.counts())
				r.store.byHand(id, func(t *task.Task) { t.Status = task.Cancelled })
			}, lane(p, func(b *task.BizType) { b.MaxRetries, b.BackoffMin, b.BackoffMax = c.retries, time.Second, time.Minute }))
		})
	}
}

// TestARetrySeesWhatWasEditedDuringTheRun: a retry that is due at once starts with the current row. Before, it
// started with the row that the failed run had read.
func TestARetrySeesWhatWasEditedDuringTheRun(t *testing.T) {
	var seen []string
	p := &script{f: func(_ context.Context, t task.Task) error {
		seen = append(seen, t.Attribute)
		time.Sleep(3 * time.Second)
		if len(seen) == 1 {
			return processor.RetryAfter(0, errDown)
		}
		return nil
	}}
	bubble(t, func(t *testing.T, r *rig) {
		id := r.submit(1, 42, 0)
		r.settle()
		r.store.byHand(id, func(t *task.Task) { t.Attribute = "by hand" })
		r.after(10 * time.Second)
		require.Equal(t, task.Processed, r.store.row(id).Status)
		require.Equal(t, []string{"", "by hand"}, seen)
	}, lane(p))
}

// TestWhatWasPromisedOutlivesRetries: a task that fails for long expires. Before, each retry moved the time that its
// lateness was counted from, so it never did.
func TestWhatWasPromisedOutlivesRetries(t *testing.T) {
	p := answer(errDown)
	bubble(t, func(t *testing.T, r *rig) {
		due := time.Now()
		id := r.submit(1, 42, 0)
		r.after(10 * time.Second)
		row := r.store.row(id)
		require.Equal(t, task.Dead, row.Status)
		require.Contains(t, row.LastError, "expired: ")
		require.WithinDuration(t, due, row.Promised(), time.Millisecond)
	}, lane(p, func(b *task.BizType) {
		b.MaxRetries, b.BackoffMin, b.BackoffMax, b.ExpireAfter = 100, time.Second, time.Second, 3*time.Second
	}))
}

func TestTheReceiptIsToldOnceTheOutcomeIsDurable(t *testing.T) {
	p := answer(errDown)
	bubble(t, func(t *testing.T, r *rig) {
		r.near = 0
		r.store.beforeApply = func(context.Context, int) error { time.Sleep(time.Second); return nil }
		id := r.submit(1, 42, time.Second)
		h, err := r.queue.Hold(t.Context(), id, 0)
		require.NoError(t, err)
		told := make(settled, 1)
		h.Requeue(queue.Item{Task: r.store.row(id), Partition: 0, Receipt: told}, true)
		r.after(2*time.Second - time.Millisecond)
		require.Empty(t, told)
		r.after(time.Millisecond)
		require.Equal(t, r.store.row(id), <-told, "as it stands in the store")
	}, lane(p))
}

// The redis engine may have lost its Redis, or its business type, while a task of its own ran. Before, the retry of
// such a task waited for the next tick of the scanner.
func TestARetryOfAClaimedTaskIsQueuedIfTheScannerServesItNow(t *testing.T) {
	p := &script{f: func(_ context.Context, row task.Task) error {
		if row.Attempts == 0 {
			return errDown
		}
		return nil
	}}
	bubble(t, func(t *testing.T, r *rig) {
		id := r.submit(1, 42, time.Second)
		h, err := r.queue.Hold(t.Context(), id, 0)
		require.NoError(t, err)
		told := make(settled, 1)
		h.Requeue(queue.Item{Task: r.store.row(id), Partition: 0, Receipt: told, Claimed: true}, true)
		r.after(10 * time.Second)
		require.Equal(t, task.Pending, (<-told).Status)
		require.Equal(t, task.Processed, r.store.row(id).Status)
	}, lane(p, func(b *task.BizType) { b.MaxRetries, b.BackoffMin, b.BackoffMax = 3, time.Second, time.Second }))
}

type settled chan task.Task

func (s settled) Ack(t task.Task)   { s <- t }
func (s settled) Release(task.Task) { panic("given back") }

func TestTheFinisherGivesUpWhenPatienceEnds(t *testing.T) {
	p := answer(nil)
	bubble(t, func(t *testing.T, r *rig) {
		r.store.beforeApply = func(context.Context, int) error { return errStore }
		id := r.submit(1, 42, 0)
		r.after(time.Minute)
		start := time.Now()
		ended := make(chan error, 1)
		go func() { ended <- r.stopped() }()
		r.after(time.Minute)
		require.Empty(t, ended, "there is patience left")
		r.cancelDrain()
		require.ErrorIs(t, <-ended, context.Canceled)
		require.Equal(t, time.Minute, time.Since(start), "not a moment longer")
		require.Equal(t, task.Pending, r.store.row(id).Status)
		require.Empty(t, r.tally.counts(), "nothing is counted that is not durable")
		require.Contains(t, r.log.String(), "these tasks will run again")
	}, lane(p))
}
