package unpaid

import (
	"testing"
	"time"

	"github.com/timeoutcenter/toc/toctest"
)

func TestAnOrderIsClosedAfterThirtyMinutesUnlessPaid(t *testing.T) {
	var shop Shop
	toctest.Run(t, func(c *toctest.Center) {
		shop.Timeouts = c.Tasks()
		for order := range uint64(2) {
			if err := shop.Place(c.Context(), order); err != nil {
				c.Fatal(err)
			}
		}
		c.Advance(10 * time.Minute)
		if err := shop.Pay(c.Context(), 1); err != nil {
			c.Error(err)
		}

		c.Advance(20*time.Minute - time.Millisecond)
		if got := shop.State(0); got != "open" {
			c.Errorf("a millisecond early the unpaid order is %v", got)
		}
		c.Advance(time.Millisecond)
		if got := shop.State(0); got != "closed" {
			c.Errorf("after thirty minutes the unpaid order is %v", got)
		}
		c.Advance(24 * time.Hour)
		if got := shop.State(1); got != "paid" {
			c.Errorf("the paid order is %v", got)
		}
		if runs := c.Fired("order_close"); len(runs) != 1 {
			c.Errorf("the timeout of the paid order was not cancelled: %v", runs)
		}
	}, toctest.With("order_close", &shop))
}

func TestAnOrderIsClosedThoughTheCenterCrashes(t *testing.T) {
	var shop Shop
	toctest.Run(t, func(c *toctest.Center) {
		shop.Timeouts = c.Tasks()
		if err := shop.Place(c.Context(), 1); err != nil {
			c.Fatal(err)
		}
		c.Advance(29 * time.Minute)
		c.Crash()
		c.Advance(time.Minute)
		if got := shop.State(1); got != "closed" {
			c.Errorf("the order is %v", got)
		}
	}, toctest.With("order_close", &shop))
}

func TestAPaidOrderStaysPaidThoughItsTimeoutFires(t *testing.T) {
	var shop Shop
	toctest.Run(t, func(c *toctest.Center) {
		shop.Timeouts = c.Tasks()
		if err := shop.Place(c.Context(), 1); err != nil {
			c.Fatal(err)
		}
		c.Hang(0) // so nothing can be cancelled
		if err := shop.Pay(c.Context(), 1); err != nil {
			c.Error(err)
		}
		c.Mend()
		c.Advance(time.Hour)
		if len(c.Fired("order_close")) != 1 || shop.State(1) != "paid" {
			c.Errorf("the order is %v, the runs: %v", shop.State(1), c.Fired("order_close"))
		}
	}, toctest.With("order_close", &shop))
}
