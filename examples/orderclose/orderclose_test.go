package main

import (
	"context"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestShopBooksBalance(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: the day at the shop lasts for some seconds")
	}
	t.Setenv("TMPDIR", testrig.MemoryDir(t))
	d := &day{customers: 40, open: time.Second, payWithin: 4 * time.Second}
	b, err := run(t.Context(), d, t.Output())
	require.NoError(t, err)
	require.NotZero(t, b.paid)
	require.NotZero(t, b.closed, "three of ten of some 25 customers do not pay")
	require.Equal(t, d.customers, b.paid+b.closed+int(d.noSale.Load()))
	require.GreaterOrEqual(t, int(d.shop.calledOff.Load()+d.shop.tooLate.Load()), b.paid, "each paid order's timeout was called off")
}

func TestInterruptedDayEnds(t *testing.T) {
	t.Setenv("TMPDIR", testrig.MemoryDir(t))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := run(ctx, &day{customers: 20, open: time.Hour, payWithin: time.Hour}, t.Output())
	require.Error(t, err)
}

// stubTimeouts is a timeout center that answers what the test says.
type stubTimeouts struct {
	submitErr, cancelErr error

	mu        sync.Mutex
	submitted []client.Submit
	cancelled []uint64
}

func (d *stubTimeouts) Submit(_ context.Context, r client.Submit) (client.Submitted, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.submitted = append(d.submitted, r)
	return client.Submitted{Task: client.Task{JobID: client.ID(1000 + r.BizID)}}, d.submitErr
}

func (d *stubTimeouts) Cancel(_ context.Context, jobID uint64, _ ...client.ChangeOption) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cancelled = append(d.cancelled, jobID)
	return d.cancelErr
}

func (d *stubTimeouts) Get(context.Context, uint64) (client.Task, error) {
	return client.Task{}, task.ErrNotFound
}

