package sqltable

import (
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// query is a text that holds one SELECT and nothing else.
type query struct {
	sql      string
	collates bool // it says how to compare texts
}

// tokens of SQLite: strings, quoted names, comments, words and numbers, single characters.
var tokens = regexp.MustCompile(`(?s)'(?:[^']|'')*'|"(?:[^"]|"")*"|` + "`(?:[^`]|``)*`" +
	`|\[[^\]]*\]|--[^\n]*|/\*.*?(?:\*/|$)|[\w$.\x{80}-\x{10FFFF}]+|\S`)

// parse rejects a text that is not one SELECT. It replaces literals of 2^63 and more
// by the form in which the tables hold them. SQLite reports the other errors.
func parse(text string) (query, error) {
	var q query
	var sql strings.Builder
	first, ended, copied := true, false, 0
	for _, at := range tokens.FindAllStringIndex(text, -1) {
		token := text[at[0]:at[1]]
		if strings.HasPrefix(token, "--") || strings.HasPrefix(token, "/*") {
			continue
		}
		word := strings.ToUpper(token)
		if ended {
			return q, refused(token, "a second statement")
		}
		if first && word != "SELECT" && word != "WITH" {
			return q, refused(token, "not a SELECT")
		}
		first = false
		switch word {
		case ";":
			ended = true
		case "INSERT", "UPDATE", "DELETE", "INTO": // all reserved: they are no names
			return q, refused(token, "a statement that writes")
		case "?", ":", "@":
			return q, fmt.Errorf("near %q: there are no parameters; write the value itself", token)
		case "COLLATE":
			q.collates = true
		}
		if v, err := strconv.ParseUint(token, 10, 64); err == nil && v >= signBit {
			fmt.Fprintf(&sql, "%sx'%x'", text[copied:at[0]], unsignedValue(v))
			copied = at[1]
		}
	}
	if first {
		return q, errors.New("the query is empty; give one SELECT")
	}
	q.sql = sql.String() + text[copied:]
	return q, nil
}

func refused(token, problem string) error {
	return fmt.Errorf("near %.40q: %s; give one SELECT, or one WITH … SELECT", token, problem)
}

var wideLiteral = regexp.MustCompile(`x'((?:3\d){20})'`)

// readable turns the literals that parse has changed back.
func readable(sql string) string {
	return wideLiteral.ReplaceAllStringFunc(sql, func(literal string) string {
		digits, _ := hex.DecodeString(literal[2 : len(literal)-1]) // the pattern holds hexadecimal digits only
		return strings.TrimLeft(string(digits), "0")
	})
}
