package sqladmin

import (
	"fmt"
	"strconv"
	"strings"
)

// hidden begins every name that the plan adds to a query.
const hidden = "toc__"

// clause numbers the parts of a SELECT in the order in which they must stand.
type clause int

const (
	selectList clause = iota
	fromClause
	whereClause
	groupClause
	orderClause
	limitClause
	clauses // how many there are
)

// Parse reads one SELECT from timeout_task. What cannot be run over all shards
// with an exact answer is refused with a *SyntaxError.
func Parse(query string) (*Query, error) {
	tokens, err := tokenize(query)
	if err != nil {
		return nil, err
	}
	if n := len(tokens); n > 0 && tokens[n-1].isOp(";") {
		tokens = tokens[:n-1]
	}
	if len(tokens) == 0 {
		return nil, &SyntaxError{Problem: "there is no query", Instead: "write SELECT ... FROM timeout_task"}
	}
	if !tokens[0].is("SELECT") {
		return nil, refused(tokens[0], "only SELECT is run over the shards", "write SELECT ... FROM timeout_task, without parentheses around it")
	}
	if err := refuse(tokens[1:]); err != nil {
		return nil, err
	}
	parts, err := cut(tokens[1:])
	if err != nil {
		return nil, err
	}
	q := &Query{where: parts[whereClause]}
	list := parts[selectList]
	if len(list) > 0 && (list[0].is("DISTINCT") || list[0].is("ALL")) {
		q.distinct = list[0].is("DISTINCT")
		list = list[1:]
	}
	if err := q.parseItems(query, list); err != nil {
		return nil, err
	}
	if err := q.parseFrom(parts[fromClause]); err != nil {
		return nil, err
	}
	if err := refuseAggregates(q.where, "an aggregate cannot stand in WHERE", "WHERE sees single rows"); err != nil {
		return nil, err
	}
	if err := q.parseGroups(parts[groupClause]); err != nil {
		return nil, err
	}
	if err := q.parseOrders(parts[orderClause]); err != nil {
		return nil, err
	}
	if err := q.parseLimit(parts[limitClause]); err != nil {
		return nil, err
	}
	if err := q.checkFolded(); err != nil {
		return nil, err
	}
	return q, nil
}

// cut divides what follows SELECT into its clauses. A clause that is not there
// is nil, one that is empty is an error.
func cut(tokens []token) (parts [clauses][]token, err error) {
	current, start, depth := selectList, 0, 0
	end := func(upTo int) error {
		parts[current] = tokens[start:upTo]
		if upTo > start {
			return nil
		}
		if start == 0 {
			return &SyntaxError{Problem: "the select list is empty", Instead: "write SELECT * FROM timeout_task"}
		}
		return refused(tokens[start-1], "nothing follows "+tokens[start-1].value, "")
	}
	for i := 0; i < len(tokens); i++ {
		t := tokens[i]
		switch {
		case t.isOp("("):
			depth++
		case t.isOp(")"):
			depth--
		}
		if depth > 0 || t.kind != word || at(tokens, i-1).isOp(".") {
			continue
		}
		next, keywords := selectList, 1
		switch t.value {
		case "FROM": // not that of IS DISTINCT FROM
			if i < 2 || !tokens[i-1].is("DISTINCT") {
				next = fromClause
			}
		case "WHERE":
			next = whereClause
		case "GROUP":
			next, keywords = groupClause, 2
		case "ORDER":
			next, keywords = orderClause, 2
		case "LIMIT":
			next = limitClause
		}
		if next == selectList {
			continue
		}
		if keywords == 2 && !at(tokens, i+1).is("BY") {
			return parts, refused(t, t.value+" must be followed by BY", "")
		}
		if next <= current {
			return parts, refused(t, t.value+" stands in the wrong place, or twice", "the order is SELECT, FROM, WHERE, GROUP BY, ORDER BY, LIMIT")
		}
		if err := end(i); err != nil {
			return parts, err
		}
		i += keywords - 1
		current, start = next, i+1
	}
	if err := end(len(tokens)); err != nil {
		return parts, err
	}
	if parts[fromClause] == nil {
		return parts, &SyntaxError{Problem: "the query has no FROM", Instead: "write SELECT ... FROM timeout_task"}
	}
	return parts, nil
}

