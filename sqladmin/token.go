package sqladmin

import "strings"

type tokenKind uint8

const (
	word     tokenKind = iota // bare name or keyword
	quoted                    // `name`
	text                      // 'string' or "string"
	hex                       // x'0A'
	number                    // 42, 1.5e3, 0xFF
	op                        // operators, parentheses, comma, point, semicolon
	verbatim                  // SQL made by the plan, never by the tokenizer
)

type token struct {
	kind   tokenKind
	raw    string // as the user wrote it
	value  string // word: upper case; quoted, text: what is between the quotes; else raw
	offset int    // byte offset of raw in the query
	space  bool   // white space or a comment stands before it
}

func (t token) is(keyword string) bool { return t.kind == word && t.value == keyword }
func (t token) isOp(s string) bool     { return t.kind == op && t.raw == s }
func (t token) isName() bool           { return t.kind == word || t.kind == quoted }

// name is the identifier that the token spells.
func (t token) name() string {
	if t.kind == quoted {
		return t.value
	}
	return t.raw
}

// sql is the token as both databases read it alike.
func (t token) sql() string {
	switch t.kind {
	case text:
		return "'" + strings.ReplaceAll(t.value, "'", "''") + "'"
	case quoted:
		return quoteName(t.value)
	default:
		return t.raw
	}
}

func quoteName(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }
