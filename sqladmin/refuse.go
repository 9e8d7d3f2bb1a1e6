package sqladmin

import "strings"

type refusal struct{ problem, instead string }

// refusedWords may not stand anywhere in a query, at any depth.
var refusedWords = map[string]refusal{
	"SELECT":        {"sub-selects are not supported over shards", "run the inner SELECT first and write its answer into this one"},
	"UNION":         {"UNION is not supported over shards", "run one SELECT at a time"},
	"EXCEPT":        {"EXCEPT is not supported over shards", "run one SELECT at a time"},
	"INTERSECT":     {"INTERSECT is not supported over shards", "run one SELECT at a time"},
	"JOIN":          {"joins are not supported over shards", "select from timeout_task alone"},
	"STRAIGHT_JOIN": {"joins are not supported over shards", "select from timeout_task alone"},
	"LATERAL":       {"joins are not supported over shards", "select from timeout_task alone"},
	"WITH":          {"WITH is not supported over shards", "leave out WITH ROLLUP or the common table expression"},
	"HAVING":        {"HAVING is not supported over shards", "leave it out and read the groups you want, or ORDER BY the aggregate with a LIMIT"},
	"OVER":          {"window functions are not supported over shards", "use ORDER BY and LIMIT, or GROUP BY"},
	"WINDOW":        {"window functions are not supported over shards", "use ORDER BY and LIMIT, or GROUP BY"},
	"QUALIFY":       {"window functions are not supported over shards", "use ORDER BY and LIMIT, or GROUP BY"},
	"INTO":          {"SELECT ... INTO is not allowed", "redirect the output of toc sql instead"},
	"PROCEDURE":     {"PROCEDURE is not allowed", "leave it out"},
	"RETURNING":     {"RETURNING is not allowed", "leave it out"},
	"TABLE":         {"TABLE is not supported over shards", "write SELECT ... FROM timeout_task"},
	"VALUES":        {"VALUES is not supported over shards", "write the values as IN (1, 2, 3)"},
	"DISTINCTROW":   {"DISTINCTROW is not supported", "write DISTINCT"},
	"NEXTVAL":       {"sequences are not allowed: reading one changes it", ""},
	"LASTVAL":       {"sequences are not allowed", ""},
	"SETVAL":        {"sequences are not allowed: this changes one", ""},
}

// refusedAtTop may not stand outside parentheses; inside they are part of
// expressions such as SUBSTRING(attribute FROM 1 FOR 8).
var refusedAtTop = map[string]refusal{
	"FOR":                 {"locking reads are not allowed", "leave out FOR UPDATE and FOR SHARE: a query here only reads"},
	"LOCK":                {"locking reads are not allowed", "leave out LOCK IN SHARE MODE: a query here only reads"},
	"FETCH":               {"FETCH is not supported", "write LIMIT n"},
	"HIGH_PRIORITY":       {"SELECT modifiers are not supported", "only DISTINCT and ALL may follow SELECT"},
	"SQL_BIG_RESULT":      {"SELECT modifiers are not supported", "only DISTINCT and ALL may follow SELECT"},
	"SQL_BUFFER_RESULT":   {"SELECT modifiers are not supported", "only DISTINCT and ALL may follow SELECT"},
	"SQL_CACHE":           {"SELECT modifiers are not supported", "only DISTINCT and ALL may follow SELECT"},
	"SQL_CALC_FOUND_ROWS": {"SELECT modifiers are not supported", "only DISTINCT and ALL may follow SELECT"},
	"SQL_NO_CACHE":        {"SELECT modifiers are not supported", "only DISTINCT and ALL may follow SELECT"},
	"SQL_SMALL_RESULT":    {"SELECT modifiers are not supported", "only DISTINCT and ALL may follow SELECT"},
}

// refusedFunctions act, wait, or read and write files; the last few tell about
// the statement before, which over shards is no one's.
var refusedFunctions = words(`
	get_lock release_lock release_all_locks is_used_lock is_free_lock
	sleep benchmark load_file sys_exec sys_eval
	master_pos_wait source_pos_wait master_gtid_wait wait_for_executed_gtid_set
	wait_until_sql_thread_after_gtids service_get_read_locks service_get_write_locks service_release_locks
	load_extension writefile readfile edit eval fts3_tokenizer
	last_insert_id found_rows row_count changes total_changes last_insert_rowid`)

// unstableFunctions answer anew every time they are called.
var unstableFunctions = words(`rand random randomblob uuid uuid_short sys_guid`)

