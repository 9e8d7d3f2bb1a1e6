package intake_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/task"
	"github.com/timeoutcenter/toc/worker"
)

// distant is another node that has tasks from a time on.
type distant struct {
	intake.Peer
	due       time.Time
	questions atomic.Int32 // that wait now
	most      atomic.Int32
	asked     atomic.Int32 // for tasks
	mu        sync.Mutex
	left      int
}

func (d *distant) Lease(ctx context.Context, _ string, q api.AskLease) (api.LeaseAnswer, error) {
	if q.Wait == 0 {
		d.asked.Add(1)
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.left == 0 || time.Now().Before(d.due) {
			return api.LeaseAnswer{}, nil
		}
		d.left--
		return api.LeaseAnswer{Tasks: []api.LeasedTask{{Attempt: 1}}}, nil
	}
	d.most.Store(max(d.most.Load(), d.questions.Add(1)))
	defer d.questions.Add(-1)
	d.mu.Lock()
	wait := q.Wait
	if d.left > 0 {
		wait = min(wait, time.Until(d.due))
	}
	d.mu.Unlock()
	select {
	case <-time.After(wait):
		return api.LeaseAnswer{}, nil
	case <-ctx.Done():
		return api.LeaseAnswer{}, ctx.Err()
	}
}

// alone is a node without tasks of its own, and with another node.
type alone struct{ other *distant }

func (alone) Term(int) uint64                        { return 1 }
func (a alone) Owner(int) (intake.Peer, error)       { return a.other, nil }
func (a alone) Peers() []intake.Peer                 { return []intake.Peer{a.other} }
func (alone) Undelivered(string, uint64) func() bool { return nil }

func (alone) Lease(_, wait context.Context, _ uint64, _ int, _ time.Duration, _ func() bool) ([]task.Task, error) {
	if wait != nil {
		<-wait.Done()
	}
	return nil, nil
}
func (alone) AwaitDue(ctx context.Context, _ uint64) error { <-ctx.Done(); return ctx.Err() }
func (alone) Settle(_ context.Context, list []worker.Settlement) []worker.Settled {
	return make([]worker.Settled, len(list))
}

func pullService(t *testing.T, other *distant) *intake.Service {
	return pullServiceIn(t, alone{other}, alone{other})
}

func pullServiceIn(t *testing.T, c intake.Cluster, p intake.Puller) *intake.Service {
	types, err := task.NewTypes(task.BizType{ID: 1, Name: "orders", Pull: true}, task.BizType{ID: 2, Name: "pushed", Processor: "log"})
	require.NoError(t, err)
	s := intake.New(intake.Config{Queue: queue.New(queue.Config{Partitions: 4}), Layout: sharding.Layout{Databases: 2, TablesPerDatabase: 2, Partitions: 4},
		Catalog: task.NewCatalog(types), Cluster: c, Puller: p, Now: time.Now})
	t.Cleanup(s.Close)
	return s
}

// Another node is asked once for all consumers that wait, and each of its tasks wakes one of them, at its time.
func TestConsumersWaitForAnotherNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other := &distant{due: time.Now().Add(10 * time.Second), left: 3}
		s := pullService(t, other)
		var got, empty atomic.Int32
		var waiting sync.WaitGroup
		for range 100 {
			waiting.Go(func() {
				began := time.Now()
				answer, err := s.Lease(t.Context(), "orders", api.AskLease{Max: 10, Wait: 30 * time.Second})
				require.NoError(t, err)
				require.NotNil(t, answer.Tasks)
				if len(answer.Tasks) > 0 {
					got.Add(1)
					require.Less(t, time.Since(began), 10*time.Second+10*time.Millisecond)
				} else {
					empty.Add(1)
					require.Equal(t, 30*time.Second, time.Since(began))
				}
			})
		}
		waiting.Wait()
		require.EqualValues(t, 3, got.Load())
		require.EqualValues(t, 97, empty.Load())
		require.EqualValues(t, 1, other.most.Load(), "questions at the same time")
		require.Less(t, other.asked.Load(), int32(110), "no consumer asks again and again")
		one := func() {
			_, err := s.Lease(t.Context(), "orders", api.AskLease{Max: 10, Wait: 5 * time.Second})
			require.NoError(t, err)
		}
		waiting.Go(one)
		<-time.After(time.Second)
		before := other.asked.Load()
		for range 50 { // while the node is asked already
			waiting.Go(one)
		}
		waiting.Wait()
		require.Equal(t, before, other.asked.Load(), "they wait with the question that is under way")
		<-time.After(time.Minute)
		require.Zero(t, other.questions.Load(), "nobody waits any more")
	})
}

func TestAConsumerThatLeavesAsksNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other := &distant{due: time.Now().Add(time.Second), left: 1}
		s := pullService(t, other)
		ctx, leave := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			_, err := s.Lease(ctx, "orders", api.AskLease{Max: 1, Wait: time.Minute})
			ended <- err
		}()
		<-time.After(time.Second / 2)
		leave()
		require.ErrorIs(t, <-ended, context.Canceled)
		<-time.After(2 * time.Second)
		require.Equal(t, 1, other.left)
		answer, err := s.Lease(t.Context(), "orders", api.AskLease{Max: 1})
		require.NoError(t, err)
		require.Len(t, answer.Tasks, 1)
	})
}

