package traffic

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/internal/testrig/audit"
	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/task"
)

// Consumers submit tasks, lease them at any node, and settle them at any other one. Each writes down what it was promised.
type Consumers struct {
	*audit.Leases
	// TTR is how much longer than a second a lease lasts at most, and Work how long a consumer works at most before it settles.
	TTR, Work time.Duration
	// Again is when a consumer asks again after a request that failed.
	Again time.Duration
	// Wait is how long a request for leases waits at most.
	Wait time.Duration
	// Slow makes consumers forget more leases, and extend, release and settle more of them late.
	Slow bool
	// Cancels is whether consumers try to cancel what they have.
	Cancels bool

	center Center
	seed   uint64
}

// NewConsumers makes consumers of a center whose business types are all pulled.
func NewConsumers(c Center, seed uint64) *Consumers {
	return &Consumers{TTR: time.Second, Work: time.Second, Wait: 2 * time.Second, Again: 5 * time.Millisecond, Cancels: true, center: c, seed: seed, Leases: &audit.Leases{Patience: RequestTimeout, MaxRetries: c.Types[0].MaxRetries}}
}

// consumer is one of them.
type consumer struct {
	*Consumers
	*rand.Rand
}

// Submit stores so many tasks a second until ctx ends. What got no answer is sent again.
func (c *Consumers) Submit(ctx context.Context, rate int) {
	c.consumer(pulledSubmitters).submit(ctx, rate)
}

func (c *Consumers) consumer(numbers ...uint64) consumer {
	return consumer{c, source(c.seed, numbers...)}
}

func (c consumer) submit(ctx context.Context, rate int) {
	const every = 100 * time.Millisecond
	tick := time.NewTicker(every)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		list := make([]*wish, rate/int(time.Second/every))
		for i := range list {
			list[i] = &wish{submit: client.Submit{BizType: c.center.Types[c.IntN(len(c.center.Types))].Name, BizID: c.Uint64() >> 1, DedupKey: "p" + strconv.Itoa(n)}}
		}
		for len(list) > 0 {
			list = c.submitOnce(list)
		}
	}
}

// submitOnce gives what must be sent again.
func (c consumer) submitOnce(list []*wish) (rest []*wish) {
	at := c.center.Any(c.Rand, "")
	if at == nil {
		<-time.After(max(c.Again, 20*time.Millisecond))
		return list
	}
	ctx, cancel := context.WithTimeout(context.Background(), RequestTimeout)
	defer cancel()
	body := make([]client.Submit, len(list))
	for i, w := range list {
		w.submit.ActionTime = c.center.ahead(c.Rand)
		w.tries = append(w.tries, audit.SubmitTry{Due: w.submit.ActionTime})
		body[i] = w.submit
	}
	results, err := at.API.SubmitBatch(ctx, body)
	if err != nil {
		<-time.After(max(c.Again, 20*time.Millisecond))
		return list
	}
	for i, r := range results {
		switch {
		case r.Err == nil:
		case r.Err.Retry:
			rest = append(rest, list[i])
			continue
		default:
			c.Lock()
			c.Blame("submits were refused", "%v", r.Err)
			c.Unlock()
			continue
		}
		c.Leases.Submit(uint64(r.JobID), list[i].earliest())
	}
	return rest
}

// earliest is the earliest time that any try asked for: any of them may have stored the task.
func (w *wish) earliest() time.Time {
	return slices.MinFunc(w.tries, func(a, b audit.SubmitTry) int { return a.Due.Compare(b.Due) }).Due
}

// Consume leases and settles until ctx ends.
func (c *Consumers) Consume(ctx context.Context, number uint64, bizType string) {
	c.consumer(consumers, number).consume(ctx, bizType)
}

