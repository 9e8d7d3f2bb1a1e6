package main

import (
	"database/sql"
	"errors"
	"net/url"
	"time"

	"gorm.io/driver/mysql"
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
// a compare-and-set: the first call wins, and only the winner acts on it.
type order struct {
	ID        uint64
	ProductID uint64
	Pieces    int
	Status    status
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

// schema makes the tables, where they are not there.
var schema = []string{
	"CREATE TABLE IF NOT EXISTS products (id INTEGER PRIMARY KEY, name TEXT NOT NULL, initial INTEGER NOT NULL, stock INTEGER NOT NULL)",
	`CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, product_id INTEGER NOT NULL, pieces INTEGER NOT NULL, status TEXT NOT NULL,
		job_id INTEGER NOT NULL, placed_at DATETIME NOT NULL, pay_before DATETIME NOT NULL, paid_at DATETIME, closed_at DATETIME)`,
	"CREATE INDEX IF NOT EXISTS orders_by_status ON orders (status)",
}

// openOrders opens the database, and makes it if it is not there. A shop's own is MySQL; GORM's statements for that
// run on SQLite, too.
func openOrders(file string) (orders, error) {
	settings := url.Values{"_pragma": {"journal_mode(WAL)", "busy_timeout(10000)"}, "_txlock": {"immediate"}, "_time_format": {"sqlite"}}
	pool, err := sql.Open("sqlite", "file:"+file+"?"+settings.Encode())
	if err != nil {
		return orders{}, err
	}
	pool.SetMaxOpenConns(1) // SQLite has one writer
	db, err := gorm.Open(mysql.New(mysql.Config{Conn: pool, SkipInitializeWithVersion: true}), &gorm.Config{
		Logger:  logger.Discard,
		NowFunc: func() time.Time { return time.Now().UTC() },
	})
	for _, statement := range schema {
		err = errors.Join(err, db.Exec(statement).Error)
	}
	return orders{db}, err
}

func (db orders) close() error {
	pool, err := db.DB.DB()
	if err != nil {
		return err
	}
	return pool.Close()
}

// settle moves an order from open to another status. It reports whether this call
// did it; if not, the order had been paid or closed before.
func settle(tx *gorm.DB, id uint64, to status) (bool, error) {
	moment := map[status]string{paid: "paid_at", closed: "closed_at"}[to]
	res := tx.Model(&order{}).Where("id = ? AND status = ?", id, open).
		Updates(map[string]any{"status": to, moment: time.Now().UTC()})
	return res.RowsAffected == 1, res.Error
}
