package mysqlsession

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Variable is a session variable that toc sets on each connection.
type Variable struct {
	// Name is the variable's; on MySQL and MariaDB, unless Only names one of them.
	Name string
	// Only is "", "MariaDB" or "MySQL" with the lowest version as its comments have it: "MySQL 80013".
	Only string
	// Value is its value as SQL. The limits of a pool are an example; see Limits.
	Value string
	// Why says what goes wrong with another value.
	Why string
}

// setting is a Variable with all that is needed to set and to compare it.
type setting struct {
	Variable
	statement string   // sets it, in the place of SET name=value
	aliases   []string // other names, of older and newer servers
	shown     string   // what SHOW VARIABLES gives, if it is not the value without quotes
	unread    bool     // SHOW VARIABLES does not give what was set
	perPool   bool     // it follows Limits
}

const (
	onMariaDB = "MariaDB"
	onMySQL   = "MySQL 80000"
	unlimited = "18446744073709551615"
)

// settings lists the variables with the values for a pool. sql_mode is the first.
func settings(limits Limits) []setting {
	v := func(name, value, why string) setting {
		return setting{Variable: Variable{Name: name, Value: value, Why: why}}
	}
	only := func(kind, name, value, why string) setting {
		s := v(name, value, why)
		s.Only = kind
		return s
	}
	by := func(statement string, s setting, aliases ...string) setting {
		s.statement, s.aliases = statement, append(aliases, s.aliases...)
		return s
	}
	shown := func(as string, s setting) setting { s.shown = as; return s }
	unread := func(s setting) setting { s.unread = true; return s }
	limit := func(s setting) setting { s.perPool = true; return s }

	const waits = "callers share a transaction, so it must not wait long for one row"
	lockWait := int(limits.LockWait / time.Second)
	wait, mySQLWait := strconv.Itoa(lockWait), strconv.Itoa(max(lockWait, 1))
	isolation := "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED,READ WRITE"
	names := "SET NAMES utf8mb4 COLLATE utf8mb4_bin"

	return []setting{
		v("sql_mode", "'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'",
			"other modes cut texts, truncate times, or read `\"` and `\\` in another way"),
		by(isolation, shown("READ-COMMITTED", v("transaction_isolation", "'READ-COMMITTED'",
			"locks of other levels block inserts beside a row and cause deadlocks")), "tx_isolation"),
		by(isolation, shown("OFF", v("transaction_read_only", "0", "writes are refused")), "tx_read_only"),
		by(names, v("character_set_client", "utf8mb4", "in some character sets a quote hides in a letter"), "names", "character set", "charset"),
		by(names, v("character_set_connection", "utf8mb4", "texts lose letters")),
		by(names, v("character_set_results", "utf8mb4", "texts come back with `?` for letters")),
		by(names, v("collation_connection", "utf8mb4_bin", "keys that differ in case or accents are taken for one")),
		shown("ON", v("autocommit", "1", "a single statement is answered and never committed")),
		shown("NO_CHAIN", v("completion_type", "0", "a COMMIT begins the next transaction, or ends the connection")),
		shown("ON", v("unique_checks", "1", "a `dedup_key` may be stored twice")),
		shown("ON", v("foreign_key_checks", "1", "constraints of your own are not checked")),
		shown("OFF", v("sql_safe_updates", "0", "updates without a key, and multi-table ones, are refused")),
		v("sql_select_limit", unlimited, "a read ends after so many rows, and tasks are overlooked"),
		v("max_join_size", unlimited, "long reads are refused"),
		shown("ON", v("sql_big_selects", "1", "long reads are refused; set after `max_join_size`, which changes it")),
		shown("OFF", v("sql_auto_is_null", "0", "`IS NULL` finds the last inserted row")),
		v("max_sort_length", "1024", "texts are sorted by their first bytes only"),
		v("sort_buffer_size", "2097152", "sorts of long rows fail for want of memory"),
		by("", shown("InnoDB", v("default_storage_engine", "InnoDB", "the table of the migrations' versions has no transactions")),
			"storage_engine"),
		v("time_zone", "'+00:00'", "times shift by hours"),
		unread(v("timestamp", "DEFAULT", "the clock of the session stands still")),
		v("wait_timeout", "28800", "the server closes connections that the pool means to keep"),
		v("net_read_timeout", "30", "the server gives up on a slow network"),
		v("net_write_timeout", "60", "the server gives up on a slow reader"),

		limit(only(onMariaDB, "lock_wait_timeout", wait, waits)),
		limit(only(onMariaDB, "innodb_lock_wait_timeout", wait, waits)),
		limit(only(onMariaDB, "max_statement_time", fmt.Sprintf("%.3f", limits.Statement.Seconds()),
			"statements are killed too early, or hang; in seconds")),
		only(onMariaDB, "idle_transaction_timeout", "0", "the server closes a connection in the middle of a transaction"),
		only(onMariaDB, "idle_write_transaction_timeout", "0", "as above"),
		only(onMariaDB, "idle_readonly_transaction_timeout", "0", "as above"),
		shown("ON", only(onMariaDB, "check_constraint_checks", "1", "rows are taken into a wrong table")),
		shown("OFF", only(onMariaDB, "sql_if_exists", "0", "migrations pass over what is missing")),
		only(onMariaDB, "alter_algorithm", "'DEFAULT'", "an ALTER of a migration is refused, or copies each table"),
		only(onMariaDB, "old_mode", "''", "old rules for character sets, times and ALTER are in force"),
		shown("OFF", only(onMariaDB, "skip_replication", "0", "replicas skip the writes, and a fail-over loses them")),
		only(onMariaDB, "tmp_disk_table_size", unlimited, "groups and sorts fail as if the disk were full"),
		only(onMariaDB, "max_session_mem_used", "9223372036854775807", "statements fail for want of memory"),
		only(onMariaDB, "in_predicate_conversion_threshold", "1000",
			"a list of ids is read by a join, not by the index that the statement names"),

		limit(only(onMySQL, "lock_wait_timeout", mySQLWait, waits+"; a second is MySQL's minimum")),
		limit(only(onMySQL, "innodb_lock_wait_timeout", mySQLWait, waits+"; a second is MySQL's minimum")),
		limit(only(onMySQL, "max_execution_time", strconv.FormatInt(limits.Statement.Milliseconds(), 10),
			"reads are killed too early, or hang; in milliseconds")),
		only("MySQL 80003", "resultset_metadata", "FULL", "answers come without the types of their columns"),
		shown("OFF", only("MySQL 80013", "use_secondary_engine", "OFF", "reads come from a copy that is behind")),
		shown("OFF", only(onMySQL, "old_alter_table", "0", "an ALTER of a migration copies each table")),
		only(onMySQL, "range_optimizer_max_mem_size", "8388608", "a list of ids is read by a scan of the whole table"),
	}
}

