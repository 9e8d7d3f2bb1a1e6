package sqladmin

import "strings"

func (q *Query) parseItems(query string, tokens []token) error {
	if len(tokens) == 0 {
		return &SyntaxError{Problem: "the select list is empty", Instead: "write SELECT * FROM timeout_task"}
	}
	if err := refuseCollation(tokens); err != nil {
		return err
	}
	for _, written := range split(tokens) {
		if len(written) == 0 {
			return refused(tokens[0], "the select list has an empty entry", "")
		}
		it, err := parseItem(query, written)
		if err != nil {
			return err
		}
		q.folded = q.folded || it.call != none
		q.items = append(q.items, it)
	}
	return nil
}

func parseItem(query string, written []token) (item, error) {
	expr, alias, err := splitAlias(written)
	if err != nil {
		return item{}, err
	}
	last := written[len(written)-1]
	it := item{expr: expr, alias: alias, label: alias, column: plainColumn(expr)}
	if alias == "" {
		it.label = query[written[0].offset : last.offset+len(last.raw)]
	}
	if isStar(expr) {
		if alias != "" {
			return item{}, refused(last, "* cannot have an alias", "name the columns")
		}
		it.star = true
		return it, nil
	}
	if isAggregateCall(expr, 0) && closing(expr, 1) == len(expr)-1 {
		it.call, it.arg, err = parseAggregate(expr)
		return it, err
	}
	return it, refuseAggregates(expr, "an expression over an aggregate is not supported over shards", "select the aggregate alone and calculate with the answer")
}

// parseAggregate reads a select item that is one call of an aggregate.
func parseAggregate(expr []token) (aggregate, []token, error) {
	call := aggregate(strings.ToUpper(expr[0].name()))
	arg := expr[2 : len(expr)-1]
	switch call {
	case count, sum, avg, minOf, maxOf:
	default:
		return none, nil, refused(expr[0], string(call)+" cannot be merged over shards", "COUNT, SUM, AVG, MIN and MAX can")
	}
	if len(arg) == 0 {
		return none, nil, refused(expr[0], string(call)+" needs an argument", "")
	}
	if arg[0].is("DISTINCT") && call != minOf && call != maxOf {
		return none, nil, refused(arg[0], string(call)+"(DISTINCT ...) cannot be merged over shards", "select the values with SELECT DISTINCT; the result says how many rows it has")
	}
	if len(arg) > 1 && (arg[0].is("DISTINCT") || arg[0].is("ALL")) {
		arg = arg[1:]
	}
	return call, arg, refuseAggregates(arg, "an aggregate of an aggregate is not possible", "")
}

// checkFolded makes sure that a merged row has one answer in every column: an
// aggregate, or a value that is the same in all rows of its group.
func (q *Query) checkFolded() error {
	if !q.folded {
		return q.checkDistinct()
	}
	if q.distinct {
		return &SyntaxError{Problem: "DISTINCT with aggregates or GROUP BY is not supported over shards", Instead: "leave out DISTINCT"}
	}
	for _, it := range q.items {
		if it.call == none && (it.star || !q.fixedInGroup(it.expr)) {
			return refused(it.expr[0], "this is not the same in all rows that are merged into one", "GROUP BY it, or use MIN or MAX of it")
		}
	}
	for i := range q.orders {
		place := q.place(q.orders[i].expr)
		if place < 0 {
			return refused(q.orders[i].expr[0], "with aggregates or GROUP BY, ORDER BY takes output columns and group columns only", "add it to the select list")
		}
		q.orders[i].place = place
	}
	return nil
}

// checkDistinct refuses to order distinct rows by what is not in them.
func (q *Query) checkDistinct() error {
	star := false
	for _, it := range q.items {
		star = star || it.star
	}
	for _, o := range q.orders {
		if err := refuseAggregates(o.expr, "ORDER BY an aggregate needs it in the select list", ""); err != nil {
			return err
		}
		if q.distinct && q.place(o.expr) < 0 && !(star && plainColumn(o.expr) != "") {
			return refused(o.expr[0], "with DISTINCT, ORDER BY takes output columns only", "add it to the select list")
		}
	}
	return nil
}

