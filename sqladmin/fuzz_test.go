package sqladmin

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzParse: Parse never panics, and what it accepts is sent to the databases as
// one statement that reads two tables, whichever of them reads it.
func FuzzParse(f *testing.F) {
	for _, query := range ordered {
		f.Add(query)
	}
	for _, query := range unordered {
		f.Add(query)
	}
	for query := range refusals {
		f.Add(query)
	}
	f.Add("SELECT 'a\\\\', \"b'c\", `d``e`, x'00', biz_id > 18446744073709551615 FROM timeout_task -- x")
	f.Fuzz(func(t *testing.T, query string) {
		q, err := Parse(query)
		if err != nil {
			var bad *SyntaxError
			require.ErrorAs(t, err, &bad)
			require.NotEmpty(t, bad.Problem)
			require.LessOrEqual(t, bad.Offset, len(query))
			return
		}
		for _, d := range []Dialect{MySQL, SQLite} {
			p, err := q.plan(d)
			if err != nil {
				var bad *SyntaxError
				require.ErrorAs(t, err, &bad)
				continue
			}
			statement := p.statement([]string{"one", "two"})
			words, err := strip(statement, d)
			require.NoError(t, err, statement)
			selects := 2
			if p.derived {
				selects = 4
			}
			require.Equal(t, selects, countOf(words, "SELECT"), statement)
			require.Equal(t, 2, countOf(words, "FROM", "``", "AS", "``"), statement)
			require.Zero(t, countOf(words, "INTO"), statement)
			require.Zero(t, countOf(words, "FOR", "UPDATE"), statement)
		}
	})
}

// countOf counts where the sequence stands.
func countOf(words []string, sequence ...string) int {
	n := 0
	for i := range words {
		if i+len(sequence) <= len(words) && slices.Equal(words[i:i+len(sequence)], sequence) {
			n++
		}
	}
	return n
}

// strip cuts a statement by the lexical rules of one database, written down apart
// from the tokenizer, into upper-case words, single symbols and empty quotes. It
// fails at a comment, a second statement, an open quote or an unbalanced
// parenthesis.
func strip(sql string, d Dialect) ([]string, error) {
	var words []string
	depth := 0
	for len(sql) > 0 {
		c, size := sql[0], 1
		switch {
		case strings.HasPrefix(sql, "/*"), strings.HasPrefix(sql, "-- "), strings.HasPrefix(sql, "--") && d == SQLite, c == '#' && d == MySQL:
			return nil, errors.New("comment")
		case c == ';', c == 0:
			return nil, errors.New("second statement")
		case c == '\'', c == '"', c == '`':
			if size = quotedSize(sql, d == MySQL && c != '`'); size == 0 {
				return nil, errors.New("open quote")
			}
			words = append(words, string(c)+string(c))
		case isNamePart(c):
			for size < len(sql) && isNamePart(sql[size]) {
				size++
			}
			words = append(words, strings.ToUpper(sql[:size]))
		case c != ' ':
			words = append(words, string(c))
		}
		switch c {
		case '(':
			depth++
		case ')':
			if depth--; depth < 0 {
				return nil, errors.New("a parenthesis closes nothing")
			}
		}
		sql = sql[size:]
	}
	if depth != 0 {
		return nil, errors.New("a parenthesis is never closed")
	}
	return words, nil
}

// quotedSize is the length of the quoted run that sql begins with, 0 if it is
// never closed.
func quotedSize(sql string, backslashEscapes bool) int {
	for i := 1; i < len(sql); i++ {
		switch {
		case sql[i] == '\\' && backslashEscapes:
			i++
		case sql[i] == sql[0] && i+1 < len(sql) && sql[i+1] == sql[0]:
			i++
		case sql[i] == sql[0]:
			return i + 1
		}
	}
	return 0
}
