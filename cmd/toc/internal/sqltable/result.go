package sqltable

import "database/sql"

// Result is the answer to a query. A cell is nil (NULL), int64, uint64, float64 or
// string. Times are strings, UTC as stored: 2006-01-02 15:04:05.000.
type Result struct {
	Columns []string
	Rows    [][]any
	More    bool // there are rows beyond the limit

	ids []bool // columns of 64-bit ids, which JSON's numbers cannot hold
}

// newResult reads the first limit rows.
func newResult(rows *sql.Rows, limit int) (*Result, error) {
	types, err := rows.ColumnTypes()
	if err != nil {
		return nil, plainError(err)
	}
	r := &Result{}
	cells, into := make([]any, len(types)), make([]any, len(types))
	for i, t := range types {
		r.Columns = append(r.Columns, readable(t.Name()))
		r.ids = append(r.ids, t.DatabaseTypeName() == string(unsigned))
		into[i] = &cells[i]
	}
	for rows.Next() {
		if len(r.Rows) == limit {
			r.More = true
			return r, nil
		}
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		row := make([]any, len(cells))
		for i, v := range cells {
			row[i] = v
			if blob, ok := v.([]byte); ok {
				row[i] = string(blob)
				if id, ok := unsignedOf(blob); ok {
					row[i] = id
				}
			}
		}
		r.Rows = append(r.Rows, row)
	}
	if err := rows.Err(); err != nil {
		return nil, plainError(err)
	}
	return r, nil
}
