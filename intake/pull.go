package intake

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/internal/tracing"
	"github.com/timeoutcenter/toc/internal/wait"
	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/task"
	"github.com/timeoutcenter/toc/worker"
)

// The bounds of a lease.
const (
	MaxLease  = 256 // tasks
	MaxWait   = time.Minute
	MinTTR    = 100 * time.Millisecond
	MaxTTR    = 24 * time.Hour
	MaxSettle = 1000 // settlements in a request
	maxPart   = 256  // settlements in a request to another node: its proof allows so many with the longest errors
)

// Puller hands out the tasks of this node's partitions; see worker.Runner.
type Puller interface {
	Lease(ctx, wait context.Context, bizType uint64, max int, ttr time.Duration, isGone func() bool) ([]task.Task, error)
	AwaitDue(ctx context.Context, bizType uint64) error
	Settle(ctx context.Context, list []worker.Settlement) []worker.Settled
}

// noPuller hands out nothing.
type noPuller struct{}

func (noPuller) Lease(context.Context, context.Context, uint64, int, time.Duration, func() bool) ([]task.Task, error) {
	return nil, worker.ErrStopped
}
func (noPuller) AwaitDue(context.Context, uint64) error { return worker.ErrStopped }
func (noPuller) Settle(_ context.Context, list []worker.Settlement) []worker.Settled {
	return make([]worker.Settled, len(list))
}

// Lease hands out due tasks of all nodes to a consumer. If none is due it waits for one, and returns an empty list at the
// end of q.Wait. A caller whose ctx ends gets none.
//
// With q.Settle it settles at the same time, so that both may share a commit, and does not wait: the results of settlements
// must not be late. After them an error of the lease is an empty list.
//
// The errors are task.UnknownTypeError, task.FieldError, and task.ErrUnavailable if no node could hand
// out anything.
func (s *leases) Lease(ctx context.Context, bizType string, q api.AskLease) (api.LeaseAnswer, error) {
	b, err := s.pullType(bizType)
	if err != nil {
		return api.LeaseAnswer{}, err
	}
	q.Max = cmp.Or(q.Max, 1)
	if err := checkLease(&q); err != nil {
		return api.LeaseAnswer{}, err
	}
	if len(q.Settle) > 0 {
		return s.settleAndLease(ctx, bizType, q)
	}
	waiting, stop := context.WithTimeout(ctx, q.Wait)
	defer stop()
	c := consumer{leases: s, ctx: ctx, bizType: b, ask: q}
	switch {
	case !IsForwarded(ctx):
		err = c.lease(waiting)
	case q.Wait == 0:
		err = c.leaseHere(noWait, q.Max)
	default: // another node asks when it is worth while to ask for tasks; see waiters
		if err = s.cfg.Puller.AwaitDue(waiting, b.ID); err != nil && waiting.Err() == nil {
			return api.LeaseAnswer{}, Unavailable("%v", err)
		}
	}
	if ctx.Err() != nil {
		s.giveBack(ctx, c.got)
		return api.LeaseAnswer{}, ctx.Err()
	}
	if len(c.got) > 0 || waiting.Err() != nil && q.Wait > 0 || errors.Is(err, worker.ErrStopped) || errors.Is(err, queue.ErrClosed) {
		err = nil
	}
	if c.got == nil {
		c.got = []api.LeasedTask{}
	}
	return api.LeaseAnswer{Tasks: c.got, Paused: s.cfg.Queue.IsPaused(b.ID)}, err
}