// openShop is a shop with one product, ten pieces; its orders wait a minute for their money.
func openShop(t *testing.T) (*shop, *stubTimeouts) {
	db, err := openOrders(filepath.Join(t.TempDir(), "shop.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.close()) })
	require.NoError(t, db.Create(&product{ID: 1, Name: "teapot", Initial: 10, Stock: 10}).Error)
	d := &stubTimeouts{}
	return &shop{db: db, timeouts: d, payWithin: time.Minute}, d
}

func (s *shop) mustPlace(t *testing.T, pieces int) order {
	t.Helper()
	o, err := s.place(t.Context(), 1, pieces)
	require.NoError(t, err)
	return o
}

// fire does what the center does when an order's time is over.
func (s *shop) fire(t *testing.T, orderID uint64) error {
	return closer{s.db}.Process(t.Context(), task.Task{JobID: 1000 + orderID, BizID: orderID})
}

func (s *shop) numbers(t *testing.T) numbers {
	t.Helper()
	n, err := s.db.count(t.Context())
	require.NoError(t, err)
	return n
}

func TestPlaceSubmitsTheTimeout(t *testing.T) {
	s, d := openShop(t)
	o := s.mustPlace(t, 3)
	require.Equal(t, []client.Submit{{BizType: "order_close", BizID: o.ID, ActionTime: o.PayBefore}}, d.submitted)
	require.Equal(t, 1000+o.ID, o.JobID)
	require.Equal(t, numbers{Open: 1, Stock: 7}, s.numbers(t))
}

func TestNoTimeoutNoOrder(t *testing.T) {
	s, d := openShop(t)
	d.submitErr = task.ErrUnavailable
	_, err := s.place(t.Context(), 1, 3)
	require.ErrorIs(t, err, task.ErrUnavailable)
	require.Equal(t, numbers{Stock: 10}, s.numbers(t))
	require.True(t, processor.IsDiscard(s.fire(t, 1)), "it may have been submitted: it finds no order")
}

func TestSoldOutCallsTheTimeoutOff(t *testing.T) {
	s, d := openShop(t)
	_, err := s.place(t.Context(), 1, 11)
	require.ErrorIs(t, err, errSoldOut)
	require.Equal(t, []uint64{1001}, d.cancelled)
	require.Equal(t, numbers{Stock: 10}, s.numbers(t))
}

func TestOrderStoredTooLateIsRefused(t *testing.T) {
	s, d := openShop(t)
	s.payWithin = 0
	_, err := s.place(t.Context(), 1, 1)
	require.ErrorIs(t, err, errBusy)
	require.Equal(t, numbers{Stock: 10}, s.numbers(t))
	require.Empty(t, d.cancelled)
}

func TestClosingTwiceIsClosingOnce(t *testing.T) {
	s, _ := openShop(t)
	o := s.mustPlace(t, 3)
	for range 3 {
		require.NoError(t, s.fire(t, o.ID))
		require.Equal(t, numbers{Closed: 1, Stock: 10}, s.numbers(t))
	}
	require.ErrorIs(t, s.pay(t.Context(), o), errTooLate)
	require.Equal(t, numbers{Closed: 1, Stock: 10}, s.numbers(t))
}

func TestPaidStaysPaidWhateverTheCenterAnswers(t *testing.T) {
	for name, answer := range map[string]error{
		"cancelled":         nil,
		"running":           &task.ConflictError{Conflict: task.ConflictRunning},
		"already_processed": &task.ConflictError{Conflict: task.ConflictProcessed},
		"unavailable":       task.ErrUnavailable,
	} {
		t.Run(name, func(t *testing.T) {
			s, d := openShop(t)
			d.cancelErr = answer
			o := s.mustPlace(t, 3)
			require.NoError(t, s.pay(t.Context(), o))
			require.Equal(t, []uint64{o.JobID}, d.cancelled)
			require.NoError(t, s.fire(t, o.ID))
			require.Equal(t, numbers{Paid: 1, Stock: 7}, s.numbers(t))
		})
	}
}

// Money and timeout meet at the same moment, a hundred times: one of them wins.
func TestPayAndCloseMeet(t *testing.T) {
	s, _ := openShop(t)
	require.NoError(t, s.db.Model(&product{ID: 1}).Updates(product{Initial: 200, Stock: 200}).Error)
	var receipts []uint64
	for range 100 {
		o := s.mustPlace(t, 2)
		var wg sync.WaitGroup
		var payErr, closeErr error
		wg.Go(func() { payErr = s.pay(t.Context(), o) })
		wg.Go(func() { closeErr = s.fire(t, o.ID) })
		wg.Wait()
		require.NoError(t, closeErr)
		if payErr == nil {
			receipts = append(receipts, o.ID)
		} else {
			require.ErrorIs(t, payErr, errTooLate)
		}
	}
	b, err := s.db.books(receipts)
	require.NoError(t, err)
	require.Zero(t, b.open+b.wronged+b.wrongShelves)
	require.Equal(t, 100, b.paid+b.closed)
}

func TestBooksShowWhatIsWrong(t *testing.T) {
	for name, damage := range map[string]struct{ sql, shown string }{
		"nothing":        {"SELECT 1", ""},
		"left open":      {"UPDATE orders SET status = 'open', closed_at = NULL WHERE id = 2", "WRONG  every order is paid or closed"},
		"stock lost":     {"UPDATE products SET stock = stock - 1", "WRONG  stock = initial - paid"},
		"early":          {"UPDATE orders SET pay_before = '2999-01-01 00:00:00+00:00' WHERE id = 2", "WRONG  none closed early"},
		"paid, closed":   {"UPDATE orders SET closed_at = paid_at WHERE id = 1", "WRONG  none closed though paid"},
		"receipt denied": {"UPDATE orders SET status = 'closed', closed_at = pay_before WHERE id = 1", "WRONG  none closed though paid"},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := openShop(t)
			bought, left := s.mustPlace(t, 3), s.mustPlace(t, 2)
			require.NoError(t, s.pay(t.Context(), bought))
			require.NoError(t, s.db.Model(&left).Update("pay_before", left.PlacedAt).Error, "its time is over")
			require.NoError(t, s.fire(t, left.ID))

			require.NoError(t, s.db.Exec(damage.sql).Error)
			b, err := s.db.books([]uint64{bought.ID})
			require.NoError(t, err)
			var out strings.Builder
			err = b.print(&out)
			if damage.shown == "" {
				require.NoError(t, err)
				require.NotContains(t, out.String(), "WRONG")
				return
			}
			require.EqualError(t, err, "the books do not balance")
			require.Contains(t, out.String(), damage.shown)
		})
	}
}
