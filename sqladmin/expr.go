package sqladmin

import "strings"

// at is the token at i, or a token that is nothing where there is none.
func at(tokens []token, i int) token {
	if i < 0 || i >= len(tokens) {
		return token{kind: verbatim}
	}
	return tokens[i]
}

// split cuts at the commas outside of parentheses.
func split(tokens []token) [][]token {
	var parts [][]token
	start, depth := 0, 0
	for i, t := range tokens {
		switch {
		case t.isOp("("):
			depth++
		case t.isOp(")"):
			depth--
		case t.isOp(",") && depth == 0:
			parts = append(parts, tokens[start:i])
			start = i + 1
		}
	}
	return append(parts, tokens[start:])
}

// closing is the index of the parenthesis that closes the one at open.
func closing(tokens []token, open int) int {
	depth := 0
	for i := open; i < len(tokens); i++ {
		switch {
		case tokens[i].isOp("("):
			depth++
		case tokens[i].isOp(")"):
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return len(tokens)
}

func unqualified(expr []token) []token {
	for len(expr) > 2 && expr[0].isName() && expr[1].isOp(".") {
		expr = expr[2:]
	}
	return expr
}

// isStar tells whether a select item is * or t.*.
func isStar(expr []token) bool {
	expr = unqualified(expr)
	return len(expr) == 1 && expr[0].isOp("*")
}

// plainColumn is the lower-case name of the column when the expression is
// nothing but a column, qualified or not.
func plainColumn(expr []token) string {
	expr = unqualified(expr)
	if len(expr) != 1 || !expr[0].isName() {
		return ""
	}
	if t := expr[0]; t.kind == word && wordsOfExpressions[strings.ToLower(t.raw)] {
		return ""
	}
	return strings.ToLower(expr[0].name())
}

// canonical is the same for expressions that differ only in spaces, case,
// quoting of names and qualifiers.
func canonical(expr []token) string {
	var b strings.Builder
	for i, t := range expr {
		next := at(expr, i+1)
		switch {
		case t.isName() && next.isOp("."), t.isOp(".") && at(expr, i-1).isName():
			continue
		case t.isName():
			b.WriteString(strings.ToLower(t.name()))
		default:
			b.WriteString(t.sql())
		}
		b.WriteByte(' ')
	}
	return b.String()
}

// render writes tokens as SQL: one space wherever there was white space or a
// comment, strings in single quotes.
func render(tokens []token) string {
	var b strings.Builder
	for i, t := range tokens {
		if t.space && i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(t.sql())
	}
	return b.String()
}
