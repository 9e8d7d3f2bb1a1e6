package soak_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"github.com/timeoutcenter/toc/internal/testrig/audit"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/task"
	"github.com/timeoutcenter/toc/wire"
)

// In the arena of pull no node runs anything: consumers lease the tasks at any node and settle them at any other one,
// while nodes are killed, stopped and replaced and Redis loses all that it has. Each consumer writes down what it was
// promised. The clocks of all are one machine's, so the end of a lease, which comes with it, tells when it was given.

// pulled makes all business types of a center ones whose tasks are leased.
func pulled(cfg *configs.Config) {
	for i := range cfg.BizTypes {
		b := &cfg.BizTypes[i]
		b.Processor, b.Pull = configs.ProcessorPull, configs.Pull{TTR: time.Second, MaxInFlight: 5000}
	}
}

// soakPull is soak for consumers.
func soakPull(t *testing.T, a arena, seed uint64, last time.Duration) {
	faults := &faultInjector{rng: rand.New(rand.NewPCG(seed, 0)), long: last > 0, chosen: []string{kill, redisWiped, pause, rolling}}
	wiped := testrig.StartRedis(t)
	faults.consul, faults.silent = testrig.StartConsul(t), wiped
	f := newFleet(t, servers{mysql: testrig.MySQL(t), redis: []string{wiped.Addr()}, redisPrefix: wiped.Prefix(),
		consul: faults.consul.Addr(), consulPrefix: "toc"}, a.nodes, pulled)
	faults.fleet = f
	f.startAll()
	f.awaitWhole()

	c := &consumers{fleet: f, tasks: map[uint64]*pulledTask{}, broken: map[string][]string{}}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	submits, consuming := context.WithCancel(ctx)
	var load, work sync.WaitGroup
	load.Go(func() { c.submit(submits, int(envInt(t, rateEnv, 200))) })
	for n := range 4 * len(bizTypes) {
		work.Go(func() { c.consume(ctx, bizTypes[n%len(bizTypes)]) })
	}
	for _, bizType := range bizTypes {
		work.Go(func() { c.runWorker(ctx, client.New("consul://"+faults.consul.Addr()+"/toc"), bizType) })
	}
	began := time.Now()
	f.rest(time.Second)
	for _, kind := range faults.plan() {
		faults.inject(kind)
	}
	for time.Since(began) < last && !t.Failed() {
		faults.inject(faults.anything())
	}
	f.rest(time.Second)
	consuming()
	load.Wait()
	f.awaitDone(time.Minute)
	stop()
	work.Wait()
	f.stopAll()
	c.audit(t, faults.faults)
}

// wipeRedis takes all from Redis that it has.
func (i *faultInjector) wipeRedis() {
	c := redis.NewClient(&redis.Options{Addr: i.silent.Addr()})
	defer c.Close()
	require.NoError(i.fleet.t, c.FlushAll(i.fleet.t.Context()).Err())
}

// consumers submit tasks, lease them and settle them.
type consumers struct {
	fleet *fleet

	mu      sync.Mutex
	tasks   map[uint64]*pulledTask
	unheard []unheard           // requests for leases without an answer
	broken  map[string][]string // what is not as it should be, by rule

	submitted, lost, unavailable, left, refusedCancels int

	extendedRuns int // of Workers, that lasted longer than two leases
}

// pulledTask is what is known of a task.
type pulledTask struct {
	due            time.Time // of the tries to submit it the earliest
	holds          []*hold
	mayBeCancelled bool // a cancel got no answer: a node that stood still may have done it once the lease was over
}

// hold is a lease, as its consumer knows it.
type hold struct {
	lease   string
	attempt int
	given   time.Time // by the node, up to a millisecond earlier
	expires time.Time
	settled time.Time // when the first settlement that could end it was sent; zero: none was
	do      string    // of that
	again   time.Duration
	result  string // ok, lost, or unsure
	acks    int    // that were answered ok
}

