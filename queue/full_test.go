package queue_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/task"
)

func TestAnEarlierTaskDisplacesTheLatest(t *testing.T) {
	bubble(t, 3, func(t *testing.T, r *rig) {
		r.read(r.order(1, 10*time.Second), r.order(2, 30*time.Second), r.order(3, 20*time.Second))

		require.Empty(t, r.read(r.order(4, 5*time.Second)))
		require.Equal(t, []string{"released"}, r.receiptsOf(2), "the latest")
		require.Empty(t, r.read(r.order(5, 0)))
		require.Equal(t, []string{"released"}, r.receiptsOf(3), "the next latest")
		require.Equal(t, queue.Stats{Depth: 3, ResumePoints: 2}, r.Stats(orders))

		// Displaced tasks are read again as soon as there is room, the earliest first.
		_, room := r.refill()
		require.False(t, room)
		require.Equal(t, []uint64{5}, r.ids(r.orders))
		_, room = r.refill()
		require.False(t, room, "a running task takes up room, too")
		r.check()
		r.after(5 * time.Second)
		r.processed(r.one(r.orders))
		f, room := r.refill()
		require.True(t, room)
		require.Equal(t, queue.Refill{BizType: orders, Partition: 3, From: task.Key{ActionTime: r.start.Add(20 * time.Second), JobID: 3}}, f)
		f, room = r.refill()
		require.True(t, room)
		require.Equal(t, queue.Refill{BizType: orders, Partition: 2, From: task.Key{ActionTime: r.start.Add(30 * time.Second), JobID: 2}}, f)
		_, room = r.refill()
		require.False(t, room)
	})
}

func TestALaterTaskDoesNotFitIntoAFullQueue(t *testing.T) {
	bubble(t, 2, func(t *testing.T, r *rig) {
		r.read(r.order(1, 10*time.Second), r.order(2, 20*time.Second))
		require.Equal(t, []uint64{orders}, r.read(r.order(3, 20*time.Second)), "not earlier, just the same")
		require.Equal(t, []uint64{orders}, r.read(r.order(4, 30*time.Second)))
		require.Equal(t, []string{"released"}, r.receiptsOf(3))
		require.Equal(t, []string{"released"}, r.receiptsOf(4))
		require.Equal(t, queue.Stats{Depth: 2, ResumePoints: 2}, r.Stats(orders))
	})
}

func TestADueTaskIsRejectedOnlyForOthersThatAreDue(t *testing.T) {
	bubble(t, 3, func(t *testing.T, r *rig) {
		r.read(r.order(1, 0), r.order(2, time.Second), r.order(3, time.Minute))
		require.Empty(t, r.read(r.order(4, -time.Hour)))
		require.Empty(t, r.read(r.order(5, 0)))
		require.Equal(t, []uint64{orders}, r.read(r.order(6, -time.Hour)))
		require.Equal(t, []string{"released"}, r.receiptsOf(2))
		require.Equal(t, []string{"released"}, r.receiptsOf(3))
		require.Equal(t, []uint64{1, 4, 5}, r.ids(r.orders))
	})
}

func TestOfferNamesEachBizTypeOnce(t *testing.T) {
	bubble(t, 1, func(t *testing.T, r *rig) {
		read := r.BeginRead(0)
		defer read.End()
		turned := r.Offer(read, r.order(4, 0), r.order(8, 0), r.mail(12, 0), r.order(16, 0), r.mail(20, 0))
		require.Equal(t, []uint64{orders, mails}, turned)
	})
}

// A queue is refilled in batches: there is room again once a quarter is free.
func TestRoomHasSlack(t *testing.T) {
	bubble(t, 8, func(t *testing.T, r *rig) {
		for id := range uint64(8) {
			r.read(r.order(id, 0))
		}
		require.Equal(t, []uint64{orders}, r.read(r.order(9, 0)))
		entries := r.due(r.orders, 8)
		r.processed(entries[0])
		_, room := r.refill()
		require.False(t, room, "1 of 8 is free")
		r.processed(entries[1])
		f, room := r.refill()
		require.True(t, room, "2 of 8 are free")
		require.Equal(t, queue.Refill{BizType: orders, Partition: 1, From: task.Key{ActionTime: r.start, JobID: 9}}, f)
		_, room = r.refill()
		require.False(t, room, "one place to read on")
	})
}

func TestTheResumePointIsTheEarliestRejectedTask(t *testing.T) {
	bubble(t, 2, func(t *testing.T, r *rig) {
		r.read(r.order(1, 0), r.order(2, 0))
		r.read(r.order(8, -time.Second), r.order(4, -time.Minute), r.order(12, -time.Minute))
		for _, e := range r.due(r.orders, 2) {
			r.processed(e)
		}
		f, _ := r.refill()
		require.Equal(t, queue.Refill{BizType: orders, Partition: 0, From: task.Key{ActionTime: r.start.Add(-time.Minute), JobID: 4}}, f)
		_, more := r.refill()
		require.False(t, more)
	})
}

