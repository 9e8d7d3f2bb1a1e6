package toctest_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/task"
	"github.com/timeoutcenter/toc/toctest"
)

// shop is a program under test: it closes orders that nobody pays.
type shop struct {
	mu     sync.Mutex
	paid   map[uint64]bool
	closed []uint64
}

func newShop() *shop { return &shop{paid: make(map[uint64]bool)} }

// Process implements processor.Processor.
func (s *shop) Process(_ context.Context, t task.Task) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paid[t.BizID] {
		return processor.Discard(errors.New("it is paid"))
	}
	s.closed = append(s.closed, t.BizID)
	return nil
}

var unpaid = client.Submit{BizType: "order_close", BizID: 42, Delay: 30 * time.Minute}

// An order is closed after thirty minutes, to the millisecond.
func TestAnUnpaidOrderIsClosed(t *testing.T) {
	toctest.Run(t, func(c *toctest.Center) {
		order := c.Submit(unpaid)
		c.Advance(30*time.Minute - time.Millisecond)
		c.RequireNotFired(order.JobID)
		c.Advance(time.Millisecond)
		c.RequireFiredAt(order.JobID, toctest.Start.Add(30*time.Minute))
	}, toctest.With("order_close", newShop()))
}

// So it is after thirty days, in about the same real time.
func TestAnUnpaidOrderIsClosedAfterAMonth(t *testing.T) {
	const month = 30 * 24 * time.Hour
	toctest.Run(t, func(c *toctest.Center) {
		order := c.Submit(client.Submit{BizType: "order_close", BizID: 42, Delay: month})
		c.Advance(month)
		c.RequireFiredAt(order.JobID, toctest.Start.Add(month))
	}, toctest.With("order_close", newShop()))
}

// A paid one is not, because its timeout is cancelled, or because the processor sees it.
func TestAPaidOrderIsNotClosed(t *testing.T) {
	s := newShop()
	toctest.Run(t, func(c *toctest.Center) {
		cancelled := c.Submit(unpaid)
		c.Advance(20 * time.Minute)
		c.Cancel(cancelled.JobID)

		s.paid[43] = true
		late := c.Submit(client.Submit{BizType: "order_close", BizID: 43, Delay: 30 * time.Minute})
		c.Advance(time.Hour)

		c.RequireNotFired(cancelled.JobID)
		if got := c.Get(late.JobID); got.Status != "cancelled" || !strings.Contains(got.LastError, "it is paid") {
			c.Errorf("task %s is %s: %s", late.JobID, got.Status, got.LastError)
		}
		if len(s.closed) > 0 {
			c.Errorf("closed: %v", s.closed)
		}
	}, toctest.With("order_close", s))
}

// A crash loses no task, and a task that was due meanwhile fires at the start.
func TestAnOrderIsClosedAfterACrash(t *testing.T) {
	toctest.Run(t, func(c *toctest.Center) {
		order := c.Submit(unpaid)
		c.Advance(29 * time.Minute)
		c.Crash()
		c.RequireNotFired(order.JobID)
		c.Advance(time.Minute)
		c.RequireFiredAt(order.JobID, toctest.Start.Add(30*time.Minute))
	}, toctest.With("order_close", newShop()))
}

