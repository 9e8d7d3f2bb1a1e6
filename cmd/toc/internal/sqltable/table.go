package sqltable

import (
	"context"
	"strings"

	"modernc.org/sqlite/vtab"
)

// shards is what the tables of one query share. SQLite's callbacks take no context, so it is a field here.
type shards struct {
	Store
	ctx      context.Context
	fail     context.CancelCauseFunc // ends the query
	collates bool                    // the query may compare texts otherwise than byte by byte
}

// module makes a virtual table.
type module struct {
	*shards
	schema *schema
}

func (m *module) Create(ctx vtab.Context, _ []string) (vtab.Table, error) {
	return &table{module: m}, ctx.Declare(m.schema.declaration())
}

func (m *module) Connect(ctx vtab.Context, args []string) (vtab.Table, error) {
	return m.Create(ctx, args)
}

// VolatileArgs lends Filter the texts as they are; copies would end at the first NUL byte.
func (m *module) VolatileArgs() bool { return true }

// table is a virtual table.
type table struct {
	*module
	plans []plan // by IdxNum
}

// plan is a way to look rows up. Filter gets the values: one for each condition,
// then those of LIMIT and OFFSET.
type plan struct {
	columns    []int // to ask the servers for
	conditions []condition
	order      string // of rows that a limit cuts off
}

type condition struct {
	column   column
	operator string
}

// namesShard reports whether all rows that the condition wants are in one table.
func (c condition) namesShard() bool {
	return c.operator == "=" && (c.column.name == "biz_id" || c.column.name == "job_id")
}

var operators = map[vtab.ConstraintOp]string{
	vtab.OpEQ: "=", vtab.OpLT: "<", vtab.OpLE: "<=", vtab.OpGT: ">", vtab.OpGE: ">=",
}

// BestIndex takes every condition that the servers may check. SQLite offers a LIMIT
// only where WHERE and ORDER BY are all it does, and only if all conditions are taken.
func (t *table) BestIndex(info *vtab.IndexInfo) error {
	var p plan
	for i := range t.schema.columns {
		if info.ColUsed&(1<<i) != 0 {
			p.columns = append(p.columns, i)
		}
	}
	args := 0
	take := func(c *vtab.Constraint) {
		c.ArgIndex = args
		args++
	}
	info.EstimatedRows = 1_000_000
	for i := range info.Constraints {
		c := &info.Constraints[i]
		operator := operators[c.Op]
		if !c.Usable || operator == "" || c.Column < 0 || !t.schema.columns[c.Column].isPlain() {
			continue
		}
		take(c)
		taken := condition{t.schema.columns[c.Column], operator}
		p.conditions = append(p.conditions, taken)
		info.EstimatedRows = max(info.EstimatedRows/8, 10)
		if taken.namesShard() {
			info.EstimatedRows = 10
		}
	}
	info.EstimatedCost = float64(info.EstimatedRows)
	var sorted bool
	if p.order, sorted = t.order(info.OrderBy); sorted {
		for i := range info.Constraints {
			if c := &info.Constraints[i]; c.Usable && (c.Op == vtab.OpLIMIT || c.Op == vtab.OpOFFSET) {
				take(c)
			}
		}
	}
	info.IdxNum = int64(len(t.plans))
	t.plans = append(t.plans, p)
	return nil
}

// order is an ORDER BY for the servers, if they sort as SQLite does.
func (t *table) order(by []vtab.OrderBy) (string, bool) {
	var terms []string
	for _, o := range by {
		if o.Column < 0 || !t.comparesAlike(t.schema.columns[o.Column]) {
			return "", false
		}
		term := t.schema.columns[o.Column].name
		if o.Desc {
			term += " DESC"
		}
		terms = append(terms, term)
	}
	if terms == nil {
		return "", true
	}
	return " ORDER BY " + strings.Join(terms, ", "), true
}

func (t *table) Open() (vtab.Cursor, error) { return &cursor{table: t, stop: func() {}}, nil }

func (t *table) Disconnect() error { return nil }

func (t *table) Destroy() error { return nil }
