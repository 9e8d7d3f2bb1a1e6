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

// request is what the servers are asked for, once in each of some tables.
type request struct {
	databases  []int
	first, end int // the tables of each database
	selects    string
	tail       string // the statement behind the table's name
	args       []any
	limited    bool
	kinds      []kind
}

// request puts the values into a plan. A condition that a server would see otherwise than SQLite is left to SQLite.
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
		if vals[i] == nil { // nothing is equal to NULL, or more, or less
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
		if shardOf := t.shardOf(c); shardOf != nil {
			id, _ := unsignedOf(vals[i])
			r.only(t.Layout, shardOf(id))
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

// shardOf gives the shard for a value of a condition that names one; -1 is none. It is nil for other conditions.
func (t *table) shardOf(c condition) func(uint64) int {
	switch {
	case c.operator == "=" && c.column.name == "biz_id":
		return t.Layout.Shard
	case c.operator == "=" && c.column.name == "job_id":
		return func(id uint64) int {
			if shard, ok := t.Layout.ShardOf(id); ok {
				return shard
			}
			return -1
		}
	}
	return nil
}

// only leaves the tables that belong to a shard.
func (r *request) only(l sharding.Layout, shard int) {
	if shard < 0 || !slices.Contains(r.databases, l.Database(shard)) || l.Table(shard) < r.first || l.Table(shard) >= r.end {
		r.databases = nil
		return
	}
	r.databases, r.first, r.end = []int{l.Database(shard)}, l.Table(shard), l.Table(shard)+1
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

// argument is the condition for the servers, if they compare as SQLite does.
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
	case moment:
		var s string
		if s, ok = v.(string); ok && t.MySQL {
			return momentArgument(operator, s)
		}
		arg = strings.Clone(s)
	case text:
		var s string
		s, ok = v.(string)
		ok = ok && !t.collates && (!t.MySQL || utf8.ValidString(s))
		arg = strings.Clone(s)
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

// comparesAlike tells whether < and ORDER BY of a server are SQLite's.
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
