package traffic

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig/audit"
	"github.com/timeoutcenter/toc/task"
)

// Load submits tasks, and lets callers and hands change them, until the context of Run ends.
type Load struct {
	Hands *Hands
	// Poisons are still to be submitted.
	Poisons atomic.Int64

	center Center
	seed   uint64
	rate   int // tasks a second
	work   sync.WaitGroup
	slots  chan struct{} // submits under way
	keys   atomic.Uint64

	mu        sync.Mutex
	histories []*audit.History
	known     map[uint64]*audit.History
	problems  []string

	retries, unavailable, conflicts, preconditions, untagged atomic.Int64
}

const (
	submitEvery = 50 * time.Millisecond
	// RequestTimeout is how long a caller waits for an answer.
	RequestTimeout = 3 * time.Second
	submitPatience = 2 * time.Minute
)

// NewLoad makes a load of so many tasks a second.
func NewLoad(c Center, seed uint64, rate int) *Load {
	l := &Load{center: c, seed: seed, rate: rate, slots: make(chan struct{}, 64), known: map[uint64]*audit.History{}}
	l.Hands = &Hands{center: c, locks: make(chan struct{}, 2), problem: l.problem}
	return l
}

// actor is one caller or hand.
type actor struct {
	*Load
	*rand.Rand
}

// The numbers of the actors. Each task has one that changes it, and each turn of submits one.
const (
	submitters uint64 = iota
	redrivers
	changers
	consumers
	workers
	pulledSubmitters
	bursts
)

func (l *Load) actor(numbers ...uint64) actor { return actor{l, source(l.seed, numbers...)} }

// Histories are those of all tasks that were stored.
func (l *Load) Histories() []*audit.History {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.histories)
}

// Problems are answers that nobody should get.
func (l *Load) Problems() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.problems)
}

// Counts says in words how often requests had other answers than a plain yes.
func (l *Load) Counts() string {
	return fmt.Sprintf("%d submits repeated, %d changes answered by nobody, %d conflicts, %d tags that did not match, %d answers without a tag",
		l.retries.Load(), l.unavailable.Load(), l.conflicts.Load(), l.preconditions.Load(), l.untagged.Load())
}

// Run submits until ctx ends, then waits until each submit and each change has its answer.
func (l *Load) Run(ctx context.Context) {
	every := max(submitEvery, time.Second/time.Duration(l.rate))
	n := max(1, l.rate*int(every)/int(time.Second))
	tick := time.NewTicker(every)
	defer tick.Stop()
	defer l.work.Wait()
	l.work.Go(func() { l.actor(redrivers).redriveDead(ctx) })
	if l.center.Burst > 0 {
		l.work.Go(func() { l.actor(bursts).burst(ctx) })
	}
	for turn := 0; ; turn++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		select {
		case l.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		l.work.Go(func() {
			defer func() { <-l.slots }()
			a := l.actor(submitters, uint64(turn))
			if turn%10 == 0 {
				a.insertByHand(ctx)
			}
			a.submit(ctx, n, turn%2 == 0)
		})
	}
}

func (l actor) ahead() time.Time { return l.center.ahead(l.Rand) }

// wish is a task to be submitted.
type wish struct {
	submit client.Submit
	due    time.Time // at the first try; zero: any
	tries  []audit.SubmitTry
}

// submit stores n tasks, in one request or each by its own. What got no answer, or a refusal that asks for it, is submitted
// again at another node, under the same key and with another time.
func (l actor) submit(ctx context.Context, n int, batch bool) {
	rest := make([]*wish, n)
	for i := range rest {
		bizType := l.anyType()
		rest[i] = l.wish(bizType, l.center.bizID(l.Rand, bizType))
		if l.Poisons.Load() > 0 && l.Poisons.Add(-1) >= 0 {
			rest[i].submit.Attribute = Poison
		}
	}
	l.submitAll(ctx, rest, batch)
}

func (l actor) anyType() string { return l.center.Types[l.IntN(len(l.center.Types))].Name }

func (l actor) wish(bizType string, bizID uint64) *wish {
	n := l.keys.Add(1)
	key := strconv.FormatUint(n, 10)
	attribute := "t" + key
	if n%16 == 0 { // as long as it may be, and twice that in JSON
		attribute += strings.Repeat(`"`, task.MaxAttribute-len(attribute))
	}
	return &wish{submit: client.Submit{BizType: bizType, BizID: bizID, Attribute: attribute, DedupKey: "soak-" + key}}
}

// burst submits many tasks of one business type that are due at once: half of the times of one without a limit, and all their runs
// fail, as if something that they need were away; and at times of one that has a limit.
func (l actor) burst(ctx context.Context) {
	for Wait(ctx, l.center.Burst/2+time.Duration(l.Int64N(int64(l.center.Burst)))) {
		types, due, bad := l.center.Types, l.ahead(), l.IntN(2) == 0
		if bad || l.IntN(2) == 0 {
			types = slices.DeleteFunc(slices.Clone(types), func(b configs.BizType) bool { return bad == (b.MaxRunning > 0) })
		}
		if len(types) == 0 {
			continue
		}
		bizType := types[l.IntN(len(types))].Name
		list := make([]*wish, 8+l.IntN(17))
		for i := range list {
			id := l.center.bizID(l.Rand, bizType)
			for bad && !failsAlways(id) {
				id = l.Uint64() >> 1
			}
			list[i] = l.wish(bizType, id)
			list[i].due = due
		}
		l.submitAll(ctx, list, true)
	}
}

// submitAll stores tasks.
func (l actor) submitAll(ctx context.Context, rest []*wish, batch bool) {
	deadline := time.Now().Add(submitPatience)
	at := &Target{}
	for len(rest) > 0 {
		if time.Now().After(deadline) {
			l.problem("no node took %d tasks within %s", len(rest), submitPatience)
			return
		}
		if at = l.center.Any(l.Rand, at.Node); at == nil {
			at = &Target{}
			<-time.After(max(l.center.Again, 50*time.Millisecond))
			continue
		}
		if batch {
			rest = l.submitAt(ctx, at, rest)
		} else {
			var again []*wish
			for _, w := range rest {
				again = append(again, l.submitAt(ctx, at, []*wish{w})...)
			}
			rest = again
		}
		if len(rest) > 0 {
			l.retries.Add(1)
			<-time.After(max(l.center.Again, 50*time.Millisecond))
		}
	}
}

// submitAt returns the tasks that are to be submitted again. It reports a task that the node rejects for good as a problem.
func (l actor) submitAt(ctx context.Context, at *Target, list []*wish) (rest []*wish) {
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), RequestTimeout)
	defer cancel()
	sent, body := time.Now(), make([]client.Submit, len(list))
	for i, w := range list {
		if w.submit.ActionTime = w.due; w.due.IsZero() || len(w.tries) > 0 {
			w.submit.ActionTime = l.ahead()
		}
		body[i] = w.submit
	}
	results, err := send(call, at.API, body)
	answered := time.Now()
	for i, w := range list {
		till := answered
		if err != nil || results[i].Err != nil {
			till = answered.Add(audit.Undecided)
		}
		w.tries = append(w.tries, audit.SubmitTry{Sent: sent, Answered: till, Due: body[i].ActionTime})
	}
	var refusal *client.Error
	if errors.As(err, &refusal) && refusal.Status < 500 && len(list[0].tries) == 1 { // else an earlier try may have stored them
		l.problem("%s refused a submit: %v", at.Node, err)
		return nil
	}
	if err != nil {
		return list
	}
	for i, r := range results {
		w := list[i]
		switch {
		case r.Err != nil && (r.Err.Retry || len(w.tries) > 1): // an earlier try may have stored it
			rest = append(rest, w)
		case r.Err != nil:
			l.problem("%s refused a task: %v", at.Node, r.Err)
		default:
			if r.Duplicate {
				w.tries = w.tries[:len(w.tries)-1] // one of those before has stored it
				if len(w.tries) == 0 {
					l.problem("%s calls task %d a duplicate, but it was submitted once", at.Node, r.JobID)
					continue
				}
			} else {
				w.tries = w.tries[len(w.tries)-1:]
			}
			l.accept(ctx, &audit.History{JobID: uint64(r.JobID), BizType: w.submit.BizType, BizID: w.submit.BizID,
				Attribute: w.submit.Attribute, Key: w.submit.DedupKey, Submits: w.tries, At: at.By, Poison: w.submit.Attribute == Poison, Known: answered})
		}
	}
	return rest
}