// unheard is a request for leases that had no answer.
type unheard struct{ from, till time.Time }

const unsure = "unsure"

// blame writes down what must not be. The caller holds mu.
func (c *consumers) blame(broken, format string, args ...any) {
	c.broken[broken] = append(c.broken[broken], time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// submit stores so many tasks a second until ctx ends. What got no answer is sent again.
func (c *consumers) submit(ctx context.Context, rate int) {
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
			list[i] = &wish{submit: client.Submit{BizType: bizTypes[rand.IntN(len(bizTypes))], BizID: rand.Uint64() >> 1, DedupKey: "p" + strconv.Itoa(n)}}
		}
		for len(list) > 0 {
			list = c.submitOnce(list)
		}
	}
}

// submitOnce gives what must be sent again.
func (c *consumers) submitOnce(list []*wish) (rest []*wish) {
	api := c.fleet.anyAPI()
	if api == nil {
		<-time.After(20 * time.Millisecond)
		return list
	}
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	body := make([]client.Submit, len(list))
	for i, w := range list {
		w.submit.ActionTime = ahead()
		w.tries = append(w.tries, audit.SubmitTry{Due: w.submit.ActionTime})
		body[i] = w.submit
	}
	results, err := api.SubmitBatch(ctx, body)
	if err != nil {
		<-time.After(20 * time.Millisecond)
		return list
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, r := range results {
		switch {
		case r.Err == nil:
		case r.Err.Retry:
			rest = append(rest, list[i])
			continue
		default:
			c.blame("submits were refused", "%v", r.Err)
			continue
		}
		one := c.task(uint64(r.JobID))
		one.due = list[i].earliest()
		c.submitted++
	}
	return rest
}

// earliest is the earliest time that any try asked for: any of them may have stored the task.
func (w *wish) earliest() time.Time {
	return slices.MinFunc(w.tries, func(a, b audit.SubmitTry) int { return a.Due.Compare(b.Due) }).Due
}

// task is what is known of a task. The caller holds mu.
func (c *consumers) task(jobID uint64) *pulledTask {
	if c.tasks[jobID] == nil {
		c.tasks[jobID] = &pulledTask{}
	}
	return c.tasks[jobID]
}

// consume leases and settles until ctx ends.
func (c *consumers) consume(ctx context.Context, bizType string) {
	for ctx.Err() == nil {
		api := c.fleet.anyAPI()
		if api == nil {
			<-time.After(20 * time.Millisecond)
			continue
		}
		wait := time.Duration(rand.Int64N(int64(2 * time.Second)))
		// The time that the node has given it at follows from the one that was asked for.
		ask := client.AskLease{Max: 1 + rand.IntN(64), Wait: wait, TTR: time.Second + time.Duration(rand.IntN(1000))*time.Millisecond}
		patience := wait + requestTimeout
		if rand.IntN(10) == 0 { // it goes away
			patience = time.Duration(rand.Int64N(int64(wait + time.Millisecond)))
		}
		call, cancel := context.WithTimeout(context.Background(), patience)
		from := time.Now()
		got, err := api.Lease(call, bizType, ask)
		cancel()
		if err != nil {
			c.mu.Lock()
			c.unheard = append(c.unheard, unheard{from, time.Now()})
			if errors.Is(err, context.DeadlineExceeded) {
				c.left++
			}
			c.mu.Unlock()
			<-time.After(5 * time.Millisecond)
			continue
		}
		holds := c.take(got.Tasks, ask.TTR)
		for _, one := range got.Tasks {
			if rand.IntN(40) == 0 && time.Until(one.ExpiresAt.Time()) > time.Second {
				c.tryCancel(one)
			}
		}
		c.work(holds)
	}
}

// runWorker consumes as the Worker of package client does: it extends the leases of runs that last longer. While the context of
// a run has not ended, nobody else has its task.
func (c *consumers) runWorker(ctx context.Context, api *client.Client, bizType string) {
	const ttr, timerLate = time.Second, 200 * time.Millisecond
	w := client.Worker{Client: api, BizType: bizType, Concurrency: 8, TTR: ttr, Logger: slog.New(slog.DiscardHandler),
		Process: func(ctx context.Context, one client.LeasedTask) error {
			h := c.take([]client.LeasedTask{one}, ttr)[one.Lease.String()]
			arrivedLate := time.Until(h.expires) < 100*time.Millisecond // the Worker takes this for a clock that is behind
			select {
			case <-time.After(time.Duration(rand.Int64N(int64(3 * ttr)))):
			case <-ctx.Done():
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			end := time.Now().Add(-timerLate)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			h.settled, h.result, h.do = end, unsure, client.Ack // the Worker alone hears what became of it
			if end.After(h.expires) && !arrivedLate {
				h.expires = end
			}
			if end.Sub(h.given) > 2*ttr && !arrivedLate {
				c.extendedRuns++
			}
			if rand.IntN(10) == 0 {
				h.do = client.Nack
				return processor.RetryAfter(0, errors.New("try again"))
			}
			return nil
		}}
	if err := w.Run(ctx); err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.blame("a Worker was refused", "%v", err)
	}
}

// take writes down what was leased.
func (c *consumers) take(list []client.LeasedTask, ttr time.Duration) map[string]*hold {
	c.mu.Lock()
	defer c.mu.Unlock()
	holds := map[string]*hold{}
	for _, one := range list {
		expires := one.ExpiresAt.Time()
		h := &hold{lease: one.Lease.String(), attempt: one.Attempt, given: expires.Add(-ttr), expires: expires}
		t := c.task(uint64(one.Task.JobID))
		t.holds = append(t.holds, h)
		if holds[h.lease] != nil {
			c.blame("leases came twice in one answer", "%s", h.lease)
		}
		holds[h.lease] = h
	}
	return holds
}

// tryCancel tries to cancel a task that a consumer has: it is refused for as long as the lease lasts.
func (c *consumers) tryCancel(one client.LeasedTask) {
	api := c.fleet.anyAPI()
	if api == nil {
		return
	}
	ctx, cancel := context.WithDeadline(context.Background(), one.ExpiresAt.Time())
	defer cancel()
	err := api.Cancel(ctx, uint64(one.Task.JobID))
	holds := time.Now().Before(one.ExpiresAt.Time())
	conflict, isConflict := errors.AsType[*task.ConflictError](err)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil && !isConflict {
		c.task(uint64(one.Task.JobID)).mayBeCancelled = true
	}
	if isConflict && conflict.Conflict == task.ConflictRunning {
		c.refusedCancels++
	} else if holds && (err == nil || isConflict) {
		c.blame("leased tasks could be cancelled", "%d: %v", one.Task.JobID, err)
	}
}

// work settles leases: most at once, some after a while, some not at all, some twice.
func (c *consumers) work(holds map[string]*hold) {
	var first, late []client.Settlement
	for lease, h := range holds {
		s := client.Settlement{Lease: lease, Do: client.Ack}
		switch n := rand.IntN(100); {
		case n < 10:
			s.Do = client.Nack
			if h.again = time.Duration(rand.IntN(400)) * time.Millisecond; n < 5 {
				s.RetryAfter = (*wire.Duration)(&h.again)
			} else {
				h.again = backoffMin
			}
		case n < 13:
			s.Do = client.Reject
		case n < 18: // until it ends
			continue
		case n < 23:
			first = append(first, client.Settlement{Lease: lease, Do: client.Extend, TTR: wire.Duration(1500 * time.Millisecond)})
			late = append(late, s)
			continue
		case n < 30:
			late = append(late, s)
			continue
		case n < 33: // as somebody does who does not know that it was sent
			first = append(first, s)
		}
		first = append(first, s)
	}
	c.settle(first, holds)
	if len(late) > 0 {
		<-time.After(time.Duration(rand.IntN(1000)) * time.Millisecond)
		c.settle(late, holds)
	}
}

// settle sends settlements until each has an answer, or its lease is over.
func (c *consumers) settle(list []client.Settlement, holds map[string]*hold) {
	for len(list) > 0 {
		api := c.fleet.anyAPI()
		if api == nil {
			<-time.After(20 * time.Millisecond)
			list = slices.DeleteFunc(list, func(s client.Settlement) bool { return time.Now().After(holds[s.Lease].expires) })
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
		sent := time.Now()
		results, err := api.Settle(ctx, list...)
		cancel()
		answered := time.Now()
		var again []client.Settlement
		c.mu.Lock()
		for i, s := range list {
			result := client.SettledUnavailable
			if err == nil {
				result = results[i].Result
			}
			if c.note(holds[s.Lease], s, result, sent, answered); result == client.SettledUnavailable && answered.Before(holds[s.Lease].expires) {
				again = append(again, s)
			}
		}
		c.mu.Unlock()
		if list = again; len(list) > 0 {
			<-time.After(20 * time.Millisecond)
		}
	}
}

// note writes down the answer to a settlement. The caller holds mu.
func (c *consumers) note(h *hold, s client.Settlement, result string, sent, answered time.Time) {
	ends := s.Do != client.Extend
	tried := h.result != "" || !h.settled.IsZero()
	switch result {
	case client.SettledOK:
		if !ends {
			h.expires = sent.Add(time.Duration(s.TTR))
			return
		}
		if s.Do == client.Ack {
			h.acks++
		}
		if h.result == client.SettledOK {
			c.blame("leases were settled ok twice", "%s", h.lease)
		}
		h.result = client.SettledOK
	case client.SettledLost:
		c.lost++
		if !tried && answered.Before(h.expires) {
			c.blame("leases were called lost before their end", "%s by %s, %s before", h.lease, s.Do, h.expires.Sub(answered))
		}
		if h.result == "" && tried {
			h.result = unsure
		}
	case client.SettledUnavailable:
		c.unavailable++
		if ends {
			h.result = cmp.Or(h.result, unsure)
		} else {
			h.result = cmp.Or(h.result, "") // extended or not: it ends at the earlier time, at least
		}
	default:
		c.blame("leases were called invalid", "%s: %s", h.lease, result)
	}
	if ends && h.settled.IsZero() && result != client.SettledLost {
		h.settled, h.do = sent, string(s.Do)
	}
}

// audit compares what the consumers know with the rows.
func (c *consumers) audit(t *testing.T, faults []*audit.Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	rows := readRows(c.fleet)
	ends, holds, gaps := map[task.Status]int{}, 0, 0
	for id, one := range c.tasks {
		r, there := rows[id]
		if !there {
			c.blame("tasks are lost", "%d is not in the store", id)
			continue
		}
		ends[r.Status]++
		holds += len(one.holds)
		gaps += c.check(id, one, r, faults)
	}
	for id, r := range rows {
		if c.tasks[id] == nil {
			c.blame("tasks are in the store that nobody submitted", "%d (%s)", id, r.Status)
		}
	}
	t.Logf("%d tasks: %d processed, %d cancelled, %d dead, %d pending; %d leases, %d attempts of which nobody heard, explained by %d requests without an answer (%d consumers left); "+
		"%d settlements lost, %d unavailable; %d cancels of leased tasks refused; %d long runs of Workers", len(c.tasks), ends[task.Processed], ends[task.Cancelled], ends[task.Dead], ends[task.Pending],
		holds, gaps, len(c.unheard), c.left, c.lost, c.unavailable, c.refusedCancels, c.extendedRuns)
	require.Positive(t, ends[task.Processed])
	require.Positive(t, c.extendedRuns)
	reportBroken(t, c.broken)
}

// check asks all rules of one task. It gives the number of attempts that no consumer has heard of.
func (c *consumers) check(id uint64, one *pulledTask, r audit.Row, faults []*audit.Fault) (gaps int) {
	slices.SortFunc(one.holds, func(a, b *hold) int { return a.given.Compare(b.given) })
	blame := func(broken string) { c.blame(broken, "%s", c.story(id, one, r)) }
	const ceil = time.Millisecond // the end of a lease is rounded up
	acks, last := 0, 0
	free := one.due // when it may be handed out next
	for _, h := range one.holds {
		acks += h.acks
		if h.given.Add(ceil).Before(free) {
			blame("tasks were handed out early, or to two at a time")
		}
		switch {
		case h.attempt <= last:
			blame("attempts were handed out twice")
		case h.attempt > last+1:
			gaps += h.attempt - last - 1
			// Known fault of the product: a lease that a node records and never hands out, because it is killed before
			// its answer, counts as a failed run. It breaks this rule, and only this one.
			if !c.explained(free, h.given, faults) {
				blame("attempts are counted that nobody has had")
			}
		}
		last, free = h.attempt, h.expires
		if h.settled.IsZero() {
			continue
		}
		if h.result == client.SettledOK && h.do != client.Nack {
			free = time.Now().Add(time.Hour)
		} else if h.settled.Before(free) {
			if free = h.settled; h.result == client.SettledOK {
				free = free.Add(h.again)
			}
		}
	}
	if acks > 1 {
		blame("tasks were acknowledged ok twice")
	}
	checkRow(one, r, acks, last, blame)
	return gaps
}

// checkRow compares the row with the leases.
func checkRow(one *pulledTask, r audit.Row, acks, last int, blame func(string)) {
	switch r.Status {
	case task.Processed, task.Cancelled:
		do := map[task.Status]string{task.Processed: client.Ack, task.Cancelled: client.Reject}[r.Status]
		var by *hold // which may have ended it: for certain, or else the one that the attempts tell
		for _, h := range one.holds {
			if h.do == do && (h.result == client.SettledOK || h.result == unsure && (by == nil || by.result == unsure && int64(h.attempt) == r.Attempts+1)) {
				by = h
			}
		}
		switch {
		case by == nil && r.Status == task.Cancelled && one.mayBeCancelled:
		case by == nil:
			blame("tasks ended without a settlement")
		case int64(by.attempt) != r.Attempts+1:
			blame("attempts are counted wrong")
		}
	case task.Dead:
		if r.Attempts != maxRetries+1 || last > maxRetries+1 {
			blame("tasks died with another number of attempts")
		}
	default:
		blame("tasks are lost")
	}
	if acks > 0 && r.Status != task.Processed {
		blame("acknowledged tasks are not processed")
	}
}

// explained tells whether a lease may have been given between two times to nobody.
func (c *consumers) explained(from, till time.Time, faults []*audit.Fault) bool {
	for _, u := range c.unheard {
		if u.from.Before(till) && u.till.Add(requestTimeout).After(from) {
			return true
		}
	}
	for _, f := range faults {
		if f.Begin.Before(till) && f.Whole.After(from) {
			return true
		}
	}
	return false
}

func (c *consumers) story(id uint64, one *pulledTask, r audit.Row) string {
	var text strings.Builder
	fmt.Fprintf(&text, "task %d due %s, now %s, attempts %d", id, audit.Clock(one.due.UnixNano()), r.Status, r.Attempts)
	for _, h := range one.holds {
		fmt.Fprintf(&text, "; attempt %d from %s to %s", h.attempt, audit.Clock(h.given.UnixNano()), audit.Clock(h.expires.UnixNano()))
		if !h.settled.IsZero() {
			fmt.Fprintf(&text, ", %s at %s: %s", h.do, audit.Clock(h.settled.UnixNano()), h.result)
		}
	}
	return text.String()
}
