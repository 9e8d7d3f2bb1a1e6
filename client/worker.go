package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/internal/wait"
	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/task"
)

// Worker leases the tasks of a pull type, runs them, extends the leases of long runs, and settles them. The clock of this machine
// and those of the center should agree.
type Worker struct {
	Client  *Client
	BizType string
	// Process runs a task. nil acks it, an error nacks it: it is tried again, or dead after max_retries. processor.Discard
	// rejects it, and processor.RetryAfter says when to try again. It may come twice: dedup remembers what was done.
	//
	// ctx ends with the lease: then the task is handed out again. If the task sets a timeout, or MaxRun is negative, ctx has a
	// deadline, and the lease is not extended. Other runs have no deadline, because extensions move the end of their leases.
	// context.Cause returns why ctx has ended: ErrLeaseLost, or context.DeadlineExceeded if the lease was not extended in time,
	// or no more after MaxRun.
	Process func(ctx context.Context, t LeasedTask) error
	// Concurrency is how many tasks run at once, 1 to 1000. Defaults to 16.
	Concurrency int
	// TTR is how long a lease is, of a task that sets no timeout, 100 ms to 24 h. It is extended while the run lasts.
	// 0: as the business type says.
	TTR time.Duration
	// MaxRun is how long the leases of a run are extended, from its start. Defaults to 1 h; negative: not at all.
	MaxRun time.Duration
	// Logger gets what fails. Defaults to slog.Default.
	Logger *slog.Logger
}

// The times of a Worker.
const (
	workerWait  = 20 * time.Second // of a lease
	workerPause = time.Second      // after a failed request
	stopPause   = 500 * time.Millisecond
	settlePause = 100 * time.Millisecond
)

// maxSettle is how many leases a request settles.
const maxSettle = 1000

// Run works until ctx ends. Then it leases nothing more, waits for the tasks that run and settles them. It returns an error
// at once if a field is missing or out of range, or if the center refuses the request for good: an unknown business type, say, or
// a wrong token.
func (w *Worker) Run(ctx context.Context) error {
	if err := w.check(); err != nil {
		return err
	}
	slots := make(chan struct{}, cmp.Or(w.Concurrency, 16))
	results, again := &outbox{wake: wait.NewSignal()}, &outbox{wake: wait.NewSignal()}
	results.again, again.again = again, again
	settled, settledAgain := make(chan struct{}), make(chan struct{})
	go func() { w.settleAll(results); close(settled) }()
	go func() { w.settleAll(again); close(settledAgain) }()
	leases := newExtender(w)
	extending, stopExtending := context.WithCancel(context.WithoutCancel(ctx)) // until the last run has ended
	extended := make(chan struct{})
	go func() { leases.run(extending); close(extended) }()
	var running sync.WaitGroup
	defer func() {
		running.Wait()
		stopExtending()
		results.close()
		<-settled
		again.close()
		<-settledAgain
		<-extended
	}()
	for {
		results.setHeld(true)
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			results.setHeld(false)
			return nil
		}
		free := 1
		for free < min(cap(slots), 256) && len(slots) < cap(slots) {
			slots <- struct{}{}
			free++
		}
		got, err := w.leaseAndSettle(ctx, free, results)
		for range free - len(got.Tasks) {
			<-slots
		}
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return nil
		case isForGood(err):
			return err
		default:
			w.logger().Warn("no tasks leased; trying again", "biz_type", w.BizType, "error", err)
			_ = wait.For(ctx, workerPause)
		}
		for _, t := range got.Tasks {
			running.Go(func() {
				o := outcome{settlement: Settlement{Lease: t.Lease.String(), Do: Nack, Error: "the run ended its goroutine (runtime.Goexit)"}}
				defer func() { results.add(o); <-slots }()
				w.run(context.WithoutCancel(ctx), t, leases, &o)
			})
		}
	}
}

// check says what is wrong with the fields.
func (w *Worker) check() error {
	switch {
	case w.Client == nil:
		return errors.New("Worker.Client is missing: give what client.New returns")
	case w.BizType == "":
		return errors.New("Worker.BizType is missing: give the name of a business type whose processor is pull")
	case w.Process == nil:
		return errors.New("Worker.Process is missing: give the function that runs a task")
	case w.Concurrency < 0 || w.Concurrency > 1000:
		return fmt.Errorf("Worker.Concurrency is %d: give 1 to 1000, or 0 for 16", w.Concurrency)
	case w.TTR != 0 && (w.TTR < minLease || w.TTR > 24*time.Hour):
		return fmt.Errorf("Worker.TTR is %v: give 100ms to 24h, or 0 for that of the business type", w.TTR)
	}
	return nil
}

// leaseAndSettle leases up to n tasks, and settles what waits for that in the same request.
func (w *Worker) leaseAndSettle(ctx context.Context, n int, results *outbox) (Leased, error) {
	if time.Now().Before(results.apart) {
		results.setHeld(false)
	}
	list := results.takeHeld()
	if len(list) == 0 {
		return w.lease(ctx, AskLease{Max: n, Wait: workerWait, TTR: w.TTR})
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), workerWait)
	defer cancel()
	got, err := w.lease(bounded, AskLease{Max: n, TTR: w.TTR, Settle: settlements(list)})
	refused, ok := errors.AsType[*Error](err)
	if ok && slices.ContainsFunc(refused.Errors, func(f FieldError) bool { return f.Location == "body.settle" }) { // an older center
		results.apart = time.Now().Add(gatherPause)
		results.add(list...)
		return Leased{}, nil
	}
	results.again.add(w.settled(list, got.Results, err)...)
	return got, err
}