// slow is another node that answers late, and is told what becomes of its leases.
type slow struct {
	*distant
	settled []api.Settlement
	until   time.Time // when its leases end; zero: now
	down    time.Time // it does not answer settlements before
	refused int
}

func (s *slow) Lease(ctx context.Context, _ string, q api.AskLease) (api.LeaseAnswer, error) {
	<-time.After(time.Second)
	return api.LeaseAnswer{Tasks: []api.LeasedTask{{Lease: api.Lease{JobID: 7, Number: 8}, ExpiresAt: api.Time(s.until), Attempt: 1}}}, ctx.Err()
}

func (s *slow) Settle(_ context.Context, list ...api.Settlement) ([]api.Settled, error) {
	if time.Now().Before(s.down) {
		s.refused++
		return nil, intake.Unavailable("it is down")
	}
	s.settled = append(s.settled, list...)
	return make([]api.Settled, len(list)), nil
}

// elsewhere is a cluster in which another node has everything.
type elsewhere struct{ other *slow }

func (elsewhere) Term(int) uint64                        { return 0 }
func (e elsewhere) Owner(int) (intake.Peer, error)       { return e.other, nil }
func (e elsewhere) Peers() []intake.Peer                 { return []intake.Peer{e.other} }
func (elsewhere) Undelivered(string, uint64) func() bool { return nil }

// A consumer goes while another node hands out tasks: they are given back.
func TestAConsumerThatLeavesGivesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other := &slow{distant: &distant{}}
		s := pullServiceIn(t, elsewhere{other}, alone{})
		ctx, leave := context.WithTimeout(t.Context(), time.Second/2)
		defer leave()
		_, err := s.Lease(ctx, "orders", api.AskLease{Max: 1})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, []api.Settlement{{Lease: api.Lease{JobID: 7, Number: 8}.String(), Do: "release"}}, other.settled)
	})
}

// They are given back later if that node does not answer then, unless they are over.
func TestLeasesAreGivenBackLater(t *testing.T) {
	for name, c := range map[string]struct {
		down, lease time.Duration
		tries       int
		gone        bool
	}{"it answers again": {3500 * time.Millisecond, time.Minute, 3, true}, "they are over": {time.Minute, 3500 * time.Millisecond, 4, false}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				other := &slow{distant: &distant{}, until: time.Now().Add(c.lease), down: time.Now().Add(c.down)}
				s := pullServiceIn(t, elsewhere{other}, alone{})
				ctx, leave := context.WithTimeout(t.Context(), time.Second/2)
				defer leave()
				_, err := s.Lease(ctx, "orders", api.AskLease{Max: 1})
				require.ErrorIs(t, err, context.DeadlineExceeded)
				time.Sleep(time.Hour)
				synctest.Wait()
				require.Equal(t, c.tries, other.refused)
				require.Len(t, other.settled, map[bool]int{true: 1}[c.gone])
			})
		})
	}
}

// ready is a node that has tasks of its own.
type ready struct {
	alone
	tasks int
	err   error
}

func (r ready) Lease(_, _ context.Context, _ uint64, most int, _ time.Duration, _ func() bool) ([]task.Task, error) {
	return make([]task.Task, min(most, r.tasks)), r.err
}

// Another node stands still: what this one has given does not wait for it, and what comes too late is given back.
func TestLeasesDoNotWaitForANodeThatStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other := &slow{distant: &distant{}}
		s := pullServiceIn(t, elsewhere{other}, ready{tasks: 1000})
		began := time.Now()
		answer, err := s.Lease(t.Context(), "orders", api.AskLease{Max: 10})
		require.NoError(t, err)
		require.Len(t, answer.Tasks, 10, "this node is asked for the rest")
		require.Equal(t, 100*time.Millisecond, time.Since(began))
		<-time.After(2 * time.Second)
		synctest.Wait()
		require.Equal(t, []api.Settlement{{Lease: api.Lease{JobID: 7, Number: 8}.String(), Do: "release"}}, other.settled)
	})
}

// A node that stops hands out nothing, and gives back what others have given.
func TestANodeThatStopsHandsOutNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other := &slow{distant: &distant{}}
		s := pullServiceIn(t, elsewhere{other}, ready{err: worker.ErrStopped})
		answer, err := s.Lease(t.Context(), "orders", api.AskLease{Max: 10, Wait: time.Second})
		require.NoError(t, err)
		require.Empty(t, answer.Tasks)
		require.Len(t, other.settled, 1)
	})
}

// All due tasks are at one node: it is asked for the rest.
func TestANodeThatHasAllGivesAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := pullServiceIn(t, singleWith{&distant{}, &distant{}}, ready{tasks: 1000})
		answer, err := s.Lease(t.Context(), "orders", api.AskLease{Max: 256})
		require.NoError(t, err)
		require.Len(t, answer.Tasks, 256)
	})
}

