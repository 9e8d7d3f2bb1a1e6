package main

import (
	"net/url"
	"time"

	"gorm.io/driver/sqlite"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
	_ "modernc.org/sqlite" // the driver "sqlite", without cgo
)

// product is something on the shelves.
type product struct {
	ID      uint64
	Name    string
	Initial int // pieces in the morning
	Stock   int // pieces that can be ordered now
}

// order is one order. Its status moves once, from open to paid or to closed, by
// a compare-and-set: whoever is first wins, and only the winner acts on it.
type order struct {
	ID        uint64
	ProductID uint64
	Pieces    int
	Status    status `gorm:"index"`
	JobID     uint64 // its timeout in the center
	PlacedAt  time.Time
	PayBefore time.Time
	PaidAt    *time.Time
	ClosedAt  *time.Time
}

type status string

const (
	open   status = "open"   // waits for its money; its pieces are not on the shelf
	paid   status = "paid"   // the pieces are sold
	closed status = "closed" // nobody paid in time; the pieces are on the shelf again
)

// orders is the shop's database.
type orders struct{ *gorm.DB }

// openOrders opens the database, and makes it if it is not there.
func openOrders(file string) (orders, error) {
	settings := url.Values{"_pragma": {"journal_mode(WAL)", "busy_timeout(10000)"}, "_txlock": {"immediate"}, "_time_format": {"sqlite"}}
	db, err := gorm.Open(sqlite.Dialector{DriverName: "sqlite", DSN: "file:" + file + "?" + settings.Encode()}, &gorm.Config{
		Logger:  logger.Discard,
		NowFunc: func() time.Time { return time.Now().UTC() },
	})
	if err != nil {
		return orders{}, err
	}
	pool, err := db.DB()
	if err != nil {
		return orders{}, err
	}
	pool.SetMaxOpenConns(1) // SQLite has one writer
	return orders{db}, db.AutoMigrate(&product{}, &order{})
}

func (db orders) close() error {
	pool, err := db.DB.DB()
	if err != nil {
		return err
	}
	return pool.Close()
}

// settle moves an order from open to another status. It tells whether this call
// did it; if not, the order had been paid or closed before.
func settle(tx *gorm.DB, id uint64, to status) (bool, error) {
	moment := map[status]string{paid: "paid_at", closed: "closed_at"}[to]
	res := tx.Model(&order{}).Where("id = ? AND status = ?", id, open).
		Updates(map[string]any{"status": to, moment: time.Now().UTC()})
	return res.RowsAffected == 1, res.Error
}
