package worker_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
	"github.com/timeoutcenter/toc/worker"
)

// pullLane is a lane whose tasks are leased for a second.
func pullLane(change ...func(b *task.BizType)) *worker.Lane {
	b := task.BizType{ID: 1, Name: "orders", Pull: true, TTR: time.Second, MaxInFlight: 100, Workers: 4, Timeout: time.Second,
		MaxRetries: 2, BackoffMin: 4 * time.Second, BackoffMax: time.Hour, Cuts: 3}
	for _, f := range change {
		f(&b)
	}
	return &worker.Lane{BizType: b, Processor: processor.Func(func(context.Context, task.Task) error { panic("a leased task is not run") })}
}

// leaseNow leases what is due, without waiting.
func (r *rig) leaseNow(max int) []task.Task {
	r.t.Helper()
	list, err := r.Lease(context.Background(), nil, 1, max, 0, nil)
	require.NoError(r.t, err)
	return list
}

// leaseIn leases what falls due within a while.
func (r *rig) leaseIn(d time.Duration) []task.Task {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	list, err := r.Lease(context.Background(), ctx, 1, 10, 0, nil)
	require.NoError(r.t, err)
	return list
}

func (r *rig) settleLease(t task.Task, do worker.Do) worker.Settled {
	r.t.Helper()
	return r.Settle(context.Background(), []worker.Settlement{{JobID: t.JobID, Lease: t.Lease, Do: do}})[0]
}

// A type that is not pulled any more ends the leases, and runs the tasks.
func TestALeaseOfATypeThatIsNotPulledAnyMore(t *testing.T) {
	ran := make(chan task.Task, 1)
	push := pullLane(func(b *task.BizType) { b.Pull = false })
	push.Processor = processor.Func(func(_ context.Context, t task.Task) error { ran <- t; return nil })
	bubbleOf(t, func() []*worker.Lane { ran = make(chan task.Task, 1); return []*worker.Lane{push} }, func(t *testing.T, r *rig) {
		row := r.insert(1, 42, time.Second)
		row.Lease = task.NewLease(row.ActionTime)
		r.store.byHand(row.JobID, func(t *task.Task) { *t = row })
		r.offer(row)
		got := <-ran
		require.Equal(t, 1, got.Attempts)
		require.Zero(t, got.Lease)
	})
}

func TestAConsumerThatHasGoneTakesNoLease(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		id := r.submit(1, 42, time.Second)
		gone, leave := context.WithCancel(t.Context())
		r.store.beforeApply = func(context.Context, int) error { leave(); return nil } // in the middle of the hand-out
		_, err := r.Lease(gone, gone, 1, 10, 0, nil)
		require.ErrorIs(t, err, context.Canceled)
		r.store.beforeApply = nil
		synctest.Wait()
		row := r.store.row(id)
		require.Zero(t, row.Lease)
		require.Zero(t, row.Attempts, "this was no attempt")
		began := time.Now()
		require.Len(t, r.leaseIn(time.Second), 1, "the next one gets it")
		require.Less(t, time.Since(began), 100*time.Millisecond)
	}, pullLane())
}

// Who sets another time by hand ends the lease, and this is no attempt: the task is due then, and its consumer can do nothing to
// it any more. Another column that was changed stays, as during any run that fails. (At 799f0ec the time that was set was the end
// of the lease, so the task died then without a run, and extend and release took the time back.)
func TestALeasedTaskIsEditedByHand(t *testing.T) {
	for _, do := range []worker.Do{worker.Ack, worker.Nack, worker.Extend, worker.Release, worker.Reject} {
		t.Run(string(do), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				id := r.submit(1, 42, 0)
				leased := r.leaseIn(time.Second)[0]
				later := task.CeilMilli(time.Now().Add(time.Hour))
				r.store.byHand(id, func(t *task.Task) { t.ActionTime, t.DueTime = later, time.Time{} })
				want := r.store.row(id)
				require.Equal(t, worker.Lost, r.settleLease(leased, do))
				require.Equal(t, want, r.store.row(id))
				r.offer(want) // as the scanner finds it
				again := r.leaseIn(2 * time.Hour)
				require.Len(t, again, 1)
				require.True(t, time.Now().Equal(later), "at the time that was set")
				require.Zero(t, again[0].Attempts)
				require.Equal(t, worker.SettledOK, r.settleLease(again[0], worker.Ack))
			}, pullLane(func(b *task.BizType) { b.MaxRetries = 0 }))
		})
	}
	bubble(t, func(t *testing.T, r *rig) {
		id := r.submit(1, 42, 0)
		leased := r.leaseIn(time.Second)[0]
		r.store.byHand(id, func(t *task.Task) { t.Attempts = 2 })
		require.Equal(t, worker.SettledOK, r.settleLease(leased, worker.Nack))
		row := r.store.row(id)
		require.Equal(t, 2, row.Attempts)
		require.Zero(t, row.Lease)
		require.WithinRange(t, row.ActionTime, time.Now().Add(4*time.Second), time.Now().Add(20*time.Second))
		require.Equal(t, map[worker.Fence]int{worker.FencedAttempts: 1}, r.tally.fences)
	}, pullLane())
}