// settleAndLease leases what is due while it settles. If that is nothing it leases again afterwards: the settled leases
// may have had all the room.
func (s *leases) settleAndLease(ctx context.Context, bizType string, q api.AskLease) (api.LeaseAnswer, error) {
	if err := checkSettlements(q.Settle); err != nil {
		return api.LeaseAnswer{}, err
	}
	settling, cancel := context.WithTimeout(ctx, settleWithin)
	defer cancel()
	settled := make(chan []api.Settled, 1)
	s.waiters.background(func() {
		results, _ := s.Settle(settling, q.Settle...) // they are checked
		settled <- results
	})
	ask := api.AskLease{Max: q.Max, TTR: q.TTR}
	answer, err := s.Lease(ctx, bizType, ask)
	results := make([]api.Settled, len(q.Settle))
	select {
	case results = <-settled:
	case <-settling.Done():
		for i := range results {
			results[i] = api.Settled{Lease: q.Settle[i].Lease, Result: api.SettledUnavailable}
		}
	}
	if len(answer.Tasks) == 0 && err == nil {
		answer, err = s.Lease(ctx, bizType, ask)
	}
	if ctx.Err() != nil {
		s.giveBack(ctx, answer.Tasks)
		return api.LeaseAnswer{}, ctx.Err()
	}
	if err != nil { // the results must be known all the same
		answer.Tasks = []api.LeasedTask{}
	}
	answer.Results = results
	return answer, nil
}

// settleWithin is how long a lease request waits for its settlements: its leases end meanwhile. A locked row is refused earlier.
const settleWithin = 3 * time.Second

func (s *leases) pullType(name string) (task.BizType, error) {
	b, err := s.Types().Find(name)
	switch {
	case err != nil:
		return b, err
	case !b.Pull:
		return b, task.Wrong("name", "%s has the processor %s; tasks are leased of business types with the processor pull", name, b.Processor)
	}
	return b, nil
}

func checkLease(q *api.AskLease) error {
	switch {
	case q.Max < 1 || q.Max > MaxLease:
		return task.Wrong("max", "is %d; give 1 to %d", q.Max, MaxLease)
	case q.Wait < 0 || q.Wait > MaxWait:
		return task.Wrong("wait", "is %v; give 0s to %v", q.Wait, MaxWait)
	case q.TTR != 0 && (q.TTR < MinTTR || q.TTR > MaxTTR):
		return ttrError("ttr", q.TTR)
	}
	return nil
}

func ttrError(field string, ttr time.Duration) error {
	return task.Wrong(field, "is %v; give %v to %v", ttr, MinTTR, MaxTTR)
}

// consumer is one call of Lease.
type consumer struct {
	*leases
	ctx     context.Context
	bizType task.BizType
	ask     api.AskLease
	got     []api.LeasedTask
}

// lease asks all nodes, and then waits until one of them has a task that is due.
func (c *consumer) lease(waiting context.Context) (err error) {
	var peers []Peer
	for _, p := range c.cfg.Cluster.Peers() {
		if c.ask.Wait == 0 || !c.waiters.isWatched(c.bizType.ID, p) {
			peers = append(peers, p)
		}
	}
	if err = c.leaseNow(peers); errors.Is(err, worker.ErrStopped) { // it hands out nothing, not even what others have given
		c.giveBack(c.ctx, c.got)
		c.got = nil
		return err
	}
	for len(c.got) == 0 && waiting.Err() == nil && !errors.Is(err, worker.ErrStopped) {
		err = c.await(waiting)
	}
	return err
}

// leaseNow asks this node and others for tasks that are due: at once, each for a part, so that the leases of one node do not wait
// long for the next node. A node that has given all of its part is asked for the rest. If fewer tasks are wanted than there are
// nodes, it asks one node after the other.
func (c *consumer) leaseNow(peers []Peer) error {
	part := c.ask.Max / (len(peers) + 1)
	here, answers := c.ask.Max-part*len(peers), make(chan partAnswer, len(peers))
	full := peers
	if part > 0 {
		full = nil
		for _, p := range peers {
			go func() {
				answer, err := c.askThere(p, part)
				answers <- partAnswer{p, answer.Tasks, err}
			}()
		}
	}
	err := c.leaseHere(noWait, here)
	hereFull := len(c.got) == here
	var late <-chan time.Time
	for open := cap(answers); part > 0 && open > 0; open-- {
		if len(c.got) > 0 && late == nil {
			late = time.After(lateAnswer)
		}
		select {
		case a := <-answers:
			if c.got, err = append(c.got, a.tasks...), cmp.Or(err, a.err); len(a.tasks) == part {
				full = append(full, a.peer)
			}
			continue
		case <-late:
			c.waiters.background(func() {
				for range open {
					c.giveBack(c.ctx, (<-answers).tasks)
				}
			})
		}
		break
	}
	for _, p := range full {
		if len(c.got) < c.ask.Max && c.ctx.Err() == nil && !errors.Is(err, worker.ErrStopped) {
			err = cmp.Or(err, c.leaseThere(p))
		}
	}
	if rest := c.ask.Max - len(c.got); hereFull && rest > 0 && c.ctx.Err() == nil {
		err = cmp.Or(err, c.leaseHere(noWait, rest))
	}
	return err
}

