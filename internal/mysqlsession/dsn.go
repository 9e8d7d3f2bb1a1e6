package mysqlsession

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

// Parse reads a DSN whose database's name has at most one %d, which becomes the number of the database. It returns it
// with the settings that toc's code needs: UTC everywhere, parsed times, several statements in a round trip. An error
// does not show the DSN, which has a password.
func Parse(dsn string, database int) (*mysql.Config, error) {
	head, name, params := split(dsn)
	if err := checkParams(params); err != nil {
		return nil, err
	}
	parsed, err := mysql.ParseDSN(head + strings.Replace(name, numberVerb, strconv.Itoa(database), 1) + params)
	if err != nil {
		return nil, errors.New("is not a MySQL DSN")
	}
	own(parsed)
	return parsed, nil
}

const numberVerb = "%d"

// Numbers counts the %d in the database's name of a DSN. Passwords and parameters may have others.
func Numbers(dsn string) int {
	_, name, _ := split(dsn)
	return strings.Count(name, numberVerb)
}

// split cuts a DSN as the driver does: the database's name stands after the last slash and before the parameters.
func split(dsn string) (head, name, params string) {
	slash := strings.LastIndexByte(dsn, '/') + 1
	name, params, found := strings.Cut(dsn[slash:], "?")
	if found {
		params = "?" + params
	}
	return dsn[:slash], name, params
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

// fixed are the driver's parameters that own sets or relies on: the values that are right, and why.
var fixed = map[string]struct {
	right []string
	why   string
}{
	"parseTime":         {[]string{"1", "true"}, "times are read as such"},
	"loc":               {[]string{"utc"}, "all times are UTC"},
	"timeTruncate":      {[]string{"0", "0s"}, "a time that is cut fires early"},
	"multiStatements":   {[]string{"1", "true"}, "a transaction is one round trip"},
	"interpolateParams": {[]string{"1", "true"}, "a transaction is one round trip"},
	"clientFoundRows":   {[]string{"0", "false"}, "a compare-and-set counts the rows it changed"},
	"columnsWithAlias":  {[]string{"0", "false"}, "rows are read by the names of columns"},
	"rejectReadOnly":    {[]string{"0", "false"}, "toc follows a fail-over itself"},
	"checkConnLiveness": {[]string{"1", "true"}, "a closed connection must be noticed before a statement is sent"},
	"charset":           {[]string{"utf8mb4", "utf8mb4,utf8"}, "in some character sets a quote hides in a letter"},
	"collation":         {[]string{"utf8mb4_bin"}, "keys are compared byte by byte"},
	"maxAllowedPacket":  {nil, "toc asks the server for it"},
}

// ParamError is a parameter of a DSN that contradicts what toc sets.
type ParamError struct{ Name, Right, Why string }

func (e *ParamError) Error() string {
	if e.Right == "" {
		return fmt.Sprintf("has the parameter %s, which toc sets itself (%s); leave it out", e.Name, e.Why)
	}
	return fmt.Sprintf("has the parameter %s, and toc needs %s (%s); leave it out", e.Name, e.Right, e.Why)
}

// checkParams rejects parameters with another value than toc sets.
func checkParams(params string) error {
	variables := settings(Limits{})
	for param := range strings.SplitSeq(strings.TrimPrefix(params, "?"), "&") {
		name, text, _ := strings.Cut(param, "=")
		value, err := url.QueryUnescape(text)
		if err != nil {
			continue // the driver says so
		}
		if f, ok := fixed[name]; ok {
			if !slices.Contains(f.right, strings.ToLower(value)) {
				return &ParamError{name, slices.Concat(f.right, []string{""})[0], f.why}
			}
			continue
		}
		variable := variableName(name)
		for _, s := range variables {
			if slices.Contains(s.names(), variable) && (s.perPool || !isSame(plain(value), plain(s.want()))) {
				return &ParamError{name, s.right(), s.Why}
			}
		}
	}
	return nil
}

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
	case "OFF", "FALSE", "NO_CHAIN":
		return "0"
	}
	return value
}
