package sqltable

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"modernc.org/sqlite/vtab"
)

// schema is a virtual table: its columns, and how the servers are asked for them.
type schema struct {
	columns []column
	rowid   string // SQL for a number that is one row's alone
	groupBy string
}

type column struct {
	name string
	kind kind
	expr string // SQL for the servers
}

// kind is how a column's values are held and compared.
type kind string

// The kinds. Each is the type of its columns in the declaration for SQLite.
const (
	number   kind = "INTEGER"
	unsigned kind = "BIGINT UNSIGNED" // 64 bits; SQLite stores hold it as the signed integer of the same bits
	text     kind = "TEXT"
	moment   kind = "TIME TEXT"
)

// tasks are the columns of the task tables; see migrations.
var tasks = schema{rowid: "job_id", columns: []column{
	plain("job_id", unsigned), plain("gmt_create", moment), plain("gmt_modified", moment), plain("biz_id", unsigned),
	plain("biz_type", unsigned), plain("status", number), plain("action_time", moment), plain("attribute", text),
	plain("attempts", number), plain("last_error", text), plain("dedup_key", text), plain("due_time", moment),
	plain("timeout_ms", number), plain("lease", unsigned), plain("trace", text), plain("biz_key", text),
	plain("errors", text),
}}

// counts has a row for each biz_type and status in each table.
var counts = schema{rowid: "MIN(job_id)", groupBy: " GROUP BY biz_type, status", columns: []column{
	plain("biz_type", unsigned), plain("status", number), {"tasks", number, "COUNT(*)"},
	{"oldest", moment, "MIN(action_time)"}, {"newest", moment, "MAX(action_time)"},
}}

func plain(name string, k kind) column { return column{name, k, name} }

// isPlain reports whether the servers can look rows up by the column.
func (c column) isPlain() bool { return c.expr == c.name }

// declaration is the CREATE TABLE for SQLite.
func (s *schema) declaration() string {
	var columns []string
	for _, c := range s.columns {
		columns = append(columns, c.name+" "+string(c.kind))
	}
	return "CREATE TABLE t (" + strings.Join(columns, ", ") + ")"
}

const timeLayout = "2006-01-02 15:04:05.000"

// value is what SQLite is given for what a server answered.
func (k kind) value(v any) vtab.Value {
	switch v := v.(type) {
	case int64:
		if k == unsigned {
			return unsignedValue(uint64(v))
		}
	case uint64:
		return unsignedValue(v)
	case []byte:
		return string(v)
	case time.Time:
		return v.Format(timeLayout)
	}
	return v
}

const signBit = 1 << 63

// unsignedValue is an integer, or a BLOB of 20 digits where it does not fit.
func unsignedValue(v uint64) vtab.Value {
	if v < signBit {
		return int64(v)
	}
	return fmt.Appendf(nil, "%020d", v)
}

// unsignedOf reads what unsignedValue has made, or a number in quotes.
func unsignedOf(v vtab.Value) (uint64, bool) {
	switch v := v.(type) {
	case int64:
		return uint64(v), v >= 0
	case []byte:
		n, err := strconv.ParseUint(string(v), 10, 64)
		return n, err == nil && n >= signBit && len(v) == 20
	case string:
		n, err := strconv.ParseUint(v, 10, 64)
		return n, err == nil
	}
	return 0, false
}
