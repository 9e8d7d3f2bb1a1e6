package rest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
)

// check returns an error that says what is wrong with the syntax of a JSON text.
// Everything else in this file relies on it.
func check(text []byte) error {
	if json.Valid(text) {
		return nil
	}
	var whole json.RawMessage
	var syntax *json.SyntaxError
	if err := json.Unmarshal(text, &whole); errors.As(err, &syntax) {
		return fmt.Errorf("is not JSON: %s, at byte %d", syntax, syntax.Offset)
	}
	return errors.New("is not JSON")
}

// members walks over the values of a JSON object, with their names unescaped, or over those of
// an array, whose names are empty.
func members(text []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		for i := next(text, 1); i < len(text)-1; i = next(text, i) {
			var name []byte
			end := valueEnd(text, i)
			if text[0] == '{' {
				name = unescapeName(text[i:end])
				i = next(text, end)
				end = valueEnd(text, i)
			}
			if !yield(name, text[i:end]) {
				return
			}
			i = end
		}
	}
}

// next is where the next value, or the closing bracket, begins.
func next(text []byte, i int) int {
	for text[i] == ' ' || text[i] == '\t' || text[i] == '\n' || text[i] == '\r' || text[i] == ',' || text[i] == ':' {
		i++
	}
	return i
}

// valueEnd is where the value that begins at i ends.
func valueEnd(text []byte, i int) int {
	switch text[i] {
	case '"':
		return stringEnd(text, i)
	case '{', '[':
		for depth := 0; ; i++ {
			switch text[i] {
			case '"':
				i = stringEnd(text, i) - 1
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
		}
	}
	for ; i < len(text); i++ {
		switch text[i] {
		case ' ', '\t', '\n', '\r', ',', '}', ']':
			return i
		}
	}
	return i
}

func stringEnd(text []byte, i int) int {
	for i++; text[i] != '"'; i++ {
		if text[i] == '\\' {
			i++
		}
	}
	return i + 1
}

// unescapeName gives the text of a quoted name. One that is no text stays as it
// is, and so is no field's name.
func unescapeName(quoted []byte) []byte {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return quoted[1 : len(quoted)-1]
	}
	if name, err := unquote(quoted); err == nil {
		return []byte(name)
	}
	return quoted
}
