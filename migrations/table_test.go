package migrations_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/migrations"
	"github.com/timeoutcenter/toc/sharding"
)

// The row of these tests: biz_id 30 is in database 2, table 7 of the small layout.
const (
	testBiz      = 30
	testDatabase = 2
	testTable    = "timeout_task_0007"
)

func testJob(t testing.TB, n int) uint64 {
	require.Equal(t, testDatabase, small.Database(small.Shard(testBiz)))
	require.Equal(t, testTable, sharding.TableName(small.Table(small.Shard(testBiz))))
	id, err := sharding.JobID(sharding.Epoch.Add(time.Duration(n)*time.Millisecond), small.Shard(testBiz), sharding.HandWorker)
	require.NoError(t, err)
	return id
}

func TestHandMadeInsertNeedsFourColumns(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		db := p.migrated(t, small).Databases[testDatabase].DB
		exec(t, db, fmt.Sprintf("INSERT INTO %s (job_id, biz_id, biz_type, action_time) VALUES (%d, %d, 1, '2030-01-02 03:04:05')",
			testTable, testJob(t, 0), testBiz))

		var (
			status, attempts     int
			attribute, lastError string
			dedup                sql.NullString
		)
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT status, attempts, attribute, last_error, dedup_key FROM "+testTable).
			Scan(&status, &attempts, &attribute, &lastError, &dedup))
		require.Zero(t, status)
		require.Zero(t, attempts)
		require.Empty(t, attribute)
		require.Empty(t, lastError)
		require.False(t, dedup.Valid)

		for _, column := range []string{"gmt_create", "gmt_modified"} {
			at, err := time.Parse("2006-01-02 15:04:05.000", texts(t, db, "SELECT CONCAT("+column+", '') FROM "+testTable)[0])
			require.NoError(t, err)
			require.WithinDuration(t, time.Now(), at, time.Minute, "%s is UTC, with milliseconds", column)
		}
	})
}

func TestDefaultsAreUTCWhateverTheSessionSays(t *testing.T) {
	p := mysqlPlace(t)
	db := p.migrated(t, small).Databases[testDatabase].DB
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.ExecContext(t.Context(), "SET time_zone = '+05:00'")
	require.NoError(t, err)
	_, err = conn.ExecContext(t.Context(), "INSERT INTO "+testTable+" (job_id, biz_id, biz_type, action_time) VALUES (?, ?, 1, '2030-01-01')",
		testJob(t, 0), testBiz)
	require.NoError(t, err)

	var created, modified time.Time
	require.NoError(t, conn.QueryRowContext(t.Context(), "SELECT gmt_create, gmt_modified FROM "+testTable).Scan(&created, &modified))
	require.WithinDuration(t, time.Now(), created, time.Minute)
	require.WithinDuration(t, time.Now(), modified, time.Minute)
}