func (s setting) assignment() string { return s.Name + "=" + s.Value }

// comment hides SQL from the servers that do not have the variable. MariaDB skips comments with versions from 50700
// to 99999.
func (s setting) comment(text string) string {
	switch kind, version, _ := strings.Cut(s.Only, " "); kind {
	case "MariaDB":
		return "/*M!" + text + "*/"
	case "MySQL":
		return "/*!" + version + " " + text + "*/"
	}
	return text
}

// sql sets the variable alone.
func (s setting) sql() string {
	switch {
	case s.statement != "":
		return s.statement
	case s.Only != "": // a comment alone is an empty statement, which is an error
		return "DO 0;" + s.comment("SET "+s.assignment())
	}
	return "SET " + s.assignment()
}

// right is the value for a ParamError; "": Limits decides it.
func (s setting) right() string {
	if s.perPool {
		return ""
	}
	return s.Value
}

func (s setting) names() []string { return append([]string{s.Name}, s.aliases...) }

// want is the value as SHOW VARIABLES gives it.
func (s setting) want() string {
	if s.shown != "" {
		return s.shown
	}
	return strings.Trim(s.Value, "'")
}

// fault says what is wrong with the value that a session has, given the answer of SHOW VARIABLES; "" if nothing is, or
// the server has no such variable.
func (s setting) fault(given map[string]string) string {
	if s.unread || s.isForeign(isMariaDB(given["version"])) {
		return ""
	}
	for _, name := range s.names() {
		if is, ok := given[name]; ok && !isSame(is, s.want()) {
			return fmt.Sprintf("%s is %q, and toc needs %s: else %s", name, is, s.want(), s.Why)
		}
	}
	return ""
}

// isForeign reports whether the server is not of the kind that has the variable.
func (s setting) isForeign(mariaDB bool) bool {
	return s.Only != "" && (s.Only == onMariaDB) != mariaDB
}

// isSame compares numbers as numbers, and sets of words in any order.
func isSame(a, b string) bool {
	x, errX := strconv.ParseFloat(a, 64)
	y, errY := strconv.ParseFloat(b, 64)
	if errX == nil && errY == nil {
		return x == y
	}
	words := func(text string) []string {
		list := strings.Split(strings.ToUpper(text), ",")
		slices.Sort(list)
		return list
	}
	return slices.Equal(words(a), words(b))
}
