// Package unpaid is the example of docs/testing.md: a shop that closes an order after thirty minutes unless it is paid.
package unpaid

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/task"
)

// Timeouts is what the shop needs of a center: app.Tasks has it, and so has client.Client.
type Timeouts interface {
	Submit(ctx context.Context, s client.Submit) (client.Submitted, error)
	CancelByKey(ctx context.Context, k client.Key, opts ...client.ChangeOption) error
}

// Shop has orders, which are open, paid or closed.
type Shop struct {
	Timeouts Timeouts

	orders sync.Map // their states
}

// Place opens an order, and submits its timeout first: without a timeout there is no order.
func (s *Shop) Place(ctx context.Context, order uint64) error {
	_, err := s.Timeouts.Submit(ctx, client.Submit{BizType: "order_close", BizID: order, DedupKey: "unpaid", Delay: 30 * time.Minute})
	if err == nil {
		s.orders.Store(order, "open")
	}
	return err
}

// Pay pays an order unless it is closed. Its timeout is not needed any more.
func (s *Shop) Pay(ctx context.Context, order uint64) error {
	if !s.orders.CompareAndSwap(order, "open", "paid") {
		return fmt.Errorf("order %d is %s", order, s.State(order))
	}
	// No error of this is one of the payment: if the timeout fires, Process finds the order paid.
	_ = s.Timeouts.CancelByKey(ctx, client.Key{BizType: "order_close", BizID: order, DedupKey: "unpaid"})
	return nil
}

// Process implements processor.Processor: the center calls it when the time of an order is over.
func (s *Shop) Process(_ context.Context, t task.Task) error {
	s.orders.CompareAndSwap(t.BizID, "open", "closed")
	return nil
}

// State returns the state of an order; nil: there is no such order.
func (s *Shop) State(order uint64) any {
	state, _ := s.orders.Load(order)
	return state
}