// A lease that another node has extended is as good as the row says, whatever this process remembers.
func TestALeaseThatWasExtendedElsewhere(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		id := r.submit(1, 42, 0)
		one := r.leaseIn(time.Second)[0]
		r.store.byHand(id, func(t *task.Task) {
			t.ActionTime = t.ActionTime.Add(time.Minute)
			t.Lease = task.LeaseUntil(t.Lease, t.ActionTime)
		})
		<-time.After(2 * time.Second)
		require.Equal(t, worker.SettledOK, r.settleLease(one, worker.Ack))
		row := r.store.row(id)
		require.Equal(t, task.Processed, row.Status)
		require.Zero(t, row.Attempts)
		require.Empty(t, row.LastError)
	}, pullLane())
}

// Who has leased a task can settle it although its type is out of the file. At 799f0ec only once it was back, if the lease still lasted.
func TestSettleOfATypeThatIsOut(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		for range 4 {
			r.submit(1, 42, 0)
		}
		synctest.Wait()
		list := r.leaseNow(10)
		r.set() // the type is gone
		synctest.Wait()
		for i, want := range map[int]worker.Settled{0: worker.SettledOK, 1: worker.Unavailable, 2: worker.SettledOK, 3: worker.SettledOK} {
			require.Equal(t, want, r.settleLease(list[i], []worker.Do{worker.Ack, worker.Nack, worker.Reject, worker.Release}[i]), i)
		}
		require.Equal(t, task.Processed, r.store.row(list[0].JobID).Status)
		require.Equal(t, task.Cancelled, r.store.row(list[2].JobID).Status)
		require.False(t, new(r.store.row(list[3].JobID)).IsLeased(time.Now()))
	}, pullLane())
}

// A leased task that a hand makes dead and redrives has a fresh start. At 799f0ec its lease was still in the row, and was the end of
// its first run.
func TestALeasedTaskIsMadeDeadAndRedriven(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		id := r.submit(1, 42, 0)
		leased := r.leaseIn(time.Second)[0]
		r.store.byHand(id, func(t *task.Task) { t.Status = task.Dead })
		require.Equal(t, worker.Lost, r.settleLease(leased, worker.Ack))
		r.store.byHand(id, func(t *task.Task) {
			t.Status, t.Attempts, t.ActionTime = task.Pending, 0, time.Now().UTC().Truncate(time.Millisecond)
		})
		r.offer(r.store.row(id))
		again := r.leaseIn(time.Minute)
		require.Len(t, again, 1)
		require.Zero(t, again[0].Attempts)
		require.Equal(t, worker.SettledOK, r.settleLease(again[0], worker.Ack))
	}, pullLane(func(b *task.BizType) { b.MaxRetries = 0 }))
}

// A number in the column lease that no lease has written means nothing. At 799f0ec it was the end of a failed run.
func TestALeaseByHandIsNone(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		row := r.insert(1, 42, time.Second)
		r.store.byHand(row.JobID, func(t *task.Task) { t.Lease = 5 })
		r.offer(r.store.row(row.JobID))
		leased := r.leaseIn(time.Minute)
		require.Len(t, leased, 1)
		require.Zero(t, leased[0].Attempts)
	}, pullLane(func(b *task.BizType) { b.MaxRetries = 0 }))
}