// aggregateFunctions fold many rows into one in MySQL, MariaDB or SQLite. Those
// that are no aggregate of ours are refused.
var aggregateFunctions = words(`
	count sum avg min max total median percentile percentile_cont percentile_disc
	group_concat string_agg any_value bit_and bit_or bit_xor
	std stddev stddev_pop stddev_samp variance var_pop var_samp
	json_arrayagg json_objectagg json_group_array json_group_object jsonb_group_array jsonb_group_object`)

func words(list string) map[string]bool {
	set := map[string]bool{}
	for _, w := range strings.Fields(list) {
		set[w] = true
	}
	return set
}

// refuse looks at every token after the first SELECT for what a query over
// shards, or any query that only reads, cannot have.
func refuse(tokens []token) error {
	depth := 0
	for i, t := range tokens {
		previous, next := at(tokens, i-1), at(tokens, i+1)
		switch {
		case t.isOp("("):
			depth++
		case t.isOp(")"):
			if depth--; depth < 0 {
				return refused(t, "this parenthesis closes nothing", "")
			}
		case t.isOp(";"):
			return refused(t, "only one statement is run at a time", "write one SELECT")
		case t.kind == text && previous.kind == text && i > 0:
			return refused(t, "two strings side by side are read differently by MySQL and SQLite", "write one string, or CONCAT('a', 'b')")
		case t.isName() && strings.HasPrefix(strings.ToLower(t.name()), hidden):
			return refused(t, "names that begin with "+hidden+" are taken", "choose another name")
		case t.isName() && next.isOp("("):
			if err := refuseCall(t); err != nil {
				return err
			}
		}
		if t.kind != word {
			continue
		}
		if r, ok := refusedWords[t.value]; ok {
			return refused(t, r.problem, r.instead)
		}
		if r, ok := refusedAtTop[t.value]; ok && depth == 0 && !previous.isOp(".") {
			return refused(t, r.problem, r.instead)
		}
		if t.is("IN") && !next.isOp("(") {
			return refused(t, "IN must be followed by a list", "write IN (1, 2, 3)")
		}
		if t.is("VALUE") && (previous.is("NEXT") || previous.is("PREVIOUS")) {
			return refused(t, "sequences are not allowed", "")
		}
	}
	if depth > 0 {
		return &SyntaxError{Problem: "a parenthesis is never closed", Instead: "end it with )"}
	}
	return nil
}

func refuseCall(t token) error {
	name := strings.ToLower(t.name())
	if strings.ContainsFunc(name, func(r rune) bool { return r > 127 }) {
		// MySQL looks functions up without regard to accents.
		return refused(t, "there is no function of this name", "")
	}
	if refusedFunctions[name] {
		return refused(t, t.name()+"() is not allowed in a query that only reads the task table", "leave it out")
	}
	return nil
}

// refuseAggregates is for places where a shard cannot know the answer.
func refuseAggregates(tokens []token, problem, instead string) error {
	for i, t := range tokens {
		if isAggregateCall(tokens, i) {
			return refused(t, problem, instead)
		}
	}
	return nil
}

// isAggregateCall tells whether an aggregate's name and argument begin at i.
// MIN and MAX of two values are SQLite's scalar functions.
func isAggregateCall(tokens []token, i int) bool {
	if !tokens[i].isName() || !at(tokens, i+1).isOp("(") {
		return false
	}
	name := strings.ToLower(tokens[i].name())
	if name == "min" || name == "max" {
		end := closing(tokens, i+1)
		return len(split(tokens[i+2:end])) == 1
	}
	return aggregateFunctions[name]
}

// refuseUnstable is for an expression that a shard evaluates once to show and
// once to sort or group by.
func refuseUnstable(tokens []token, by string) error {
	for i, t := range tokens {
		if t.isName() && at(tokens, i+1).isOp("(") && unstableFunctions[strings.ToLower(t.name())] {
			return refused(t, by+" a column that is random is not supported over shards", "ORDER BY "+t.name()+"() itself shuffles the rows")
		}
	}
	return nil
}

// refuseCollation keeps comparisons in the one order that the merge knows.
// WHERE is free of it: there the database compares.
func refuseCollation(tokens []token) error {
	for _, t := range tokens {
		switch {
		case t.is("COLLATE"), t.is("USING"), t.is("CHARSET"), t.is("CHARACTER"):
			return refused(t, "another collation or character set is supported only in WHERE", "compare LOWER(x) or use the column as it is")
		}
	}
	return nil
}