// TestChecks has one row per way to write what no engine would find or read.
// Each is the good row with one column changed; the error must say what is wrong.
func TestChecks(t *testing.T) {
	good := map[string]string{
		"job_id": "", "biz_id": "30", "biz_type": "1", "action_time": "'2030-01-02 03:04:05.678'",
		"status": "0", "attempts": "0", "attribute": "'a'", "last_error": "''", "dedup_key": "NULL", "due_time": "NULL",
	}
	both := []migrations.Dialect{migrations.MySQL, migrations.SQLite}
	lite := []migrations.Dialect{migrations.SQLite}
	const badTime = "action_time must be UTC as YYYY-MM-DD HH:MM:SS.mmm"
	cases := []struct {
		column, value string
		dialects      []migrations.Dialect
		message       string
	}{
		{"status", "1", both, "status_must_be_0_2_3_or_4_in_0007"},
		{"status", "5", both, "status_must_be_0_2_3_or_4_in_0007"},
		{"status", "-1", both, "status_must_be_0_2_3_or_4_in_0007"},
		{"job_id", "42", both, "job_id_must_be_63_bits_with_shard_23"},
		{"job_id", fmt.Sprint(24 << 10), both, "job_id_must_be_63_bits_with_shard_23"},
		{"job_id", fmt.Sprint(uint64(1)<<63 | 23<<10), both[:1], "job_id_must_be_63_bits_with_shard_23"},
		{"job_id", fmt.Sprint(-1<<63 | 23<<10), lite, "job_id_must_be_63_bits_with_shard_23"},
		{"biz_id", "31", both, "biz_id_must_belong_to_database_2_table_0007"},
		{"biz_id", "26", both, "biz_id_must_belong_to_database_2_table_0007"},
		{"action_time", "NULL", both, "action_time"},
		{"action_time", "'2030-01-02T03:04:05Z'", lite, badTime},
		{"action_time", "'2030-01-02T03:04:05'", lite, badTime},
		{"action_time", "'2030-01-02 03:04:05Z'", lite, badTime},
		{"action_time", "'2030-01-02 03:04:05+02:00'", lite, badTime},
		{"action_time", "'2030-01-02 03:04:05.'", lite, badTime},
		{"action_time", "'2030-01-02 03:04:05.1x'", lite, badTime},
		{"action_time", "'2030-01-02'", lite, badTime},
		{"action_time", "'2030-02-30 03:04:05'", lite, badTime},
		{"action_time", "'2030-01-02 24:00:00'", lite, badTime},
		{"action_time", "''", lite, badTime},
		{"action_time", "1893553445", lite, badTime},
		{"due_time", "'2030-01-02 03:04:05Z'", lite, "due_time must be UTC as YYYY-MM-DD HH:MM:SS.mmm"},
		{"due_time", "'2030-01-02 03:04:05+02:00'", lite, "due_time must be UTC as YYYY-MM-DD HH:MM:SS.mmm"},
		{"due_time", "'2030-01-02 24:00:00'", lite, "due_time must be UTC as YYYY-MM-DD HH:MM:SS.mmm"},
		{"due_time", "''", lite, "due_time must be UTC as YYYY-MM-DD HH:MM:SS.mmm"},
		{"attempts", "256", lite, "attempts_must_be_0_to_255"},
		{"attempts", "-1", lite, "attempts_must_be_0_to_255"},
		{"attempts", "256", both[:1], "attempts"},
		{"attribute", "NULL", both, "attribute"},
		{"attribute", quoted(4097), lite, "attribute_is_over_4096_characters"},
		{"attribute", quoted(4097), both[:1], "attribute"},
		{"last_error", quoted(256), lite, "last_error_is_over_255_characters"},
		{"last_error", quoted(256), both[:1], "last_error"},
		{"dedup_key", quoted(65), lite, "dedup_key_is_over_64_characters"},
		{"dedup_key", quoted(65), both[:1], "dedup_key"},
		{"biz_type", "'order_close'", both, "biz_type"},
	}
	onEach(t, func(t *testing.T, p place) {
		db := p.migrated(t, small).Databases[testDatabase].DB
		insert := func(n int, column, value string) error {
			var columns, values []string
			for c, v := range good {
				if c == "job_id" {
					v = fmt.Sprint(testJob(t, n))
				}
				if c == column {
					v = value
				}
				columns, values = append(columns, c), append(values, v)
			}
			_, err := db.ExecContext(t.Context(), fmt.Sprintf("INSERT INTO %s (%s) VALUES (%s)",
				testTable, strings.Join(columns, ", "), strings.Join(values, ", ")))
			return err
		}
		require.NoError(t, insert(0, "", ""), "the good row is good")
		for n, c := range cases {
			for _, dialect := range c.dialects {
				if dialect == p.dialect {
					require.ErrorContains(t, insert(n+1, c.column, c.value), c.message, "%s = %.40s", c.column, c.value)
				}
			}
		}
		for n, fine := range []struct{ column, value string }{
			{"action_time", "'2030-01-02 03:04:05'"}, {"action_time", "'2030-01-02 03:04:05.1'"},
			{"action_time", "'2030-12-31 23:59:59.999999'"}, {"action_time", "'2028-02-29 00:00:00.000'"},
			{"status", "2"}, {"status", "3"}, {"status", "4"}, {"attempts", "255"},
			{"attribute", quoted(4096)}, {"last_error", quoted(255)}, {"dedup_key", quoted(64)},
		} {
			require.NoError(t, insert(1000+n, fine.column, fine.value), "%s = %.40s", fine.column, fine.value)
		}
		_, err := db.ExecContext(t.Context(), "UPDATE "+testTable+" SET status = 1")
		require.ErrorContains(t, err, "status_must_be_0_2_3_or_4_in_0007", "an UPDATE is checked, too")
	})
}