// A lease that maybe nobody has got is no attempt: the node that gave it has ended meanwhile, or the one that was to pass it on. At
// 799f0ec each was a failed run, of which tasks died that no consumer had ever had.
func TestALeaseWhoseGiverHasEnded(t *testing.T) {
	t.Run("owner", func(t *testing.T) {
		bubble(t, func(t *testing.T, r *rig) {
			row := r.insert(1, 42, time.Second)
			row.Lease = task.NewLease(row.ActionTime)
			r.store.byHand(row.JobID, func(t *task.Task) { *t = row })
			<-time.After(500 * time.Millisecond)
			now := time.Now()
			r.unclean.Store(&now) // the partition is taken here
			r.offer(row)
			again := r.leaseIn(time.Minute)
			require.Len(t, again, 1)
			require.Zero(t, again[0].Attempts)
			<-time.After(2 * time.Second) // nobody settles the one that was given here
			require.Equal(t, task.Dead, r.store.row(row.JobID).Status)
		}, pullLane(func(b *task.BizType) { b.MaxRetries = 0 }))
	})
	for name, handedOver := range map[string]time.Duration{"handed over before its end": 500 * time.Millisecond, "handed over after its end": 1500 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				row := r.insert(1, 42, time.Second)
				row.Lease = task.NewLease(row.ActionTime)
				r.store.byHand(row.JobID, func(t *task.Task) { *t = row })
				<-time.After(handedOver)
				r.taken = time.Now()
				r.offer(row)
				<-time.After(time.Second)
				require.Equal(t, handedOver < time.Second, r.store.row(row.JobID).Status == task.Dead)
				require.Len(t, r.leaseIn(time.Second), 1-r.store.row(row.JobID).Attempts)
			}, pullLane(func(b *task.BizType) { b.MaxRetries = 0 }))
		})
	}
	for _, ended := range []bool{true, false} {
		t.Run(fmt.Sprint("forwarder ended: ", ended), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				id := r.submit(1, 42, 0)
				synctest.Wait()
				list, err := r.Lease(t.Context(), nil, 1, 1, 0, func() bool { return ended })
				require.NoError(t, err)
				require.Len(t, list, 1)
				<-time.After(2 * time.Second)
				require.Equal(t, !ended, r.store.row(id).Status == task.Dead)
			}, pullLane(func(b *task.BizType) { b.MaxRetries = 0 }))
		})
	}
}

// A lease that was given back ends without an attempt also if its database has not recorded that: the caller had gone, or the consumer
// has released it.
func TestALeaseThatCouldNotBeGivenBack(t *testing.T) {
	once := pullLane(func(b *task.BizType) { b.MaxRetries = 0 })
	bubble(t, func(t *testing.T, r *rig) {
		id := r.submit(1, 42, 0)
		leased := r.leaseIn(time.Second)
		require.Len(t, leased, 1)
		r.store.beforeApply = func(context.Context, int) error { return errors.New("no answer") }
		require.Equal(t, worker.Unavailable, r.settleLease(leased[0], worker.Release))
		r.store.beforeApply = nil
		r.store.setDown(0, false)
		again := r.leaseIn(time.Minute)
		require.Len(t, again, 1)
		require.Equal(t, leased[0].ActionTime, time.Now().UTC(), "when the lease was over")
		require.Zero(t, again[0].Attempts)
		<-time.After(2 * time.Second) // this one is not given back
		require.Equal(t, task.Dead, r.store.row(id).Status)
	}, once)
	bubble(t, func(t *testing.T, r *rig) {
		id := r.submit(1, 42, time.Second)
		gone, leave := context.WithCancel(t.Context())
		applied := 0
		r.store.beforeApply = func(context.Context, int) error {
			if applied++; applied > 1 {
				return errors.New("no answer")
			}
			leave() // in the middle of the hand-out
			return nil
		}
		_, err := r.Lease(gone, gone, 1, 10, 0, nil)
		require.ErrorIs(t, err, context.Canceled)
		synctest.Wait()
		require.NotZero(t, r.store.row(id).Lease)
		r.store.beforeApply = nil
		r.store.setDown(0, false)
		again := r.leaseIn(time.Minute)
		require.Len(t, again, 1)
		require.Zero(t, again[0].Attempts)
	}, once)
}