func (c consumer) consume(ctx context.Context, bizType string) {
	for ctx.Err() == nil {
		at := c.center.Any(c.Rand, "")
		if at == nil {
			<-time.After(max(c.Again, 20*time.Millisecond))
			continue
		}
		wait := time.Duration(c.Int64N(int64(c.Wait)))
		// The time that the node has given it at follows from the one that was asked for.
		ask := client.AskLease{Max: 1 + c.IntN(64), Wait: wait, TTR: time.Second + time.Duration(c.Int64N(c.TTR.Milliseconds()))*time.Millisecond}
		patience := wait + RequestTimeout
		if c.IntN(10) == 0 { // it goes away
			patience = time.Duration(c.Int64N(int64(wait + time.Millisecond)))
		}
		call, cancel := context.WithTimeout(context.Background(), patience)
		from := time.Now()
		got, err := at.API.Lease(call, bizType, ask)
		cancel()
		if err != nil {
			left := errors.Is(err, context.DeadlineExceeded)
			c.Unheard(bizType, at.By, from, time.Now(), left)
			if left {
				c.Lock()
				c.Left++
				c.Unlock()
			}
			<-time.After(c.Again)
			continue
		}
		holds := c.take(got.Tasks, ask.TTR, from)
		for _, one := range got.Tasks {
			if c.Cancels && c.IntN(40) == 0 && time.Until(one.ExpiresAt.Time()) > time.Second {
				c.tryCancel(one)
			}
		}
		c.work(holds)
	}
}

// RunWorker consumes as the Worker of package client does: it extends the leases of runs that last longer. While the context of
// a run has not ended, nobody else has its task.
func (c *Consumers) RunWorker(ctx context.Context, number uint64, api *client.Client, bizType string) {
	const ttr, timerLate = time.Second, 200 * time.Millisecond
	w := client.Worker{Client: api, BizType: bizType, Concurrency: 8, TTR: ttr, Logger: slog.New(slog.DiscardHandler),
		Process: func(ctx context.Context, one client.LeasedTask) error {
			c := c.consumer(workers, number, uint64(one.Task.JobID), uint64(one.Attempt))
			h := c.take([]client.LeasedTask{one}, ttr, time.Now())[one.Lease.String()]
			arrivedLate := time.Until(h.Expires) < 100*time.Millisecond // the Worker takes this for a clock that is behind
			select {
			case <-time.After(time.Duration(c.Int64N(int64(3 * ttr)))):
			case <-ctx.Done():
			}
			c.Lock()
			defer c.Unlock()
			end := time.Now().Add(-timerLate)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			h.Settled, h.Result, h.Do = end, audit.Unsure, client.Ack // only the Worker receives the answer
			if end.After(h.Expires) && !arrivedLate {
				h.Expires = end
			}
			if end.Sub(h.Given) > 2*ttr && !arrivedLate {
				c.ExtendedRuns++
			}
			if c.IntN(10) == 0 {
				h.Do = client.Nack
				return processor.RetryAfter(0, errors.New("try again"))
			}
			return nil
		}}
	if err := w.Run(ctx); err != nil {
		c.Lock()
		defer c.Unlock()
		c.Blame("a Worker was refused", "%v", err)
	}
}

// take writes down what was leased.
func (c consumer) take(list []client.LeasedTask, ttr time.Duration, asked time.Time) map[string]*audit.Hold {
	c.Lock()
	defer c.Unlock()
	holds := map[string]*audit.Hold{}
	for _, one := range list {
		expires := one.ExpiresAt.Time()
		h := &audit.Hold{Lease: one.Lease.String(), Attempt: one.Attempt, Given: expires.Add(-ttr), Expires: expires,
			Asked: asked, Got: time.Now(), Attribute: one.Task.Attribute}
		c.Add(uint64(one.Task.JobID), h)
		if holds[h.Lease] != nil {
			c.Blame("leases came twice in one answer", "%s", h.Lease)
		}
		holds[h.Lease] = h
	}
	return holds
}

