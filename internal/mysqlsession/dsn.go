package mysqlsession

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

// Parse reads the DSN of a database; see Number. It returns it with the settings that toc's code needs: UTC everywhere,
// parsed times, several statements in a round trip. An error does not show the DSN, which has a password.
func Parse(dsn string, database int) (*mysql.Config, error) {
	if err := CheckParams(dsn); err != nil {
		return nil, err
	}
	parsed, err := mysql.ParseDSN(Number(dsn, database))
	if err != nil {
		return nil, errors.New("is not a MySQL DSN")
	}
	own(parsed)
	return parsed, nil
}

const verb = "%d"

// Number writes the number of a database into a DSN that has %d in the address or the name of the database. A user, a
// password or a parameter may have %d, too, which stays.
func Number(dsn string, database int) string {
	login, place, params := split(dsn)
	return login + strings.Replace(place, verb, strconv.Itoa(database), 1) + params
}

// Numbers counts the %d that Number would replace.
func Numbers(dsn string) int {
	_, place, _ := split(dsn)
	return strings.Count(place, verb)
}

// split cuts a DSN as the driver does: the name of the database begins behind the last slash, and the login ends at the
// last @ before that.
func split(dsn string) (login, place, params string) {
	name := strings.LastIndexByte(dsn, '/') + 1
	end := len(dsn)
	if i := strings.IndexByte(dsn[name:], '?'); i >= 0 {
		end = name + i
	}
	at := strings.LastIndexByte(dsn[:name], '@') + 1
	return dsn[:at], dsn[at:end], dsn[end:]
}

// own sets the fields that toc's code rests on.
func own(dsn *mysql.Config) {
	dsn.ParseTime, dsn.Loc = true, time.UTC
	dsn.MultiStatements, dsn.InterpolateParams = true, true
	// The driver escapes parameters itself. That is safe in this character set, and not in some others.
	dsn.Collation = "utf8mb4_bin"
	dsn.ClientFoundRows = false  // a compare-and-set counts the rows it changed
	dsn.ColumnsWithAlias = false // rows are read by the names of columns
	dsn.RejectReadOnly = false   // the store follows a fail-over itself
	dsn.CheckConnLiveness = true // a closed connection is noticed before a statement is sent
	dsn.Logger = &mysql.NopLogger{}
}

// fixed are the driver's parameters that own sets or relies on: the value that is right, and why.
var fixed = map[string]struct{ right, why string }{
	"parseTime":         {"true", "times are read as such"},
	"loc":               {"UTC", "all times are UTC"},
	"timeTruncate":      {"0", "a time that is cut fires early"},
	"multiStatements":   {"true", "a transaction is one round trip"},
	"interpolateParams": {"true", "a transaction is one round trip"},
	"clientFoundRows":   {"false", "a compare-and-set counts the rows it changed"},
	"columnsWithAlias":  {"false", "rows are read by the names of columns"},
	"rejectReadOnly":    {"false", "toc follows a fail-over itself"},
	"checkConnLiveness": {"true", "a closed connection must be noticed before a statement is sent"},
	"charset":           {"utf8mb4", "in some character sets a quote hides in a letter"},
	"collation":         {"utf8mb4_bin", "keys are compared byte by byte"},
	"maxAllowedPacket":  {"", "it asks the server for it"},
}

// ParamError is a parameter of a DSN that contradicts what toc sets.
type ParamError struct{ Name, Right, Why string }

func (e *ParamError) Error() string {
	if e.Right == "" {
		return fmt.Sprintf("has the parameter %s, which toc sets itself (%s); leave it out", e.Name, e.Why)
	}
	return fmt.Sprintf("has the parameter %s, and toc needs %s (%s); leave it out", e.Name, e.Right, e.Why)
}

// CheckParams rejects parameters of a DSN that give a *ParamError.
func CheckParams(dsn string) error {
	_, _, params := split(dsn)
	variables := settings(Limits{})
	for param := range strings.SplitSeq(strings.TrimPrefix(params, "?"), "&") {
		name, text, _ := strings.Cut(param, "=")
		value, err := url.QueryUnescape(text)
		if err != nil {
			continue // the driver says so
		}
		if f, ok := fixed[name]; ok {
			if f.right == "" || plain(value) != plain(f.right) {
				return &ParamError{name, f.right, f.why}
			}
			continue
		}
		variable := variableName(name)
		if name != "connectionAttributes" && strings.ContainsAny(quoted.ReplaceAllString(variable+value, ""), ",;") {
			return fmt.Errorf("has several values in the parameter %s; write each variable as a parameter of its own", name)
		}
		for _, v := range ServerVariables {
			if v.Name == variable && !v.isRight(serverValue(value), map[string]string{"log_bin": "ON"}) {
				return &ParamError{name, v.Right + " for all sessions", "else " + v.Why}
			}
		}
		for _, s := range variables {
			if slices.Contains(s.names(), variable) && (s.perPool || !isSame(plain(value), plain(s.want()))) {
				return &ParamError{name, s.right(), "else " + s.Why}
			}
		}
	}
	return nil
}

// serverValue is a value as SHOW VARIABLES gives it.
func serverValue(value string) string {
	switch plain(value) {
	case "1":
		return "ON"
	case "0":
		return "OFF"
	}
	return strings.Trim(value, `'"`)
}

// quoted is a text in a value.
var quoted = regexp.MustCompile(`'[^']*'|"[^"]*"`)

// variableName is the name of a session variable without the ways to say that it is one.
func variableName(param string) string {
	if unescaped, err := url.QueryUnescape(param); err == nil {
		param = unescaped
	}
	name := strings.ToLower(strings.TrimSpace(strings.ReplaceAll(param, "`", "")))
	name = strings.TrimPrefix(name, "@@")
	for _, scope := range []string{"session", "local"} {
		if rest, ok := strings.CutPrefix(name, scope); ok && rest != "" && (rest[0] == '.' || rest[0] == ' ') {
			name = rest[1:]
		}
	}
	return strings.TrimSpace(name)
}

// plain is a value without quotes, switches as numbers.
func plain(value string) string {
	switch value = strings.ToUpper(strings.Trim(strings.TrimSpace(value), `'"`)); value {
	case "ON", "TRUE":
		return "1"
	case "OFF", "FALSE", "NO_CHAIN", "0S":
		return "0"
	}
	return value
}