// partAnswer is what another node has given of a part.
type partAnswer struct {
	peer  Peer
	tasks []api.LeasedTask
	err   error
}

// lateAnswer is how long leases wait for those of other nodes: one of these may stand still, and leases end meanwhile.
const lateAnswer = 100 * time.Millisecond

// await waits until this node has a task, and leases it, or until another node has one, and asks that.
func (c *consumer) await(waiting context.Context) error {
	here, stop := context.WithCancel(waiting)
	defer stop()
	w := &waiter{wake: stop}
	c.waiters.add(c.bizType, w)
	err := c.leaseHere(here, c.ask.Max)
	if err != nil { // the business types are being changed, or a database does not answer
		_ = wait.For(here, againPause)
	}
	there := c.waiters.remove(c.bizType, w)
	if there == nil {
		return err
	}
	if len(c.got) == 0 && waiting.Err() == nil {
		err = c.leaseThere(there.peer)
	}
	there.tried <- len(c.got) > 0
	return err
}

// againPause is the pause of a consumer after an error.
const againPause = 50 * time.Millisecond

// noWait is how long a consumer waits who does not wait.
var noWait context.Context

// leaseHere leases tasks of this node, at most most, and waits for one until waiting ends, or noWait.
func (c *consumer) leaseHere(waiting context.Context, most int) error {
	leased, err := c.cfg.Puller.Lease(c.ctx, waiting, c.bizType.ID, most, c.ask.TTR, c.isGone())
	for i := range leased {
		t := &leased[i]
		shown := *t
		shown.ActionTime = t.Promised() // as it was before the lease, but for the pauses of earlier runs
		c.got = append(c.got, api.LeasedTask{Lease: api.Lease{JobID: api.ID(t.JobID), Number: t.Lease}, ExpiresAt: api.Time(t.ActionTime),
			Attempt: t.Attempts + 1, Traceparent: tracing.Valid(t.Trace), Task: api.From(shown, c.bizType.Name)})
	}
	return err
}

// isGone returns a function that reports whether the node that passes the leases on cannot have passed them on. nil: this node answers
// the consumer itself.
func (c *consumer) isGone() func() bool {
	by, is := c.ctx.Value(forwardedKey{}).(forwarded)
	if !is {
		return nil
	}
	return c.cfg.Cluster.Undelivered(by.node, by.question)
}

// leaseThere leases tasks of another node.
func (c *consumer) leaseThere(p Peer) error {
	answer, err := c.askThere(p, c.ask.Max-len(c.got))
	c.got = append(c.got, answer.Tasks...)
	return err
}

// askThere asks another node for tasks. It does not hang up when the consumer does: what the node has leased by then must be
// given back.
func (c *consumer) askThere(p Peer, most int) (api.LeaseAnswer, error) {
	return p.Lease(context.WithoutCancel(c.ctx), c.bizType.Name, api.AskLease{Max: most, TTR: c.ask.TTR})
}

// giveBack ends leases that no consumer has got: their tasks are due at once again, and this was no attempt. While a node or a database
// does not answer it goes on in the background, until they are over or this node stops.
func (s *leases) giveBack(ctx context.Context, list []api.LeasedTask) {
	ctx = context.WithoutCancel(ctx)
	if list = s.tryGiveBack(ctx, list); len(list) == 0 {
		return
	}
	s.waiters.background(func() {
		for len(list) > 0 && s.waiters.ctx.Err() == nil {
			_ = wait.For(s.waiters.ctx, giveBackPause)
			list = s.tryGiveBack(ctx, list)
		}
	})
}

