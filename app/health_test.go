package app_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/sharding"
)

// logbook is a log that a test reads.
type logbook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// metric gives a series of a scrape, and whether it is there.
func metric(t testing.TB, c *center, series string) (value float64, there bool) {
	t.Helper()
	for line := range strings.Lines(scrape(t, c)) {
		if rest, ok := strings.CutPrefix(line, series+" "); ok {
			value, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			require.NoError(t, err)
			return value, true
		}
	}
	return 0, false
}

// A database that is down is told at once and by everything, and nothing says that it is better before it is. Before, with
// the server stopped and tasks overdue, toc_oldest_overdue_seconds read 0, toc_last_scan_timestamp_seconds was fresh, and
// the log said that the database was scanned again.
func TestADatabaseThatIsDownIsTold(t *testing.T) {
	t.Parallel()
	cfg := fewTables(t)
	shared, private := testrig.MySQL(t), testrig.StartMySQL(t, testrig.BufferPool("64M"))
	cfg.Store.Driver = configs.DriverMySQL
	cfg.Store.MySQL.DSNs = []string{fmt.Sprintf(shared.DSN(), 0), fmt.Sprintf(private.DSN(), 1)}
	require.NoError(t, app.Migrate(t.Context(), cfg, nil, nil))
	log := &logbook{}
	c := run(t, cfg, app.WithProcessor("ledger", newLedger()), app.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
	is := func(series string, want float64) {
		t.Helper()
		await.That(t, func() bool { v, _ := metric(t, c, series); return v == want }, "%s is %v", series, want)
	}
	above := func(series string, least float64) {
		t.Helper()
		await.That(t, func() bool { v, _ := metric(t, c, series); return v > least }, "%s is above %v", series, least)
	}
	logged := func(text string) (n int) { // of database 1
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, text) && strings.Contains(line, "database=1") {
				n++
			}
		}
		return n
	}
	is(`toc_database_up{database="1"}`, 1)
	above(`toc_last_scan_timestamp_seconds{database="1"}`, 0)
	const oldest, down = `toc_oldest_overdue_seconds{biz_type="order_close"}`, `toc_degraded{database="1",reason="database_down"}`
	is(oldest, 0)

	private.Kill()
	is(`toc_database_up{database="1"}`, 0)
	is(down, 1)
	scanned, _ := metric(t, c, `toc_last_scan_timestamp_seconds{database="1"}`)
	above(oldest, 3)
	later, _ := metric(t, c, `toc_last_scan_timestamp_seconds{database="1"}`)
	require.Equal(t, scanned, later, "what was not read was not scanned")
	above(`toc_last_scan_timestamp_seconds{database="0"}`, later)
	is(`toc_database_up{database="0"}`, 1)
	require.Zero(t, logged("is scanned again"))
	require.Zero(t, logged("answers again"))
	await.That(t, func() bool { return logged("database is out of reach") == 1 }, "it is logged once")

	private.Start()
	is(`toc_database_up{database="1"}`, 1)
	is(oldest, 0)
	await.That(t, func() bool { _, there := metric(t, c, down); return !there }, "%s is gone", down)
	await.That(t, func() bool { return logged("answers again") > 0 }, "it is logged")
	above(`toc_last_scan_timestamp_seconds{database="1"}`, later)
}

// Tasks whose biz_type is not configured stay pending, and this is reported.
func TestTasksOfAnUnknownBizTypeAreTold(t *testing.T) {
	t.Parallel()
	cfg := fewTables(t)
	other := configs.DefaultBizType()
	other.ID, other.Name, other.Processor = 77, "gone_soon", "ledger"
	both := cfg
	both.BizTypes = append(both.BizTypes, other)
	before := run(t, both, app.WithProcessor("ledger", newLedger()))
	for i := range uint64(3) {
		_, err := before.Desk().Submit(t.Context(), intake.Submit{BizType: "gone_soon", BizID: i, When: intake.In(10 * time.Minute)})
		require.NoError(t, err)
	}
	require.NoError(t, before.stop())
	list, err := app.Databases(cfg, false)
	require.NoError(t, err)
	defer func() { require.NoError(t, app.CloseDatabases(list)) }()
	for _, d := range list {
		for table := range cfg.Store.TablesPerDatabase {
			_, err := d.DB.Exec("UPDATE " + sharding.TableName(table) + " SET action_time = '2026-01-01 00:00:00.000' WHERE biz_type = 77")
			require.NoError(t, err)
		}
	}
	c := run(t, cfg, app.WithProcessor("ledger", newLedger()))
	await.That(t, func() bool { v, _ := metric(t, c, `toc_unknown_type_pending{biz_type="77"}`); return v == 3 }, "three are counted")
	awaitTrouble(t, c, "3 overdue tasks have biz_type 77, which is not configured: they stay pending")
	await.That(t, func() bool { v, _ := metric(t, c, `toc_degraded{database="",reason="unknown_type"}`); return v == 1 }, "it is a trouble")
}

// Before, every submit was answered 503, /readyz said that all was well, and the log said nothing.
func TestADatabaseThatRefusesWritesIsReported(t *testing.T) {
	t.Parallel()
	cfg := onMySQL(t, fewTables(t))
	c := run(t, cfg, app.WithProcessor("ledger", newLedger()))
	degraded := func() string { _, said := readiness(t, c); return said }
	submit := func() error {
		_, err := c.Desk().Submit(context.Background(), intake.Submit{BizType: "order_close", BizID: 0, When: intake.In(time.Hour)})
		return err
	}
	require.NoError(t, submit())
	require.NotContains(t, degraded(), "refuses writes")
	list, err := app.Databases(cfg, false)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, app.CloseDatabases(list)) })
	// It answers, and takes no rows: as with a full disk.
	for _, table := range []string{"timeout_task_0000", "toc_meta"} {
		_, err = list[0].DB.Exec("CREATE TRIGGER full_" + table + " BEFORE INSERT ON " + table +
			" FOR EACH ROW SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1114, MESSAGE_TEXT = 'The table is full'")
		require.NoError(t, err)
	}
	require.Error(t, submit())
	await.That(t, func() bool {
		said := degraded()
		return strings.Contains(said, "database 0 refuses writes: ") && !strings.Contains(said, "database 1 refuses")
	}, "it is reported")
	for _, table := range []string{"timeout_task_0000", "toc_meta"} {
		_, err = list[0].DB.Exec("DROP TRIGGER full_" + table)
		require.NoError(t, err)
	}
	await.That(t, func() bool { return !strings.Contains(degraded(), "refuses writes") }, "it takes writes again, though nobody submits")
	require.NoError(t, submit())
}
