package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"gorm.io/gorm"

	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/task"
)

// The shop's reasons to turn a customer away.
var (
	errSoldOut = errors.New("sold out")
	errBusy    = errors.New("the shop is too busy; try again")
	errTooLate = errors.New("the order is closed")
)

// timeouts is what the shop needs of the timeout center: here app.Tasks, of the
// center in this program. A client.Client, of a center far away, has the same methods.
type timeouts interface {
	Submit(ctx context.Context, s client.Submit) (client.Submitted, error)
	Cancel(ctx context.Context, jobID uint64, opts ...client.ChangeOption) error
	Get(ctx context.Context, jobID uint64) (client.Task, error)
}

// shop takes orders and money.
type shop struct {
	db        orders
	timeouts  timeouts
	payWithin time.Duration

	lastID    atomic.Uint64 // of orders
	calledOff atomic.Int64  // timeouts cancelled: they never fire
	tooLate   atomic.Int64  // timeouts that had fired, or were just firing
}

// place takes an order: the pieces leave the shelf until it is paid or closed.
//
// The timeout is submitted before the order is stored. If this program dies in
// between, a timeout fires for an order that does not exist, and nothing
// happens. The other way round an order could stay that nobody ever closes.
func (s *shop) place(ctx context.Context, productID uint64, pieces int) (order, error) {
	now := time.Now().UTC()
	o := order{
		ID: s.lastID.Add(1), ProductID: productID, Pieces: pieces, Status: open,
		PlacedAt: now, PayBefore: now.Add(s.payWithin),
	}
	timeout, err := s.timeouts.Submit(ctx, client.Submit{BizType: "order_close", BizID: o.ID, ActionTime: o.PayBefore})
	if err != nil {
		return o, fmt.Errorf("submit the timeout of order %d: %w", o.ID, err)
	}
	o.JobID = uint64(timeout.Task.JobID)

	inTime, cancel := context.WithDeadline(ctx, o.PayBefore) // stored later, it would miss its timeout
	defer cancel()
	err = s.db.WithContext(inTime).Transaction(func(tx *gorm.DB) error {
		taken := tx.Model(&product{}).Where("id = ? AND stock >= ?", productID, pieces).
			Update("stock", gorm.Expr("stock - ?", pieces))
		if taken.Error != nil {
			return taken.Error
		}
		if taken.RowsAffected == 0 {
			return errSoldOut
		}
		return tx.Create(&o).Error
	})
	switch {
	case err == nil:
		return o, nil
	case errors.Is(err, errSoldOut):
		s.callOff(ctx, o.JobID)
		return o, err
	// After any other error the order may be there all the same: let the timeout fire.
	case inTime.Err() != nil && ctx.Err() == nil:
		return o, errBusy
	default:
		return o, fmt.Errorf("store order %d: %w", o.ID, err)
	}
}

// pay takes the money for an order, unless it is closed.
//
// The orders table decides; the timeout is called off afterwards. If this
// program dies in between, the timeout fires and finds the order paid.
func (s *shop) pay(ctx context.Context, o order) error {
	first, err := settle(s.db.WithContext(ctx), o.ID, paid)
	if err != nil {
		return fmt.Errorf("mark order %d as paid: %w", o.ID, err)
	}
	if !first {
		return errTooLate
	}
	s.callOff(ctx, o.JobID)
	return nil
}

// callOff cancels the timeout of an order that needs none any more. It is a
// courtesy: a timeout that fires all the same finds nothing to do. So no answer
// of the center is a failure of the shop's.
func (s *shop) callOff(ctx context.Context, jobID uint64) {
	err := s.timeouts.Cancel(ctx, jobID)
	var conflict *task.ConflictError
	switch {
	case err == nil:
		s.calledOff.Add(1)
	case errors.As(err, &conflict): // running, already_processed: it came as we paid
		s.tooLate.Add(1)
	default:
		slog.Warn("timeout not cancelled; it will fire and find nothing to do", "job_id", jobID, "error", err)
	}
}
