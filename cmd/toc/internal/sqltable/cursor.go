package sqltable

import (
	"context"
	"database/sql"
	"fmt"

	"modernc.org/sqlite/vtab"
)

// cursor hands SQLite the rows that the servers send: database after database,
// table after table. The databases are asked at the same time; each waits with
// its next batch until SQLite has come to it.
type cursor struct {
	table   *table
	at      []int // where in a row a column is
	waiting []<-chan batch
	rows    [][]vtab.Value
	ctx     context.Context // of the producers
	stop    func()
}

// batch is some rows of a database, or why there are no more.
type batch struct {
	rows [][]vtab.Value
	err  error
}

const (
	batchRows         = 256
	tablesInStatement = 64
)

// Filter starts the scan again. In a join SQLite calls it for each row of the other table.
func (c *cursor) Filter(idx int, _ string, vals []vtab.Value) error {
	c.stop()
	p := c.table.plans[idx]
	c.at = make([]int, len(c.table.schema.columns))
	for i, column := range p.columns {
		c.at[column] = i + 1
	}
	r := c.table.request(p, vals)
	c.ctx, c.stop = context.WithCancel(c.table.ctx)
	c.waiting, c.rows = nil, [][]vtab.Value{nil}
	for _, database := range r.databases {
		batches := make(chan batch)
		c.waiting = append(c.waiting, batches)
		go c.table.read(c.ctx, database, r, batches)
	}
	return c.Next()
}

// Next goes to the next row. A server's error ends the query.
func (c *cursor) Next() error {
	c.rows = c.rows[1:]
	for len(c.rows) == 0 && len(c.waiting) > 0 {
		b, open := <-c.waiting[0]
		if !open {
			c.waiting = c.waiting[1:]
		}
		if err := c.ctx.Err(); err != nil {
			return err // a database that was stopped has not sent all
		}
		if b.err != nil {
			c.table.fail(b.err)
			return b.err
		}
		c.rows = b.rows
	}
	return nil
}

// Eof reports whether the cursor is behind the last row.
func (c *cursor) Eof() bool { return len(c.rows) == 0 }

// Column is a cell of the current row.
func (c *cursor) Column(i int) (vtab.Value, error) { return c.rows[0][c.at[i]], nil }

// Rowid is the same for the same row in every scan.
func (c *cursor) Rowid() (int64, error) { return c.rows[0][0].(int64), nil }

// Close stops the databases.
func (c *cursor) Close() error {
	c.stop()
	return nil
}

// read sends the rows of one database.
func (t *table) read(ctx context.Context, database int, r request, to chan<- batch) {
	defer close(to)
	send := func(b batch) {
		select {
		case to <- b:
		case <-ctx.Done():
		}
	}
	if err := ask(ctx, t.Databases[database], r, send); err != nil {
		send(batch{err: fmt.Errorf("query database %d: %w", database, err)})
	}
}

// ask reads the tables as of one moment. It begins with one table and asks ever
// more of them at a time: SQLite may have had enough after the first.
func ask(ctx context.Context, db *sql.DB, r request, send func(batch)) error {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for first := r.first; first < r.end; {
		end := min(first+max(1, min(first-r.first, tablesInStatement)), r.end)
		statement, args := r.statement(first, end)
		rows, err := tx.QueryContext(ctx, statement, args...)
		if err != nil {
			return err
		}
		if err := sendRows(rows, r.kinds, send); err != nil {
			return err
		}
		first = end
	}
	return nil
}

func sendRows(rows *sql.Rows, kinds []kind, send func(batch)) error {
	defer rows.Close()
	var b batch
	cells, into := make([]any, len(kinds)), make([]any, len(kinds))
	for i := range cells {
		into[i] = &cells[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		row := make([]vtab.Value, len(kinds))
		for i, k := range kinds {
			row[i] = k.value(cells[i])
		}
		if b.rows = append(b.rows, row); len(b.rows) == batchRows {
			send(b)
			b.rows = nil
		}
	}
	if len(b.rows) > 0 {
		send(b)
	}
	return rows.Err()
}
