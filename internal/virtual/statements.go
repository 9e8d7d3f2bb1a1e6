package virtual

import (
	"context"
	"database/sql/driver"
	"errors"
)

// SQLite takes longer to parse a statement than to execute it, and the driver parses a statement at each use. So a connection
// keeps the statements that it has parsed.

// mostKept is how many statements a connection keeps.
const mostKept = 200

// kept is a statement that a connection keeps.
type kept struct {
	sqliteStmt
	isOpen bool // its rows are being read
}

// parse returns the statement of a query: the kept one, unless that is in use.
func (c *conn) parse(query string) (s *kept, err error) {
	if s = c.kept[query]; s != nil && !s.isOpen {
		return s, nil
	}
	inUse := s != nil
	own, err := c.own.PrepareContext(context.Background(), query)
	if err != nil {
		return nil, err
	}
	s = &kept{sqliteStmt: own.(sqliteStmt)}
	if !inUse && len(c.kept) < mostKept {
		c.kept[query] = s
	}
	return s, nil
}

// done ends the use of a statement.
func (c *conn) done(query string, s *kept) error {
	s.isOpen = false
	if c.kept[query] == s {
		return nil
	}
	return s.Close()
}

// closeKept closes the kept statements.
func (c *conn) closeKept() (err error) {
	for _, s := range c.kept {
		err = errors.Join(err, s.Close())
	}
	clear(c.kept)
	return err
}

// execOwn executes a statement. It takes no time, so a context cannot end meanwhile: the driver would watch that in a goroutine.
func (c *conn) execOwn(query string, args []driver.NamedValue) (driver.Result, error) {
	s, err := c.parse(query)
	if err != nil {
		return nil, err
	}
	r, err := s.ExecContext(context.Background(), args)
	return r, errors.Join(err, c.done(query, s))
}

// queryOwn is like execOwn.
func (c *conn) queryOwn(query string, args []driver.NamedValue) (driver.Rows, error) {
	s, err := c.parse(query)
	if err != nil {
		return nil, err
	}
	own, err := s.QueryContext(context.Background(), args)
	if err != nil {
		return nil, errors.Join(err, c.done(query, s))
	}
	s.isOpen = true
	return &rows{own.(sqliteRows), c, query, s}, nil
}

// sqliteRows are the driver's rows.
type sqliteRows interface {
	driver.RowsColumnTypeDatabaseTypeName
	driver.RowsColumnTypeLength
	driver.RowsColumnTypeNullable
	driver.RowsColumnTypePrecisionScale
	driver.RowsColumnTypeScanType
}

// rows are the rows of a kept statement.
type rows struct {
	sqliteRows
	conn  *conn
	query string
	stmt  *kept
}

func (r *rows) Close() error {
	return errors.Join(r.sqliteRows.Close(), r.conn.done(r.query, r.stmt))
}
