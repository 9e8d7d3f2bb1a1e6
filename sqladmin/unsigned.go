package sqladmin

import (
	"fmt"
	"strconv"
)

// SQLite has no unsigned 64-bit integer: there an id of 2^63 or more is stored as
// the negative number of the same bits. What follows lets a query speak of ids
// as if they were unsigned.

const signBit = 1 << 63

// flipped is SQL for expr with its sign bit turned over: signed order of the
// result is unsigned order of expr. (SQLite has no xor, and a sum could overflow.)
func flipped(expr string) string {
	return "((" + expr + " | 0x8000000000000000) - (" + expr + " & 0x8000000000000000))"
}

// unsigned rewrites tokens for SQLite: a comparison of an id column with a
// literal compares unsigned, any other literal of 2^63 or more becomes the
// integer of the same bits.
func unsigned(tokens []token) ([]token, error) {
	var out []token
	for i := 0; i < len(tokens); {
		if rewritten, n := unsignedRange(tokens, i); n > 0 {
			rewritten[0].space = true
			out = append(out, rewritten...)
			i += n
			continue
		}
		t := tokens[i]
		if v, ok := literal(t); ok && v >= signBit {
			if reach(at(tokens, i-1)) || reach(at(tokens, i+1)) || at(tokens, i-1).is("AND") {
				return nil, refused(t, "a number above 9223372036854775807 can be used in SQLite only as the value of job_id, biz_id or biz_type", "compare the plain column with it: =, <, >, IN or BETWEEN")
			}
			t = token{kind: verbatim, raw: fmt.Sprintf("0x%X", v), space: t.space}
		}
		out = append(out, t)
		i++
	}
	return out, nil
}

// unsignedRange rewrites "column < literal", "literal < column" and "column
// [NOT] BETWEEN literal AND literal" at i; n is the number of tokens it replaces.
func unsignedRange(tokens []token, i int) (rewritten []token, n int) {
	if !borders(at(tokens, i-1)) {
		return nil, 0
	}
	p := pattern{tokens: tokens, pos: i}
	switch {
	case p.column() && p.operator(rangeOperators...) && p.literal():
	case p.from(i) && p.literal() && p.operator(rangeOperators...) && p.column():
	case p.from(i) && p.column() && p.optional("NOT") && p.keyword("BETWEEN") && p.literal() && p.keyword("AND") && p.literal():
	default:
		return nil, 0
	}
	if !borders(at(tokens, p.pos)) {
		return nil, 0
	}
	return p.out, p.pos - i
}

// pattern matches tokens one after another and gathers what replaces them.
type pattern struct {
	tokens []token
	pos    int
	out    []token
}

func (p *pattern) from(pos int) bool {
	p.pos, p.out = pos, nil
	return true
}

func (p *pattern) put(sql string, n int) bool {
	p.out = append(p.out, token{kind: verbatim, raw: sql, space: true})
	p.pos += n
	return true
}

func (p *pattern) column() bool {
	n := 1
	for at(p.tokens, p.pos+n).isOp(".") {
		n += 2
	}
	if p.pos+n > len(p.tokens) {
		return false
	}
	expr := p.tokens[p.pos : p.pos+n]
	return idColumns[plainColumn(expr)] && p.put(flipped(render(expr)), n)
}

func (p *pattern) literal() bool {
	v, ok := literal(at(p.tokens, p.pos))
	return ok && p.put(fmt.Sprintf("0x%X", v^signBit), 1)
}

func (p *pattern) operator(any ...string) bool {
	t := at(p.tokens, p.pos)
	for _, o := range any {
		if t.isOp(o) {
			return p.put(o, 1)
		}
	}
	return false
}

func (p *pattern) keyword(w string) bool {
	return at(p.tokens, p.pos).is(w) && p.put(w, 1)
}

func (p *pattern) optional(w string) bool {
	p.keyword(w)
	return true
}

var rangeOperators = []string{"<", "<=", ">", ">="}

// borders tells whether a comparison ends at the token: nothing there binds
// tighter.
func borders(t token) bool {
	switch t.kind {
	case verbatim: // the end
		return t.raw == ""
	case op:
		return t.raw == "(" || t.raw == ")" || t.raw == ","
	case word:
		switch t.value {
		case "AND", "OR", "NOT", "CASE", "WHEN", "THEN", "ELSE", "END", "AS":
			return true
		}
	}
	return false
}

// reach tells whether the token would calculate or compare with the number
// beside it.
func reach(t token) bool {
	if t.kind == op {
		switch t.raw {
		case "+", "-", "*", "/", "%", "<", "<=", ">", ">=", "<<", ">>":
			return true
		}
	}
	return t.is("BETWEEN")
}

// literal is the value of a whole number that fits 64 bits.
func literal(t token) (uint64, bool) {
	if t.kind != number {
		return 0, false
	}
	v, err := strconv.ParseUint(t.raw, 10, 64)
	return v, err == nil
}