// send is SubmitBatch, or Submit of a single task.
func send(ctx context.Context, api *client.Client, list []client.Submit) ([]client.BatchResult, error) {
	if len(list) > 1 {
		return api.SubmitBatch(ctx, list)
	}
	s, err := api.Submit(ctx, list[0])
	return []client.BatchResult{{JobID: s.Task.JobID, Duplicate: s.Duplicate}}, err
}

// accept writes down that a task is stored. Some are then changed, up to three times.
func (l *Load) accept(ctx context.Context, h *audit.History) {
	l.mu.Lock()
	l.histories = append(l.histories, h)
	l.known[h.JobID] = h
	l.mu.Unlock()
	if h.Attribute == Poison {
		return
	}
	if l.center.pulled(h.BizType) {
		l.changeLeased(ctx, h)
		return
	}
	first, a := behave(h.BizID, 0), l.actor(changers, h.BizID, audit.TextHash(h.Key))
	switch {
	case (first.fails || first.hangs) && first.lasts() > 50*time.Millisecond:
		// A hand edits the row in the midst of a run that fails.
		l.work.Go(func() {
			if Wait(ctx, time.Until(h.Due())+first.lasts()/2) {
				a.byHand(h, []string{audit.Rescheduled, audit.Rescheduled, audit.Lowered, audit.Cancelled}[a.IntN(4)])
			}
		})
	case a.IntN(20) == 0: // at the last moment
		l.work.Go(func() {
			if Wait(ctx, time.Until(h.Due())-time.Duration(a.Int64N(int64(50*time.Millisecond)))) {
				a.byAPI(h, []string{audit.Cancelled, audit.Rescheduled}[a.IntN(2)])
			}
		})
	case a.IntN(6) == 0:
		l.work.Go(func() {
			for range 1 + a.IntN(3) {
				// Before its time or while it runs: the customer's moment.
				if !Wait(ctx, time.Duration(a.Float64()*1.1*float64(max(time.Until(h.Due()), 300*time.Millisecond)))) {
					return
				}
				a.changeSomehow(ctx, h)
			}
		})
	}
}

// Wait lets time go by; false if ctx ended before.
func Wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (l *Load) historyOf(jobID uint64) *audit.History {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.known[jobID]
}

func (l *Load) problem(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if l.center.Excuse != nil && l.center.Excuse(text) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.problems = append(l.problems, time.Now().Format("15:04:05.000 ")+text)
}

// changeLeased changes some tasks of a pulled type, before they are leased and while a consumer has them.
func (l *Load) changeLeased(ctx context.Context, h *audit.History) {
	a := l.actor(changers, h.BizID, audit.TextHash(h.Key))
	switch n := a.IntN(20); {
	case n < 6:
		l.work.Go(func() {
			if Wait(ctx, time.Until(h.Due())+time.Duration(a.Int64N(int64(3*time.Second)))) {
				a.byHand(h, []string{audit.Rescheduled, audit.Rescheduled, audit.Rescheduled, audit.Stopped, audit.Cancelled, audit.Edited}[a.IntN(6)])
			}
		})
	case n < 9:
		l.work.Go(func() {
			if Wait(ctx, time.Duration(a.Float64()*1.5*float64(max(time.Until(h.Due()), 300*time.Millisecond)))) {
				a.changeSomehow(ctx, h)
			}
		})
	}
}
