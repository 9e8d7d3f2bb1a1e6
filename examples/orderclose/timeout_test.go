package main

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/toctest"
)

// lazyCloser is a closer whose database is opened inside the test: all that a test in virtual time uses is made there.
type lazyCloser struct{ closer }

// inShop runs a test of a shop with ten teapots, on a whole center in virtual time.
func inShop(t *testing.T, f func(c *toctest.Center, s *shop)) {
	orderClose := &lazyCloser{}
	file := filepath.Join(t.TempDir(), "shop.db")
	toctest.Run(t, func(c *toctest.Center) {
		db, err := openOrders(file)
		require.NoError(c, err)
		c.Cleanup(func() { require.NoError(c, db.close()) })
		require.NoError(c, db.Create(&product{ID: 1, Name: "teapot", Initial: 10, Stock: 10}).Error)
		orderClose.db = db
		f(c, &shop{db: db, timeouts: c.Tasks(), payWithin: 30 * time.Minute})
	}, toctest.With("order_close", orderClose))
}

func TestUnpaidOrdersAreClosedAfterHalfAnHour(t *testing.T) {
	inShop(t, func(c *toctest.Center, s *shop) {
		unpaid, bought := s.mustPlace(c.T, 2), s.mustPlace(c.T, 3)
		c.Advance(10 * time.Minute)
		require.NoError(c, s.pay(c.Context(), bought))
		c.Advance(20*time.Minute - time.Millisecond)
		require.Equal(c, numbers{Open: 1, Paid: 1, Stock: 5}, s.numbers(c.T))
		c.Advance(time.Millisecond)
		require.Equal(c, numbers{Paid: 1, Closed: 1, Stock: 7}, s.numbers(c.T))
		require.Len(c, c.Fired("order_close"), 1)
		require.Equal(c, unpaid.ID, c.Fired("order_close")[0].Task.BizID)
		require.Empty(c, c.Pending(), "the timeout of the paid order was called off")
	})
}

func TestTheCenterCrashesWhileAnOrderWaits(t *testing.T) {
	inShop(t, func(c *toctest.Center, s *shop) {
		s.mustPlace(c.T, 2)
		c.Advance(29 * time.Minute)
		c.Crash()
		c.Advance(time.Minute)
		require.Equal(c, numbers{Closed: 1, Stock: 10}, s.numbers(c.T))
	})
}
