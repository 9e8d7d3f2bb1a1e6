package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// day is one day at the shop. Customers come at random moments; seven of ten
// mean to pay, some of them in the last millisecond, some too late.
type day struct {
	customers int
	open      time.Duration // the doors
	payWithin time.Duration

	shop    *shop
	noSale  atomic.Int64 // customers who got nothing: sold out, or a busy shop
	tooLate atomic.Int64 // customers who came with their money when the order was closed

	mu       sync.Mutex
	receipts []uint64 // orders for which customers have a receipt
}

// patience is how long after the last deadline an order may still be open.
const patience = time.Minute

// The day happens here: customers come, and out gets the view from the street.
func (d *day) tell(ctx context.Context, out io.Writer) error {
	shelves := []product{{Name: "teapot"}, {Name: "lamp"}, {Name: "chair"}}
	for i := range shelves { // less than they will ask for: what goes back is sold again
		shelves[i].Initial = max(3, d.customers*2/5)
		shelves[i].Stock = shelves[i].Initial
		// One after the other: GORM guesses the ids of a batch, and on this driver wrongly.
		if err := d.shop.db.Create(&shelves[i]).Error; err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "The shop opens for %s, %d customers come. An order that is not paid within %s is closed.\n\n",
		d.open, d.customers, d.payWithin)

	g, ctx := errgroup.WithContext(ctx)
	for range d.customers {
		p := shelves[rand.IntN(len(shelves))]
		g.Go(func() error { return d.serve(ctx, p) })
	}
	g.Go(func() error { return d.watch(ctx, out) })
	return g.Wait()
}

// serve lets one customer come, order, and perhaps pay.
func (d *day) serve(ctx context.Context, p product) error {
	if err := pause(ctx, time.Duration(rand.Int64N(int64(d.open)))); err != nil {
		return err
	}
	o, err := d.shop.place(ctx, p.ID, 1+rand.IntN(3))
	if errors.Is(err, errSoldOut) || errors.Is(err, errBusy) {
		d.noSale.Add(1)
		return nil
	}
	if err != nil {
		return err
	}
	var pays time.Duration
	switch rand.IntN(10) {
	case 0, 1, 2:
		return nil // changed their mind
	case 3, 4: // at the last moment, or just after it
		pays = d.payWithin + time.Duration(rand.IntN(20)-10)*time.Millisecond
	default:
		pays = time.Duration(rand.Int64N(int64(d.payWithin)))
	}
	if err := pause(ctx, time.Until(o.PlacedAt.Add(pays))); err != nil {
		return err
	}
	switch err := d.shop.pay(ctx, o); {
	case errors.Is(err, errTooLate):
		d.tooLate.Add(1)
	case err != nil:
		return err
	default:
		d.mu.Lock()
		d.receipts = append(d.receipts, o.ID)
		d.mu.Unlock()
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return errors.New("interrupted")
	}
}

// watch prints a line a second until every order has found its end.
func (d *day) watch(ctx context.Context, out io.Writer) error {
	start := time.Now()
	fmt.Fprintln(out, "  time   open   paid  closed  no sale  pieces on the shelves")
	for tick := 1; ; tick++ {
		if err := pause(ctx, time.Until(start.Add(time.Duration(tick)*time.Second))); err != nil {
			return err
		}
		n, err := d.shop.db.count(ctx)
		if err != nil {
			return err
		}
		noSale := int(d.noSale.Load())
		fmt.Fprintf(out, "  %3ds  %5d  %5d  %6d  %7d  %d\n", tick, n.Open, n.Paid, n.Closed, noSale, n.Stock)
		if n.Paid+n.Closed+noSale >= d.customers || time.Since(start) > d.open+d.payWithin+patience {
			fmt.Fprintln(out)
			return nil
		}
	}
}

// sample prints a few orders with the status of their timeouts in the center, and
// how often customer and center met at an order.
func (d *day) sample(ctx context.Context, out io.Writer) error {
	for _, end := range []status{paid, closed} {
		var list []order
		if err := d.shop.db.WithContext(ctx).Where("status = ?", end).Order("id").Limit(3).Find(&list).Error; err != nil {
			return err
		}
		for _, o := range list {
			t, err := d.shop.timeouts.Get(ctx, o.JobID)
			if err != nil {
				return err
			}
			fmt.Fprintf(out, "  order %-4d %-32s task %d is %s\n", o.ID, o.end(), t.JobID, t.Status)
		}
	}
	fmt.Fprintf(out, "\nTimeouts: %d called off in time, %d fired just as the order was paid. Customers: %d paid too late.\n\n",
		d.shop.calledOff.Load(), d.shop.tooLate.Load(), d.tooLate.Load())
	return nil
}

// end says how an order ended.
func (o order) end() string {
	if o.Status == paid {
		left := o.PayBefore.Sub(*o.PaidAt).Round(time.Millisecond)
		if left < 0 {
			return fmt.Sprintf("paid %s late, but first", -left)
		}
		return fmt.Sprintf("paid %s before its time", left)
	}
	return fmt.Sprintf("closed %s after its time", o.late().Round(100*time.Microsecond))
}