// lease leases tasks. When ctx ends, an answer may be under way whose tasks nobody would work on until their leases
// end: it is awaited for a moment. After that the center gives a caller that hangs up no lease.
func (w *Worker) lease(ctx context.Context, q AskLease) (Leased, error) {
	asking, hangUp := context.WithCancel(context.WithoutCancel(ctx))
	defer hangUp()
	defer context.AfterFunc(ctx, func() {
		_ = wait.For(asking, stopPause)
		hangUp()
	})()
	return w.Client.Lease(asking, w.BizType, q)
}

func (w *Worker) logger() *slog.Logger { return cmp.Or(w.Logger, slog.Default()) }

// isForGood reports whether a repeat of a request would be refused, too.
func isForGood(err error) bool {
	refused, ok := errors.AsType[*Error](err)
	return ok && refused.Status >= 400 && refused.Status < 500 && refused.Status != 408 && refused.Status != 429
}

// outcome is a run that has ended.
type outcome struct {
	settlement Settlement
	expires    time.Time
}

func (w *Worker) run(ctx context.Context, t LeasedTask, leases *extender, o *outcome) {
	ctx, release := leases.hold(ctx, t)
	defer func() { o.expires = release() }()
	err := w.process(ctx, t)
	if err == nil {
		o.settlement.Do, o.settlement.Error = Ack, ""
		return
	}
	o.settlement.Error = cut(err.Error())
	if processor.IsDiscard(err) {
		reason := strings.TrimPrefix(err.Error(), processor.Discard(nil).Error()) // the center says that itself
		o.settlement.Do, o.settlement.Error = Reject, cut(strings.TrimPrefix(reason, ": "))
		return
	}
	if d, ok := processor.RetryPause(err); ok {
		o.settlement.RetryAfter = (*api.Duration)(&d)
	}
	w.logger().Warn("run failed", "biz_type", w.BizType, "job_id", uint64(t.Task.JobID), "attempt", t.Attempt, "error", err)
}

// cut shortens a text to what the center keeps of it.
func cut(s string) string { return s[:min(len(s), task.MaxLastError)] }

func (w *Worker) process(ctx context.Context, t LeasedTask) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return w.Process(ctx, t)
}

// outbox has the outcomes that are to be settled. While the worker waits for a free slot they wait for its next request for
// tasks; else a request settles them that does nothing else.
type outbox struct {
	wake  wait.Signal
	again *outbox // of the outcomes that could not be settled: their rows may be locked, and must hold up neither others nor the leases

	apart time.Time // until then no request does both: the center does not know that. Of the goroutine that leases

	mu     sync.Mutex
	list   []outcome
	isHeld bool
	closed bool
}

// setHeld says whether outcomes are kept for the next request for tasks, or settled at once.
func (b *outbox) setHeld(isHeld bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.isHeld = isHeld; !isHeld {
		b.wake.Set()
	}
}

func (b *outbox) add(list ...outcome) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.list = append(b.list, list...)
	if len(list) > 0 && !b.isHeld {
		b.wake.Set()
	}
}

// takeHeld takes what is held for a request for tasks. What comes afterwards is not held.
func (b *outbox) takeHeld() (list []outcome) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.isHeld {
		list = b.takeLocked()
	}
	b.isHeld = false
	return list
}

// take takes as many outcomes as fit into a request. isDone: no further one comes.
func (b *outbox) take() (list []outcome, isDone bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.takeLocked(), b.closed
}

func (b *outbox) takeLocked() []outcome {
	n := min(len(b.list), maxSettle)
	list := slices.Clone(b.list[:n])
	b.list = slices.Delete(b.list, 0, n)
	return list
}

// close says that no further outcome comes.
func (b *outbox) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.wake.Set()
}

// settleAll settles outcomes that no request for tasks takes along. One request takes all that have come meanwhile. An outcome that
// cannot be settled now is sent again until its lease ends.
func (w *Worker) settleAll(results *outbox) {
	for {
		list, isDone := results.take()
		switch {
		case len(list) == 0 && isDone:
			return
		case len(list) == 0:
			<-results.wake
			continue
		}
		again := w.settle(list)
		results.again.add(again...)
		if len(again) > 0 && results == results.again {
			time.Sleep(settlePause)
		}
	}
}

// settle returns the outcomes that are to be settled again.
func (w *Worker) settle(list []outcome) (again []outcome) {
	ctx, cancel := context.WithTimeout(context.Background(), workerWait)
	defer cancel()
	answered, err := w.Client.Settle(ctx, settlements(list)...)
	if err != nil {
		w.logger().Warn("leases not settled; trying again", "biz_type", w.BizType, "leases", len(list), "error", err)
	}
	return w.settled(list, answered, err)
}

func settlements(list []outcome) []Settlement {
	settle := make([]Settlement, len(list))
	for i, o := range list {
		settle[i] = o.settlement
	}
	return settle
}

// settled reads the results of settlements, and returns the outcomes that are to be settled again.
func (w *Worker) settled(list []outcome, answered []SettleResult, err error) (again []outcome) {
	for i, o := range list {
		switch result := resultOf(answered, err, i); {
		case result == SettledUnavailable && time.Now().Before(o.expires):
			again = append(again, o)
		case result != SettledOK:
			w.logger().Warn("a lease ended before it was settled; its task may run again", "biz_type", w.BizType, "lease", o.settlement.Lease,
				"result", result)
		}
	}
	return again
}

// resultOf is the i-th result of a request. SettledUnavailable: there is none.
func resultOf(answered []SettleResult, err error, i int) string {
	if err != nil || i >= len(answered) {
		return SettledUnavailable
	}
	return answered[i].Result
}
