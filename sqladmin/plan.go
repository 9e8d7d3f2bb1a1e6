package sqladmin

import (
	"strconv"
	"strings"
)

// plan is a Query as one dialect runs it: how the SELECT on one table looks,
// and what its cells are.
//
// A row that comes back has the cells of the select items, and after them the
// hidden ones: the sort keys of a plain query, the group keys of a folded one.
type plan struct {
	query   *Query
	dialect Dialect
	head    string // the SELECT up to the table's name
	tail    string // the rest
	derived bool   // the SELECT must be wrapped: SQLite takes no LIMIT within a UNION
	union   string
	outer   string // what limits a chunk as a whole
	hidden  int    // cells after those of the items
	folds   []fold // per item, of a folded query
}

// fold says how the cells of one select item become one value.
type fold struct {
	cells int
	start func() folder
}

// sql is the dialect's way to write what MySQL and SQLite write differently.
func (d Dialect) sql(tokens []token) (string, error) {
	if d == SQLite {
		var err error
		if tokens, err = unsigned(tokens); err != nil {
			return "", err
		}
	}
	return render(tokens), nil
}

// sortable is an expression that sorts like expr, unsigned columns included.
func (d Dialect) sortable(expr []token) (string, error) {
	if d == SQLite && idColumns[plainColumn(expr)] {
		return flipped(render(expr)), nil
	}
	return d.sql(expr)
}

func (q *Query) plan(d Dialect) (*plan, error) {
	p := &plan{query: q, dialect: d, union: " UNION ALL "}
	cells, err := p.itemCells()
	if err != nil {
		return nil, err
	}
	keys, err := p.hiddenCells()
	if err != nil {
		return nil, err
	}
	p.hidden = len(keys)
	for i, key := range keys {
		cells = append(cells, key+" AS "+hiddenName(i))
	}

	p.head = "SELECT "
	if q.distinct {
		p.head += "DISTINCT "
		p.union = " UNION " // a chunk's LIMIT counts distinct rows
	}
	p.head += strings.Join(cells, ", ") + " FROM "

	p.tail = " AS " + quoteName(q.alias)
	if q.where != nil {
		where, err := d.sql(q.where)
		if err != nil {
			return nil, err
		}
		p.tail += " WHERE " + where
	}
	if len(q.groups) > 0 {
		p.tail += " GROUP BY " + hiddenNames(len(q.groups))
	}
	if rows, ok := q.limit.needed(); ok && !q.folded {
		p.outer = p.orderBy() + " LIMIT " + strconv.Itoa(rows)
		p.tail += p.outer
		p.derived = d == SQLite
	}
	return p, nil
}

func (p *plan) orderBy() string {
	var by []string
	for i, o := range p.query.orders {
		name := hiddenName(i)
		if o.desc {
			name += " DESC"
		}
		by = append(by, name)
	}
	if by == nil {
		return ""
	}
	return " ORDER BY " + strings.Join(by, ", ")
}

// hiddenCells are the sort keys of a plain query and the group keys of a folded
// one, which sorts by merged values.
func (p *plan) hiddenCells() ([]string, error) {
	var cells []string
	for _, g := range p.query.groups {
		cell, err := p.dialect.sql(g.expr)
		if err != nil {
			return nil, err
		}
		cells = append(cells, cell)
	}
	if p.query.folded {
		return cells, nil
	}
	for _, o := range p.query.orders {
		cell, err := p.dialect.sortable(o.expr)
		if err != nil {
			return nil, err
		}
		cells = append(cells, cell)
	}
	return cells, nil
}

func (p *plan) itemCells() ([]string, error) {
	var all []string
	for _, it := range p.query.items {
		cells, start, err := p.itemCell(it)
		if err != nil {
			return nil, err
		}
		p.folds = append(p.folds, fold{cells: len(cells), start: start})
		all = append(all, cells...)
	}
	return all, nil
}

// itemCell is the SQL of one select item, and what merges its cells.
func (p *plan) itemCell(it item) ([]string, func() folder, error) {
	if it.call == none {
		cell, err := p.dialect.sql(it.expr)
		if it.alias != "" {
			cell += " AS " + quoteName(it.alias)
		}
		return []string{cell}, func() folder { return &firstFold{} }, err
	}
	arg, err := p.dialect.sql(it.arg)
	if err != nil {
		return nil, nil, err
	}
	signed := p.dialect == SQLite && idColumns[plainColumn(it.arg)]
	if signed {
		switch it.call {
		case minOf, maxOf:
			cell := string(it.call) + "(" + flipped(arg) + ")"
			return []string{cell}, func() folder { return &flipFold{extremeFold{most: it.call == maxOf}} }, nil
		case sum, avg:
			// Two sums of 32 bits each cannot overflow.
			cells := []string{"SUM((" + arg + " >> 32) & 0xFFFFFFFF)", "SUM(" + arg + " & 0xFFFFFFFF)", "COUNT(" + arg + ")"}
			return cells, func() folder { return &halvesFold{mean: it.call == avg} }, nil
		}
	}
	switch it.call {
	case count:
		return []string{"COUNT(" + arg + ")"}, func() folder { return &countFold{} }, nil
	case sum:
		return []string{"SUM(" + arg + ")"}, func() folder { return &sumFold{} }, nil
	case avg:
		inexact := p.dialect == SQLite
		return []string{"SUM(" + arg + ")", "COUNT(" + arg + ")"}, func() folder { return &meanFold{inexact: inexact} }, nil
	default:
		cell := string(it.call) + "(" + arg + ")"
		return []string{cell}, func() folder { return &extremeFold{most: it.call == maxOf} }, nil
	}
}

// statement is one SELECT over several tables.
func (p *plan) statement(tables []string) string {
	var b strings.Builder
	for i, name := range tables {
		if i > 0 {
			b.WriteString(p.union)
		}
		open, end := "", ""
		switch {
		case p.derived:
			open, end = "SELECT * FROM (", ")"
		case p.dialect == MySQL:
			open, end = "(", ")"
		}
		b.WriteString(open + p.head + quoteName(name) + p.tail + end)
	}
	if len(tables) > 1 {
		b.WriteString(p.outer)
	}
	return b.String()
}

// tablesPerStatement keeps a statement over many tables within the limits of
// the databases: 500 terms in SQLite, a packet of a few MiB in MySQL.
func (p *plan) tablesPerStatement() int {
	const terms, bytes = 64, 512 << 10
	return max(1, min(terms, bytes/(len(p.head)+len(p.tail)+64)))
}

func hiddenName(i int) string { return hidden + strconv.Itoa(i) }

func hiddenNames(n int) string {
	names := make([]string, n)
	for i := range names {
		names[i] = hiddenName(i)
	}
	return strings.Join(names, ", ")
}