// tryCancel tries to cancel a task that a consumer has: it is refused for as long as the lease lasts.
func (c consumer) tryCancel(one client.LeasedTask) {
	at := c.center.Any(c.Rand, "")
	if at == nil {
		return
	}
	ctx, cancel := context.WithDeadline(context.Background(), one.ExpiresAt.Time())
	defer cancel()
	err := at.API.Cancel(ctx, uint64(one.Task.JobID))
	holds := time.Now().Before(one.ExpiresAt.Time())
	conflict, isConflict := errors.AsType[*task.ConflictError](err)
	if err != nil && !isConflict {
		c.MayBeCancelled(uint64(one.Task.JobID))
	}
	c.Lock()
	defer c.Unlock()
	if isConflict && conflict.Conflict == task.ConflictRunning {
		c.RefusedCancels++
	} else if holds && (err == nil || isConflict) {
		c.Blame("leased tasks could be cancelled", "%d: %v", one.Task.JobID, err)
	}
}

// work settles leases: most at once, some after a while, some not at all, some twice.
func (c consumer) work(holds map[string]*audit.Hold) {
	var first, late, last []client.Settlement
	for _, lease := range slices.SortedFunc(maps.Keys(holds), func(a, b string) int { return cmp.Compare(holds[a].Attribute, holds[b].Attribute) }) {
		h := holds[lease]
		s := client.Settlement{Lease: lease, Do: client.Ack}
		n := c.IntN(100)
		if c.Slow && n >= 35 {
			switch {
			case n < 45: // it dies
				continue
			case n < 60:
				late = append(late, client.Settlement{Lease: lease, Do: client.Extend, TTR: api.Duration(c.Work + 500*time.Millisecond)})
				last = append(last, s)
				continue
			case n < 70:
				s.Do = client.Release
				late = append(late, s)
				continue
			case n < 80:
				late = append(late, s)
				continue
			}
		}
		switch {
		case n < 10:
			s.Do = client.Nack
			if h.Again = time.Duration(c.IntN(400)) * time.Millisecond; n < 5 {
				s.RetryAfter = (*api.Duration)(&h.Again)
			} else {
				h.Again = c.center.Types[0].Backoff.Min
			}
		case n < 13:
			s.Do = client.Reject
		case n < 18: // until it ends
			continue
		case n < 23:
			first = append(first, client.Settlement{Lease: lease, Do: client.Extend, TTR: api.Duration(c.Work + 500*time.Millisecond)})
			late = append(late, s)
			continue
		case n < 30:
			late = append(late, s)
			continue
		case n < 32:
			s.Do = client.Release
		case n < 35: // as somebody does who does not know that it was sent
			first = append(first, s)
		}
		first = append(first, s)
	}
	c.settle(first, holds)
	if len(late) > 0 {
		<-time.After(time.Duration(c.Int64N(c.Work.Milliseconds())) * time.Millisecond)
		c.settle(late, holds)
	}
	if len(last) > 0 {
		<-time.After(time.Duration(c.Int64N(c.Work.Milliseconds())) * time.Millisecond)
		c.settle(last, holds)
	}
}

// settle sends settlements until each has an answer, or its lease is over.
func (c consumer) settle(list []client.Settlement, holds map[string]*audit.Hold) {
	for len(list) > 0 {
		at := c.center.Any(c.Rand, "")
		if at == nil {
			<-time.After(max(c.Again, 20*time.Millisecond))
			list = slices.DeleteFunc(list, func(s client.Settlement) bool { return time.Now().After(holds[s.Lease].Expires) })
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), RequestTimeout)
		sent := time.Now()
		results, err := at.API.Settle(ctx, list...)
		cancel()
		answered := time.Now()
		var again []client.Settlement
		c.Lock()
		for i, s := range list {
			result, by := client.SettledUnavailable, (*audit.Process)(nil)
			if err == nil {
				result, by = results[i].Result, at.By
			}
			if c.Settled(holds[s.Lease], s, result, by, sent, answered); result == client.SettledUnavailable && answered.Before(holds[s.Lease].Expires) {
				again = append(again, s)
			}
		}
		c.Unlock()
		if list = again; len(list) > 0 {
			<-time.After(max(c.Again, 20*time.Millisecond))
		}
	}
}
