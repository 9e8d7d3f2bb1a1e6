package sqladmin

import (
	"strings"
	"unicode/utf8"
)

// operators, longest first.
var operators = []string{
	"<=>", "->>",
	"<=", ">=", "<>", "!=", "==", "||", "&&", "<<", ">>", "->",
	"(", ")", ",", ".", ";", "+", "-", "*", "/", "%", "<", ">", "=", "!", "~", "&", "|", "^",
}

// strangers are characters that mean something to only one of the databases, or
// something that a query over shards cannot have.
var strangers = map[byte]string{
	'@':  "user and system variables are not supported",
	'?':  "there are no parameters: write the value itself",
	':':  "there are no parameters or assignments: write the value itself",
	'[':  "write a quoted name as `name`",
	'{':  "ODBC escapes are not supported: write the plain expression",
	'\\': "a backslash may stand only inside a string",
	'$':  "a name cannot begin with $",
}

type lexer struct {
	src string
	pos int
}

// tokenize cuts a query into tokens. It refuses what MySQL and SQLite would cut
// differently, so that both see what was checked.
func tokenize(query string) ([]token, error) {
	if !utf8.ValidString(query) {
		return nil, &SyntaxError{Problem: "the query is not valid UTF-8"}
	}
	if i := strings.IndexByte(query, 0); i >= 0 {
		return nil, &SyntaxError{Offset: i, Problem: "the query contains a NUL character"}
	}
	l := lexer{src: query}
	var tokens []token
	for {
		start := l.pos
		if err := l.skip(); err != nil {
			return nil, err
		}
		if l.pos == len(l.src) {
			return tokens, nil
		}
		space := l.pos > start
		t, err := l.next()
		if err != nil {
			return nil, err
		}
		t.space = space
		tokens = append(tokens, t)
	}
}

// skip passes over white space and comments.
func (l *lexer) skip() error {
	for l.pos < len(l.src) {
		rest := l.src[l.pos:]
		switch {
		case strings.IndexByte(" \t\n\r\f\v", rest[0]) >= 0:
			l.pos++
		case strings.HasPrefix(rest, "/*!"), strings.HasPrefix(rest, "/*M!"):
			return l.fail("/*!", "an executable comment is not allowed", "write the SQL in the open")
		case strings.HasPrefix(rest, "/*+"):
			return l.fail("/*+", "optimizer hints are not supported", "leave the hint out")
		case strings.HasPrefix(rest, "/*"):
			end := strings.Index(rest[2:], "*/")
			if end < 0 {
				return l.fail("/*", "the comment is never closed", "end it with */")
			}
			l.pos += 2 + end + 2
		case strings.HasPrefix(rest, "--"):
			// MySQL reads "--5" as two minus signs, SQLite as a comment.
			if len(rest) > 2 && strings.IndexByte(" \t\n\r\f\v", rest[2]) < 0 {
				return l.fail("--", "-- must be followed by a space to begin a comment", "write -- comment, or - -1 for a double minus")
			}
			l.skipLine()
		case rest[0] == '#':
			l.skipLine()
		default:
			return nil
		}
	}
	return nil
}

func (l *lexer) skipLine() {
	if end := strings.IndexByte(l.src[l.pos:], '\n'); end >= 0 {
		l.pos += end + 1
	} else {
		l.pos = len(l.src)
	}
}

func (l *lexer) next() (token, error) {
	start := l.pos
	c := l.src[start]
	t := token{offset: start}
	var err error
	switch {
	case c == '\'' || c == '"':
		t.kind = text
		t.value, err = l.quote(c)
	case c == '`':
		t.kind = quoted
		t.value, err = l.quote(c)
	case isDigit(c), c == '.' && start+1 < len(l.src) && isDigit(l.src[start+1]):
		t.kind = number
		err = l.number()
	case isNameStart(c):
		t.kind, err = l.word()
	default:
		t.kind = op
		err = l.operator()
	}
	if err != nil {
		return token{}, err
	}
	t.raw = l.src[start:l.pos]
	switch t.kind {
	case word:
		t.value = strings.ToUpper(t.raw)
	case quoted:
		if t.value == "" {
			l.pos = start
			return token{}, l.fail(t.raw, "a name cannot be empty", "")
		}
	case hex, number, op:
		t.value = t.raw
	}
	return t, nil
}