func TestRefillWakesAllReaders(t *testing.T) {
	bubble(t, 8, func(t *testing.T, r *rig) {
		for id := range uint64(8) {
			r.read(r.order(id, 0))
		}
		// Three readers, each busy for long with its first place.
		places := make(chan int, 3)
		for range 3 {
			go func() {
				if f, err := r.NextRefill(t.Context()); err == nil {
					places <- f.Partition
				}
			}()
		}
		synctest.Wait()
		r.read(r.order(8, 0), r.order(9, 0), r.order(10, 0), r.mail(11, 0))
		for _, e := range r.due(r.orders, 2) {
			synctest.Wait()
			require.Empty(t, places)
			r.processed(e) // the second makes room
		}
		synctest.Wait()
		require.Len(t, places, 3)
		require.ElementsMatch(t, []int{0, 1, 2}, []int{<-places, <-places, <-places})
	})
}

func TestSetResumeWakesAReader(t *testing.T) {
	bubble(t, 4, func(t *testing.T, r *rig) {
		places := make(chan int, 1)
		go func() {
			if f, err := r.NextRefill(t.Context()); err == nil {
				places <- f.Partition
			}
		}()
		synctest.Wait()
		r.SetResume(orders, 3, task.Key{})
		r.SetResume(99, 2, task.Key{}) // no such type
		synctest.Wait()
		require.Len(t, places, 1)
		require.Equal(t, 3, <-places)
	})
}

// A queue that is full of tasks that are not due must not keep due ones in the store, whether they were
// rejected or never read.
func TestWhatIsEarlierThanTheLatestIsReadAtOnce(t *testing.T) {
	bubble(t, 4, func(t *testing.T, r *rig) {
		for id := range uint64(4) {
			r.read(r.order(id, time.Duration(10+id)*time.Second))
		}
		r.SetResume(orders, 1, task.Key{ActionTime: r.start.Add(20 * time.Second), JobID: 99})
		_, earlier := r.refill()
		require.False(t, earlier)
		r.SetResume(orders, 1, task.Key{ActionTime: r.start.Add(13 * time.Second), JobID: 98})
		_, earlier = r.refill()
		require.False(t, earlier, "no earlier than the latest")

		r.SetResume(orders, 2, task.Key{}) // from the start
		f, earlier := r.refill()
		require.True(t, earlier)
		require.Equal(t, queue.Refill{BizType: orders, Partition: 2}, f)
		_, earlier = r.refill()
		require.False(t, earlier)
	})
}

func TestAQueueFullOfDueTasksIsNotRefilled(t *testing.T) {
	bubble(t, 2, func(t *testing.T, r *rig) {
		r.read(r.order(1, 0), r.order(2, 0))
		r.SetResume(orders, 3, task.Key{})
		_, earlier := r.refill()
		require.False(t, earlier)
		// The same when their rows are too old to run and wait to be read again.
		r.after(time.Minute)
		require.Empty(t, r.ids(r.orders))
		_, earlier = r.refill()
		require.False(t, earlier)
	})
}

// Between full and room for a refill a later task may still come in. Then the resume point is the earlier one.
func TestALaterTaskThatComesInMakesTheResumePointTheEarlier(t *testing.T) {
	bubble(t, 8, func(t *testing.T, r *rig) {
		for id := range uint64(8) {
			r.read(r.order(id, 0))
		}
		r.read(r.order(9, 20*time.Second))
		found := make(chan queue.Refill, 1)
		go func() {
			if f, err := r.NextRefill(t.Context()); err == nil {
				found <- f
			}
		}()
		r.processed(r.due(r.orders, 1)[0])
		synctest.Wait()
		require.Empty(t, found)
		require.Empty(t, r.read(r.order(10, 30*time.Second)))
		synctest.Wait()
		require.Equal(t, 1, (<-found).Partition)
	})
}

func TestWaitRoom(t *testing.T) {
	bubble(t, 4, func(t *testing.T, r *rig) {
		require.True(t, r.WaitRoom(t.Context(), orders, 0))
		require.False(t, r.WaitRoom(t.Context(), 99, time.Hour), "no such type")
		for id := range uint64(4) {
			r.read(r.order(id, 0))
		}
		require.False(t, r.WaitRoom(t.Context(), orders, time.Second))
		require.Equal(t, time.Second, time.Since(r.start))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.False(t, r.WaitRoom(ctx, orders, time.Hour))
		require.Equal(t, 2*time.Second, time.Since(r.start))

		var waiters sync.WaitGroup
		for range 3 {
			waiters.Go(func() {
				if !r.WaitRoom(t.Context(), orders, time.Hour) {
					t.Error("no room")
				}
			})
		}
		synctest.Wait()
		r.lose(1)
		waiters.Wait()
		require.Equal(t, 2*time.Second, time.Since(r.start))
	})
}

func TestClearResumeForgetsTheResumePoints(t *testing.T) {
	bubble(t, 2, func(t *testing.T, r *rig) {
		for id := range uint64(2) {
			r.read(r.order(id, 0), r.mail(10+id, 0))
		}
		r.SetResume(orders, 1, task.Key{JobID: 1})
		r.SetResume(mails, 1, task.Key{JobID: 2})
		r.SetResume(mails, 2, task.Key{JobID: 3})
		r.ClearResume(1, []uint64{mails})
		require.Equal(t, 0, r.Stats(orders).ResumePoints)
		require.Equal(t, 2, r.Stats(mails).ResumePoints)
		r.ClearResume(1, nil)
		require.Equal(t, 1, r.Stats(mails).ResumePoints)
	})
}
