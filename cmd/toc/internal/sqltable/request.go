package sqltable

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"modernc.org/sqlite/vtab"

	"github.com/timeoutcenter/toc/sharding"
)

// request is what the servers are asked: one SELECT for each of some tables.
type request struct {
	databases  []int
	first, end int    // the tables of each database
	selects    string // the SELECT before the table's name
	tail       string // and after it
	args       []any
	limited    bool   // tail ends with a LIMIT
	kinds      []kind // of the columns
}

// request puts the values into a plan. A condition that a server would judge
// differently from SQLite is not sent: SQLite checks every row itself.
func (t *table) request(p plan, vals []vtab.Value) request {
	r := request{end: t.Layout.TablesPerDatabase, kinds: []kind{number}}
	for d := range t.Databases {
		r.databases = append(r.databases, d)
	}
	selects := []string{t.schema.rowid + " AS id"}
	for _, i := range p.columns {
		c := t.schema.columns[i]
		selects = append(selects, c.expr+" AS "+c.name)
		r.kinds = append(r.kinds, c.kind)
	}
	r.selects = "SELECT " + strings.Join(selects, ", ") + " FROM "
	all := true
	var where []string
	for i, c := range p.conditions {
		if vals[i] == nil { // no value is equal to NULL, less or greater
			r.databases = nil
			break
		}
		operator, arg, ok := t.argument(c, vals[i])
		if !ok {
			all = false
			continue
		}
		where = append(where, c.column.name+operator+"?")
		r.args = append(r.args, arg)
		if c.namesShard() {
			id, _ := unsignedOf(vals[i])
			shard, exists := t.Layout.Shard(id), true
			if c.column.name == "job_id" {
				shard, exists = t.Layout.ShardOf(id)
			}
			r.only(t.Layout, shard, exists)
		}
	}
	if where != nil {
		r.tail = " WHERE " + strings.Join(where, " AND ")
	}
	r.tail += t.schema.groupBy
	if n, ok := sum(vals[len(p.conditions):]); ok && all {
		r.limited = true
		r.tail += p.order + " LIMIT " + strconv.FormatInt(n, 10)
	}
	return r
}

// only leaves the table of a shard, or none.
func (r *request) only(l sharding.Layout, shard int, exists bool) {
	database, table := l.Database(shard), l.Table(shard)
	if !exists || !slices.Contains(r.databases, database) || table < r.first || table >= r.end {
		r.databases = nil
		return
	}
	r.databases, r.first, r.end = []int{database}, table, table+1
}

// sum of LIMIT and OFFSET; false where there is no limit.
func sum(limits []vtab.Value) (n int64, ok bool) {
	for _, v := range limits {
		i, isInt := v.(int64)
		if !isInt || i < 0 || i > 1<<31 {
			return 0, false
		}
		n += i
	}
	return n, len(limits) > 0
}

// argument is what to send for a condition and its value; not ok if the servers
// would not compare as SQLite does.
func (t *table) argument(c condition, v vtab.Value) (operator string, arg any, ok bool) {
	operator = c.operator
	if operator != "=" && !t.comparesAlike(c.column) {
		return "", nil, false
	}
	switch c.column.kind {
	case number:
		arg, ok = v.(int64)
	case unsigned:
		var id uint64
		id, ok = unsignedOf(v)
		if arg = id; !t.MySQL {
			arg = int64(id)
		}
	case moment, text:
		s, isText := v.(string)
		if !isText || t.collates || t.MySQL && !utf8.ValidString(s) {
			return "", nil, false
		}
		if c.column.kind == moment && t.MySQL {
			return momentArgument(operator, s)
		}
		arg, ok = strings.Clone(s), true
	}
	return operator, arg, ok
}

// momentArgument is for MySQL, which compares times. SQLite compares texts: there a
// time without seconds or milliseconds is less than the time with zeros for them.
func momentArgument(operator, s string) (string, any, bool) {
	const day, zeros = len("2006-01-02"), " 00:00:00.000"
	if len(s) < day || len(s) > len(timeLayout) {
		return "", nil, false
	}
	whole := s + zeros[len(s)-day:]
	if at, err := time.Parse(timeLayout, whole); err != nil || at.Format(timeLayout) != whole {
		return "", nil, false
	}
	if len(s) < len(whole) {
		switch operator {
		case "<=":
			operator = "<"
		case ">":
			operator = ">="
		}
	}
	return operator, whole, true
}

// comparesAlike reports whether < and ORDER BY of a server are SQLite's.
func (t *table) comparesAlike(c column) bool { return t.MySQL || c.kind != unsigned }

// statement asks some tables of one database.
func (r *request) statement(first, end int) (string, []any) {
	var members []string
	var args []any
	for i := first; i < end; i++ {
		member := r.selects + sharding.TableName(i) + r.tail
		if r.limited {
			member = fmt.Sprintf("SELECT * FROM (%s) AS t%d", member, i)
		}
		members = append(members, member)
		args = append(args, r.args...)
	}
	return strings.Join(members, " UNION ALL "), args
}