func (q *Query) parseFrom(tokens []token) error {
	first := tokens[0]
	if !first.isName() || !strings.EqualFold(first.name(), table) {
		return refused(first, "only timeout_task can be selected from", "write FROM timeout_task")
	}
	q.alias = first.name()
	rest := tokens[1:]
	if at(rest, 0).is("AS") {
		rest = rest[1:]
		if len(rest) == 0 {
			return refused(tokens[1], "AS must be followed by a name", "")
		}
	}
	switch {
	case len(rest) == 0:
		return nil
	case rest[0].isOp(","):
		return refused(rest[0], "joins are not supported over shards", "select from timeout_task alone")
	case rest[0].isOp("."):
		return refused(rest[0], "the databases are chosen by toc sql", "write FROM timeout_task")
	case len(rest) == 1 && rest[0].isName():
		q.alias = rest[0].name()
		return nil
	case rest[0].isName() && at(rest, 1).isOp(","):
		return refused(rest[1], "joins are not supported over shards", "select from timeout_task alone")
	}
	return refused(rest[0], "only an alias may follow timeout_task", "leave out index hints, partitions and other tables")
}

func (q *Query) parseOrders(tokens []token) error {
	if tokens == nil {
		return nil
	}
	if err := refuseCollation(tokens); err != nil {
		return err
	}
	for _, expr := range split(tokens) {
		var o order
		if n := len(expr); n > 0 && (expr[n-1].is("ASC") || expr[n-1].is("DESC")) {
			o.desc = expr[n-1].is("DESC")
			expr = expr[:n-1]
		}
		if len(expr) == 0 {
			return refused(tokens[0], "ORDER BY has an empty entry", "")
		}
		if n := len(expr); n > 1 && expr[n-2].is("NULLS") {
			return refused(expr[n-2], "NULLS FIRST and NULLS LAST are not supported", "NULL is the smallest value: choose ASC or DESC")
		}
		var err error
		if o.expr, _, err = q.resolve(expr, "ORDER BY"); err != nil {
			return err
		}
		q.orders = append(q.orders, o)
	}
	return nil
}

func (q *Query) parseGroups(tokens []token) error {
	if tokens == nil {
		return nil
	}
	if err := refuseCollation(tokens); err != nil {
		return err
	}
	q.folded = true
	for _, expr := range split(tokens) {
		if len(expr) == 0 {
			return refused(tokens[0], "GROUP BY has an empty entry", "")
		}
		if last := expr[len(expr)-1]; last.is("ASC") || last.is("DESC") {
			return refused(last, "GROUP BY does not sort", "add ORDER BY")
		}
		expr, byName, err := q.resolve(expr, "GROUP BY")
		if err != nil {
			return err
		}
		if err := refuseAggregates(expr, "an aggregate cannot stand in GROUP BY", "group by columns"); err != nil {
			return err
		}
		column := plainColumn(expr)
		if byName != "" && columns[byName] && column != byName {
			return refused(tokens[0], fmt.Sprintf("%s is both a column and an alias", byName), "choose another alias")
		}
		q.groups = append(q.groups, group{expr: expr, column: column})
	}
	return nil
}

// resolve replaces an alias or an ordinal of the select list by its expression.
// alias is the lower-case alias that was replaced, "" otherwise.
func (q *Query) resolve(expr []token, by string) (_ []token, alias string, err error) {
	first := expr[0]
	if len(expr) == 1 {
		switch first.kind {
		case text:
			return nil, "", refused(first, by+" a string does nothing", "write the column's name without quotes, or in `backticks`")
		case number:
			return q.ordinal(first, by)
		}
		if first.isName() {
			found := 0
			for _, it := range q.items {
				if strings.EqualFold(it.alias, first.name()) {
					expr, alias = it.expr, strings.ToLower(it.alias)
					found++
				}
			}
			if found > 1 {
				return nil, "", refused(first, "this is the alias of several columns", "give each its own")
			}
			if found == 1 {
				err = refuseUnstable(expr, by)
			}
			return expr, alias, err
		}
	}
	for i, t := range expr {
		if !t.isName() || at(expr, i-1).isOp(".") || at(expr, i+1).isOp(".") || at(expr, i+1).isOp("(") {
			continue
		}
		for _, it := range q.items {
			if strings.EqualFold(it.alias, t.name()) && plainColumn(it.expr) != strings.ToLower(it.alias) {
				return nil, "", refused(t, fmt.Sprintf("%s by an expression of an alias is not supported", by), "write out what "+it.alias+" stands for")
			}
		}
	}
	return expr, "", nil
}

func (q *Query) ordinal(t token, by string) ([]token, string, error) {
	n, err := strconv.Atoi(t.raw)
	if err != nil || n < 1 || n > len(q.items) {
		return nil, "", refused(t, fmt.Sprintf("%s: there is no such column; the select list has %d", by, len(q.items)), "")
	}
	for _, it := range q.items {
		if it.star {
			return nil, "", refused(t, "a column's number cannot be used with *", "write the column's name")
		}
	}
	return q.items[n-1].expr, "", refuseUnstable(q.items[n-1].expr, by)
}
