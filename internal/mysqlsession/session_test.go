package mysqlsession

import (
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/await"
)

func connector(t *testing.T) *Connector {
	dsn, err := Parse(strings.TrimSuffix(testrig.MySQL(t).DSN(), "%d")+"?timeout=10s", 0)
	require.NoError(t, err)
	dsn.DBName = ""
	c, err := NewConnector(dsn, Limits{Statement: 10 * time.Second})
	require.NoError(t, err)
	return c
}

// A server may refuse to set a variable for this user. That is an error that names the variable, unless it is right
// already.
func TestRefusedVariable(t *testing.T) {
	t.Parallel()
	c := connector(t)
	var given string
	db := sql.OpenDB(c)
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT @@net_buffer_length").Scan(&given))
	require.NoError(t, db.Close())
	set := func(value string) error {
		one := setting{Variable: Variable{Name: "net_buffer_length", Value: value, Why: "answers are slow"}}
		c.settings = append(settings(Limits{}), one)
		c.setup = c.text()
		conn, err := c.Connect(t.Context())
		if err == nil {
			require.NoError(t, conn.Close())
		}
		return err
	}
	require.NoError(t, set(given))
	require.ErrorContains(t, set("4096"), `net_buffer_length is "`+given+`", and toc needs 4096: else answers are slow, and the server does not let this user change it: Error 1621`)
}

// A connection that the server has closed while it was idle ends without an error.
func TestCloseOfAClosedConnection(t *testing.T) {
	t.Parallel()
	c := connector(t)
	conn, err := c.Connect(t.Context())
	require.NoError(t, err)
	admin := sql.OpenDB(c)
	defer admin.Close()
	_, err = conn.(*Conn).ExecContext(t.Context(), "SET wait_timeout=1", nil)
	require.NoError(t, err)
	await.That(t, func() bool {
		var there bool
		err := admin.QueryRowContext(t.Context(), "SELECT EXISTS (SELECT 1 FROM information_schema.PROCESSLIST WHERE ID=?)", conn.(*Conn).ID).Scan(&there)
		return err == nil && !there
	}, "the connection is gone")
	require.NoError(t, conn.Close())
}

// The size of packets is the server's, without a question of the driver's own.
func TestPacketSize(t *testing.T) {
	t.Parallel()
	c := connector(t)
	db := sql.OpenDB(c)
	defer db.Close()
	var size int
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT @@max_allowed_packet").Scan(&size))
	require.Equal(t, size, c.sized.Load().maxPacket)
	_, err := c.resize(size / 2) // as if it had been smaller when the first connection asked
	require.NoError(t, err)
	conn, err := c.Connect(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	require.Equal(t, size, c.sized.Load().maxPacket)
	_, err = queryText(t.Context(), conn.(*Conn), "SELECT '"+strings.Repeat("x", size-100)+"'")
	require.NoError(t, err)
}

// The settings that writes and durability rest on.
func TestReport(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ given, status, wrong, notDurable string }{
		{"innodb_flush_log_at_trx_commit=1 innodb_doublewrite=ON log_bin=OFF sync_binlog=0 binlog_format=STATEMENT sql_log_bin=OFF", "", "", ""},
		{"innodb_flush_log_at_trx_commit=3", "", "", ""},
		{"innodb_flush_log_at_trx_commit=0", "", "", "innodb_flush_log_at_trx_commit is 0: an answered write may not be on disk; set innodb_flush_log_at_trx_commit=1"},
		{"innodb_flush_log_at_trx_commit=2", "", "", "set innodb_flush_log_at_trx_commit=1"},
		{"log_bin=ON sync_binlog=1 binlog_format=ROW sql_log_bin=ON", "", "", ""},
		{"log_bin=ON sync_binlog=0", "", "", "set sync_binlog=1"},
		{"log_bin=ON sync_binlog=100", "", "", "set sync_binlog=1"},
		{"log_bin=ON binlog_format=STATEMENT", "", "binlog_format is STATEMENT: ", ""},
		{"log_bin=ON binlog_format=MIXED", "", "", ""},
		{"log_bin=ON sql_log_bin=OFF", "", "set sql_log_bin=1", ""},
		{"innodb_doublewrite=OFF", "", "", "innodb_doublewrite is OFF: "},
		{"innodb_doublewrite=DETECT_ONLY", "", "", "innodb_doublewrite is DETECT_ONLY: "},
		{"innodb_doublewrite=DETECT_AND_RECOVER", "", "", ""},
		{"innodb_flush_method=O_DIRECT", "", "", ""},
		{"innodb_flush_method=nosync", "", "", "innodb_flush_method is nosync: "},
		{"enforce_storage_engine=", "", "", ""},
		{"enforce_storage_engine=Aria", "", "enforce_storage_engine is Aria: ", ""},
		{"", "innodb_redo_log_enabled=OFF", "", "the redo log is off"},
		{"", "innodb_redo_log_enabled=ON", "", ""},
		{"rpl_semi_sync_master_enabled=OFF", "rpl_semi_sync_master_status=OFF", "", ""},
		{"rpl_semi_sync_master_enabled=ON", "rpl_semi_sync_master_status=ON", "", ""},
		{"rpl_semi_sync_master_enabled=ON", "rpl_semi_sync_master_status=OFF", "", "semi-synchronous replication is enabled and not in force"},
		{"rpl_semi_sync_source_enabled=ON", "rpl_semi_sync_source_status=OFF", "", "semi-synchronous replication is enabled and not in force"},
		{"version=8.4.0 sql_select_limit=10 max_statement_time=1", "", `sql_select_limit is "10", and toc needs 18446744073709551615: else a read ends after so many rows`, ""},
		{"version=10.11.1-MariaDB max_statement_time=1", "", `max_statement_time is "1", and toc needs 0.000: `, ""},
	} {
		r := report(Limits{}, pairs(c.given), pairs(c.status))
		for want, got := range map[string][]string{"wrong " + c.wrong: r.Wrong, "durable " + c.notDurable: r.NotDurable} {
			if _, want, _ = strings.Cut(want, " "); want == "" {
				require.Empty(t, got, c.given+c.status)
			} else {
				require.Len(t, got, 1, c.given+c.status)
				require.Contains(t, got[0], want)
			}
		}
	}
}

func pairs(text string) map[string]string {
	m := make(map[string]string)
	for pair := range strings.FieldsSeq(text) {
		name, value, _ := strings.Cut(pair, "=")
		m[name] = value
	}
	return m
}