// place finds an expression among the output columns and then the groups; -1
// when it is in neither.
func (q *Query) place(expr []token) int {
	wanted := canonical(expr)
	for i, it := range q.items {
		if !it.star && canonical(it.expr) == wanted {
			return i
		}
	}
	for i, g := range q.groups {
		if canonical(g.expr) == wanted {
			return len(q.items) + i
		}
	}
	return -1
}

// fixedInGroup tells whether an expression has one value in each group: it is a
// group entry itself, or it names no columns but those that are grouped by.
func (q *Query) fixedInGroup(expr []token) bool {
	wanted := canonical(expr)
	grouped := map[string]bool{}
	for _, g := range q.groups {
		if canonical(g.expr) == wanted {
			return true
		}
		grouped[g.column] = true
	}
	for i, t := range expr {
		next := at(expr, i+1)
		switch {
		case !t.isName(), next.isOp("("), next.isOp("."):
		case t.kind == word && wordsOfExpressions[strings.ToLower(t.raw)] && !at(expr, i-1).isOp("."):
		case !grouped[strings.ToLower(t.name())]:
			return false
		}
	}
	return true
}

// splitAlias takes "expr AS name", "expr name" and "expr" apart.
func splitAlias(tokens []token) (expr []token, alias string, err error) {
	n := len(tokens)
	last, previous := tokens[n-1], at(tokens, n-2)
	aliasKind := last.isName() || last.kind == text
	switch {
	case n > 2 && previous.is("AS") && aliasKind:
		expr, alias = tokens[:n-2], last.name()
	case n > 1 && aliasKind && endsOperand(previous) && !endsExpression(tokens):
		expr, alias = tokens[:n-1], last.name()
	default:
		return tokens, "", firstAs(tokens)
	}
	if last.kind == text {
		alias = last.value
	}
	if alias == "" {
		return nil, "", refused(last, "an alias cannot be empty", "")
	}
	return expr, alias, firstAs(expr)
}

// firstAs refuses an AS that is left outside of parentheses.
func firstAs(tokens []token) error {
	depth := 0
	for _, t := range tokens {
		switch {
		case t.isOp("("):
			depth++
		case t.isOp(")"):
			depth--
		case t.is("AS") && depth == 0:
			return refused(t, "AS must be followed by one name", "write expression AS name")
		}
	}
	return nil
}

// endsOperand tells whether a value may end with the token, so that a name after
// it is an alias.
func endsOperand(t token) bool {
	switch t.kind {
	case op:
		return t.raw == ")"
	case word:
		return !operatorWords[strings.ToLower(t.raw)]
	}
	return true
}

// endsExpression tells whether the last token, although it could be a name,
// belongs to the expression before it.
func endsExpression(tokens []token) bool {
	last, previous := tokens[len(tokens)-1], tokens[len(tokens)-2]
	switch {
	case last.kind == text: // DATE '2025-01-01'
		return previous.is("DATE") || previous.is("TIME") || previous.is("TIMESTAMP")
	case last.kind != word:
		return false
	case intervalUnits[strings.ToLower(last.raw)]: // INTERVAL 1 DAY
		for _, t := range tokens {
			if t.is("INTERVAL") {
				return true
			}
		}
		return false
	}
	return endWords[strings.ToLower(last.raw)] || operatorWords[strings.ToLower(last.raw)]
}

var (
	operatorWords = words(`and or not xor div mod is in like ilike regexp rlike glob match between binary collate
		case when then else escape interval distinct all sounds as from`)
	endWords      = words(`end null true false unknown isnull notnull`)
	intervalUnits = words(`microsecond second minute hour day week month quarter year
		second_microsecond minute_microsecond minute_second hour_microsecond hour_second hour_minute
		day_microsecond day_second day_minute day_hour year_month`)
	castTypes = words(`signed unsigned integer int bigint char nchar decimal double float real numeric text blob date datetime time json`)
	constants = words(`current_date current_time current_timestamp localtime localtimestamp utc_date utc_time utc_timestamp both leading trailing for`)

	// wordsOfExpressions are no columns although they look like names.
	wordsOfExpressions = union(operatorWords, endWords, intervalUnits, castTypes, constants)
)

func union(sets ...map[string]bool) map[string]bool {
	all := map[string]bool{}
	for _, set := range sets {
		for w := range set {
			all[w] = true
		}
	}
	return all
}