// singleWith has other nodes that have no tasks.
type singleWith []*distant

func (singleWith) Term(int) uint64                        { return 1 }
func (s singleWith) Owner(int) (intake.Peer, error)       { return s[0], nil }
func (s singleWith) Peers() []intake.Peer                 { return []intake.Peer{s[0], s[1]} }
func (singleWith) Undelivered(string, uint64) func() bool { return nil }

func TestRefusedLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := pullService(t, &distant{})
		_, err := s.Lease(t.Context(), "pushed", api.AskLease{})
		require.ErrorContains(t, err, "name: pushed has the processor")
		for want, q := range map[string]api.AskLease{
			"max": {Max: 257}, "wait": {Wait: time.Minute + 1}, "ttr": {TTR: time.Millisecond}, "max -1": {Max: -1},
		} {
			_, err := s.Lease(t.Context(), "orders", q)
			var field *task.FieldError
			require.ErrorAs(t, err, &field, want)
			require.Equal(t, want[:min(len(want), len(field.Field))], field.Field)
		}
		_, err = s.Lease(t.Context(), "nobody", api.AskLease{})
		require.ErrorIs(t, err, task.ErrNotFound)
		_, err = s.Settle(t.Context())
		require.ErrorContains(t, err, "settle: holds 0")
		_, err = s.Settle(t.Context(), api.Settlement{Lease: "a-b", Do: "extend", TTR: 1})
		require.ErrorContains(t, err, "settle[0].ttr: is 1ns")
	})
}

// room is a node whose one task is leased only once the lease of another one is settled.
type room struct {
	alone
	settled atomic.Bool
	given   atomic.Bool
	err     error
	hang    chan struct{} // for which settlements wait; nil: they do not
}

func (r *room) Lease(context.Context, context.Context, uint64, int, time.Duration, func() bool) ([]task.Task, error) {
	if r.err != nil || !r.settled.Load() || r.given.Swap(true) {
		return nil, r.err
	}
	return []task.Task{{JobID: 1, BizType: 1, Lease: 5}}, nil
}

func (r *room) Settle(_ context.Context, list []worker.Settlement) []worker.Settled {
	if r.settled.Store(true); r.hang != nil {
		<-r.hang
	}
	return slices.Repeat([]worker.Settled{worker.SettledOK}, len(list))
}

// A request that settles does not wait: it answers with the results, and with what is due after them.
func TestLeaseSettlesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other := &distant{}
		p := &room{alone: alone{other}}
		s, began := pullServiceIn(t, alone{other}, p), time.Now()
		ack := api.Settlement{Lease: api.Lease{JobID: 1 << 30, Number: 7}.String(), Do: "ack"}
		lease := func(settle ...api.Settlement) (api.LeaseAnswer, error) {
			return s.Lease(t.Context(), "orders", api.AskLease{Max: 2, Wait: time.Minute, Settle: settle})
		}
		_, err := lease(ack, api.Settlement{Lease: ack.Lease, Do: "extend", TTR: 1})
		require.ErrorContains(t, err, "settle[1].ttr")
		_, err = s.Lease(t.Context(), "pushed", api.AskLease{Settle: []api.Settlement{ack}})
		require.ErrorContains(t, err, "processor pull")
		require.False(t, p.settled.Load(), "a wrong request does nothing")

		results := []api.Settled{{Lease: ack.Lease, Result: "ok"}, {Lease: "x", Result: "invalid"}}
		got, err := lease(ack, api.Settlement{Lease: "x", Do: "ack"})
		require.NoError(t, err)
		require.Len(t, got.Tasks, 1)
		require.Equal(t, results, got.Results)
		got, err = lease(ack)
		require.NoError(t, err)
		require.Equal(t, api.LeaseAnswer{Tasks: []api.LeasedTask{}, Results: results[:1]}, got)
		p.err = intake.Unavailable("the database is away")
		got, err = lease(ack)
		require.NoError(t, err, "the results are answered all the same")
		require.Equal(t, api.LeaseAnswer{Tasks: []api.LeasedTask{}, Results: results[:1]}, got)
		require.Zero(t, time.Since(began))
	})
}

// Leases do not wait for long for the settlements of their request. Before, they did as long as a database hung, and were over then.
func TestALeaseDoesNotWaitForSettlementsThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other := &distant{}
		p := &room{alone: alone{other}, hang: make(chan struct{})}
		p.settled.Store(true)
		s, began := pullServiceIn(t, alone{other}, p), time.Now()
		ack := api.Settlement{Lease: api.Lease{JobID: 1 << 30, Number: 7}.String(), Do: "ack"}
		got, err := s.Lease(t.Context(), "orders", api.AskLease{Max: 2, Settle: []api.Settlement{ack}})
		require.NoError(t, err)
		require.Equal(t, 3*time.Second, time.Since(began))
		require.Len(t, got.Tasks, 1)
		require.Equal(t, []api.Settled{{Lease: ack.Lease, Result: "unavailable"}}, got.Results)
		close(p.hang)
	})
}
