package sqladmin

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// rebuilt is what a database would be sent.
func rebuilt(t *testing.T, query string) string {
	t.Helper()
	tokens, err := tokenize(query)
	require.NoError(t, err, query)
	return render(tokens)
}

func TestTokensAreRebuiltWithoutCommentsAndDoubleQuotes(t *testing.T) {
	for query, want := range map[string]string{
		"":                                    "",
		" \t\r\n ":                            "",
		"a  +\n\tb":                           "a + b",
		"a/* c */b -- d\nc # e\nd":            "a b c d",
		"a--":                                 "a",
		"a --\nb":                             "a b",
		`"it's" 'a"b' "a""b" 'a''b'`:          `'it''s' 'a"b' 'a"b' 'a''b'`,
		`'a;b' "/* x */" '-- y' '#'`:          `'a;b' '/* x */' '-- y' '#'`,
		`'back\\slash' '\%' 'a\\''b' "\\"`:    `'back\\slash' '\%' 'a\\''b' '\\'`,
		"`a``b` `;` `--`":                     "`a``b` `;` `--`",
		"1 1.5 .5 1. 1e5 1E-5 0xfF x'0a' X''": "1 1.5 .5 1. 1e5 1E-5 0xfF x'0a' X''",
	} {
		require.Equal(t, want, rebuilt(t, query), query)
	}
}

func TestTokensAreCutByKind(t *testing.T) {
	tokens, err := tokenize("SeLeCt t.`x y`,'s'<=>1.5e3>=x'ff'->>a$1")
	require.NoError(t, err)
	type cut struct {
		kind  tokenKind
		raw   string
		value string
	}
	var got []cut
	for _, tok := range tokens {
		got = append(got, cut{tok.kind, tok.raw, tok.value})
	}
	require.Equal(t, []cut{
		{word, "SeLeCt", "SELECT"}, {word, "t", "T"}, {op, ".", "."}, {quoted, "`x y`", "x y"}, {op, ",", ","},
		{text, "'s'", "s"}, {op, "<=>", "<=>"}, {number, "1.5e3", "1.5e3"}, {op, ">=", ">="}, {hex, "x'ff'", "x'ff'"},
		{op, "->>", "->>"}, {word, "a$1", "A$1"},
	}, got)
	require.Equal(t, 7, tokens[1].offset)
	require.True(t, tokens[1].space)
	require.False(t, tokens[2].space)
}

// TestAmbiguousTokensAreRefused: each of these is cut differently by MySQL and
// SQLite, or has no place in a query over shards.
func TestAmbiguousTokensAreRefused(t *testing.T) {
	for query, problem := range map[string]string{
		`'it\'s'`:           "backslash before a quote",
		`'it\"s'`:           "backslash before a quote",
		`"it\'s"`:           "backslash before a quote",
		`'a\\\'b'`:          "backslash before a quote",
		`'open`:             "never closed",
		`"open`:             "never closed",
		"`open":             "never closed",
		"'a''":              "never closed",
		"/* open":           "never closed",
		"/*/":               "never closed",
		"a --b":             "-- must be followed by a space",
		"5--5":              "-- must be followed by a space",
		"/*! SQL */":        "executable comment",
		"/*!50000 SQL */":   "executable comment",
		"/*M!100100 SQL */": "executable comment",
		"/*+ HINT */":       "optimizer hints",
		"a = @b":            "variables",
		"@@version":         "variables",
		"a = ?":             "parameters",
		"a = :b":            "parameters",
		"[a]":               "`name`",
		"{d '2025-01-01'}":  "ODBC",
		`\N`:                "backslash",
		"$a":                "cannot begin with $",
		"1abc":              "neither a number nor a name",
		"0b11":              "neither a number nor a name",
		"1_000":             "neither a number nor a name",
		"0x":                "neither a number nor a name",
		"_utf8'a'":          "side by side",
		"N'a'":              "side by side",
		"b'1'":              "side by side",
		"a\"b\"":            "side by side",
		"x'0g'":             "hexadecimal",
		"``":                "cannot be empty",
		"a\x00b":            "NUL",
		"'\x00'":            "NUL",
		"'\xff'":            "UTF-8",
		"a \x01 b":          "no meaning",
	} {
		_, err := tokenize(query)
		var bad *SyntaxError
		require.ErrorAs(t, err, &bad, query)
		require.Contains(t, bad.Error(), problem, query)
	}
}
