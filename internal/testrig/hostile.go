package testrig

import (
	"database/sql"
	"strings"
	"testing"
)

// HostileVariable is a session variable with a value that no program expects and that a server's administrator may set
// for all new sessions.
type HostileVariable struct {
	Name  string
	Value string // as SQL
	// OfSession: it has no global value; init_connect sets it.
	OfSession bool
}

// HostileVariables lists what the server behind db can be made to give to its sessions.
func HostileVariables(t testing.TB, db *sql.DB) []HostileVariable {
	t.Helper()
	var version string
	if err := db.QueryRowContext(t.Context(), "SELECT VERSION()").Scan(&version); err != nil {
		t.Fatal(err)
	}
	list := hostileOnMySQL
	if strings.Contains(version, "MariaDB") {
		list = hostileOnMariaDB
	}
	var all []HostileVariable
	for _, text := range []string{hostileOnBoth, list} {
		for line := range strings.Lines(strings.TrimSpace(text)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			name, ofSession := strings.CutPrefix(name, "init ")
			all = append(all, HostileVariable{name, value, ofSession})
		}
	}
	return all
}

// MakeHostile gives new sessions these values, and an open transaction in another database and character set. They are
// for users who may not administer the server: init_connect is not run for others.
func MakeHostile(t testing.TB, db *sql.DB, list []HostileVariable) {
	t.Helper()
	exec := func(text string, args ...any) {
		if _, err := db.ExecContext(t.Context(), text, args...); err != nil {
			t.Fatalf("testrig: %s: %v", text, err)
		}
	}
	init := []string{"SET NAMES gbk", "USE information_schema"}
	for _, v := range list {
		if v.OfSession {
			init = append(init, "SET "+v.Name+"="+v.Value)
		} else {
			exec("SET GLOBAL " + v.Name + "=" + v.Value)
		}
	}
	exec("SET GLOBAL init_connect=?", strings.Join(append(init, "START TRANSACTION"), ";"))
}

// Values that a session inherits. Each is unlike the default.
const hostileOnBoth = `
autocommit=0
completion_type=1
unique_checks=0
foreign_key_checks=0
sql_safe_updates=1
sql_select_limit=0
max_join_size=1
sql_big_selects=0
sql_auto_is_null=1
sql_buffer_result=1
group_concat_max_len=4
max_sort_length=64
sort_buffer_size=32768
join_buffer_size=128
div_precision_increment=0
default_storage_engine=MEMORY
default_week_format=3
time_zone='-07:00'
init timestamp=1000000000
wait_timeout=1
interactive_timeout=1
net_read_timeout=1
net_write_timeout=1
lock_wait_timeout=5
innodb_lock_wait_timeout=5
tmp_table_size=1024
max_heap_table_size=16384
big_tables=1
sql_notes=0
max_error_count=0
auto_increment_increment=7
auto_increment_offset=3
explicit_defaults_for_timestamp=0
updatable_views_with_limit=0
lc_time_names='de_DE'
lc_messages='de_DE'
character_set_server=latin1
optimizer_switch='index_merge=off,mrr=off,materialization=off,semijoin=off,derived_merge=off'
eq_range_index_dive_limit=1
optimizer_search_depth=1
innodb_strict_mode=0
innodb_table_locks=0
old_alter_table=1
`

const hostileOnMariaDB = `
tx_isolation='SERIALIZABLE'
tx_read_only=1
sql_mode='ORACLE,EMPTY_STRING_IS_NULL,SIMULTANEOUS_ASSIGNMENT,TIME_ROUND_FRACTIONAL,PAD_CHAR_TO_FULL_LENGTH,NO_BACKSLASH_ESCAPES,HIGH_NOT_PRECEDENCE,NO_AUTO_VALUE_ON_ZERO'
max_statement_time=0.5
idle_transaction_timeout=1
idle_write_transaction_timeout=1
idle_readonly_transaction_timeout=1
check_constraint_checks=0
sql_if_exists=1
alter_algorithm='INSTANT'
old_mode='ZERO_DATE_TIME_CAST,NO_DUP_KEY_WARNINGS_WITH_IGNORE'
tmp_disk_table_size=1024
max_session_mem_used=200000
in_predicate_conversion_threshold=2
innodb_snapshot_isolation=1
query_cache_size=16777216
query_cache_type=1
use_stat_tables='NEVER'
join_cache_level=8
init skip_replication=1
`

const hostileOnMySQL = `
transaction_isolation='SERIALIZABLE'
transaction_read_only=1
sql_mode='ANSI,TIME_TRUNCATE_FRACTIONAL,PAD_CHAR_TO_FULL_LENGTH,NO_BACKSLASH_ESCAPES,HIGH_NOT_PRECEDENCE,NO_AUTO_VALUE_ON_ZERO'
max_execution_time=1
init use_secondary_engine=FORCED
range_optimizer_max_mem_size=1
parser_max_mem_size=10000000
sql_require_primary_key=1
sql_generate_invisible_primary_key=1
information_schema_stats_expiry=0
internal_tmp_mem_storage_engine=MEMORY
binlog_row_image='MINIMAL'
cte_max_recursion_depth=0
`