// A crash in the middle of a run runs the task again, so a processor must not mind.
func TestARunIsCutOff(t *testing.T) {
	slow := processor.Func(func(ctx context.Context, _ task.Task) error {
		select {
		case <-time.After(10 * time.Second):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	toctest.Run(t, func(c *toctest.Center) {
		order := c.Submit(unpaid)
		c.Advance(30*time.Minute + 5*time.Second)
		c.Crash()
		c.Advance(time.Minute)
		runs := c.Fired("order_close")
		if len(runs) != 2 || !errors.Is(runs[0].Err, toctest.ErrCrashed) || runs[1].Err != nil {
			c.Errorf("runs: %v\n%s", runs, c.Why(order.JobID))
		}
	}, toctest.With("order_close", slow))
}

// Redis is an index: without it tasks fire all the same, and it is filled again.
func TestRedisIsLost(t *testing.T) {
	toctest.Run(t, func(c *toctest.Center) {
		order := c.Submit(unpaid)
		later := c.Submit(client.Submit{BizType: "order_close", BizID: 43, Delay: 45 * time.Minute})
		c.Advance(10 * time.Minute)
		c.LoseRedis()
		c.Advance(25 * time.Minute)
		if late := c.RequireFired(order.JobID).Late(); late > time.Second {
			c.Errorf("late by %s", late)
		}
		c.Mend()
		c.Advance(10 * time.Minute)
		c.RequireFiredAt(later.JobID, toctest.Start.Add(45*time.Minute))
	}, toctest.WithBizType(configs.BizType{Name: "order_close", Mode: configs.ModeRedis}, newShop()))
}

// A database that hangs delays its tasks. Nothing is lost, and nothing runs twice.
func TestTheDatabaseHangs(t *testing.T) {
	toctest.Run(t, func(c *toctest.Center) {
		order := c.Submit(unpaid)
		c.Advance(29 * time.Minute)
		c.Hang(0)
		_, err := c.Tasks().Submit(c.Context(), client.Submit{BizType: "order_close", BizID: 43, Delay: time.Hour})
		if !errors.Is(err, task.ErrUnavailable) {
			c.Errorf("submit: %v", err)
		}
		c.Advance(10 * time.Minute)
		c.Mend()
		c.Advance(time.Minute)
		c.RequireFired(order.JobID)
		if runs := c.Fired("order_close"); len(runs) != 1 {
			c.Errorf("runs: %v", runs)
		}
	}, toctest.With("order_close", newShop()))
}

// A task that is moved fires at its new time only.
func TestAnOrderGetsMoreTime(t *testing.T) {
	toctest.Run(t, func(c *toctest.Center) {
		order := c.Submit(unpaid)
		c.Advance(29 * time.Minute)
		c.Reschedule(order.JobID, client.Change{Delay: new(time.Hour)})
		c.Advance(59 * time.Minute)
		c.RequireNotFired(order.JobID)
		if waiting := c.Pending(); len(waiting) != 1 || waiting[0].JobID != order.JobID {
			c.Errorf("pending: %v", waiting)
		}
		c.Advance(time.Minute)
		c.RequireFiredAt(order.JobID, toctest.Start.Add(89*time.Minute))
	}, toctest.With("order_close", newShop()))
}

// A receiver that fails is asked again, after a back-off that grows.
func TestAFailedRunIsTriedAgain(t *testing.T) {
	failures := 2
	flaky := processor.Func(func(context.Context, task.Task) error {
		if failures--; failures >= 0 {
			return errors.New("the stock does not answer")
		}
		return nil
	})
	toctest.Run(t, func(c *toctest.Center) {
		order := c.Submit(unpaid)
		c.Advance(time.Hour)
		c.RequireFired(order.JobID)
		if runs := c.Fired("order_close"); len(runs) != 3 || runs[1].Task.Attempts != 1 {
			c.Errorf("runs: %v", runs)
		}
	}, toctest.With("order_close", flaky))
}

// A webhook is called, and called again if it fails.
func TestTheReceiverOfAWebhookFailsOnce(t *testing.T) {
	toctest.Run(t, func(c *toctest.Center) {
		var calls atomic.Int32
		url := c.Serve("shop", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if calls.Add(1) == 1 {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		}))
		if url != "http://shop:80" {
			c.Errorf("the receiver is at %s", url)
		}
		order := c.Submit(unpaid)
		c.Advance(30 * time.Minute)
		again := c.Get(order.JobID).ActionTime.Time() // after a pause that is partly random
		c.Advance(again.Sub(c.Now()))
		c.RequireFiredAt(order.JobID, again)
	}, toctest.WithBizType(configs.BizType{Name: "order_close", Webhook: configs.Webhook{URL: "http://shop:80/close"}}, nil))
}

// pulled is a business type whose tasks consumers lease.
var pulled = configs.BizType{Name: "order_close", Processor: configs.ProcessorPull, Pull: configs.Pull{TTR: time.Minute}}

// A consumer that leases a task and does not settle it loses it to the next one.
func TestAConsumerForgetsATask(t *testing.T) {
	toctest.Run(t, func(c *toctest.Center) {
		consumer := c.Client()
		order := c.Submit(unpaid)
		c.Advance(30 * time.Minute)
		first, err := consumer.Lease(c.Context(), "order_close", client.AskLease{Max: 10})
		if err != nil || len(first.Tasks) != 1 {
			c.Fatalf("leased: %v, %v", first, err)
		}
		c.Advance(time.Minute)                                                                                 // the lease ends
		second, err := consumer.Lease(c.Context(), "order_close", client.AskLease{Max: 10, Wait: time.Minute}) // until a scan has found that
		if err != nil || len(second.Tasks) != 1 || second.Tasks[0].Attempt != 2 {
			c.Fatalf("leased again: %v, %v", second, err)
		}
		_, err = consumer.Settle(c.Context(), client.Settlement{Lease: second.Tasks[0].Lease.String(), Do: client.Ack})
		if got := c.Get(order.JobID); err != nil || got.Status != "processed" {
			c.Errorf("the task is %s, %v", got.Status, err)
		}
	}, toctest.WithBizType(pulled, nil))
}

// A Worker of the Go client runs in the test, too. It ends before the test does.
func TestAWorkerConsumes(t *testing.T) {
	toctest.Run(t, func(c *toctest.Center) {
		ctx, stop := context.WithCancel(c.Context())
		worker := client.Worker{Client: c.Client(), BizType: "order_close", Logger: slog.New(slog.DiscardHandler), Process: func(ctx context.Context, _ client.LeasedTask) error {
			return sleep(ctx, 5*time.Minute) // longer than a lease, which is extended
		}}
		ended := make(chan error)
		go func() { ended <- worker.Run(ctx) }()
		order := c.Submit(unpaid)
		c.Advance(30 * time.Minute)
		c.Crash()
		c.Advance(10 * time.Minute)
		if got := c.Get(order.JobID); got.Status != "processed" || got.Attempts != 0 {
			c.Errorf("the task is %s after %d failed runs", got.Status, got.Attempts)
		}
		stop()
		if err := <-ended; err != nil {
			c.Error(err)
		}
	}, toctest.WithBizType(pulled, nil))
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// A run that a crash cut off is known when Crash returns, and a run that starts again at once has the new center.
func TestACrashIsOverWhenItReturns(t *testing.T) {
	for _, mode := range []string{configs.ModeScan, configs.ModeRedis} {
		var c *toctest.Center
		chain := processor.Func(func(ctx context.Context, got task.Task) error {
			if err := sleep(ctx, 10*time.Second); err != nil || got.BizID > 100 {
				return err
			}
			_, err := c.Tasks().Submit(ctx, client.Submit{BizType: "order_close", BizID: 100 + got.BizID, Now: true})
			return err
		})
		toctest.Run(t, func(center *toctest.Center) {
			c = center
			order := c.Submit(unpaid)
			c.Advance(30 * time.Minute)
			for crashes := range 2 { // after a third one the task would be dead
				c.Advance(2 * time.Second)
				c.Crash()
				if got := len(c.Fired("order_close")); got != crashes+1 {
					c.Fatalf("%d runs ended after %d crashes", got, crashes+1)
				}
			}
			c.Advance(time.Minute)
			c.RequireFired(order.JobID)
			if runs := c.Fired("order_close"); len(runs) != 4 || runs[3].Task.BizID != 142 {
				c.Errorf("runs: %v", runs)
			}
		}, toctest.WithBizType(configs.BizType{Name: "order_close", Mode: mode}, chain))
	}
}

// A test may end while Redis is away.
func TestATestEndsWithoutRedis(t *testing.T) {
	toctest.Run(t, func(c *toctest.Center) {
		order := c.Submit(client.Submit{BizType: "order_close", BizID: 42, Delay: time.Minute})
		c.LoseRedis()
		c.Restart()
		c.Advance(2 * time.Minute)
		c.RequireFired(order.JobID)
	}, toctest.WithBizType(configs.BizType{Name: "order_close", Mode: configs.ModeRedis}, newShop()))
}