// quote reads a string or a quoted name and returns what is inside. The doubled
// quote is the only way to write a quote that both databases know: a backslash
// is an escape in MySQL and a plain character in SQLite, so one that would
// decide where the string ends is refused.
func (l *lexer) quote(q byte) (string, error) {
	var inside strings.Builder
	backslashes := 0
	for i := l.pos + 1; i < len(l.src); i++ {
		c := l.src[i]
		if q != '`' && (c == '\'' || c == '"') && backslashes%2 == 1 {
			l.pos = i - 1
			return "", l.fail(l.src[i-1:i+1], "a backslash before a quote is read differently by MySQL and SQLite", "double the quote: 'it''s'")
		}
		if c == '\\' {
			backslashes++
		} else {
			backslashes = 0
		}
		if c != q {
			inside.WriteByte(c)
			continue
		}
		if i+1 == len(l.src) || l.src[i+1] != q {
			l.pos = i + 1
			return inside.String(), nil
		}
		inside.WriteByte(q)
		i++
	}
	return "", l.fail(string(q), "the quote is never closed", "end it with "+string(q))
}

func (l *lexer) number() error {
	start := l.pos
	if rest := l.src[l.pos:]; len(rest) > 2 && rest[0] == '0' && (rest[1] == 'x' || rest[1] == 'X') && isHex(rest[2]) {
		l.pos += 2
		l.pass(isHex)
	} else {
		l.pass(isDigit)
		if l.peek(0) == '.' {
			l.pos++
			l.pass(isDigit)
		}
		if e := l.peek(0); e == 'e' || e == 'E' {
			sign := 0
			if s := l.peek(1); s == '+' || s == '-' {
				sign = 1
			}
			if isDigit(l.peek(1 + sign)) {
				l.pos += 1 + sign
				l.pass(isDigit)
			}
		}
	}
	if c := l.peek(0); isNameStart(c) || c == '$' {
		l.pass(isNamePart)
		raw := l.src[start:l.pos]
		l.pos = start
		return l.fail(raw, "neither a number nor a name", "quote a name that begins with a digit: `1st`")
	}
	return nil
}

// word reads a bare name, or x'0A'. Other prefixes of strings (N, b, _utf8) are
// MySQL's alone.
func (l *lexer) word() (tokenKind, error) {
	start := l.pos
	l.pass(isNamePart)
	raw := l.src[start:l.pos]
	switch c := l.peek(0); {
	case c == '\'' && (raw == "x" || raw == "X"):
		digits, err := l.quote('\'')
		if err == nil && strings.TrimFunc(digits, func(r rune) bool { return r < utf8.RuneSelf && isHex(byte(r)) }) != "" {
			l.pos = start
			err = l.fail("x'", "x'...' holds hexadecimal digits only", "")
		}
		return hex, err
	case c == '\'' || c == '"' || c == '`':
		l.pos = start
		return word, l.fail(raw+string(c), "a name and a quote stand side by side", "put a space between them")
	}
	return word, nil
}

func (l *lexer) operator() error {
	rest := l.src[l.pos:]
	for _, o := range operators {
		if strings.HasPrefix(rest, o) {
			l.pos += len(o)
			return nil
		}
	}
	_, size := utf8.DecodeRuneInString(rest)
	if problem, ok := strangers[rest[0]]; ok {
		return l.fail(rest[:size], problem, "")
	}
	return l.fail(rest[:size], "this character has no meaning here", "")
}

func (l *lexer) fail(near, problem, instead string) error {
	return &SyntaxError{Offset: l.pos, Near: near, Problem: problem, Instead: instead}
}

func (l *lexer) peek(ahead int) byte {
	if l.pos+ahead < len(l.src) {
		return l.src[l.pos+ahead]
	}
	return 0
}

func (l *lexer) pass(in func(byte) bool) {
	for l.pos < len(l.src) && in(l.src[l.pos]) {
		l.pos++
	}
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
func isHex(c byte) bool   { return isDigit(c) || c|0x20 >= 'a' && c|0x20 <= 'f' }
func isNameStart(c byte) bool {
	return c|0x20 >= 'a' && c|0x20 <= 'z' || c == '_' || c >= utf8.RuneSelf
}
func isNamePart(c byte) bool { return isNameStart(c) || isDigit(c) || c == '$' }
