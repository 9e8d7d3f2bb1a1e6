package client

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/internal/wait"
)

// ErrLeaseLost is the cause of a run's context that has ended because the center says that the lease is over: somebody else
// has the task, or it was settled.
var ErrLeaseLost = errors.New("the lease is lost")

// The times of extensions.
const (
	minLease     = 100 * time.Millisecond // the center gives no shorter ones
	unknownLease = time.Second            // of one that is shorter by this machine's clock, which is ahead then
	extendPause  = 200 * time.Millisecond // after a request that has failed, at least
)

// extender extends the leases of a Worker's runs, each when half of it is over, all due ones in one request, until a run has
// taken maxRun. The first end of a lease is its ExpiresAt by this machine's clock; after that it is counted from the request that
// extends it.
type extender struct {
	worker *Worker
	maxRun time.Duration
	wake   wait.Signal // there is another lease to extend
	asking sync.WaitGroup

	mu   sync.Mutex
	held map[*heldLease]struct{}
}

// heldLease is the lease of a run. ctx ends with it.
type heldLease struct {
	lease  string
	ctx    context.Context
	cancel context.CancelCauseFunc
	length time.Duration
	began  time.Time
	end    *time.Timer // ends ctx

	// Of the extender's lock.
	expires time.Time
	next    time.Time // when to extend it
	asked   bool      // its extension is under way
}

func newExtender(w *Worker) *extender {
	return &extender{worker: w, maxRun: cmp.Or(w.MaxRun, time.Hour), wake: wait.NewSignal(), held: make(map[*heldLease]struct{})}
}

// hold gives a run its context. The lease is extended until release.
func (e *extender) hold(ctx context.Context, t LeasedTask) (runCtx context.Context, release func() (expires time.Time)) {
	expires := t.ExpiresAt.Time()
	if t.Task.Timeout > 0 || e.maxRun < 0 { // a task's own timeout is how long its run may take
		limited, cancel := context.WithDeadline(ctx, expires)
		return limited, func() time.Time { cancel(); return expires }
	}
	now := time.Now()
	left := expires.Sub(now)
	if left < minLease {
		left = unknownLease
	}
	length := cmp.Or(e.worker.TTR, left)
	l := &heldLease{lease: t.Lease.String(), length: length, began: now, expires: now.Add(left), next: now.Add(min(left, length) / 2)}
	l.ctx, l.cancel = context.WithCancelCause(ctx)
	l.end = time.AfterFunc(left, func() { l.cancel(context.DeadlineExceeded) })
	e.mu.Lock()
	e.held[l] = struct{}{}
	e.mu.Unlock()
	e.wake.Set()
	return l.ctx, func() time.Time {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.held, l)
		l.end.Stop()
		l.cancel(nil)
		return l.expires
	}
}

// run extends leases until ctx ends. A request that gets no answer does not hold up those of other leases.
func (e *extender) run(ctx context.Context) {
	defer e.asking.Wait()
	for ctx.Err() == nil {
		due, left, pause := e.due(time.Now())
		if len(due) > 0 {
			e.asking.Go(func() { e.extend(ctx, due, left) })
			continue
		}
		_ = wait.ForOr(ctx, pause, e.wake)
	}
}

// due returns the leases to extend now and when the last of them ends, or how long to wait for the next one.
func (e *extender) due(now time.Time) (due []*heldLease, left, pause time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	pause = time.Hour
	for l := range e.held {
		switch {
		case l.asked:
		case l.ctx.Err() != nil || now.Sub(l.began) > e.maxRun:
			delete(e.held, l)
		case l.next.After(now):
			pause = min(pause, l.next.Sub(now))
		default:
			l.asked = true
			due, left = append(due, l), max(left, l.expires.Sub(now))
		}
	}
	return due, left, pause
}

// extend asks for extensions once. The request has half of the time that is left, so that there is time for a second one at the next
// server; but at least a second, and 5 s at most.
func (e *extender) extend(ctx context.Context, due []*heldLease, left time.Duration) {
	list := make([]Settlement, len(due))
	for i, l := range due {
		list[i] = Settlement{Lease: l.lease, Do: Extend, TTR: api.Duration(e.worker.TTR)}
	}
	sent := time.Now()
	asking, cancel := context.WithTimeout(ctx, min(5*time.Second, max(time.Second, left/2)))
	defer cancel()
	results, err := e.worker.Client.Settle(asking, list...)
	var lost []SettleResult
	e.mu.Lock()
	for i, l := range due {
		l.asked = false
		if _, runs := e.held[l]; !runs {
			continue
		}
		switch result := resultOf(results, err, i); {
		case result == SettledOK:
			l.next, l.expires = sent.Add(l.length/2), sent.Add(l.length)
			l.end.Reset(time.Until(l.expires))
		case result == SettledUnavailable:
			l.next = time.Now().Add(max(extendPause, time.Until(l.expires)/5))
		default:
			delete(e.held, l)
			defer l.cancel(ErrLeaseLost)
			lost = append(lost, SettleResult{Lease: l.lease, Result: result})
		}
	}
	e.mu.Unlock()
	e.wake.Set()
	if err != nil && ctx.Err() == nil {
		e.worker.logger().Warn("leases not extended; trying again", "biz_type", e.worker.BizType, "leases", len(list), "error", err)
	}
	for _, l := range lost {
		e.worker.logger().Warn("the lease of a run is lost; its task may run again", "biz_type", e.worker.BizType, "lease", l.Lease, "result",
			l.Result)
	}
}
