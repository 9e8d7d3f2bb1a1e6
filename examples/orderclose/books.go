package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// numbers are the shop's at a moment.
type numbers struct{ Open, Paid, Closed, Stock int }

func (db orders) count(ctx context.Context) (n numbers, err error) {
	err = db.WithContext(ctx).Raw(`SELECT
		(SELECT COUNT(*) FROM orders WHERE status = 'open')   AS open,
		(SELECT COUNT(*) FROM orders WHERE status = 'paid')   AS paid,
		(SELECT COUNT(*) FROM orders WHERE status = 'closed') AS closed,
		(SELECT SUM(stock) FROM products)                     AS stock`).Scan(&n).Error
	return n, err
}

// books are what the shop's tables say at the end of a day.
type books struct {
	open, paid, closed int
	early              int // closed before their time
	wronged            int // closed though paid, or the receipts contradict the status
	receipts           int
	shelves            []string // a line for each product
	wrongShelves       int
	late               []time.Duration // of the closed, sorted
}

// books adds up the tables. receipts are the orders for which customers have a
// receipt.
func (db orders) books(receipts []uint64) (books, error) {
	var products []product
	var list []order
	if err := errors.Join(db.Find(&products).Error, db.Find(&list).Error); err != nil {
		return books{}, err
	}
	b := books{receipts: len(receipts)}
	sold := map[uint64]int{} // pieces by product
	for _, o := range list {
		switch o.Status {
		case paid:
			b.paid++
			sold[o.ProductID] += o.Pieces
		case closed:
			b.closed++
			b.late = append(b.late, o.late())
			if o.late() < 0 {
				b.early++
			}
		default:
			b.open++
		}
		if (o.Status == paid) != slices.Contains(receipts, o.ID) || o.PaidAt != nil && o.ClosedAt != nil {
			b.wronged++
		}
	}
	slices.Sort(b.late)
	for _, p := range products {
		b.shelves = append(b.shelves, fmt.Sprintf("%s %d - %d = %d", p.Name, p.Initial, sold[p.ID], p.Stock))
		if p.Initial-sold[p.ID] != p.Stock {
			b.wrongShelves++
		}
	}
	return b, nil
}

// print shows the books; an error says that they do not balance.
func (b books) print(out io.Writer) error {
	balanced := true
	check := func(ok bool, format string, args ...any) {
		mark := "ok   "
		if !ok {
			mark, balanced = "WRONG", false
		}
		fmt.Fprintf(out, "  %s  %s\n", mark, fmt.Sprintf(format, args...))
	}
	fmt.Fprintln(out, "The books:")
	check(b.open == 0, "every order is paid or closed: %d paid, %d closed, %d open", b.paid, b.closed, b.open)
	check(b.wrongShelves == 0, "stock = initial - paid: %s", strings.Join(b.shelves, ", "))
	check(b.early == 0, "none closed early: %d", b.early)
	check(b.wronged == 0, "none closed though paid: %d of %d receipts", b.wronged, b.receipts)
	if n := len(b.late); n > 0 {
		at := func(percent int) time.Duration { return b.late[(n-1)*percent/100].Round(100 * time.Microsecond) }
		fmt.Fprintf(out, "\nClosed after the deadline: p50 %s, p99 %s, at most %s.\n", at(50), at(99), at(100))
	}
	if !balanced {
		return errors.New("the books do not balance")
	}
	return nil
}
