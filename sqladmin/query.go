package sqladmin

import (
	"fmt"
	"strings"
)

// table is the one name that a query selects from.
const table = "timeout_task"

// Query is a SELECT that can be merged over all shards. Parse makes it.
type Query struct {
	items    []item
	distinct bool
	alias    string // what the query calls the table
	where    []token
	groups   []group
	orders   []order
	limit    *limit
	folded   bool // it has aggregates or GROUP BY: rows of the shards are merged into others
}

// item is one entry of the select list.
type item struct {
	expr   []token
	alias  string // "" without one
	label  string // the header: the alias, or the item as it was written
	column string // lower-case name, when the item is a plain column
	star   bool   // * or t.*
	call   aggregate
	arg    []token // of call
}

// group is one entry of GROUP BY; an alias or ordinal is already replaced by
// the expression that it stands for.
type group struct {
	expr   []token
	column string // lower-case name, when it is a plain column
}

// order is one entry of ORDER BY. In a folded query its place is that of the
// output column or, from len(items) on, of the group that it sorts by.
type order struct {
	expr  []token
	desc  bool
	place int
}

// aggregate names the functions that are merged.
type aggregate string

const (
	none  aggregate = ""
	count aggregate = "COUNT"
	sum   aggregate = "SUM"
	avg   aggregate = "AVG"
	minOf aggregate = "MIN"
	maxOf aggregate = "MAX"
)

// columns of timeout_task. They decide only whether an alias hides a column: a
// new column that is missing here still works, but add it.
var columns = map[string]bool{
	"job_id": true, "gmt_create": true, "gmt_modified": true, "biz_id": true, "biz_type": true, "status": true,
	"action_time": true, "attribute": true, "attempts": true, "last_error": true, "dedup_key": true,
	"due_time": true, "timeout_ms": true, "lease": true, "trace": true, "biz_key": true,
}

// idColumns are the unsigned 64-bit columns: shown as strings in JSON, and
// stored in SQLite as the signed integer of the same bits.
var idColumns = map[string]bool{"job_id": true, "biz_id": true, "biz_type": true}

// SyntaxError tells why a query is not run, and what would be.
type SyntaxError struct {
	Offset  int    // byte offset in the query where the problem begins
	Near    string // the query's text there; may be empty
	Problem string // what is wrong
	Instead string // what would be right; may be empty
}

// Error is one line: where, what is wrong, what would be right.
func (e *SyntaxError) Error() string {
	var b strings.Builder
	if e.Near != "" {
		fmt.Fprintf(&b, "near %.40q (byte %d): ", e.Near, e.Offset+1)
	}
	b.WriteString(e.Problem)
	if e.Instead != "" {
		b.WriteString("; " + e.Instead)
	}
	return b.String()
}

// refused is the error at a token.
func refused(at token, problem, instead string) error {
	return &SyntaxError{Offset: at.offset, Near: at.raw, Problem: problem, Instead: instead}
}
