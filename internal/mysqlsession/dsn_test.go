package mysqlsession

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	t.Parallel()
	c, err := Parse("u:%d@tcp(h:1)/toc_%d?readTimeout=7s&connectionAttributes=a:%d0%b0", 5)
	require.NoError(t, err)
	require.Equal(t, []any{"%d", "toc_5", 7 * time.Second}, []any{c.Passwd, c.DBName, c.ReadTimeout})
	require.True(t, c.ParseTime && c.MultiStatements && c.InterpolateParams && c.CheckConnLiveness)
	require.False(t, c.ClientFoundRows || c.ColumnsWithAlias || c.RejectReadOnly)
	require.Equal(t, time.UTC, c.Loc)

	c, err = Parse("u@tcp(db%d:1)/toc", 5)
	require.NoError(t, err)
	require.Equal(t, "db5:1", c.Addr)

	_, err = Parse("u:hush/x", 0)
	require.EqualError(t, err, "is not a MySQL DSN")
}

// A parameter that contradicts toc is named, however it is written; one that says the same is taken.
func TestCheckParams(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"autocommit=0", "autocommit=OFF", "AutoCommit=false", "@@autocommit=0", "@@session.autocommit=0", "session autocommit=0", "`autocommit`=0", "local%20autocommit=0",
		"completion_type=1", "completion_type=CHAIN", "tx_isolation='SERIALIZABLE'", "transaction_isolation=%27REPEATABLE-READ%27",
		"tx_read_only=1", "sql_mode=%27ANSI%27", "sql_mode=", "time_zone=%27SYSTEM%27", "timestamp=1", "unique_checks=0", "sql_select_limit=10",
		"character_set_client=gbk", "collation_connection=utf8mb4_general_ci", "wait_timeout=10", "max_execution_time=0", "max_statement_time=1",
		"innodb_lock_wait_timeout=50", "storage_engine=MEMORY",
		"sql_log_bin=0", "SQL_LOG_BIN=OFF", "binlog_format='STATEMENT'", "enforce_storage_engine=MyISAM",
		"parseTime=false", "loc=Asia%2FShanghai", "loc=Local", "timeTruncate=1s", "multiStatements=false", "interpolateParams=0", "clientFoundRows=true",
		"columnsWithAlias=1", "rejectReadOnly=true", "checkConnLiveness=false", "charset=gbk", "collation=utf8mb4_general_ci", "maxAllowedPacket=1000",
	} {
		err := CheckParams("u:p@tcp(h)/toc_%d?timeout=1s&" + name + "&tls=true")
		var param *ParamError
		require.ErrorAs(t, err, &param, name)
		require.ErrorContains(t, err, "; leave it out", name)
	}
	for _, name := range []string{
		"autocommit=1", "autocommit=ON", "completion_type=NO_CHAIN", "transaction_isolation='READ-COMMITTED'", "time_zone=%27%2B00:00%27",
		"sql_mode=%27NO_ENGINE_SUBSTITUTION,STRICT_ALL_TABLES%27", "unique_checks=true",
		"parseTime=true", "loc=UTC", "multiStatements=True", "interpolateParams=1", "clientFoundRows=false", "charset=utf8mb4", "collation=utf8mb4_bin", "timeTruncate=0s",
		"readTimeout=3s", "compress=true", "tls=skip-verify", "auto_increment_increment=3", "binlog_format=%27ROW%27",
		"sql_log_bin=1", "connectionAttributes=a:b,c:d", "optimizer_switch=%27index_merge=off,mrr=on%27",
	} {
		require.NoError(t, CheckParams("u:p@tcp(h)/toc_%d?"+name), name)
	}
	require.NoError(t, CheckParams("u:?autocommit=0@tcp(h)/toc_%d"), "a password")
	for _, list := range []string{"group_concat_max_len=1024,autocommit=0", "group_concat_max_len=1024%2Csql_log_bin%3D0", "lc_time_names='de_DE';SET%20autocommit=0", "a%2Cautocommit=0"} {
		require.ErrorContains(t, CheckParams("u@tcp(h)/toc_%d?"+list), "write each variable as a parameter of its own", list)
	}
	require.EqualError(t, CheckParams("u@tcp(h)/x?loc=Local"), "has the parameter loc, and toc needs UTC (all times are UTC); leave it out")
}