func quoted(characters int) string { return "'" + strings.Repeat("ä", characters) + "'" }

func TestEveryBizIDFitsItsTableOnly(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		cfg := p.migrated(t, small)
		for n, biz := range []uint64{0, 1, 2, 3, 4, 31, 32, 1<<63 - 1, 1 << 63, 1<<64 - 1, 1<<64 - 30} {
			home := small.Shard(biz)
			for shard := range small.Shards() {
				job, err := sharding.JobID(sharding.Epoch.Add(time.Duration(n)*time.Millisecond), shard, 0)
				require.NoError(t, err)
				var id any = biz
				if p.dialect == migrations.SQLite {
					id = int64(biz)
				}
				_, err = cfg.Databases[small.Database(shard)].DB.ExecContext(t.Context(),
					"INSERT INTO "+sharding.TableName(small.Table(shard))+" (job_id, biz_id, biz_type, action_time) VALUES (?, ?, 1, '2030-01-01 00:00:00.000')", job, id)
				if shard == home {
					require.NoError(t, err, "biz_id %d in shard %d", biz, shard)
				} else {
					require.ErrorContains(t, err, "biz_id_must_belong_to", "biz_id %d in shard %d", biz, shard)
				}
			}
		}
	})
}

func TestDedupIdentityIsByteByByte(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		db := p.migrated(t, small).Databases[testDatabase].DB
		n := 0
		insert := func(key any) error {
			n++
			_, err := db.ExecContext(t.Context(), "INSERT INTO "+testTable+
				" (job_id, biz_id, biz_type, action_time, dedup_key) VALUES (?, ?, 1, '2030-01-01 00:00:00', ?)", testJob(t, n), testBiz, key)
			return err
		}
		for _, key := range []any{"a", "A", "a ", " a", "ä", "a\u0308", "", nil, nil} {
			require.NoError(t, insert(key), "%q", key)
		}
		require.ErrorContains(t, insert("a"), "biz_id", "the same bytes again are a duplicate")
		require.Error(t, insert(""))
	})
}

func TestColumnsAreTheSameOnBothDialects(t *testing.T) {
	columns := map[migrations.Dialect]string{
		migrations.SQLite: "SELECT name FROM pragma_table_info('" + testTable + "') ORDER BY cid",
		migrations.MySQL: "SELECT column_name FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '" +
			testTable + "' ORDER BY ordinal_position",
	}
	onEach(t, func(t *testing.T, p place) {
		db := p.migrated(t, small).Databases[testDatabase].DB
		require.Equal(t, []string{"job_id", "gmt_create", "gmt_modified", "biz_id", "biz_type", "status", "action_time",
			"attribute", "attempts", "last_error", "dedup_key",
			"due_time", "timeout_ms", "lease", "trace", "biz_key", "errors"}, texts(t, db, columns[p.dialect]))
	})
}

func TestIndexNames(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) {
		db := sqlitePlace(t).migrated(t, small).Databases[testDatabase].DB
		require.ElementsMatch(t, []string{
			migrations.SQLiteIndex(migrations.IndexDue, 7), migrations.SQLiteIndex(migrations.IndexBiz, 7),
		}, texts(t, db, "SELECT name FROM sqlite_master WHERE type = 'index' AND tbl_name = '"+testTable+"'"))
	})
	t.Run("mysql", func(t *testing.T) {
		db := mysqlPlace(t).migrated(t, small).Databases[testDatabase].DB
		require.ElementsMatch(t, []string{migrations.IndexPrimary, migrations.IndexDue, migrations.IndexBiz},
			texts(t, db, "SELECT DISTINCT index_name FROM information_schema.statistics WHERE table_schema = DATABASE() AND table_name = '"+testTable+"'"))
		options := texts(t, db, "SELECT create_options FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = '"+testTable+"'")[0]
		for _, option := range []string{"stats_persistent=1", "stats_auto_recalc=0", "stats_sample_pages=1"} {
			require.Contains(t, strings.ToLower(options), option)
		}
	})
}
