package soak_test

import (
	"context"
	"errors"
	"fmt"
	"github.com/timeoutcenter/toc/internal/testrig/audit"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/timeoutcenter/toc/client"
)

// load submits tasks, and lets callers and hands change them, until it is told to end.
type load struct {
	fleet   *fleet
	hands   *hands
	rate    int // tasks a second
	work    sync.WaitGroup
	slots   chan struct{} // submits under way
	keys    atomic.Uint64
	poisons atomic.Int64 // still to be submitted

	mu        sync.Mutex
	histories []*audit.History
	known     map[uint64]*audit.History
	problems  []string

	retries, unavailable, conflicts, preconditions, untagged atomic.Int64
}

const (
	submitEvery    = 50 * time.Millisecond
	requestTimeout = 3 * time.Second
	submitPatience = 2 * time.Minute
)

func newLoad(f *fleet, h *hands, rate int) *load {
	return &load{fleet: f, hands: h, rate: rate, slots: make(chan struct{}, 64), known: map[uint64]*audit.History{}}
}

// run submits until ctx ends, then waits until each submit and each change has its answer.
func (l *load) run(ctx context.Context) {
	tick := time.NewTicker(submitEvery)
	defer tick.Stop()
	defer l.work.Wait()
	l.work.Go(func() { l.redriveDead(ctx) })
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
			if turn%10 == 0 {
				l.insertByHand(ctx)
			}
			l.submit(ctx, max(1, l.rate/int(time.Second/submitEvery)), turn%2 == 0)
		})
	}
}

// ahead is when a task is due.
func ahead() time.Time {
	return time.Now().Add(200*time.Millisecond + time.Duration(rand.Int64N(int64(4*time.Second)))).Truncate(time.Millisecond)
}

// wish is a task to be submitted.
type wish struct {
	submit client.Submit
	tries  []audit.SubmitTry
}

// submit stores n tasks, in one request or each by its own. What got no answer, or a refusal that asks for it, is submitted
// again at another node, under the same key and with another time.
func (l *load) submit(ctx context.Context, n int, batch bool) {
	rest := make([]*wish, n)
	for i := range rest {
		key := l.keys.Add(1)
		rest[i] = &wish{submit: client.Submit{BizType: bizTypes[rand.IntN(len(bizTypes))], BizID: rand.Uint64() >> 1,
			Attribute: "t" + strconv.FormatUint(key, 10), DedupKey: "soak-" + strconv.FormatUint(key, 10)}}
		if l.poisons.Load() > 0 && l.poisons.Add(-1) >= 0 {
			rest[i].submit.Attribute = poison
		}
	}
	deadline := time.Now().Add(submitPatience)
	var at *node
	for len(rest) > 0 {
		if time.Now().After(deadline) {
			l.problem("no node took %d tasks within %s", len(rest), submitPatience)
			return
		}
		if at = l.fleet.any(at); at == nil {
			<-time.After(50 * time.Millisecond)
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
			<-time.After(50 * time.Millisecond)
		}
	}
}

// submitAt gives those that were not taken.
func (l *load) submitAt(ctx context.Context, at *node, list []*wish) (rest []*wish) {
	api, by := at.now()
	if api == nil {
		return list
	}
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	defer cancel()
	sent, body := time.Now(), make([]client.Submit, len(list))
	for i, w := range list {
		w.submit.ActionTime = ahead()
		body[i] = w.submit
	}
	results, err := submitAll(call, api, body)
	answered := time.Now()
	for i, w := range list {
		till := answered
		if err != nil || results[i].Err != nil {
			till = answered.Add(audit.Undecided)
		}
		w.tries = append(w.tries, audit.SubmitTry{Sent: sent, Answered: till, Due: body[i].ActionTime})
	}
	var refusal *client.Error
	if errors.As(err, &refusal) && refusal.Status < 500 {
		l.problem("%s refused a submit: %v", at.name, err)
		return nil
	}
	if err != nil {
		return list
	}
	for i, r := range results {
		w := list[i]
		switch {
		case r.Err != nil && r.Err.Retry:
			rest = append(rest, w)
		case r.Err != nil:
			l.problem("%s refused a task: %v", at.name, r.Err)
		default:
			if r.Duplicate {
				w.tries = w.tries[:len(w.tries)-1] // one of those before has stored it
				if len(w.tries) == 0 {
					l.problem("%s calls task %d a duplicate, but it was submitted once", at.name, r.JobID)
					continue
				}
			} else {
				w.tries = w.tries[len(w.tries)-1:]
			}
			l.accept(ctx, &audit.History{JobID: uint64(r.JobID), BizType: w.submit.BizType, BizID: w.submit.BizID,
				Attribute: w.submit.Attribute, Key: w.submit.DedupKey, Submits: w.tries, At: &by.Process, Poison: w.submit.Attribute == poison, Known: answered})
		}
	}
	return rest
}

// submitAll is SubmitBatch, or Submit of a single task.
func submitAll(ctx context.Context, api *client.Client, list []client.Submit) ([]client.BatchResult, error) {
	if len(list) > 1 {
		return api.SubmitBatch(ctx, list)
	}
	s, err := api.Submit(ctx, list[0])
	return []client.BatchResult{{JobID: s.Task.JobID, Duplicate: s.Duplicate}}, err
}

// accept writes down that a task is stored. Some are then changed, up to three times.
func (l *load) accept(ctx context.Context, h *audit.History) {
	l.mu.Lock()
	l.histories = append(l.histories, h)
	l.known[h.JobID] = h
	l.mu.Unlock()
	if h.Attribute == poison {
		return
	}
	first := behave(h.JobID, 0)
	switch {
	case (first.fails || first.hangs) && first.lasts() > 50*time.Millisecond:
		// A hand edits the row in the midst of a run that fails.
		l.work.Go(func() {
			if wait(ctx, time.Until(h.Due())+first.lasts()/2) {
				l.hands.change(l, h, []string{audit.Rescheduled, audit.Rescheduled, audit.Lowered, audit.Cancelled}[rand.IntN(4)])
			}
		})
	case rand.IntN(20) == 0: // at the last moment
		l.work.Go(func() {
			if wait(ctx, time.Until(h.Due())-time.Duration(rand.Int64N(int64(50*time.Millisecond)))) {
				l.byAPI(h, []string{audit.Cancelled, audit.Rescheduled}[rand.IntN(2)])
			}
		})
	case rand.IntN(6) == 0:
		l.work.Go(func() {
			for range 1 + rand.IntN(3) {
				// Before its time or while it runs: the customer's moment.
				if !wait(ctx, time.Duration(rand.Float64()*1.1*float64(max(time.Until(h.Due()), 300*time.Millisecond)))) {
					return
				}
				l.changeSomehow(ctx, h)
			}
		})
	}
}

// wait lets time go by; false if ctx ended before.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (l *load) historyOf(jobID uint64) *audit.History {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.known[jobID]
}

func (l *load) problem(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.problems = append(l.problems, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}