// tryGiveBack returns the leases that are neither given back nor over.
func (s *leases) tryGiveBack(ctx context.Context, list []api.LeasedTask) (rest []api.LeasedTask) {
	if len(list) == 0 {
		return nil
	}
	settle := make([]api.Settlement, len(list))
	for i, t := range list {
		settle[i] = api.Settlement{Lease: t.Lease.String(), Do: api.Do(worker.Release)}
	}
	ctx, cancel := context.WithTimeout(ctx, giveBackWithin)
	defer cancel()
	results, _ := s.Settle(ctx, settle...)
	for i, r := range results {
		if r.Result == api.SettledUnavailable && list[i].ExpiresAt.Time().After(s.cfg.Now()) {
			rest = append(rest, list[i])
		}
	}
	return rest
}

const (
	giveBackWithin = 5 * time.Second
	giveBackPause  = time.Second // after a try
)

// Close ends the questions to other nodes.
func (s *leases) Close() {
	s.waiters.stop()
	s.waiters.asking.Wait()
}

// Settle settles leases, each at the owner of its task. The results are in the order of the list: also after an error of
// a node or a database, which concerns its own leases only.
func (s *leases) Settle(ctx context.Context, list ...api.Settlement) ([]api.Settled, error) {
	if err := checkSettlements(list); err != nil {
		return nil, err
	}
	results := make([]api.Settled, len(list))
	var here []worker.Settlement
	var hereAt []int
	away := make(map[Peer][]int)
	for i := range list {
		results[i] = api.Settled{Lease: list[i].Lease, Result: api.SettledUnavailable}
		lease, err := api.ParseLease(list[i].Lease)
		p, impossible := s.partition(uint64(lease.JobID))
		switch {
		case err != nil || impossible != nil:
			results[i].Result = api.SettledInvalid
		case s.cfg.Cluster.Term(p) != 0:
			here = append(here, worker.Settlement{JobID: uint64(lease.JobID), Lease: lease.Number, Do: worker.Do(list[i].Do),
				RetryAfter: (*time.Duration)(list[i].RetryAfter), TTR: time.Duration(list[i].TTR), Error: list[i].Error})
			hereAt = append(hereAt, i)
		default:
			if peer, err := s.owner(ctx, p); err == nil {
				away[peer] = append(away[peer], i)
			}
		}
	}
	var asked sync.WaitGroup
	for peer, at := range away {
		asked.Go(func() {
			for at := range slices.Chunk(at, maxPart) {
				part := make([]api.Settlement, len(at))
				for k, i := range at {
					part[k] = list[i]
					part[k].Error = task.Reason(list[i].Error)
				}
				answered, err := peer.Settle(ctx, part...)
				for k := 0; err == nil && k < len(at) && k < len(answered); k++ {
					results[at[k]].Result = answered[k].Result
				}
			}
		})
	}
	for k, r := range s.cfg.Puller.Settle(ctx, here) {
		if r != "" {
			results[hereAt[k]].Result = string(r)
		}
	}
	asked.Wait()
	return results, nil
}

func checkSettlements(list []api.Settlement) error {
	if n := len(list); n < 1 || n > MaxSettle {
		return task.Wrong("settle", "holds %d settlements; give 1 to %d", n, MaxSettle)
	}
	for i := range list {
		if err := checkSettlement(&list[i]); err != nil {
			err.Field = fmt.Sprintf("settle[%d].%s", i, err.Field)
			return err
		}
	}
	return nil
}

func checkSettlement(s *api.Settlement) *task.FieldError {
	switch ttr := time.Duration(s.TTR); {
	case ttr != 0 && (ttr < MinTTR || ttr > MaxTTR):
		return ttrError("ttr", ttr).(*task.FieldError)
	case s.RetryAfter != nil && (*s.RetryAfter < 0 || time.Duration(*s.RetryAfter) > MaxAhead):
		return task.Wrong("retry_after", "is %v; give 0s to ten years", time.Duration(*s.RetryAfter))
	}
	return nil
}