// A lease that nobody was given ends without an attempt: its database recorded it after its end, or recorded it and did not answer.
func TestALeaseThatWasRecordedInVain(t *testing.T) {
	for name, record := range map[string]func(r *rig, id uint64, m store.Move) error{
		"late": func(*rig, uint64, store.Move) error { <-time.After(3 * time.Second); return nil },
		"without an answer": func(r *rig, id uint64, m store.Move) error {
			r.store.byHand(id, func(t *task.Task) { t.DueTime, t.ActionTime, t.Lease = t.Promised(), *m.ActionTime, *m.Lease })
			return errors.New("no answer")
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				id := r.submit(1, 42, 0)
				synctest.Wait()
				r.store.beforeApply = func(context.Context, int) error {
					r.store.beforeApply = nil
					return record(r, id, r.store.applyCalls()[0].moves[0])
				}
				_, err := r.Lease(t.Context(), nil, 1, 1, 0, nil)
				require.Equal(t, name == "late", err == nil)
				r.store.setDown(0, false)
				require.Zero(t, r.InFlight(1))
				r.offer(r.store.row(id))
				again := r.leaseIn(time.Minute)
				require.Len(t, again, 1)
				require.Zero(t, again[0].Attempts)
				require.Equal(t, worker.SettledOK, r.settleLease(again[0], worker.Ack))
				require.Zero(t, r.InFlight(1))
			}, pullLane(func(b *task.BizType) { b.MaxRetries = 0 }))
		})
	}
}

// Room is reserved before tasks are taken: many callers at once get no more than max_in_flight, however long the store takes.
// At 799f0ec all of them saw the same room.
func TestMaxInFlightOfManyCallers(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		for range 20 {
			r.submit(1, 42, 0)
		}
		synctest.Wait()
		r.store.beforeApply = func(context.Context, int) error { time.Sleep(time.Second / 2); return nil }
		var all sync.WaitGroup
		var got atomic.Int32
		for range 10 {
			all.Go(func() { got.Add(int32(len(r.leaseNow(5)))) })
		}
		all.Wait()
		require.EqualValues(t, 3, got.Load())
		require.Equal(t, 3, r.InFlight(1))
	}, pullLane(func(b *task.BizType) { b.MaxInFlight, b.TTR = 3, time.Minute })) // longer than the store takes
}

// A lease that is being extended keeps its room, however long the store takes.
func TestMaxInFlightOfAnExtension(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.submit(1, 42, 0)
		r.submit(1, 43, 0)
		synctest.Wait()
		leased := r.leaseNow(2)
		require.Len(t, leased, 1)
		r.store.beforeApply = func(context.Context, int) error {
			r.store.beforeApply = nil
			time.Sleep(3 * time.Second) // the lease of a second is over
			return nil
		}
		extended := make(chan worker.Settled)
		go func() {
			extended <- r.Settle(t.Context(), []worker.Settlement{{JobID: leased[0].JobID, Lease: leased[0].Lease, Do: worker.Extend, TTR: 10 * time.Second}})[0]
		}()
		time.Sleep(2 * time.Second)
		require.Empty(t, r.leaseNow(1))
		require.Equal(t, worker.SettledOK, <-extended)
		require.Empty(t, r.leaseNow(1))
	}, pullLane(func(b *task.BizType) { b.MaxInFlight = 1 }))
}

// Leases that another process has given count, too, from the first hand-out of a term on.
func TestMaxInFlightOutlivesItsProcess(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		for i := range 2 {
			row := r.insert(1, 42+uint64(i), time.Second)
			row.Lease = task.NewLease(row.ActionTime)
			r.store.byHand(row.JobID, func(t *task.Task) { *t = row })
		}
		r.submit(1, 42, 0)
		r.submit(1, 42, 0)
		synctest.Wait()
		require.Len(t, r.leaseNow(10), 1)
		require.Equal(t, 3, r.InFlight(1))
		<-time.After(1100 * time.Millisecond) // the two are over
		require.Len(t, r.leaseNow(10), 2)
		require.Equal(t, 2, r.InFlight(1))
	}, pullLane(func(b *task.BizType) { b.MaxInFlight = 3 }))
}

func TestLeaseOfAClosedType(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		waited := make(chan error)
		go func() {
			_, err := r.Lease(context.Background(), context.Background(), 1, 1, 0, nil)
			waited <- err
		}()
		synctest.Wait()
		r.set() // the type is gone
		require.ErrorIs(t, <-waited, queue.ErrClosed)
		_, err := r.Lease(t.Context(), nil, 1, 1, 0, nil)
		require.ErrorIs(t, err, queue.ErrClosed)
		r.stop()
		_, err = r.Lease(t.Context(), nil, 1, 1, 0, nil)
		require.ErrorIs(t, err, worker.ErrStopped)
	}, pullLane())
}
