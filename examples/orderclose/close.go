package main

import (
	"context"
	"errors"
	"time"

	"gorm.io/gorm"

	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/task"
)

// closer is the processor order_close. The center calls it when an order's time
// is over, from many goroutines, and once more after a crash or an error: so it
// must not matter how often.
type closer struct{ db orders }

// Process closes the order of a timeout and puts its pieces back on the shelf,
// both in one transaction. An order that is paid or closed stays as it is.
func (c closer) Process(ctx context.Context, t task.Task) error {
	return c.db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		var o order
		switch err := tx.Take(&o, t.BizID).Error; {
		case errors.Is(err, gorm.ErrRecordNotFound):
			return processor.Discard(errors.New("no such order")) // never run this task again
		case err != nil:
			return err // run it again after a pause
		}
		first, err := settle(tx, o.ID, closed)
		if err != nil || !first {
			return err
		}
		return tx.Model(&product{}).Where("id = ?", o.ProductID).
			Update("stock", gorm.Expr("stock + ?", o.Pieces)).Error
	})
}

// late is how long after its time an order was closed.
func (o order) late() time.Duration { return o.ClosedAt.Sub(o.PayBefore) }
